"""Embedding files: one safetensors file holds the views, the labels, the classifier and how they were made.

Tensors: ``views`` (n, V, D) float16 or float32, ``labels`` (n,) and ``domain`` (n,) int32, ``text`` (C, D) float32,
``index`` (n,) int64 (which source image), and, where a federation is fixed, ``client`` (n,) int32 in stream order.
Metadata (strings): ``format``, ``name``, ``classes``, ``domains`` and ``templates`` as JSON lists, ``scale``,
``encoder``, ``sources`` (JSON object: file -> sha256), ``made`` (a sentence). docs/embedding-files.md has the details.

``views`` is memory-mapped on read: opening a file of many gigabytes costs what its labels cost.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..core.validate import refuse
from ..core.zero_shot import ZeroShot
from .benchmark import ClientStream, Embeddings, Federation
from .files import write_safetensors

FORMAT = "latte-embeddings/1"
REQUIRED = ("views", "labels", "domain", "text")
_FLOATS: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


def save(path: Path, embeddings: Embeddings, client: NDArray[Any] | None = None) -> None:
    """Write ``embeddings`` to ``path``; ``client`` (n,) fixes who sees which sample."""
    write_safetensors(Path(path), _tensors(embeddings, client), _strings(embeddings))


def load(path: Path) -> Embeddings:
    """Read an embedding file; its views stay on disk until they are used."""
    arrays, metadata = _read(Path(path))
    try:
        return _embeddings(arrays, metadata)
    except KeyError as error:
        raise refuse(str(path), f"no {error} in its metadata", "a complete embedding file") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def load_federation(path: Path) -> Federation:
    """Read an embedding file that says which client sees which sample."""
    embeddings = load(path)
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


def checksum(path: Path) -> str:
    """Return the sha256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        "format": FORMAT,
        "name": embeddings.name,
        "classes": json.dumps(embeddings.zero_shot.classnames),
        "domains": json.dumps(embeddings.domains),
        "scale": repr(embeddings.zero_shot.scale),
    }


# --- reading ----------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:  # checks the header against the length of the file
            metadata = file.metadata() or {}
            names = list(file.keys())
            arrays = {name: file.get_tensor(name) for name in names if name != "views"}
    except FileNotFoundError:
        raise refuse("embedding file", f"{path}, which is not there", "a file that exists") from None
    except (SafetensorError, OSError) as error:
        raise refuse(str(path), f"a damaged or truncated file ({error})", "a whole safetensors file") from None
    if metadata.get("format") != FORMAT:
        raise refuse(str(path), f"format {metadata.get('format')!r}", repr(FORMAT))
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise refuse(str(path), f"no tensor {', '.join(missing)}", "the tensors " + ", ".join(REQUIRED))
    return {**arrays, "views": _mapped(path)}, metadata


def _mapped(path: Path) -> NDArray[Any]:
    """Map ``views`` from disk: eight bytes of header length, the header as JSON, then the tensors."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))["views"]
    if entry["dtype"] not in _FLOATS:
        raise refuse(f"{path}: views", f"dtype {entry['dtype']}", "float16 or float32")
    shape, dtype = tuple(entry["shape"]), _FLOATS[entry["dtype"]]
    if 0 in shape:
        return np.zeros(shape, dtype)  # nothing cannot be mapped
    return np.memmap(path, dtype, "r", offset=8 + length + entry["data_offsets"][0], shape=shape)


def _embeddings(arrays: dict[str, NDArray[Any]], metadata: dict[str, str]) -> Embeddings:
    zero_shot = ZeroShot(arrays["text"], tuple(json.loads(metadata["classes"])), float(metadata["scale"]))
    return Embeddings(
        metadata["name"],
        zero_shot,
        arrays["views"],
        arrays["labels"].astype(np.int64),
        arrays["domain"].astype(np.int64),
        tuple(json.loads(metadata["domains"])),
        metadata,
        _whole(arrays.get("index")),
        _whole(arrays.get("client")),
    )


def _whole(array: NDArray[Any] | None) -> Integers | None:
    return None if array is None else array.astype(np.int64)


def _stream(embeddings: Embeddings, owner: Integers, number: int) -> ClientStream:
    samples = np.flatnonzero(owner == number)
    domains = np.unique(embeddings.domain[samples])
    if len(domains) != 1:
        raise refuse(f"client {number}", f"samples of {len(domains)} domains", "samples of exactly one domain")
    domain = int(domains[0])
    return ClientStream(f"{embeddings.domains[domain]}-{number}", domain, samples)
