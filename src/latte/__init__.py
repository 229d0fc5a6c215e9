"""Latte: collaborative test-time adaptation of vision-language models, without labels and without training.

The names below are loaded when they are first used, so ``import latte`` costs next to nothing.
"""

from __future__ import annotations

from .lazy import lazy_names
from .version import __version__

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
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


if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
