"""Progress on stderr: library code calls back, the command line draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .output import line

if TYPE_CHECKING:
    from rich.progress import Progress

_open: list[Progress] = []  # the display on the screen: there is only one at a time


@contextmanager
def bar(label: str, total: int, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Draw a bar while the block runs; the block calls what it gets with the number of new steps.

    ``unit`` shows the speed, such as images per second. A bar inside the block of another is drawn below it.
    """
    from ..core.escape import visible

    with _display(bool(unit)) as progress:
        task, start = progress.add_task(visible(label), total=total, speed=""), time.monotonic()

        def advance(steps: int) -> None:
            progress.update(task, advance=steps)
            if unit:
                shown = next(one for one in progress.tasks if one.id == task)
                speed = shown.speed or shown.completed / max(time.monotonic() - start, 1e-3)  # none before two steps
                progress.update(task, speed=f"{speed:.{0 if speed >= 10 else 1}f} {unit}/s")

        yield advance
        progress.refresh()


@contextmanager
def _display(with_speed: bool) -> Iterator[Progress]:
    """Give the display that is open, or open one."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if _open:
        yield _open[0]
        return
    speed = [TextColumn("{task.fields[speed]}")] if with_speed else []
    name = TextColumn("{task.description:<12}", markup=False)  # a label such as [red] is a name, not a colour
    columns = (name, BarColumn(), MofNCompleteColumn(), *speed, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        _open.append(progress)
        try:
            yield progress
        finally:
            _open.clear()


def draw_compilation(steps: Iterator[tuple[int, int]]) -> None:
    """Draw a bar while the engine's loops are compiled, and say what that is."""
    from ..simulation.engine.compiling import COMPILE_SECONDS

    start, wait = time.monotonic(), f"about {COMPILE_SECONDS:.0f} s on two idle cores"
    line(f"latte compiles the loops of its engine, once for this installation: {wait}", err=True)
    _, total = next(steps)
    with bar("compiling", total) as advance:
        for _ in steps:
            advance(1)
    line(f"compiled in {time.monotonic() - start:.0f} s", err=True)


def absolute(advance: Callable[[int], None]) -> Callable[[int, int | None], None]:
    """Return a callback for code that counts from the start: it takes the steps done so far."""
    last = 0

    def update(done: int, total: int | None) -> None:
        nonlocal last
        advance(done - last)
        last = done

    return update
