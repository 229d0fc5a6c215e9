"""How commands print: results to stdout, everything else to stderr, and nothing that controls a terminal."""

from __future__ import annotations

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
