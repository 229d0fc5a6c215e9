"""How commands print: results to stdout, everything else to stderr, and nothing that controls a terminal."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import sys
from collections.abc import Callable, Sequence

import click


def line(text: object, err: bool = False) -> None:
    """Print one line; a line break inside ``text`` is written out like any other control character."""
    from ..core.escape import visible

    click.echo(visible(str(text)), err=err)


def patient_line(text: str, wait: Callable[[int], None], failed: Callable[[OSError], None]) -> None:
    """Print one line to stdout, in pieces that never block: ``wait`` returns when the descriptor takes another one.

    A piece that cannot be written is tried again if ``failed`` returns.
    """
    from ..core.escape import visible

    descriptor = _descriptor()
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


def _descriptor() -> int | None:
    """Return the descriptor of stdout; None where stdout is no file, or the system cannot wait for one."""
    try:
        sys.stdout.flush()
        return sys.stdout.fileno() if os.name == "posix" else None
    except (OSError, ValueError, AttributeError):
        return None


def block(text: str) -> None:
    """Print finished text of any number of lines to stdout."""
    from ..core.escape import visible

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
    names = list(dict.fromkeys(name for row in rows for name in row))  # not every row has every column
    columns = [_column(name, [row.get(name) for row in rows]) for name in names]
    for number, block_of in enumerate(_blocks([len(column[0]) + 2 for column in columns], keys)):
        if number:
            line("")
        for parts in zip(*(columns[i] for i in block_of), strict=True):
            line("  ".join(parts).rstrip())


def silence_retries() -> None:
    """Let no note of a repeated request go to stderr: a command says by itself what it could not reach."""
    import logging

    logging.getLogger("stamina").addHandler(logging.NullHandler())


def _column(name: str, values: Sequence[object]) -> list[str]:
    """Return the lines of a column, its name first, all of one width; numbers stand on the right."""
    texts = [_cell(name), *map(_cell, values)]
    width, numbers = max(map(len, texts)), all(map(_is_number, texts[1:]))
    return [text.rjust(width) if numbers else text.ljust(width) for text in texts]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-|[+-]?[\d.,]+(e[+-]?\d+)?", text, re.ASCII) is not None


def _blocks(widths: Sequence[int], keys: int) -> list[list[int]]:
    """Return the columns of each block."""
    from ..report.plain_text import split_columns

    every, width = list(range(len(widths))), terminal_width()
    if width is None or sum(widths) - 2 <= width:
        return [every]
    room = width + 2 - sum(widths[:keys])
    return [[*every[:keys], *columns] for columns in split_columns(every[keys:], widths, room)]


def _cell(value: object) -> str:
    from ..core.escape import visible

    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else visible(str(value))
