"""Run a command, and end with it every process that it leaves behind: python tests/support/adopt.py COMMAND...

A process whose parent has ended goes to this one (Linux), not to process 1, which in a container may leave zombies: a
program that waits for its parent to disappear would wait for ever. When the command has ended, whatever it left is
killed, until there is nothing left: nothing can escape by starting another process meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_SET_CHILD_SUBREAPER = 36  # of prctl


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl: PR_SET_CHILD_SUBREAPER")


def wait_for(child: int) -> int:
    """Return the exit code of a child; orphans that end meanwhile are cleared away."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def end_children() -> None:
    """Kill every child until there is none: the orphans of one that is killed become children, too."""
    with suppress(ChildProcessError):
        while True:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
            time.sleep(0.02)


def children() -> list[int]:
    """Return the children of this process; none of them is cleared away meanwhile, so the numbers are theirs."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = path.read_bytes().rpartition(b")")[2].split()[1]
            if int(parent) == os.getpid():
                pids.append(int(path.parent.name))
    return pids


def main(command: list[str]) -> int:
    adopt_orphans()
    try:
        return wait_for(subprocess.Popen(command).pid)
    finally:
        end_children()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
