"""Command lines of pages and of deploy/ that are not run: whether the program knows them."""

from collections.abc import Sequence

import click

from latte.cli.commands import cli


def unknown_options(words: Sequence[str]) -> set[str]:
    """Return the options behind ``latte`` that the command does not have; an unknown command fails."""
    context, command, names = click.Context(cli), cli.get_command(click.Context(cli), words[0]), list(words[1:])
    assert command is not None, words
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    if isinstance(command, click.Group):
        below = [command.get_command(context, name) for name in (*names, "run")]
        known |= {option for sub in below if sub for one in sub.params for option in (*one.opts, *one.secondary_opts)}
    return {word.partition("=")[0] for word in words if word.startswith("--")} - known
