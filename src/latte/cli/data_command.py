"""``latte data``: which benchmarks there are, what is in them, whether they are sound."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .arguments import Folder, InputFile, OutputFile, OutputFolder
from .output import line, print_rows, problem

if TYPE_CHECKING:
    from ..data.benchmark import Embeddings
    from ..data.catalogue import BenchmarkFile

_DATA = click.option("--data", type=Folder(), help="Folder of embedding files (default: $LATTE_DATA).")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def data() -> None:
    """List, show, check and convert embedding files."""


@data.command("ls")
@_DATA
@_JSON
def ls(data: Path | None, as_json: bool) -> None:
    """List the benchmarks: the bundled ones, and the embedding files in the data folder."""
    from ..data.catalogue import list_benchmarks

    print_rows([_line(entry) for entry in list_benchmarks(data).values()], as_json)


@data.command("show")
@click.argument("name")
@_DATA
@_JSON
def show(name: str, data: Path | None, as_json: bool) -> None:
    """Show what is in the benchmark NAME (or file)."""
    from ..data.catalogue import find_benchmark, read_benchmark

    entry = find_benchmark(name, data)
    facts = _facts(entry, read_benchmark(entry))
    if as_json:
        line(json.dumps(facts))
        return
    for key, value in facts.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        line(f"{key:<12} {', '.join(text) if isinstance(text, list) else text}")


@data.command("check")
@click.argument("names", nargs=-1)
@_DATA
def check(names: tuple[str, ...], data: Path | None) -> None:
    """Check benchmarks (default: all): whole files, shapes that fit, unit rows, no empty domain."""
    from ..data.catalogue import find_benchmark, list_benchmarks

    chosen = [find_benchmark(name, data) for name in names] if names else list(list_benchmarks(data).values())
    bad = 0
    for entry in chosen:
        faults = _problems(entry)
        bad += bool(faults)
        line(f"{entry.name}: {'; '.join(faults) or 'ok'}")
    if bad:
        problem(f"{bad} of {len(chosen)} files are not sound")
        sys.exit(2)


@data.command("convert")
@click.argument("source", type=InputFile())
@click.argument("target", type=OutputFile())
def convert(source: Path, target: Path) -> None:
    """Convert the .npz file SOURCE to the embedding file TARGET (.safetensors)."""
    from ..data.embeddings import save_embeddings
    from ..data.npz import convert_npz
    from ..errors import refuse

    if target.suffix != ".safetensors":
        raise refuse("target", f"{target}", "a name that ends in .safetensors")
    embeddings = convert_npz(source)
    save_embeddings(target, embeddings)
    line(f"{target}: {len(embeddings)} images", err=True)


@data.command("fetch")
@click.argument("name")
@click.option("--to", "dest", type=OutputFolder(), default=Path("data"), show_default=True)
@click.option("--from", "source", type=Folder(exists=True), help="Where it already is.")
def fetch(name: str, dest: Path, source: Path | None) -> None:
    """Get the images of the dataset NAME: download it with checksums, or take it from a folder.

    An interrupted download resumes. Some datasets must be downloaded by hand; the command prints the page and the
    target folder.
    """
    from ..core.validate import near
    from ..data.fetch import dataset_sources
    from ..data.fetch import fetch_dataset as get
    from .progress import absolute, bar

    known = dataset_sources()
    if name not in known:
        raise click.UsageError(f"no dataset {name!r}; there is {', '.join(near(name, sorted(known)))}")
    if known[name].manual:  # nothing is downloaded: it is checked, or the steps are printed
        line(str(get(name, dest, source)))
        return
    try:
        with bar(name, known[name].sums.size or 0, "bytes") as advance:
            place = get(name, dest, source, absolute(advance))
    except ConnectionError as error:
        raise click.ClickException(str(error)) from None
    line(str(place))


def _line(entry: BenchmarkFile) -> dict[str, Any]:
    from ..data.catalogue import summarise_benchmark

    try:
        facts: dict[str, Any] = asdict(summarise_benchmark(entry))
    except InputError as error:
        empty = dict.fromkeys(("images", "views", "classes", "domains"))
        facts = {**empty, "encoder": f"cannot be read: {error}"}
    return {"name": entry.name, **facts, "file": str(entry.path)}


def _facts(entry: BenchmarkFile, embeddings: Embeddings) -> dict[str, Any]:
    from ..data.catalogue import default_clients
    from ..files.checksums import checksum

    counts = {name: int((embeddings.domain == i).sum()) for i, name in enumerate(embeddings.domains)}
    clients = default_clients(embeddings, entry.name)
    n, views, dim = embeddings.views.shape
    return {
        "name": entry.name,
        "file": str(entry.path),
        "sha256": checksum(entry.path),
        "fingerprint": embeddings.zero_shot.fingerprint,
        "encoder": embeddings.metadata.get("encoder", "unknown"),
        "images": n,
        "views": views,
        "dimensions": dim,
        "scale": embeddings.zero_shot.scale,
        "zero-shot": f"{_zero_shot(embeddings):.2f} %",
        "clients": f"{clients} per domain" if clients else "fixed by the file",
        "domains": counts,
        "classes": list(embeddings.zero_shot.classnames),
        "made": embeddings.metadata.get("made", "unknown"),
    }


def _zero_shot(embeddings: Embeddings) -> float:
    import numpy as np

    logits = embeddings.zero_shot.logits(np.asarray(embeddings.views[:, 0], np.float32))
    return float(100 * (logits.argmax(axis=1) == embeddings.labels).mean()) if len(embeddings) else float("nan")


def _problems(entry: BenchmarkFile) -> list[str]:
    from ..data.catalogue import find_problems, read_benchmark

    try:
        return list(find_problems(read_benchmark(entry)))
    except InputError as error:
        return [str(error)]
