"""Compiles the engine's loops, once, for the tests that run after it: ``python tests/support/compile_loops.py``.

Several test processes would each wait for the first of them otherwise.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]


def main() -> None:
    if importlib.util.find_spec("numba") is None:
        return
    from latte.engine import reader, run_fast
    from latte.engine.cache import prepare_loops
    from simulation.engine_support import made_up

    prepare_loops()
    reader.SIMILARITY_BYTES = 0  # the loops for very many clients
    run_fast(made_up((4,) * 4, 3, 8, absent=1), "latte")


if __name__ == "__main__":
    main()
