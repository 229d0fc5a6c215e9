"""Progress on stderr: library code calls back, the command line draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(label: str, total: int, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Draw a bar while the block runs; the block calls what it gets with the number of new steps.

    ``unit`` shows the speed, such as images per second.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ..core.escape import visible

    speed = [TextColumn("{task.fields[speed]}")] if unit else []
    name = TextColumn("{task.description:<12}", markup=False)  # a label such as [red] is a name, not a colour
    columns = (name, BarColumn(), MofNCompleteColumn(), *speed, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(visible(label), total=total, speed="")

        def advance(steps: int) -> None:
            progress.update(task, advance=steps)
            if unit:
                progress.update(task, speed=f"{progress.tasks[0].speed or 0:.0f} {unit}/s")

        yield advance


def absolute(advance: Callable[[int], None]) -> Callable[[int, int | None], None]:
    """Return a callback for code that counts from the start: it takes the steps done so far."""
    last = 0

    def update(done: int, total: int | None) -> None:
        nonlocal last
        advance(done - last)
        last = done

    return update
