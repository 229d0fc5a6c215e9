"""``latte data``, ``embed`` and ``export``: embedding files, how to make them, and encoders as ONNX folders."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..errors import InputError, refuse
from . import options
from .output import absolute, bar, line, print_rows, problem


@click.group()
def data() -> None:
    """List, show, check and convert embedding files, and fetch datasets of images."""


@data.command("list")
@options.DATA
@options.JSON
def list_data(data: Path | None, as_json: bool) -> None:
    """List the bundled benchmarks and those in the data folder."""
    from ..data.catalogue import list_benchmarks, summarise_benchmark

    rows = []
    for entry in list_benchmarks(data).values():
        try:
            facts: dict[str, Any] = asdict(summarise_benchmark(entry))
        except InputError as error:
            empty = dict.fromkeys(("images", "views", "classes", "domains"))
            facts = {**empty, "encoder": f"cannot be read: {error}"}
        rows.append({"name": entry.name, **facts, "file": str(entry.path)})
    print_rows(rows, as_json)


@data.command("show")
@click.argument("name")
@options.DATA
@options.JSON
def show(name: str, data: Path | None, as_json: bool) -> None:
    """Show what is in the benchmark NAME, or in a file."""
    import numpy as np

    from ..data.catalogue import default_clients, find_benchmark, read_benchmark
    from ..files.documents import checksum

    entry = find_benchmark(name, data)
    embeddings = read_benchmark(entry)
    logits = embeddings.zero_shot.logits(np.asarray(embeddings.views[:, 0], np.float32))
    right = 100 * float((logits.argmax(axis=1) == embeddings.labels).mean()) if len(embeddings) else float("nan")
    clients = default_clients(embeddings, entry.name)
    facts = {
        "name": entry.name,
        "file": str(entry.path),
        "sha256": checksum(entry.path),
        "fingerprint": embeddings.zero_shot.fingerprint,
        "encoder": embeddings.metadata.get("encoder", "unknown"),
        "images": embeddings.views.shape[0],
        "views": embeddings.views.shape[1],
        "dimensions": embeddings.views.shape[2],
        "scale": embeddings.zero_shot.scale,
        "zero-shot": f"{right:.2f} %",
        "clients": f"{clients} per domain" if clients else "fixed by the file",
        "domains": {name: int((embeddings.domain == i).sum()) for i, name in enumerate(embeddings.domains)},
        "classes": list(embeddings.zero_shot.classnames),
        "made": embeddings.metadata.get("made", "unknown"),
    }
    if as_json:
        line(json.dumps(facts))
        return
    for key, value in facts.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        line(f"{key:<12} {', '.join(text) if isinstance(text, list) else text}")


@data.command("check")
@click.argument("names", nargs=-1)
@options.DATA
@options.JSON
def check(names: tuple[str, ...], data: Path | None, as_json: bool) -> None:
    """Check that the files of benchmarks are sound.

    A sound file is whole, its shapes fit, its embeddings are unit rows and no domain is empty. Without NAMES, all
    benchmarks are checked. Of a benchmark with published results, it is also said whether they were measured on this
    very file.
    """
    from ..data.catalogue import find_benchmark, find_problems, list_benchmarks, published_file, read_benchmark

    note = {True: ", the file of the published results", False: ", not the file of the published results", None: ""}

    chosen = [find_benchmark(name, data) for name in names] if names else list(list_benchmarks(data).values())
    rows: list[dict[str, Any]] = []
    for entry in chosen:
        published = None
        try:
            faults = list(find_problems(read_benchmark(entry)))
            published = published_file(entry)
        except InputError as error:
            faults = [str(error)]
        rows.append({"name": entry.name, "faults": faults, "published": published})
        if not as_json:
            line(f"{entry.name}: {'; '.join(faults) or 'ok'}{note[published]}")
    if as_json:
        line(json.dumps(rows))
    if bad := sum(bool(row["faults"]) for row in rows):
        problem(f"{bad} of {len(chosen)} files are not sound")
        sys.exit(2)


@data.command("convert")
@click.argument("source", type=options.InputFile())
@click.argument("out", type=options.OutputFile())
@click.option("--labels", type=options.InputFile(), help="File with the labels, if SOURCE has none.")
@click.option(
    "--text", type=options.InputFile(), help="File with the text embeddings (C, D) or (D, C), if SOURCE has none."
)
@click.option("--classes", "classnames", help="Class names, comma-separated, or a file, if SOURCE has none.")
@click.option("--scale", type=click.FloatRange(0, min_open=True), default=100.0, show_default=True, help="Logit scale.")
@click.option("--encoder", help="The name of the encoder, to be recorded.")
def convert(
    source: Path,
    out: Path,
    labels: Path | None,
    text: Path | None,
    classnames: str | None,
    scale: float,
    encoder: str | None,
) -> None:
    """Convert SOURCE to the embedding file OUT (.safetensors).

    SOURCE is a .npz file of docs/files.md, or a feature cache of other code: .npz, .npy or .pt with features,
    labels, text embeddings and class names under the names in use. The options are for such a cache.
    """
    from ..data.caches import read_cache
    from ..data.embeddings import convert_npz, is_embedding_npz, save_embeddings
    from .classify import read_classnames

    if out.suffix != ".safetensors":
        raise refuse("OUT", f"{out}", "a name that ends in .safetensors")
    if is_embedding_npz(source):
        embeddings = convert_npz(source)
    else:
        names = None if classnames is None else tuple(read_classnames(classnames))
        embeddings = read_cache(source, labels, text, names, scale, encoder)
    save_embeddings(out, embeddings)
    line(f"{out}: {len(embeddings)} images", err=True)


@data.command("fetch")
@click.argument("name", required=False)
@click.option(
    "--out",
    type=options.OutputFolder(),
    default=Path("data"),
    show_default=True,
    help="Folder that the dataset goes to.",
)
@click.option("--from", "source", type=options.Folder(exists=True), help="Folder in which the dataset already is.")
def fetch(name: str | None, out: Path, source: Path | None) -> None:
    """Get the images of the dataset NAME; without NAME, list the names.

    The dataset is downloaded and its checksums are compared, or it is taken from a folder (--from). An interrupted
    download resumes. Some datasets must be downloaded by hand: the command prints the page and the folder they go to.
    """
    from ..core.validate import near
    from ..data.fetch import dataset_sources
    from ..data.fetch import fetch_dataset as get

    known = dataset_sources()
    if name is None:
        how = {True: "by hand: the command prints the page", False: "downloaded"}
        print_rows([{"name": one, "how": how[bool(known[one].manual)]} for one in sorted(known)], False)
        return
    if name not in known:
        raise click.UsageError(f"no dataset {name!r}; there is {', '.join(near(name, sorted(known)))}")
    if known[name].manual:  # nothing is downloaded: it is checked, or the steps are printed
        line(str(get(name, out, source)))
        return
    try:
        with bar(name, known[name].sums.size or 0, "bytes") as advance:
            place = get(name, out, source, absolute(advance))
    except ConnectionError as error:
        raise click.ClickException(str(error)) from None
    line(str(place))


@click.command()
@click.argument("dataset")
@options.ENCODER
@options.DEVICE
@options.NUMBERS
@options.BATCH
@click.option("--out", required=True, type=options.OutputFile(), help="The .safetensors file to write.")
@click.option("--views", default="0", help="Random views besides the plain image: 63 (AugMix) or crop_flip:63.")
@options.TEMPLATES
@options.DESCRIPTIONS
@click.option(
    "--severity",
    type=click.IntRange(1, 5),
    default=5,
    show_default=True,
    help="Severity of the corruptions of CIFAR-C.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    help="Seed of the random views, the corruptions and their assignment to images.",
)
@click.option(
    "--frost",
    type=options.Folder(exists=True),
    help="Folder of frost images for cifar10c: and cifar100c:, instead of the drawn frost.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float16", "float32"]),
    default="float16",
    show_default=True,
    help="Precision in the file.",
)
@click.option("--skip-bad", is_flag=True, help="Leave unreadable images out instead of refusing them.")
def embed(
    dataset: str,
    encoder: str,
    device: str,
    compute: str,
    batch: int,
    out: Path,
    views: str,
    templates: str | None,
    descriptions: Path | None,
    severity: int,
    seed: int,
    frost: Path | None,
    dtype: str,
    skip_bad: bool,
) -> None:
    """Embed the images of DATASET.

    DATASET is folder:DIR (DIR/domain/class/image), classes:DIR (DIR/class/image), imagenet:DIR (folders n01440764 or
    0 to 999), coop:PATH (a split_zhou_*.json: its test images), vlcs:DIR, terra:DIR, pacs:DIR,
    cifar10:PATH, cifar100:PATH, cifar10c:PATH, cifar100c:PATH (the official CIFAR, corrupted here), or
    cifar10c-npy:DIR, cifar100c-npy:DIR (the published test images). After an interruption, the same command continues.
    """
    import os

    from ..core.validate import whole
    from ..data.corruptions import load_textures
    from ..data.embed import BadImagesError, EmbedPlan, embed_images
    from ..data.images import CorruptionPlan, open_images
    from ..encoders import check_encoder_spec, read_descriptions, read_templates
    from ..encoders.views import MOST_VIEWS, ViewPlan

    if out.suffix != ".safetensors":
        raise click.BadParameter("it should end in .safetensors", param_hint="--out")
    check_encoder_spec(encoder)
    textures = None if frost is None else load_textures(frost)
    words = None if templates is None else read_templates(templates)
    sentences = None if descriptions is None else read_descriptions(descriptions)
    kind, _, digits = views.rpartition(":")
    count = whole("--views (a number, or crop_flip:NUMBER)", digits, 0, MOST_VIEWS)
    random_views = ViewPlan(kind or "augmix", count, seed) if count else None
    plan = EmbedPlan(random_views, words, dtype, os.cpu_count() or 1, skip_bad, batch, sentences)
    images = open_images(dataset, CorruptionPlan(severity, seed, textures))
    model = options.open_encoder(encoder, device, compute)
    try:
        with bar("embed", len(images), "images") as advance:
            embeddings = embed_images(images, model, out, plan, advance)
    except BadImagesError as error:
        for image in error.bad:
            line(image.message, err=True)
        raise
    line(f"{out}: {len(embeddings)} images, {len(images) - len(embeddings)} left out", err=True)


@click.command()
@click.argument("encoder")
@click.argument("out", type=options.OutputFolder())
@click.option(
    "--variants", default="fp32", show_default=True, help="fp32, and on request fp16 and int8, comma-separated."
)
@click.option(
    "--images", type=click.Path(exists=True, path_type=Path), help="Images to compare on (default: synthetic)."
)
@options.JSON
def export(encoder: str, out: Path, variants: str, images: Path | None, as_json: bool) -> None:
    """Write ENCODER (hf:ID, openclip:MODEL/WEIGHTS or a folder) to the folder OUT: image, text, tokenizer, model.json.

    Prints how well every variant agrees with the original: cosines of the same images and texts, and the largest
    difference of any number. fp32 is refused above 1e-4.
    """
    from ..edge.classify.classify import find_pictures
    from ..encoders.export import export_onnx

    pictures = None if images is None else find_pictures([images])
    agreements = export_onnx(encoder, out, tuple(part.strip() for part in variants.split(",")), pictures)
    rows: list[dict[str, Any]] = [asdict(agreement) for agreement in agreements]
    for row in [] if as_json else rows:  # a cosine of 1.00 would say nothing
        row |= {name: f"{row[name]:.7f}" for name in row if name.endswith(("_mean", "_min"))}
        row["largest"] = f"{row['largest']:.1e}"
    print_rows(rows, as_json)
