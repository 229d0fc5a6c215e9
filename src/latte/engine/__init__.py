"""The fast engine: whole federations of the memory methods, with the predictions of the readable simulator.

**The invariant.** The engine takes every decision of the readable simulator (which sample enters a queue, which client
is a donor, which item is merged), but computes the numbers behind it in another order. Where two numbers are so close
that rounding could order them either way (``loops/arrays.py``), the decision is taken again with the readable
operation. So the memories hold the same items at all times. The final argmax over the logits is the only place where
a tie within rounding may fall either way.

**The map of Latte.** What the memories hold depends on no prediction, and on neither alpha nor beta. So a run is a
replay of what is held, window of rounds by window, and a reading of each window::

    streams    streams.py    all samples end to end, their logits, pseudo-labels, entropies           -> Streams
    queues     reader.py     the slot that each sample takes in its client's queue (loops/queues.py)  -> slot (n,)
    windows    streams.py    32 rounds at a time, and the syncs in them                               -> Window
    uploads    reader.py     the prototypes of queues that changed (loops/upload.py)                  -> UploadBatch
    routes     server.py     similarities, donors, downloads (loops/route.py)                         -> ListChanges
    reading    reader.py     merge, readout, label of every sample (loops/merge.py, read.py)          -> labels

``latte.py`` connects the stages, ``loops/arrays.py`` defines what flows between them. With more clients than
similarities fit into memory for, ``blocks.py`` takes the place of ``server.py``. The modules in ``loops`` are compiled
by numba (``cache.py``); without numba, Latte takes the readable simulator.

TDA, DMN and CLIP need numpy only: ``tda.py`` and ``dmn.py`` replay their queues and read blocks of samples
(``queues.py``). So does Ristretto: between two syncs its head is fixed, and a stretch of images is one product
(``ristretto.py``). ``api.py`` says what the engine of a method is; the class of a method names its own.
"""

from __future__ import annotations

from .api import (
    GridEngine,
    GridOutcome,
    MethodEngine,
    ReadoutAxes,
    ReplayOptions,
    TaskSize,
    has_engine,
    has_loops,
    must_compile,
    readout_parameters,
    run_fast,
    run_grid,
    size_of,
    use_engine,
    warn_of_copy_search,
    warn_of_labels,
    warn_without_loops,
)
from .cache import Follow, are_loops_on_disk, compile_loops, log_compilation

__all__ = [
    "Follow",
    "GridEngine",
    "GridOutcome",
    "MethodEngine",
    "ReadoutAxes",
    "ReplayOptions",
    "TaskSize",
    "are_loops_on_disk",
    "compile_loops",
    "has_engine",
    "has_loops",
    "log_compilation",
    "must_compile",
    "readout_parameters",
    "run_fast",
    "run_grid",
    "size_of",
    "use_engine",
    "warn_of_copy_search",
    "warn_of_labels",
    "warn_without_loops",
]
