"""How commands print: results to stdout, everything else to stderr, and nothing that controls a terminal."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..text import visible

if TYPE_CHECKING:
    from rich.progress import Progress


def line(text: object, err: bool = False) -> None:
    """Print one line; a line break inside ``text`` is written out like any other control character."""
    click.echo(visible(str(text)), err=err)


def patient_line(text: str, wait: Callable[[int], None], failed: Callable[[OSError], None]) -> None:
    """Print one line to stdout, in pieces that never block: ``wait`` returns when the descriptor takes another one.

    A piece that cannot be written is tried again if ``failed`` returns.
    """
    try:
        sys.stdout.flush()
        descriptor = sys.stdout.fileno() if os.name == "posix" else None
    except (OSError, ValueError, AttributeError):  # stdout is no file
        descriptor = None
    if descriptor is None:
        line(text)
        return
    rest = f"{visible(text)}\n".encode()
    while rest:
        try:
            wait(descriptor)
            rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]
        except OSError as error:
            failed(error)


def block(text: str) -> None:
    """Print finished text of any number of lines to stdout."""
    click.echo(visible(text, keep="\n\t"), nl=False)


def problem(text: object) -> None:
    """Print what went wrong, in one line."""
    line(f"latte: {text}", err=True)


def terminal_width() -> int | None:
    """Return how many characters a line of the terminal on stdout has; None where stdout is a file or a pipe."""
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def print_rows(rows: Sequence[dict[str, object]], as_json: bool, keys: int = 1) -> None:
    """Print rows as JSON or as a plain table on stdout.

    On a terminal, a table with longer lines is broken into blocks of whole columns; each begins with the first
    ``keys`` columns, which name the row. A pipe and a file get every row in one line.
    """
    if as_json:
        line(json.dumps(list(rows)))
        return
    if not rows:
        return
    from ..report.formats.text import split_columns

    names = list(dict.fromkeys(name for row in rows for name in row))  # not every row has every column
    columns = []
    for name in names:  # all of one width; numbers stand on the right
        texts = [_cell(name), *(_cell(row.get(name)) for row in rows)]
        width = max(map(len, texts))
        numbers = all(re.fullmatch(r"-|[+-]?[\d.,]+(e[+-]?\d+)?", text, re.ASCII) for text in texts[1:])
        columns.append([text.rjust(width) if numbers else text.ljust(width) for text in texts])
    widths, room = [len(column[0]) + 2 for column in columns], terminal_width()
    blocks = [list(range(len(columns)))]
    if room is not None and sum(widths) - 2 > room:
        split = split_columns(blocks[0][keys:], widths, room + 2 - sum(widths[:keys]))
        blocks = [[*range(keys), *others] for others in split]
    for number, places in enumerate(blocks):
        if number:
            line("")
        for parts in zip(*(columns[i] for i in places), strict=True):
            line("  ".join(parts).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else visible(str(value))


_open: list[Progress] = []  # the display on the screen: there is only one at a time


@contextmanager
def bar(label: str, total: int, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Draw a bar while the block runs; the block calls what it gets with the number of new steps.

    ``unit`` shows the speed, such as images per second. A bar inside the block of another is drawn below it.
    """
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
    from ..engine.cache import COMPILE_SECONDS

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
