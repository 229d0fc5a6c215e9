"""The kernels that a run of Latte needs. Imported only where numba is installed.

``python -m latte.simulation.engine.kernels NAME...`` compiles some of them and prints the name of each that is there.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from ...errors import InputError
from ...files.locks import lock
from .compiled import cache_folder, compile_kernel, is_cached
from .compiling import compile_loops, log_compilation
from .loop_files import KERNEL_NAMES, hash_sources
from .loops_classify import classify, squares
from .loops_read import read_clients
from .loops_route import play
from .loops_upload import blend, fill_queues, follow_queues

KERNELS: dict[str, Callable[..., Any]] = {
    kernel.__name__: kernel for kernel in (squares, fill_queues, follow_queues, classify, blend, play, read_clients)
}
LONGEST_WAIT = 120.0  # seconds for another process to compile; then this one does it, too, which is safe

_ready = False


def are_loops_ready() -> bool:
    """Say whether the machine code of all kernels is on disk, or loaded."""
    return _ready or all(map(is_cached, KERNELS.values()))


def prepare_loops() -> None:
    """Compile the kernels that no process has compiled yet; two lines on stderr say so."""
    global _ready
    if not are_loops_ready():
        log_compilation(compile_loops())
    _ready = True


def main(names: Iterable[str]) -> None:
    """Compile some kernels. A Ctrl-C is the parent's to handle; the collector would take a tenth of the time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for name in names:
        _compile_once(KERNELS[name])
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()


def _compile_once(kernel: Callable[..., Any]) -> None:
    """Compile a kernel, or wait until another process has done so."""
    folder, deadline = cache_folder(kernel), time.monotonic() + LONGEST_WAIT
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{kernel.__name__}.{hash_sources()}.lock"
    with ExitStack() as stack:
        while not is_cached(kernel) and time.monotonic() < deadline:
            try:
                stack.enter_context(lock(file, "the engine's machine code"))
                break
            except InputError:  # another process compiles, or nothing can be locked there
                time.sleep(0.2)
        compile_kernel(kernel)


if __name__ == "__main__":
    main(sys.argv[1:] or KERNEL_NAMES)
