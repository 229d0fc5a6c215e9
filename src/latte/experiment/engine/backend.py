"""Which loops to run: compiled ones where numba is installed, numpy otherwise."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import NamedTuple

from ...core.validate import choice

BACKENDS = ("auto", "numba", "numpy")


class Loops(NamedTuple):
    """The two families of loops."""

    share: ModuleType
    read: ModuleType


def loops(backend: str = "auto") -> Loops:
    """Return the loops of ``backend``; ``auto`` takes numba where it is installed."""
    choice("backend", backend, BACKENDS)
    if backend == "auto":
        backend = "numba" if importlib.util.find_spec("numba") else "numpy"
    elif backend == "numba" and importlib.util.find_spec("numba") is None:
        raise ModuleNotFoundError('the numba backend needs numba: pip install "latte-tta[fast]"')
    family = "loops" if backend == "numba" else "plain"
    return Loops(*(importlib.import_module(f"{__package__}.{family}_{part}") for part in Loops._fields))
