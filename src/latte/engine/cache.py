"""Machine code of the loops: how numba compiles them, once per installation, and where it is kept.

All that is particular to numba is here, some of it undocumented; tested with numba 0.60 to 0.68. numba is imported
where it is needed only: its import takes a while, and a process that waits for a compilation can do without. Processes
of their own compile, so that several cores do (numba has one lock per process); the others load what they wrote.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

from ..core.maths import MATCH_STEPS, MATCH_TOLERANCE
from ..core.types import Integers, Mask, Reals, Vectors
from ..errors import InputError
from ..files.atomic import lock
from ..methods.latte.donors import NOTHING_IN_COMMON
from ..methods.latte.readout import CANCELLED
from ..runtime import signals_wait

Loop = TypeVar("Loop", bound=Callable[..., Any])
Follow = Callable[[Iterator[tuple[int, int]]], None]

# the kernels that a run of Latte needs, in groups that are compiled at the same time; the last takes half of the time
KERNEL_GROUPS = (
    ("classify.squares", "route.fill_queues", "route.follow_queues", "classify.classify", "route.blend"),
    ("route.play",),
    ("read.read_clients",),
)
LOOPS = Path(__file__).parent / "loops"
LOG = logging.getLogger("latte.engine")  # where the application sets up no logging, a warning is a line on stderr
COMPILE_SECONDS = 20.0  # measured on two idle cores
LONGEST_WAIT = 120.0  # seconds for another process to compile; then this one does it, too, which is safe
READ_ONLY = "read-only"  # an annotation of arrays that no loop writes to

_COMMON: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}
_INSIDE: dict[str, Any] = {**_COMMON, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_ready = False


def _njit(loop: Loop, **options: Any) -> Loop:
    import numba

    return cast("Any", numba.njit)(**options)(loop)  # type: ignore[no-any-return]  # its stubs leave out some options


def helper(loop: Loop) -> Loop:
    """Compile a loop that only loops call: as a part of each caller, without a Python wrapper or a file."""
    return _njit(loop, **_INSIDE)


def loose_helper(loop: Loop) -> Loop:
    """Do the same, with sums in any order, which lets them use the width of the machine.

    NaN and infinity keep their meaning.
    """
    return _njit(loop, **_INSIDE, fastmath={"reassoc", "contract", "arcp", "nsz"})


def inlined(loop: Loop) -> Loop:
    """Copy the source of a loop into its callers: for what returns a slice, which a helper could not."""
    return _njit(loop, inline="always", **_COMMON)


def kernel(loop: Loop) -> Loop:
    """Compile a loop that Python calls, at its first call, or load its machine code from disk.

    The files are named after what is compiled. numba would look at the source file of the kernel only, and would load
    old code after a helper has changed; and it would compile again what has only moved to another line.

    LLVM asks for machine code through a callback from C. An exception of a signal handler (Ctrl-C) that is raised in
    it is printed and lost, the code is taken for missing, and the call jumps to address 0: a segmentation fault. So
    signals wait while a loop is compiled or loaded, before its first call with such arguments.
    """
    from numba.core.caching import IndexDataCacheFile

    dispatcher: Any = _njit(loop, cache=True, no_cfunc_wrapper=True, **_COMMON)
    name = f"{Path(loop.__code__.co_filename).stem}.{loop.__qualname__}.{hash_loops()}"
    file: Any = IndexDataCacheFile
    dispatcher._cache._cache_file = file(dispatcher._cache.cache_path, name, hash_loops())
    prepare = dispatcher._compile_for_args

    def undisturbed(*arguments: Any, **named: Any) -> Any:
        with signals_wait():
            return prepare(*arguments, **named)

    dispatcher._compile_for_args = undisturbed
    return cast("Loop", dispatcher)


def signature_of(loop: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the numba types of the parameters of a function, from their annotations.

    >>> from latte.engine.loops.classify import squares
    >>> signature_of(squares.py_func)[2]
    Array(float32, 1, 'C', False, aligned=True)
    """
    from numba import types

    tuples: Any = types.BaseTuple  # it has no annotations
    elements = {Integers: types.int64, Mask: types.boolean, Reals: types.float64, Vectors: types.float32}
    numbers = {bool: types.boolean, float: types.float64, int: types.int64}

    def type_of(hint: Any) -> Any:
        if hint in numbers:
            return numbers[hint]
        if isinstance(hint, type) and issubclass(hint, tuple):  # a NamedTuple
            return tuples.from_types([*map(type_of, get_type_hints(hint, include_extras=True).values())], hint)
        array, axes, *flags = get_args(hint)
        return types.Array(elements[array], axes, "C", readonly=READ_ONLY in flags)

    hints = get_type_hints(loop, include_extras=True)
    return tuple(type_of(hints[name]) for name in inspect.signature(loop).parameters)


@cache
def hash_loops(folder: Path = LOOPS) -> str:
    """Return a hash of what is compiled, and by what: a kernel contains its helpers, and constants from elsewhere.

    Comments and docstrings are not compiled. The processor is not in the hash: numba notes it in each file.
    """
    makers = sys.implementation.cache_tag, *map(version, ("numba", "llvmlite", "numpy"))
    content = hashlib.sha256(repr((makers, MATCH_STEPS, MATCH_TOLERANCE, CANCELLED, NOTHING_IN_COMMON)).encode())
    for file in sorted(folder.glob("*.py")):
        tree = ast.parse(file.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                del node.body[0]
        content.update(ast.dump(tree).encode())
    return content.hexdigest()[:16]


def are_loops_on_disk() -> bool:
    """Say, without numba, whether there are files of all kernels; most likely, they are for this processor.

    False where numba keeps its files in a folder of its own choice, because the package may not be written to.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folders = list(Path(chosen).glob("*")) if chosen else [LOOPS / "__pycache__"]
    names = [f"*.{name.split('.')[1]}.{hash_loops()}.nbi" for name in chain(*KERNEL_GROUPS)]
    return all(any(any(folder.glob(name)) for folder in folders) for name in names)


def kernel_of(name: str) -> Any:
    """Return a kernel by the name that the groups have for it."""
    module, _, function = name.partition(".")
    return getattr(import_module(f"{__package__}.loops.{module}"), function)


def is_cached(dispatcher: Any) -> bool:
    """Say whether the machine code of a kernel for this processor is on disk."""
    processor = dispatcher.targetctx.codegen().magic_tuple()
    return any(key[1] == processor for key in dispatcher._cache._cache_file._load_index())


def are_loops_ready() -> bool:
    """Say whether the machine code of all kernels is on disk, or loaded."""
    return _ready or all(is_cached(kernel_of(name)) for name in chain(*KERNEL_GROUPS))


def prepare_loops() -> None:
    """Compile the kernels that no process has compiled yet; two lines on stderr say so."""
    global _ready
    if not are_loops_ready():
        log_compilation(compile_loops())
    _ready = True


def log_compilation(steps: Iterator[tuple[int, int]]) -> None:
    """Go through the steps of :func:`compile_loops`; log a line before and a line after."""
    start = time.monotonic()
    text = "latte compiles the loops of its engine, once for this installation: %.0f s on two idle cores ..."
    LOG.warning(text, COMPILE_SECONDS)
    for _ in steps:
        pass
    LOG.warning("latte: compiled in %.0f s", time.monotonic() - start)


def compile_loops() -> Iterator[tuple[int, int]]:
    """Compile what is missing; yield how many kernels of how many there are, at first none.

    What another process is compiling is waited for. A kernel that a process here fails to compile is compiled where it
    is first called.
    """
    size = sum(map(len, KERNEL_GROUPS))
    yield 0, size
    with _compilers(os.cpu_count() or 1) as names:
        for done, _ in enumerate(names, 1):
            yield done, size


@contextmanager
def _compilers(cores: int) -> Iterator[Iterator[str]]:
    """Start a process per group of kernels, no more than cores; give the names of the kernels as they come."""
    together = max(len(KERNEL_GROUPS) - cores + 1, 1)
    groups = [tuple(chain(*KERNEL_GROUPS[:together])), *KERNEL_GROUPS[together:]]
    program = f"import sys; from {__name__} import compile_kernels; compile_kernels(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    reading, writing = os.pipe()
    with os.fdopen(reading) as names, ExitStack() as children:
        with os.fdopen(writing, "w") as output:  # closed here, the pipe ends when the last of them has ended
            for group in groups:
                command = [sys.executable, "-c", program, *group]
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, env=environment)
                children.callback(child.wait)
                children.callback(child.terminate)
        yield names


def compile_kernels(names: Iterable[str]) -> None:
    """Compile kernels, or wait until another process has done so; print the name of each that is there.

    A Ctrl-C is the parent's to handle; the collector would take a tenth of the time.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for name in names:
        dispatcher, deadline = kernel_of(name), time.monotonic() + LONGEST_WAIT
        folder = Path(dispatcher._cache.cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            while not is_cached(dispatcher) and time.monotonic() < deadline:
                try:
                    stack.enter_context(lock(folder / f"{name}.{hash_loops()}.lock", "the engine's machine code"))
                    break
                except InputError:  # another process compiles, or nothing can be locked there
                    time.sleep(0.2)
            dispatcher.compile(signature_of(dispatcher.py_func))
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
