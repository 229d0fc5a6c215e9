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
        BaseExchange,
        Collaborative,
        CreatedMethod,
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
    from .core.privacy import Privacy
    from .core.private_client import PrivateClient
    from .core.sync import sync
    from .edge import Answer, classify_pictures
    from .edge.http_exchange import HttpExchange
    from .encoders import load_encoder
    from .errors import InputError, refuse
    from .experiment import run_experiment
    from .methods import create, create_exchange, create_federation, describe, register
    from .methods.base import BaseMethod
    from .methods.clip import Clip
    from .methods.latte import Latte, LatteParams
    from .simulation.schedule import Schedule
    from .simulation.simulator import Client, simulate

_HOMES = {
    "latte.checks": ("check_exchange", "check_method"),
    "latte.core": (
        "BaseExchange",
        "Collaborative",
        "CreatedMethod",
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
    "latte.core.privacy": ("Privacy",),
    "latte.core.private_client": ("PrivateClient",),
    "latte.core.sync": ("sync",),
    "latte.methods": ("create", "create_exchange", "create_federation", "describe", "register"),
    "latte.methods.base": ("BaseMethod",),
    "latte.methods.clip": ("Clip",),
    "latte.methods.latte": ("Latte", "LatteParams"),
    "latte.edge": ("Answer", "classify_pictures"),
    "latte.edge.http_exchange": ("HttpExchange",),
    "latte.encoders": ("load_encoder",),
    "latte.errors": ("InputError", "refuse"),
    "latte.experiment": ("run_experiment",),
    "latte.simulation.schedule": ("Schedule",),
    "latte.simulation.simulator": ("Client", "simulate"),
}

__all__ = [
    "Answer",
    "BaseExchange",
    "BaseMethod",
    "Client",
    "Clip",
    "Collaborative",
    "CreatedMethod",
    "Exchange",
    "External",
    "GlobalMemory",
    "HttpExchange",
    "InputError",
    "Latte",
    "LatteParams",
    "LocalMemory",
    "Method",
    "Prediction",
    "Privacy",
    "PrivateClient",
    "Prototypes",
    "Routing",
    "Schedule",
    "ZeroShot",
    "__version__",
    "check_exchange",
    "check_method",
    "classify_pictures",
    "create",
    "create_exchange",
    "create_federation",
    "describe",
    "load_encoder",
    "refuse",
    "register",
    "run_experiment",
    "simulate",
    "sync",
]


if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
