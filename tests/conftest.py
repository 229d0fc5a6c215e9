"""What every test may ask for."""

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from waiting import ROOT, run

# Whoever starts the tests in the background may have them ignore SIGINT, and every process of theirs inherits that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of material that users do not have; tests that need it skip without it."""
    folder = Path(os.environ.get("LATTE_SHARED", ROOT.parent / "shared"))
    if not (folder / "data" / "embeddings").is_dir():
        pytest.skip("needs the shared material (set LATTE_SHARED to its folder)")
    return folder


@pytest.fixture(scope="session")
def compiled_loops() -> None:
    """Machine code of the engine's loops on disk: without it, small runs take the readable simulator."""
    pytest.importorskip("numba")
    run(sys.executable, ROOT / "tests" / "compile_loops.py", check=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile the engine's loops before several processes need them."""
    run(sys.executable, ROOT / "tests" / "compile_loops.py", check=True)


# No deadline, and no word about slow data: both would measure how busy the machine is. The same examples every time.
settings.register_profile(
    "latte", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("latte")
