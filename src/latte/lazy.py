"""Public names of a package that are imported when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # as good as typing's for a type checker, and typing takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of ``package``, whose public names live in the modules ``homes``.

    >>> get, names = lazy_names("json", {"json.scanner": ["make_scanner"]})
    >>> get("make_scanner"), names()
    (<class '_json.Scanner'>, ['JSONDecodeError', 'JSONDecoder', 'JSONEncoder', 'dump', 'dumps', 'load', 'loads'])
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    public = sorted(sys.modules[package].__all__)

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return public  # the API, and nothing else

    return get, names
