"""Latte: collaborative test-time adaptation of vision-language models, without labels and without training.

The names below are loaded when they are first used, so ``import latte`` costs next to nothing.
"""

from __future__ import annotations

import importlib

from .version import __version__

TYPE_CHECKING = False  # as good as typing's for a type checker, and typing takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .checks import check_exchange, check_method
    from .core import (
        Collaborative,
        Exchange,
        External,
        GlobalMemory,
        LocalMemory,
        Method,
        Prediction,
        Prototypes,
        Routing,
        ZeroShot,
    )
    from .methods import create, create_federation
    from .methods.clip import Clip
    from .methods.latte import Latte, LatteParams, exchange_for

_HOMES = {
    "latte.checks": ("check_exchange", "check_method"),
    "latte.core": (
        "Collaborative",
        "Exchange",
        "External",
        "GlobalMemory",
        "LocalMemory",
        "Method",
        "Prediction",
        "Prototypes",
        "Routing",
        "ZeroShot",
    ),
    "latte.methods": ("create", "create_federation"),
    "latte.methods.clip": ("Clip",),
    "latte.methods.latte": ("Latte", "LatteParams", "exchange_for"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Clip",
    "Collaborative",
    "Exchange",
    "External",
    "GlobalMemory",
    "Latte",
    "LatteParams",
    "LocalMemory",
    "Method",
    "Prediction",
    "Prototypes",
    "Routing",
    "ZeroShot",
    "__version__",
    "check_exchange",
    "check_method",
    "create",
    "create_federation",
    "exchange_for",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'latte' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
