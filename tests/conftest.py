"""What every test may ask for."""

import functools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import waiting
from waiting import ROOT, SUPPORT, run

# Whoever starts the tests in the background may have them ignore SIGINT, and every process of theirs inherits that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


# Also a client of plain HTTP reads the certificates of all authorities, which takes 20 ms: the tests read them once.
with suppress(ImportError):
    import httpcore2

    httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)


collect_ignore_glob = ["support/*"]  # no tests, and some need an extra

OTHERWISE = ("tests/encoders/", "tests/flower/")  # take another way where there are more packages


# .ci/run names a file: the tests that it lists are left out, and those that pass are written into it.
LISTED = Path(os.environ["LATTE_TEST_PASSED"]) if "LATTE_TEST_PASSED" in os.environ else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if LISTED is not None and LISTED.exists():
        passed = set(LISTED.read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LISTED is not None:
        ids = [report.nodeid for report in terminalreporter.stats.get("passed", []) if report.when == "call"]
        with LISTED.open("a", encoding="utf-8") as file:
            file.writelines(f"{one}\n" for one in ids if not one.startswith(OTHERWISE))


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
    run(sys.executable, SUPPORT / "compile_loops.py", check=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[object]:
    """A PostgreSQL for all tests of a process; each makes a schema or a database of its own."""
    from postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile the engine's loops before several processes need them."""
    run(sys.executable, SUPPORT / "compile_loops.py", check=True)


@pytest.fixture(scope="module")
def one_process() -> Iterator[None]:
    """Let the runs of a module do their work in this process."""
    with waiting.one_process():
        yield


# No deadline, and no word about slow data: both would measure how busy the machine is. The same examples every time.
settings.register_profile(
    "latte", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("latte")
