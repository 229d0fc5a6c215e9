"""How commands print: results to stdout, everything else to stderr, and nothing that controls a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click


def line(text: object, err: bool = False) -> None:
    """Print one line; a line break inside ``text`` is written out like any other control character."""
    from ..core.escape import visible

    click.echo(visible(str(text)), err=err)


def block(text: str) -> None:
    """Print finished text of any number of lines to stdout."""
    from ..core.escape import visible

    click.echo(visible(text, keep="\n\t"), nl=False)


def problem(text: object) -> None:
    """Print what went wrong, in one line."""
    line(f"latte: {text}", err=True)


def print_rows(rows: Sequence[dict[str, object]], as_json: bool) -> None:
    """Print rows as JSON or as a plain table on stdout."""
    if as_json:
        line(json.dumps(list(rows)))
        return
    if not rows:
        return
    names = list(dict.fromkeys(name for row in rows for name in row))  # not every row has every column
    values = [[row.get(name) for name in names] for row in rows]
    cells = [[_cell(name) for name in names], *([_cell(value) for value in row] for row in values)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numbers = [any(isinstance(value, (int, float)) for value in column) for column in zip(*values, strict=True)]
    for row in cells:
        parts = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numbers, strict=True))
        line("  ".join(parts).rstrip())


def _cell(value: object) -> str:
    from ..core.escape import visible

    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else visible(str(value))
