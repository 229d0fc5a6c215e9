"""Embedding files: one safetensors file holds the views, the labels, the classifier and how they were made.

Tensors: ``views`` (n, V, D) float16 or float32, ``labels`` (n,) and ``domain`` (n,) int32, ``text`` (C, D) float32,
``index`` (n,) int64 (which source image), and, where a federation is fixed, ``client`` (n,) int32 in stream order.
Metadata (strings): ``format``, ``name``, ``classes``, ``domains`` and ``templates`` as JSON lists, ``scale``,
``encoder``, ``sources`` (JSON object: file -> sha256), ``made`` (a sentence). docs/embedding-files.md has the details.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.validate import refuse
from ..core.zero_shot import ZeroShot
from .benchmark import ClientStream, Embeddings, Federation

FORMAT = "latte-embeddings/1"


def save(path: Path, embeddings: Embeddings, client: NDArray[Any] | None = None) -> None:
    """Write ``embeddings`` to ``path``; ``client`` (n,) fixes who sees which sample."""
    from safetensors.numpy import save_file

    zero_shot = embeddings.zero_shot
    arrays = {
        "views": np.ascontiguousarray(embeddings.views),
        "labels": embeddings.labels.astype(np.int32),
        "domain": embeddings.domain.astype(np.int32),
        "text": np.ascontiguousarray(zero_shot.text),
    }
    if client is not None:
        arrays["client"] = np.asarray(client, np.int32)
    metadata = {
        **embeddings.metadata,
        "format": FORMAT,
        "name": embeddings.name,
        "classes": json.dumps(zero_shot.classnames),
        "domains": json.dumps(embeddings.domains),
        "scale": repr(zero_shot.scale),
    }
    save_file(arrays, path, metadata=metadata)


def load(path: Path) -> Embeddings:
    """Read an embedding file."""
    arrays, metadata = _read(path)
    return _embeddings(arrays, metadata)


def load_federation(path: Path) -> Federation:
    """Read an embedding file that says which client sees which sample."""
    arrays, metadata = _read(path)
    if "client" not in arrays:
        raise refuse(str(path), "no fixed clients", "a file with a 'client' tensor (or a partition)")
    embeddings = _embeddings(arrays, metadata)
    owner = arrays["client"]
    streams = []
    for number in range(int(owner.max()) + 1):
        samples = np.flatnonzero(owner == number)
        domain = int(embeddings.domain[samples[0]])
        streams.append(ClientStream(f"{embeddings.domains[domain]}-{number}", domain, samples))
    return Federation(embeddings, tuple(streams))


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise refuse("embedding file", f"{path}, which is not there", "a file that exists") from None
    except SafetensorError as error:
        raise refuse(str(path), f"a damaged file ({error})", "a safetensors file") from None
    if metadata.get("format") != FORMAT:
        raise refuse(str(path), f"format {metadata.get('format')!r}", repr(FORMAT))
    return arrays, metadata


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
    )
