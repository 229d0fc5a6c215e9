"""Contracts and values: numpy and the standard library, nothing else."""

from .exchange import BaseExchange
from .memory import PROTOTYPE_KINDS, LocalMemory
from .types import (
    Collaborative,
    CreatedMethod,
    Exchange,
    External,
    Method,
    Prediction,
    Prototypes,
    State,
    Teachable,
    TeachingRights,
)
from .zero_shot import ZeroShot

__all__ = [
    "PROTOTYPE_KINDS",
    "BaseExchange",
    "Collaborative",
    "CreatedMethod",
    "Exchange",
    "External",
    "LocalMemory",
    "Method",
    "Prediction",
    "Prototypes",
    "State",
    "Teachable",
    "TeachingRights",
    "ZeroShot",
]
