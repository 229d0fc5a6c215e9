"""Compiles the loops of Latte, once per installation, in processes of their own.

A process that needs them loads the machine code afterwards. So several cores compile at once (numba has one lock per
process), and a process that only waits for it need not import numba.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TextIO

from .loop_files import KERNEL_GROUPS, KERNEL_NAMES

LOG = logging.getLogger("latte.engine")  # where the application sets up no logging, a warning is a line on stderr
COMPILE_SECONDS = 20.0  # measured on two idle cores

Follow = Callable[[Iterator[tuple[int, int]]], None]


def compile_loops() -> Iterator[tuple[int, int]]:
    """Compile what is missing; yield how many kernels of how many there are, at first none.

    What another process is compiling is waited for. A kernel that a process here fails to compile is compiled where it
    is first called.
    """
    yield 0, len(KERNEL_NAMES)
    with _compilers(os.cpu_count() or 1) as names:
        for done, _ in enumerate(names, 1):
            yield done, len(KERNEL_NAMES)


def log_compilation(steps: Iterator[tuple[int, int]]) -> None:
    """Go through the steps of :func:`compile_loops`; log a line before and a line after."""
    start = time.monotonic()
    LOG.warning(
        "latte compiles the loops of its engine, once for this installation: %.0f s on two idle cores ...",
        COMPILE_SECONDS,
    )
    for _ in steps:
        pass
    LOG.warning("latte: compiled in %.0f s", time.monotonic() - start)


@contextmanager
def _compilers(cores: int) -> Iterator[Iterator[str]]:
    """Start a process per group of kernels, no more than cores; give the names of the kernels as they come."""
    together = max(len(KERNEL_GROUPS) - cores + 1, 1)
    groups = [tuple(chain(*KERNEL_GROUPS[:together])), *KERNEL_GROUPS[together:]]
    reading, writing = os.pipe()
    with os.fdopen(reading) as names, ExitStack() as children:
        with os.fdopen(writing, "w") as output:  # closed here, the pipe ends when the last of them has ended
            for group in groups:
                children.callback(_end, _start(group, output))
        yield names


def _start(kernels: Sequence[str], output: TextIO) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"{__package__}.kernels", *kernels]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, env=environment)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    child.wait()
