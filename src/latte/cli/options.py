"""Options that several commands have."""

from __future__ import annotations

import click

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
