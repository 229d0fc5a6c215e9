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
    from .core.types import Collaborative, CreatedMethod, Exchange, External, Method, Prediction, Prototypes
    from .core.zero_shot import ZeroShot
    from .edge import Answer, classify_pictures
    from .edge.classifier import Classifier
    from .edge.clients.calls import Connection
    from .edge.clients.http import HttpExchange
    from .edge.device.feeds import LatestFrames
    from .edge.device.program import Device
    from .edge.joining import Membership, make_task, new_member
    from .encoders import BadImageError, Encoder, Picture, load_encoder
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

__all__ = [
    "Answer",
    "BadImageError",
    "BaseExchange",
    "BaseMethod",
    "Classifier",
    "Client",
    "Clip",
    "Collaborative",
    "Connection",
    "CreatedMethod",
    "Device",
    "Encoder",
    "Exchange",
    "External",
    "GlobalMemory",
    "HttpExchange",
    "InputError",
    "LatestFrames",
    "Latte",
    "LatteParams",
    "LocalMemory",
    "Membership",
    "Method",
    "Picture",
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
    "make_task",
    "new_member",
    "refuse",
    "register",
    "run_experiment",
    "simulate",
    "sync",
]


if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
