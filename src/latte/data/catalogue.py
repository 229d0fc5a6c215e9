"""Benchmarks by name: the bundled one, and the embedding files in the data folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.validate import NORM_TOLERANCE, near, refuse
from .benchmark import Embeddings
from .bundled import FILE
from .embeddings import fixed_federation, load
from .npz import convert_npz, describe_npz

BUNDLED = "cifar10c-mini"
UNKNOWN = "unknown"  # the encoder, where a file does not say
FILE_SUFFIXES = (".npz", ".safetensors")  # the later one wins where a name has both
_ROWS = 4096  # checked at a time, so that a mapped file never has to fit in memory


@dataclass(frozen=True, slots=True)
class Entry:
    """A benchmark by name: where its embeddings are."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Summary:
    """How large a benchmark is, and what made it."""

    images: int
    views: int
    classes: int
    domains: int
    encoder: str


def data_folder(given: Path | None = None) -> Path:
    """Return where embedding files are looked for: ``given``, else $LATTE_DATA, else the user's data folder."""
    if given is not None:
        return Path(given)
    if os.environ.get("LATTE_DATA"):
        return Path(os.environ["LATTE_DATA"])
    from platformdirs import user_data_path

    return user_data_path("latte") / "embeddings"


def entries(folder: Path | None = None) -> dict[str, Entry]:
    """Return every benchmark there is, by name; the bundled one comes first."""
    where = data_folder(folder)
    if folder is not None and not where.is_dir():
        raise refuse("data folder", f"{where}, which is not there", "a folder of embedding files")
    found = {BUNDLED: Entry(BUNDLED, FILE)}
    for suffix in FILE_SUFFIXES:
        for path in sorted(where.glob(f"*{suffix}")):
            if path.stem not in found or path.is_file():  # what is no file never hides one
                found[path.stem] = Entry(path.stem, path)
    return found


def find(name: str, folder: Path | None = None) -> Entry:
    """Return a benchmark by name or by the path of its file; an unknown name is refused with the near ones."""
    if name.endswith(FILE_SUFFIXES):
        return Entry(Path(name).stem, Path(name))
    known = entries(folder)
    if name not in known:
        where = f"a file, or a name in {data_folder(folder)} (--data DIR or LATTE_DATA changes the folder)"
        raise refuse("benchmark", repr(name), f"{where}, such as {', '.join(near(name, sorted(known)))}")
    return known[name]


def open_entry(entry: Entry) -> Embeddings:
    """Read the embeddings of a benchmark."""
    return convert_npz(entry.path) if entry.path.suffix == ".npz" else load(entry.path)


def summarise(entry: Entry) -> Summary:
    """Return what is in a benchmark without reading its embeddings, however large they are."""
    if entry.path.suffix == ".npz":
        sizes, encoder = describe_npz(entry.path)
        return Summary(sizes["n"], sizes["V"], sizes["C"], sizes["K"], encoder or UNKNOWN)
    data = load(entry.path)
    encoder = data.metadata.get("encoder", UNKNOWN)
    return Summary(len(data), data.views.shape[1], data.zero_shot.classes, len(data.domains), encoder)


def default_clients(embeddings: Embeddings, name: str) -> int | None:
    """Return the clients per domain that a benchmark has unless told: None for those that the file fixes.

    The paper has 10 per domain, and 3 for CIFAR-100-C.
    """
    if embeddings.client is not None:
        return None
    return 3 if name.lower().replace("-", "").startswith("cifar100c") else 10


def problems(embeddings: Embeddings) -> Iterator[str]:
    """Yield what is wrong with embeddings beyond what opening them already refuses: rows that no method accepts."""
    for start in range(0, len(embeddings), _ROWS):
        rows = np.asarray(embeddings.views[start : start + _ROWS], np.float32)
        lengths = np.sqrt(np.einsum("nvd,nvd->nv", rows, rows))
        bad = ~(np.abs(lengths - 1) < NORM_TOLERANCE)  # NaN fails too
        if bad.any():
            image, view = np.argwhere(bad)[0]
            yield (
                f"image {start + image}, view {view}: length {lengths[image, view]:.6g}, want 1 "
                f"({int(bad.sum())} such rows among images {start} to {start + len(rows) - 1})"
            )
    if embeddings.client is not None:
        try:
            fixed_federation(embeddings)
        except ValueError as error:
            yield str(error)
    for domain, name in enumerate(embeddings.domains):
        if not (embeddings.domain == domain).any():
            yield f"domain {name!r} has no images"
