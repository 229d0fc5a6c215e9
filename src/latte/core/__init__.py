"""The algorithm: values, maths, the three memories and the readout. numpy and the standard library, nothing else."""

from .base_exchange import BaseExchange
from .contracts import Collaborative, CreatedMethod, Exchange, Method
from .global_memory import GlobalMemory
from .local_memory import PROTOTYPE_KINDS, LocalMemory
from .readout import GATE, MergedMemory
from .routing import EMPTY_QUERIES, Routing
from .types import External, Prediction, Prototypes, State
from .zero_shot import ZeroShot

__all__ = [
    "EMPTY_QUERIES",
    "GATE",
    "PROTOTYPE_KINDS",
    "BaseExchange",
    "Collaborative",
    "CreatedMethod",
    "Exchange",
    "External",
    "GlobalMemory",
    "LocalMemory",
    "MergedMemory",
    "Method",
    "Prediction",
    "Prototypes",
    "Routing",
    "State",
    "ZeroShot",
]
