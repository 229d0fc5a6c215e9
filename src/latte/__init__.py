"""Latte: collaborative test-time adaptation of vision-language models, without labels and without training.

The names below are loaded when they are first used, so ``import latte`` costs next to nothing.
"""

from __future__ import annotations

from .lazy import lazy_names
from .version import __version__

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .checks import check_exchange, check_method
    from .core.exchange import BaseExchange
    from .core.memory import LocalMemory
    from .core.privacy import Privacy, PrivateClient
    from .core.sync import sync
    from .core.types import (
        Collaborative,
        CreatedMethod,
        Exchange,
        External,
        Method,
        Prediction,
        Prototypes,
        Teachable,
        TeachingRights,
    )
    from .core.zero_shot import ZeroShot
    from .edge import Answer, classify_pictures
    from .edge.clients.http import HttpExchange
    from .encoders import load_encoder
    from .errors import InputError, refuse
    from .experiment import run_experiment
    from .methods import create, create_exchange, create_federation, describe, register
    from .methods.base import BaseMethod
    from .methods.clip import Clip
    from .methods.latte.client import Latte, LatteParams
    from .methods.latte.donors import Routing
    from .methods.latte.server import GlobalMemory
    from .methods.ristretto.client import Ristretto, RistrettoParams
    from .methods.tda import Tda, TdaParams
    from .simulation.simulator import Client, Schedule, simulate

_HOMES = {
    "latte.checks": ("check_exchange", "check_method"),
    "latte.core.exchange": ("BaseExchange",),
    "latte.core.types": (
        "Collaborative",
        "CreatedMethod",
        "Exchange",
        "External",
        "Method",
        "Prediction",
        "Prototypes",
        "Teachable",
        "TeachingRights",
    ),
    "latte.methods.latte.server": ("GlobalMemory",),
    "latte.core.memory": ("LocalMemory",),
    "latte.methods.latte.donors": ("Routing",),
    "latte.core.zero_shot": ("ZeroShot",),
    "latte.core.privacy": ("Privacy", "PrivateClient"),
    "latte.core.sync": ("sync",),
    "latte.methods": ("create", "create_exchange", "create_federation", "describe", "register"),
    "latte.methods.base": ("BaseMethod",),
    "latte.methods.clip": ("Clip",),
    "latte.methods.latte.client": ("Latte", "LatteParams"),
    "latte.methods.ristretto.client": ("Ristretto", "RistrettoParams"),
    "latte.methods.tda": ("Tda", "TdaParams"),
    "latte.edge": ("Answer", "classify_pictures"),
    "latte.edge.clients.http": ("HttpExchange",),
    "latte.encoders": ("load_encoder",),
    "latte.errors": ("InputError", "refuse"),
    "latte.experiment": ("run_experiment",),
    "latte.simulation.simulator": ("Client", "Schedule", "simulate"),
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
    "Ristretto",
    "RistrettoParams",
    "Routing",
    "Schedule",
    "Tda",
    "TdaParams",
    "Teachable",
    "TeachingRights",
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
