"""``latte embed``: pictures to an embedding file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import Folder, OutputFile
from .options import ENCODER
from .output import line

if TYPE_CHECKING:
    from ..data.embed import EmbedPlan
    from ..data.image_set import ImageSet
    from ..encoders import Encoder
    from ..encoders.views import ViewPlan


@click.command()
@click.argument("dataset")
@ENCODER
@click.option("--out", required=True, type=OutputFile(), help="The .safetensors to write.")
@click.option("--views", default="0", help="Random views besides the plain image: 63 (AugMix) or crop_flip:63.")
@click.option("--templates", help="A template set by name, or a file with one template per line.")
@click.option(
    "--severity", type=click.IntRange(1, 5), default=5, show_default=True, help="Of the corruptions of CIFAR-C."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    help="Of the random views, the corruptions and their assignment to images.",
)
@click.option(
    "--frost",
    type=Folder(exists=True),
    help="A folder of pictures for the frost of cifar10c: and cifar100c:, instead of the drawn one.",
)
@click.option("--dtype", type=click.Choice(["float16", "float32"]), default="float16", show_default=True)
@click.option("--skip-bad", is_flag=True, help="Leave unreadable images out instead of refusing them.")
def embed(
    dataset: str,
    encoder: str,
    out: Path,
    views: str,
    templates: str | None,
    severity: int,
    seed: int,
    frost: Path | None,
    dtype: str,
    skip_bad: bool,
) -> None:
    """Embed the pictures of DATASET.

    DATASET is folder:DIR (DIR/domain/class/image), classes:DIR (DIR/class/image), vlcs:DIR, terra:DIR, pacs:DIR,
    cifar10:PATH, cifar100:PATH, cifar10c:PATH, cifar100c:PATH (the official CIFAR, corrupted here), or
    cifar10c-npy:DIR, cifar100c-npy:DIR (the published test images). After an interruption, the same command continues.
    """
    import os

    from ..data.corruptions import load_textures
    from ..data.embed import EmbedPlan
    from ..data.image_set import CorruptionPlan, open_images
    from ..encoders import check_encoder_spec, load_encoder, read_templates

    _check_target(out)
    check_encoder_spec(encoder)
    textures = None if frost is None else load_textures(frost)
    words = None if templates is None else read_templates(templates)
    plan = EmbedPlan(_view_plan(views, seed), words, dtype, os.cpu_count() or 1, skip_bad)
    images = open_images(dataset, CorruptionPlan(severity, seed, textures))
    _run(images, load_encoder(encoder), out, plan)


def _check_target(out: Path) -> None:
    if out.suffix != ".safetensors":
        raise click.BadParameter("it should end in .safetensors", param_hint="--out")


def _view_plan(text: str, seed: int) -> ViewPlan | None:
    from ..core.validate import whole
    from ..encoders.views import MOST_VIEWS, ViewPlan

    kind, _, digits = text.rpartition(":")
    count = whole("--views (a number, or crop_flip:NUMBER)", digits, 0, MOST_VIEWS)
    return ViewPlan(kind or "augmix", count, seed) if count else None


def _run(images: ImageSet, encoder: Encoder, out: Path, plan: EmbedPlan) -> None:
    from ..data.embed import BadImagesError, embed_images
    from .progress import bar

    try:
        with bar("embed", len(images), "images") as advance:
            embeddings = embed_images(images, encoder, out, plan, advance)
    except BadImagesError as error:
        for image in error.bad:
            line(image.message, err=True)
        raise
    line(f"{out}: {len(embeddings)} images, {len(images) - len(embeddings)} left out", err=True)
