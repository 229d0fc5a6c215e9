"""Benchmarks by name: the bundled ones, and the embedding files in the data folder; rows for choosing parameters."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from ..core.types import Integers
from ..core.validate import NORM_TOLERANCE, near
from ..errors import InputError, refuse
from ..files.documents import checksum, parse_toml
from .bundled import BUNDLED_FILE, DEMO_FILE
from .embeddings import describe_npz, load_embeddings
from .federation import Embeddings, federate, fixed_federation, generators

BUNDLED = {"cifar10c-mini": BUNDLED_FILE, "pacs-demo": DEMO_FILE}
UNKNOWN = "unknown"  # the encoder, where the file does not name it
FILE_SUFFIXES = (".npz", ".safetensors")  # the later one wins where a name has both
_ROWS = 4096  # checked at a time, so that a mapped file never has to fit in memory


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    """A benchmark's name and the file of its embeddings."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class BenchmarkSummary:
    """The size of a benchmark, and the encoder of its embeddings."""

    images: int
    views: int
    classes: int
    domains: int
    encoder: str


def data_folder(folder: Path | None = None) -> Path:
    """Return the folder of embedding files: ``folder``, else $LATTE_DATA, else the user's data folder."""
    if folder is not None:
        return Path(folder)
    if os.environ.get("LATTE_DATA"):
        return Path(os.environ["LATTE_DATA"])
    from platformdirs import user_data_path

    return user_data_path("latte") / "embeddings"


def list_benchmarks(folder: Path | None = None) -> dict[str, BenchmarkFile]:
    """Return all benchmarks by name; the bundled ones come first, unless this installation was built without them."""
    where = data_folder(folder)
    if folder is not None and not where.is_dir():
        raise refuse("data folder", f"{where}, which is not there", "a folder of embedding files")
    benchmarks = {name: BenchmarkFile(name, path) for name, path in BUNDLED.items() if path.is_file()}
    for suffix in FILE_SUFFIXES:
        for path in sorted(where.glob(f"*{suffix}")):
            if path.stem not in benchmarks or path.is_file():  # a folder never hides a file
                benchmarks[path.stem] = BenchmarkFile(path.stem, path)
    return benchmarks


def find_benchmark(name: str, folder: Path | None = None) -> BenchmarkFile:
    """Return a benchmark by name or by the path of its file; an unknown name is refused with the near ones."""
    if name.endswith(FILE_SUFFIXES):
        return BenchmarkFile(Path(name).stem, Path(name))
    known = list_benchmarks(folder)
    if name not in known:
        where = f"a file, or a name in {data_folder(folder)} (--data DIR or LATTE_DATA changes the folder)"
        such = f", such as {', '.join(near(name, sorted(known)))}" if known else ""
        raise refuse("benchmark", repr(name), where + such)
    return known[name]


def read_benchmark(entry: BenchmarkFile) -> Embeddings:
    """Read the embeddings of a benchmark."""
    return load_embeddings(entry.path)


def summarise_benchmark(entry: BenchmarkFile) -> BenchmarkSummary:
    """Return the summary of a benchmark without reading its embeddings, however large they are."""
    if entry.path.suffix == ".npz":
        sizes, encoder = describe_npz(entry.path)
        return BenchmarkSummary(sizes["n"], sizes["V"], sizes["C"], sizes["K"], encoder or UNKNOWN)
    data = load_embeddings(entry.path)
    encoder = data.metadata.get("encoder", UNKNOWN)
    return BenchmarkSummary(len(data), data.views.shape[1], data.zero_shot.classes, len(data.domains), encoder)


def default_clients(embeddings: Embeddings, name: str) -> int | None:
    """Return the default number of clients per domain; None where the file fixes its clients.

    The paper has 10 per domain, and 3 for CIFAR-100-C.
    """
    if embeddings.client is not None:
        return None
    return 3 if name.lower().replace("-", "").startswith("cifar100c") else 10


def published_file(entry: BenchmarkFile) -> bool | None:
    """Return whether the published results were measured on this very file; None: they have no such benchmark."""
    known = parse_toml((files(__package__) / "measured.toml").read_bytes(), "measured.toml")
    found = checksum(entry.path) in known.values()
    return found if found or entry.name in known else None


def find_problems(embeddings: Embeddings) -> Iterator[str]:
    """Yield the problems that opening a file does not refuse: rows that no method accepts, clients with gaps."""
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
        except InputError as error:
            yield str(error)
    for domain, name in enumerate(embeddings.domains):
        if not (embeddings.domain == domain).any():
            yield f"domain {name!r} has no images"


def select_unseen(embeddings: Embeddings, clients_per_domain: int, reported: Sequence[int], seed: int) -> Embeddings:
    """Return every source image once, under a corruption that no seed of ``reported`` shows it under.

    ``embeddings`` hold every image in every domain (:func:`.is_crossed`). The images of each class are
    dealt to the domains as evenly as possible. An image that the reported seeds show in every domain is left out.
    """
    assert embeddings.index is not None
    used = np.zeros(len(embeddings), bool)  # rows that are in a client's stream under any of the seeds
    for reported_seed in reported:
        for client in federate(embeddings, clients_per_domain, reported_seed).clients:
            used[client.samples] = True
    table = np.lexsort((embeddings.domain, embeddings.index)).reshape(-1, len(embeddings.domains))  # (images, domains)
    free = ~used[table]
    if not free.any():
        raise refuse("seeds", f"{len(reported)}, which show every image in every domain", "fewer")
    labels = embeddings.labels[table[:, 0]]
    images = generators(seed).partition.permutation(np.flatnonzero(free.any(axis=1)))
    counts = np.zeros((int(labels.max()) + 1, free.shape[1]))
    rows = []
    for image in images:  # to the free domain that has the fewest of its class so far
        of_class = counts[labels[image]]
        domain = np.where(free[image], of_class, np.inf).argmin()
        of_class[domain] += 1
        rows.append(table[image, domain])
    return _subset(embeddings, np.sort(rows))


def exclude_reported(pool: Embeddings, reported: Embeddings) -> Embeddings:
    """Return the rows of ``pool`` that are not in ``reported``: another image, or the same under another corruption."""
    if pool.index is None or reported.index is None:
        raise refuse("index", "none", "files that say which source image each row is (latte embed)")
    known = {(image, reported.domains[d]) for image, d in zip(reported.index.tolist(), reported.domain, strict=True)}
    fresh = [(i, pool.domains[d]) not in known for i, d in zip(pool.index.tolist(), pool.domain, strict=True)]
    if not any(fresh):
        raise refuse("tuning file", "the rows that are reported", "images under other corruptions (latte embed --seed)")
    return _subset(pool, np.flatnonzero(fresh))


def _subset(embeddings: Embeddings, rows: Integers) -> Embeddings:
    """Return some of the rows, without the clients that the file fixes."""
    assert embeddings.index is not None
    return replace(
        embeddings,
        views=np.asarray(embeddings.views[rows]),
        labels=embeddings.labels[rows],
        domain=embeddings.domain[rows],
        index=embeddings.index[rows],
        client=None,
    )
