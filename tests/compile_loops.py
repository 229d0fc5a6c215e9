"""Compiles the engine's loops, once, for whoever runs after it: ``python tests/compile_loops.py``.

It takes minutes on a busy machine. Several test processes would each do it, and numba's files on disk are not safe
from two processes that write the machine code of one function for different types at the same time.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]


def main() -> None:
    if importlib.util.find_spec("numba") is None:
        return
    import numpy as np

    from latte.methods.latte import LatteParams
    from latte.simulation.engine import run_fast, run_grid
    from latte.simulation.engine.large import run_large
    from latte.simulation.schedule import Schedule
    from simulation.engine_support import made_up

    federation = made_up((12,) * 6, 4, 16)
    for params in ({}, {"variant": "released"}, {"prototype": "mean"}, {"memory": "external"}):
        run_fast(federation, "latte", {"k_l": 2, "k_e": 3, **params}, Schedule(2))
    run_grid(federation, "latte", None, [1.0, 2.0], [3.0, 4.0])
    for name in ("clip", "tda", "dmn"):
        run_fast(federation, name)
    run_large(federation, LatteParams(k_l=2, k_e=3), Schedule(2), np.random.default_rng(0), "exact")


if __name__ == "__main__":
    main()
