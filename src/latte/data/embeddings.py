"""Embedding files: one safetensors file holds the views, the labels, the classifier and how they were made.

Tensors: ``views`` (n, V, D) float16 or float32, ``labels`` (n,) and ``domain`` (n,) int32, ``text`` (C, D) float32,
``index`` (n,) int64 (which source image), and, where a federation is fixed, ``client`` (n,) int32 in stream order.
Metadata (strings): ``format``, ``name``, ``classes``, ``domains`` and ``templates`` as JSON lists, ``scale``,
``encoder``, ``sources`` (JSON object: file -> sha256), ``made`` (a sentence). docs/embedding-files.md has the details.

``views`` is memory-mapped: opening a file of many gigabytes reads little more than its labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..core.zero_shot import ZeroShot
from ..errors import InputError, refuse
from ..files.documents import parse_json
from ..files.schema import refuse_inside, shorten, structure
from ..files.tensors import read_safetensors, write_safetensors
from .benchmark import ClientStream, Embeddings, Federation

EMBEDDINGS_FORMAT = "latte-embeddings/1"
REQUIRED = ("views", "labels", "domain", "text")
OPTIONAL = ("index", "client")
_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_TYPES = {
    "views": ("float16", "float32"), "text": ("float16", "float32"),
    "labels": _WHOLE, "domain": _WHOLE, "index": _WHOLE, "client": _WHOLE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EmbeddingsInfo:
    """The metadata that every embedding file has, under its keys: ``classes`` are the class names."""

    name: str
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    scale: float


def save_embeddings(path: Path, embeddings: Embeddings, client: NDArray[Any] | None = None) -> None:
    """Write ``embeddings`` to ``path``; ``client`` (n,) assigns the samples to clients."""
    write_safetensors(Path(path), _tensors(embeddings, client), _strings(embeddings))


def load_embeddings(path: Path) -> Embeddings:
    """Read an embedding file; its views stay on disk until they are used. A ``.npz`` file is read whole.

    A class name that occurs again gets a number: see :func:`numbered`.
    """
    if Path(path).suffix == ".npz":
        from .npz import convert_npz

        return convert_npz(Path(path))
    arrays, metadata = _read(Path(path))
    about = _read_info(Path(path), metadata)
    try:
        return _embeddings(arrays, metadata, about)
    except InputError as error:
        raise refuse_inside(path, error) from None


def load_federation(path: Path) -> Federation:
    """Read an embedding file that assigns its samples to clients."""
    embeddings = load_embeddings(path)
    if embeddings.client is None:
        raise refuse(str(path), "no fixed clients", "a file with a 'client' tensor (or a partition)")
    return fixed_federation(embeddings)


def fixed_federation(embeddings: Embeddings) -> Federation:
    """Return the federation that the file itself fixes, every stream in the order of the file."""
    owner = embeddings.client
    if owner is None or not len(owner):
        raise refuse("client", "no fixed clients", "embeddings with a 'client' tensor (or a partition)")
    streams = [_stream(embeddings, owner, number) for number in range(int(owner.max()) + 1)]
    return Federation(embeddings, tuple(streams))


# --- writing ----------------------------------------------------------------------------------------------


def _tensors(embeddings: Embeddings, client: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    arrays = {
        "views": np.ascontiguousarray(embeddings.views),
        "labels": embeddings.labels.astype(np.int32),
        "domain": embeddings.domain.astype(np.int32),
        "text": np.ascontiguousarray(embeddings.zero_shot.text),
    }
    if embeddings.index is not None:
        arrays["index"] = embeddings.index.astype(np.int64)
    owner = embeddings.client if client is None else client
    if owner is not None:
        arrays["client"] = np.asarray(owner, np.int32)
    return arrays


def _strings(embeddings: Embeddings) -> dict[str, str]:
    return {
        **embeddings.metadata,
        "format": EMBEDDINGS_FORMAT,
        "name": embeddings.name,
        "classes": json.dumps(embeddings.zero_shot.classnames),
        "domains": json.dumps(embeddings.domains),
        "scale": repr(embeddings.zero_shot.scale),
    }


# --- reading ----------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    tensors = read_safetensors(path, "embedding file", mapped=("views",), only=(*REQUIRED, *OPTIONAL))
    arrays, metadata = tensors.arrays, tensors.metadata
    if metadata.get("format") != EMBEDDINGS_FORMAT:
        raise refuse(str(path), f"format {shorten(repr(metadata.get('format')))}", repr(EMBEDDINGS_FORMAT))
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise refuse(str(path), f"no tensor {', '.join(missing)}", "the tensors " + ", ".join(REQUIRED))
    for name, kinds in _TYPES.items():
        if name in arrays and arrays[name].dtype.name not in kinds:
            raise refuse(f"{path}: {name}", f"dtype {arrays[name].dtype}", " or ".join(kinds))
    return arrays, metadata


def _read_info(path: Path, metadata: dict[str, str]) -> EmbeddingsInfo:
    """Return the required metadata; three of them are JSON."""
    lists = [key for key in ("classes", "domains", "scale") if key in metadata]
    values = {key: parse_json(metadata[key], f"{path}: {key}") for key in lists}
    return structure({**metadata, **values}, EmbeddingsInfo, f"{path}: metadata", extra=True)


def _embeddings(arrays: dict[str, NDArray[Any]], metadata: dict[str, str], about: EmbeddingsInfo) -> Embeddings:
    return Embeddings(
        about.name,
        ZeroShot(arrays["text"], numbered(about.classes), about.scale),
        arrays["views"],
        arrays["labels"].astype(np.int64),
        arrays["domain"].astype(np.int64),
        about.domains,
        metadata,
        integers(arrays.get("index")),
        integers(arrays.get("client")),
    )


def numbered(names: Iterable[str]) -> tuple[str, ...]:
    """Return class names of which each is there once: ImageNet has two cranes, and the second gets a number.

    >>> numbered(["crane", "dog", "crane", "crane (2)"])
    ('crane', 'dog', 'crane (3)', 'crane (2)')
    """
    names = list(names)
    taken, found = set(names), list[str]()
    for name in names:
        number = 2
        while name in found and f"{name} ({number})" in taken:
            number += 1
        found.append(f"{name} ({number})" if name in found else name)
        taken.add(found[-1])
    return tuple(found)


def integers(array: NDArray[Any] | None) -> Integers | None:
    """Return an optional column of a file as int64, None where it is absent."""
    return None if array is None else array.astype(np.int64)


def _stream(embeddings: Embeddings, owner: Integers, number: int) -> ClientStream:
    samples = np.flatnonzero(owner == number)
    domains = np.unique(embeddings.domain[samples])
    if not len(samples):
        raise refuse("client", f"no sample of client {number}", "clients numbered from 0 on without gaps")
    if len(domains) != 1:
        raise refuse(f"client {number}", f"samples of {len(domains)} domains", "samples of exactly one domain")
    domain = int(domains[0])
    return ClientStream(f"{embeddings.domains[domain]}-{number}", domain, samples)
