"""Collaborative test-time adaptation of vision-language models, without labels and without training.

Pictures to labels    Classifier: predict, predict_proba, save, load; Answer, BadImageError
A device              Device: watch, classify, frames, answer; DeviceStatus, LatestFrames
A fleet               Membership, Connection, HttpExchange, Task, make_task, new_member, sync, Privacy
Encoders              load_encoder, Encoder, Picture; any function from pictures to rows
Zero-shot and answers ZeroShot, Prediction
Methods by name       create, create_exchange, create_federation, describe, register
Methods as classes    Latte, Ristretto, Clip, Tda and the others of ``latte methods``; parameters are in latte.methods
A method of your own  BaseMethod, Method, Collaborative, CreatedMethod, check_method
Exchanges             Exchange, BaseExchange, GlobalMemory, Routing, Prototypes, External, check_exchange
Experiments           simulate, Client, Schedule, run_experiment

``dir(latte)`` has every name, ``help(latte.Classifier)`` says more of one. A name is loaded when it is first used, so
``import latte`` costs next to nothing.
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
    from .edge.classifier import Classifier
    from .edge.clients.calls import Connection, RefusedError, UnreachableError
    from .edge.clients.http import HttpExchange
    from .edge.device.feeds import LatestFrames
    from .edge.device.program import Device
    from .edge.device.record import DeviceStatus
    from .edge.joining import Membership, make_task, new_member
    from .encoders import BadImageError, Encoder, Picture, load_encoder
    from .errors import InputError, refuse
    from .experiment import run_experiment
    from .methods import (
        Adapt,
        BaseMethod,
        Bca,
        Clip,
        Dmn,
        Dota,
        DotaFed,
        Ecalp,
        Latte,
        Mta,
        Oga,
        OgaFed,
        OnZeta,
        Pta,
        PtaFed,
        Ristretto,
        Tda,
        Tpt,
        Vte,
        Zero,
        create,
        create_exchange,
        create_federation,
        describe,
        register,
    )
    from .methods.latte.donors import Routing
    from .methods.latte.server import GlobalMemory
    from .simulation.simulator import Client, Schedule, simulate
    from .wire.task import Task

__all__ = [
    "Adapt",
    "Answer",
    "BadImageError",
    "BaseExchange",
    "BaseMethod",
    "Bca",
    "Classifier",
    "Client",
    "Clip",
    "Collaborative",
    "Connection",
    "CreatedMethod",
    "Device",
    "DeviceStatus",
    "Dmn",
    "Dota",
    "DotaFed",
    "Ecalp",
    "Encoder",
    "Exchange",
    "External",
    "GlobalMemory",
    "HttpExchange",
    "InputError",
    "LatestFrames",
    "Latte",
    "LocalMemory",
    "Membership",
    "Method",
    "Mta",
    "Oga",
    "OgaFed",
    "OnZeta",
    "Picture",
    "Prediction",
    "Privacy",
    "PrivateClient",
    "Prototypes",
    "Pta",
    "PtaFed",
    "RefusedError",
    "Ristretto",
    "Routing",
    "Schedule",
    "Task",
    "Tda",
    "Teachable",
    "TeachingRights",
    "Tpt",
    "UnreachableError",
    "Vte",
    "Zero",
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
    del __all__  # with it, help(latte) would be every class in full, 3,000 lines
