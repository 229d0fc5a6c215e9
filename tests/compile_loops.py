"""Compiles the engine's loops, once, for the tests that run after it: ``python tests/compile_loops.py``.

Several test processes would each wait for the first of them otherwise.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]


def main() -> None:
    if importlib.util.find_spec("numba") is None:
        return
    from latte.simulation.engine import latte_engine, run_fast
    from latte.simulation.engine.kernels import prepare_loops
    from simulation.engine_support import made_up

    prepare_loops()
    latte_engine.SIMILARITY_BYTES = 0  # the loops for very many clients
    run_fast(made_up((4,) * 4, 3, 8, absent=1), "latte")


if __name__ == "__main__":
    main()
