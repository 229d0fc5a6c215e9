"""The fast engine: whole federations of the memory methods, with the predictions of the readable simulator.

**The invariant.** The engine takes every decision of the readable simulator (which sample enters a queue, which client
is a donor, which item is merged), but computes the numbers behind it in another order. Where two numbers are so close
that rounding could order them either way (:mod:`tolerances`), the decision is taken again with the readable
operation. So the memories hold the same items at all times. The final argmax over the logits is the only place where
a tie within rounding may fall either way.

**The map of Latte.** What the memories hold depends on no prediction, and on neither alpha nor beta. So a run is a
replay of what is held, window of rounds by window, and a reading of each window::

    streams    streams.py    all samples end to end, their zero-shot logits, pseudo-labels, entropies  -> Streams
    queues     queues.py     the slot that each sample takes in its client's queue of its class        -> slot (n,)
    windows    timeline.py   32 rounds at a time, and the syncs in them                                -> Window
    uploads    store.py      the prototypes of the queues that changed before a sync (loops_upload)    -> UploadBatch
    routes     server.py     similarities between clients, donors, downloads (loops_push, loops_route, -> ListChanges
                             loops_donors)
    reading    reader.py     merge, readout and label of every sample of the window (loops_merge,      -> labels
                             loops_number, loops_read, loops_readout)

``latte_engine.py`` connects the stages, ``loop_arrays.py`` defines what flows between them, ``settle.py`` chooses
donors with the readable operation. With more clients than similarities fit into memory for, ``blocks.py`` takes the
place of ``server.py``. Modules called ``loops_*`` and ``tiles.py`` are compiled by numba (``compiled.py`` says how,
``kernels.py`` which, ``compiling.py`` when); without numba, Latte takes the readable simulator (``choosing.py``).

TDA, DMN and CLIP need numpy only: ``tda_engine.py`` and ``dmn_engine.py`` replay the queues and read blocks of samples
(``lifetimes.py``). So does Ristretto: between two syncs its head is fixed, and a stretch of images is one product
(``ristretto_engine.py``).

``method_engine.py`` says what the engine of a method is, ``engines.py`` has ours, and the class of a method names its
own: ``fast.py`` asks for the name of no method.
"""

from __future__ import annotations

from .choosing import TaskSize, must_compile, size_of, use_engine, warn_of_copy_search, warn_without_loops
from .compiling import Follow, compile_loops, log_compilation
from .fast import has_engine, has_loops, readout_parameters, run_fast, run_grid
from .loop_files import are_loops_on_disk
from .method_engine import GridEngine, GridOutcome, MethodEngine, ReadoutAxes, ReplayOptions

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
    "warn_without_loops",
]
