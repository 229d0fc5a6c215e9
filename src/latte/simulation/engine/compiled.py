"""How the loops are compiled. Imported only where numba is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from ...core.waiting import signals_wait

Loop = TypeVar("Loop", bound=Callable[..., Any])


def _forget_what_is_old(here: Path) -> None:
    """Remove machine code that is older than any of the loops in the folder ``here``.

    numba keeps it per function and looks at the file of that function only, but a function contains those it calls.
    The code (.nbc) goes with its index (.nbi): numba writes a new index first, so that whoever comes in between, or
    after a kill there, would be given the old code under the new index.
    """
    newest = max(source.stat().st_mtime for source in here.glob("*.py"))
    for file in sorted((here / "__pycache__").glob("*.nb[ci]"), key=lambda file: file.suffix, reverse=True):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < newest:
                file.unlink()


def _compiler(**options: Any) -> Callable[[Loop], Loop]:
    decorator = numba.njit(cache=True, nogil=True, **options)

    def compiled(loop: Loop) -> Loop:
        dispatcher = decorator(loop)
        dispatcher._compile_for_args = _undisturbed(dispatcher._compile_for_args)
        return cast("Loop", dispatcher)

    return compiled


def _undisturbed(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """Let signals wait while a loop is compiled or loaded, before its first call with such arguments.

    LLVM asks for machine code through a callback from C. An exception of a signal handler (Ctrl-C) that is raised in
    it is printed and lost, the code is taken for missing, and the call jumps to address 0: a segmentation fault.
    """

    def undisturbed(*arguments: Any, **named: Any) -> Any:
        with signals_wait():
            return prepare(*arguments, **named)

    return undisturbed


_forget_what_is_old(Path(__file__).parent)
exactly = _compiler()
# Loops that allocate nothing are compiled without reference counts, as a part of who calls them: to count who holds
# which array, at every call and slice, took a fifth of the time.
tightly = _compiler(_nrt=False, forceinline=True)
# A slice that is returned would be counted, too.
inlined = _compiler(inline="always")
# sums may be reordered, which lets them use the width of the machine; NaN and infinity keep their meaning
loosely = _compiler(_nrt=False, forceinline=True, fastmath={"reassoc", "contract", "arcp", "nsz"})


@tightly
def put(row: Any, out: Any) -> None:
    """Copy a row: assigning to a slice would need reference counts."""
    for d in range(len(out)):
        out[d] = row[d]
