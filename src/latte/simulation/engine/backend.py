"""Which loops to run: compiled ones where numba is installed, numpy otherwise."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.validate import choice

BACKENDS = ("auto", "numba", "numpy")
NUMBA = ("loops_share", "loops_route", "loops_read", "loops_large")
NUMPY = ("plain_share", "plain_route", "plain_read", "plain_large")


class Loops(NamedTuple):
    """The loops that differ; each module documents its own."""

    fill_queues: Callable[..., Any]
    upload: Callable[..., Any]
    squares: Callable[..., Any]
    classify: Callable[..., Any]
    judge: Callable[..., Any]
    blend: Callable[..., Any]
    near: float
    play: Callable[..., Any]
    accept: Callable[..., Any]
    read_clients: Callable[..., Any]
    offer: Callable[..., Any]
    offer_means: Callable[..., Any]
    best_of_rows: Callable[..., Any]


def loops(backend: str = "auto") -> Loops:
    """Return the loops of ``backend``; ``auto`` takes numba where it is installed."""
    choice("backend", backend, BACKENDS)
    there = importlib.util.find_spec("numba") is not None
    if backend == "numba" and not there:
        raise ModuleNotFoundError('the numba backend needs numba: pip install "latte-tta[fast]"')
    compiled = backend == "numba" or (backend == "auto" and there)
    modules = (importlib.import_module(f"{__package__}.{name}") for name in (NUMBA if compiled else NUMPY))
    share, route, read, large = modules
    return Loops(
        share.fill_queues,
        share.upload,
        share.squares,
        share.classify,
        share.judge,
        share.blend,
        share.NEAR_DOT,
        route.play,
        share.accept,
        read.read_clients,
        large.offer,
        large.offer_means,
        large.best_of_rows,
    )
