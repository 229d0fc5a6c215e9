"""``latte export``: an encoder as an ONNX folder."""

from __future__ import annotations

from pathlib import Path

import click

from .arguments import OutputFolder
from .output import print_rows


@click.command()
@click.argument("encoder")
@click.argument("out", type=OutputFolder())
@click.option(
    "--variants", default="fp32", show_default=True, help="fp32, and on request fp16 and int8, comma-separated."
)
@click.option(
    "--images", type=click.Path(exists=True, path_type=Path), help="Pictures to compare on (default: synthetic)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def export(encoder: str, out: Path, variants: str, images: Path | None, as_json: bool) -> None:
    """Write ENCODER (hf:ID or hf:DIR) to the folder OUT: image, text, tokenizer, model.json.

    Prints how well every variant agrees with the original: cosines of the same pictures and texts.
    """
    from dataclasses import asdict

    from ..edge.classify import find_pictures
    from ..encoders.export import export_onnx

    pictures = None if images is None else find_pictures([images])
    agreements = export_onnx(encoder, out, tuple(part.strip() for part in variants.split(",")), pictures)
    print_rows([asdict(agreement) for agreement in agreements], as_json)
