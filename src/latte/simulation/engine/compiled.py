"""How the loops are compiled. Imported only where numba is installed.

``kernel`` compiles a loop that Python calls: its machine code goes to disk. ``helper`` and ``loose_helper`` compile a
loop that only other loops call: it becomes a part of each caller, so it needs neither a Python wrapper nor a file.
None of them allocates: the caller passes the arrays to write to. Without reference counts the loops run a fifth
faster and compile in half of the time. A count in a loop starts as ``int(np.int64(0))``, because numba takes a plain 0
for a type of its own and would compile the helpers that get the count once more for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import IndexDataCacheFile

from ...core.types import Integers, Vectors
from ...core.waiting import signals_wait
from .loop_files import hash_sources
from .signatures import signature_of

Loop = TypeVar("Loop", bound=Callable[..., Any])

_njit: Any = numba.njit  # its stubs leave out some options
_COMMON: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}
_INSIDE: dict[str, Any] = {**_COMMON, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(loop: Loop) -> Loop:
    """Compile a loop that Python calls, at its first call, or load its machine code from disk."""
    dispatcher = _njit(cache=True, no_cfunc_wrapper=True, **_COMMON)(loop)
    _keep_apart(dispatcher._cache)
    dispatcher._compile_for_args = _undisturbed(dispatcher._compile_for_args)
    return cast("Loop", dispatcher)


def compile_kernel(loop: Callable[..., Any]) -> None:
    """Compile a kernel for the types in its annotations, or load its machine code from disk."""
    dispatcher = cast("Any", loop)
    dispatcher.compile(signature_of(dispatcher.py_func))


def is_cached(loop: Callable[..., Any]) -> bool:
    """Say whether the machine code of a kernel for this processor is on disk."""
    dispatcher = cast("Any", loop)
    processor = dispatcher.targetctx.codegen().magic_tuple()
    return any(key[1] == processor for key in dispatcher._cache._cache_file._load_index())


def cache_folder(loop: Callable[..., Any]) -> Path:
    """Return where the machine code of a kernel goes."""
    return Path(cast("Any", loop)._cache.cache_path)


def _keep_apart(cache: Any) -> None:
    """Name the files of a kernel after the sources of all loops.

    numba would look at the source file of the kernel only, and would load old code after a helper has changed.
    """
    name = f"{cache._impl.filename_base}.{hash_sources()}"
    file: Any = IndexDataCacheFile
    cache._cache_file = file(cache._cache_path, name, hash_sources())


def _undisturbed(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """Let signals wait while a loop is compiled or loaded, before its first call with such arguments.

    LLVM asks for machine code through a callback from C. An exception of a signal handler (Ctrl-C) that is raised in
    it is printed and lost, the code is taken for missing, and the call jumps to address 0: a segmentation fault.
    """

    def undisturbed(*arguments: Any, **named: Any) -> Any:
        with signals_wait():
            return prepare(*arguments, **named)

    return undisturbed


def helper(loop: Loop) -> Loop:
    """Compile a loop as a part of the loops that call it."""
    return cast("Loop", _njit(**_INSIDE)(loop))


def loose_helper(loop: Loop) -> Loop:
    """Do the same, with sums in any order, which lets them use the width of the machine.

    NaN and infinity keep their meaning.
    """
    return cast("Loop", _njit(**_INSIDE, fastmath={"reassoc", "contract", "arcp", "nsz"})(loop))


def inlined(loop: Loop) -> Loop:
    """Copy the source of a loop into its callers: for what returns a slice, which a helper could not."""
    return cast("Loop", _njit(inline="always", **_COMMON)(loop))


@helper
def copy_row(row: Vectors | Integers, out: Vectors | Integers) -> None:
    """Copy a row element by element, which needs no check of shapes."""
    for d in range(len(out)):
        out[d] = row[d]
