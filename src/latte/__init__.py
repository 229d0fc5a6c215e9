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
        BaseExchange,
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
    from .core.sync import sync
    from .encoders import load_encoder
    from .methods import create, create_exchange, create_federation, describe, register
    from .methods.base import BaseMethod
    from .methods.clip import Clip
    from .methods.latte import Latte, LatteParams
    from .simulation.schedule import Schedule
    from .simulation.simulate import Client, simulate

_HOMES = {
    "latte.checks": ("check_exchange", "check_method"),
    "latte.core": (
        "BaseExchange",
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
    "latte.core.sync": ("sync",),
    "latte.methods": ("create", "create_exchange", "create_federation", "describe", "register"),
    "latte.methods.base": ("BaseMethod",),
    "latte.methods.clip": ("Clip",),
    "latte.methods.latte": ("Latte", "LatteParams"),
    "latte.encoders": ("load_encoder",),
    "latte.simulation.schedule": ("Schedule",),
    "latte.simulation.simulate": ("Client", "simulate"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BaseExchange",
    "BaseMethod",
    "Client",
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
    "Schedule",
    "ZeroShot",
    "__version__",
    "check_exchange",
    "check_method",
    "create",
    "create_exchange",
    "create_federation",
    "describe",
    "load_encoder",
    "register",
    "simulate",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'latte' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
