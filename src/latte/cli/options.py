"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from .arguments import Folder, InputFile

Command = Callable[..., Any]
ENCODER = click.option(
    "--encoder",
    required=True,
    envvar="LATTE_ENCODER",
    show_envvar=True,
    help="onnx:DIR, hf:ID, openclip:MODEL/WEIGHTS, local:DIR; DIR may be a name in the folder $LATTE_MODELS.",
)
MAX_PIXELS = click.option(
    "--max-pixels",
    metavar="NUMBER",
    type=click.IntRange(1, 4_294_967_296),
    default=300_000_000,
    show_default=True,
    help="Larger pictures are unreadable. Above 89 million they are decoded at reduced size.",
)
NEAR_COPY = click.option(
    "--near-copy",
    metavar="COSINE",
    type=click.FloatRange(0, 0.9999),
    default=0.99,
    show_default=True,
    help="Do not learn from a picture that is at least this similar to a remembered one; 0 learns from all.",
)
PLUGINS = click.option(
    "--plugin", "plugins", type=InputFile(), multiple=True, help="Python file with methods of your own."
)


def load_plugins(plugins: Iterable[Path]) -> None:
    """Import the files of ``--plugin``, which register methods."""
    for plugin in plugins:
        from ..experiment.item import load_plugin

        load_plugin(plugin)


def store_options(command: Command) -> Command:
    """Add the options that say where a server stores what it has."""
    command = click.option("--store", help="postgresql://USER@HOST/DATABASE, as given to latte serve.")(command)
    return click.option("--data", type=Folder(), required=True, help="The folder given to latte serve --data.")(command)
