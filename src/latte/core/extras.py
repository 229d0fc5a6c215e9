"""Third-party packages that only some parts need, imported when they are first used."""

from __future__ import annotations

import importlib
from typing import Any


def need(module: str, extra: str) -> Any:
    """Return the imported ``module``; where it is missing, the error gives the pip line that brings it.

    >>> need("json", "onnx").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        message = f'{package} is not installed (missing: {error.name}); run: pip install "latte-tta[{extra}]"'
        raise ModuleNotFoundError(message, name=error.name) from None
