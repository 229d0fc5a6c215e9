"""Compiles the loops of Latte: all of them, once per installation, in one process.

Imported only where numba is installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...core.zero_shot import ZeroShot
from ...data.benchmark import ClientStream, Embeddings, Federation
from ...files.locks import lock
from ...methods.latte import LatteParams
from ..schedule import Schedule
from .choosing import COMPILE_SECONDS, LOG
from .compiled import SOURCES, cache_folder, is_cached
from .latte_engine import run_latte
from .loops_classify import classify, judge, squares
from .loops_read import read_clients
from .loops_route import play
from .loops_upload import blend, fill_queues, follow_queues

KERNELS: tuple[Callable[..., Any], ...] = (
    squares, classify, judge, fill_queues, follow_queues, blend, play, read_clients,
)  # fmt: skip
LONGEST_WAIT = 120.0  # seconds for another process to compile; then this one does it, too, which is safe

_ready = False


def are_loops_ready() -> bool:
    """Say whether the machine code of all loops is on disk, or loaded."""
    return _ready or all(map(is_cached, KERNELS))


def prepare_loops() -> None:
    """Compile the loops if no process has done so yet; a line on stderr says so. Several processes do it once."""
    global _ready
    deadline = time.monotonic() + LONGEST_WAIT
    while not are_loops_ready() and time.monotonic() < deadline:
        try:
            with lock(_lock_file(), "the engine's machine code"):
                _compile()
        except ValueError:  # another process compiles, or nothing can be locked there
            time.sleep(0.2)
    _ready = True


def _lock_file() -> Path:
    folder = cache_folder(read_clients)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"compiling.{SOURCES}.lock"


def _compile() -> None:
    if are_loops_ready():
        return
    LOG.warning(
        "latte compiles the loops of its engine, once for this installation: %.0f s on an idle core ...",
        COMPILE_SECONDS,
    )
    start = time.monotonic()
    grid = np.ones(1), np.ones(1)
    run_latte(_smallest_federation(), LatteParams(k_l=1, k_e=1), grid, Schedule(), np.random.default_rng(0))
    LOG.warning("latte: compiled in %.0f s", time.monotonic() - start)


def _smallest_federation() -> Federation:
    """Return two clients of two samples: every loop is called, and all are compiled for the same types always."""
    zero_shot = ZeroShot(np.eye(2, dtype=np.float32), ("a", "b"))
    rows, nothing = np.eye(2, dtype=np.float32)[[0, 1, 1, 0]], np.zeros(4, np.int64)
    embeddings = Embeddings("smallest", zero_shot, rows[:, None], nothing, nothing, ("all",))
    clients = (ClientStream("one", 0, np.array([0, 1])), ClientStream("two", 0, np.array([2, 3])))
    return Federation(embeddings, clients)
