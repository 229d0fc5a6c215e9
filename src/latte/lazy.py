"""Public names of a package that are imported when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # as good as typing's for a type checker, and typing takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of ``package``.

    Where its public names live is read from its file, in what it imports under ``if TYPE_CHECKING:``.

    >>> import latte.wire
    >>> get, names = lazy_names("latte.wire")
    >>> get("PRECISIONS")
    ('exact', 'fp32', 'fp16', 'int8', 'int4')
    """
    homes: dict[str, str] = {}
    public = sorted(sys.modules[package].__all__)

    def get(name: str) -> Any:
        module: Any = sys.modules[package]
        if not homes:
            import ast

            tree = ast.parse(module.__spec__.loader.get_source(package))
            block = next(node.body for node in tree.body if isinstance(node, ast.If))
            imports = [node for node in block if isinstance(node, ast.ImportFrom)]
            homes.update({alias.name: "." * node.level + str(node.module) for node in imports for alias in node.names})
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name], package), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return public  # the API, and nothing else

    return get, names
