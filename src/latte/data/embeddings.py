"""Embedding files: one safetensors file holds the views, the labels, the classifier and how they were made.

Tensors: ``views`` (n, V, D) float16 or float32, ``labels`` (n,) and ``domain`` (n,) int32, ``text`` (C, D) float32,
``index`` (n,) int64 (which source image), and, where a federation is fixed, ``client`` (n,) int32 in stream order.
Metadata (strings): ``format``, ``name``, ``classes``, ``domains`` and ``templates`` as JSON lists, ``scale``,
``encoder``, ``sources`` (JSON object: file -> sha256), ``made`` (a sentence). docs/files.md has the details.

``views`` is memory-mapped: opening a file of many gigabytes reads little more than its labels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.validate import float32
from ..core.zero_shot import ZeroShot
from ..errors import InputError, refuse
from ..files.arrays import ArrayHeader, Npz, open_npz
from ..files.documents import check_text, checksum, parse_json, refuse_inside, shorten, structure
from ..files.tensors import read_safetensors, write_safetensors
from .federation import Embeddings, Federation, fixed_federation

EMBEDDINGS_FORMAT = "latte-embeddings/1"
KIND = "embedding file"
REQUIRED = ("views", "labels", "domain", "text")
OPTIONAL = ("index", "client")
_FLOATS, _WHOLE = ("float16", "float32"), ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


@dataclass(frozen=True, slots=True)
class EmbeddingsInfo:
    """The metadata that every embedding file has, under its keys: ``classes`` are the class names."""

    name: str
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    scale: float


def save_embeddings(path: Path, embeddings: Embeddings, client: NDArray[Any] | None = None) -> None:
    """Write ``embeddings`` to ``path``; ``client`` (n,) assigns the samples to clients."""
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
    strings = {
        **embeddings.metadata,
        "format": EMBEDDINGS_FORMAT,
        "name": embeddings.name,
        "classes": json.dumps(embeddings.zero_shot.classnames),
        "domains": json.dumps(embeddings.domains),
        "scale": repr(embeddings.zero_shot.scale),
    }
    write_safetensors(Path(path), arrays, strings)


def load_embeddings(path: Path) -> Embeddings:
    """Read an embedding file; its views stay on disk until they are used. A ``.npz`` file is read whole.

    A class name that occurs again gets a number: see :func:`numbered`.
    """
    path = Path(path)
    if path.suffix == ".npz":
        return convert_npz(path)
    tensors = read_safetensors(path, KIND, mapped=("views",), only=(*REQUIRED, *OPTIONAL))
    arrays, metadata = tensors.arrays, tensors.metadata
    if metadata.get("format") != EMBEDDINGS_FORMAT:
        raise refuse(str(path), f"format {shorten(repr(metadata.get('format')))}", repr(EMBEDDINGS_FORMAT))
    if missing := [name for name in REQUIRED if name not in arrays]:
        raise refuse(str(path), f"no tensor {', '.join(missing)}", "the tensors " + ", ".join(REQUIRED))
    for name, array in arrays.items():
        kinds = _FLOATS if name in ("views", "text") else _WHOLE
        if array.dtype.name not in kinds:
            raise refuse(f"{path}: {name}", f"dtype {array.dtype}", " or ".join(kinds))
    lists = [key for key in ("classes", "domains", "scale") if key in metadata]  # these are JSON
    values = {key: parse_json(metadata[key], f"{path}: {key}") for key in lists}
    info = structure({**metadata, **values}, EmbeddingsInfo, f"{path}: metadata", extra=True)
    return _embeddings(path, info, arrays, metadata)


def _embeddings(
    path: Path, info: EmbeddingsInfo, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
) -> Embeddings:
    whole = {name: array.astype(np.int64) for name, array in arrays.items() if name not in ("views", "text")}
    try:
        zero_shot = ZeroShot(arrays["text"], numbered(info.classes), info.scale)
        return Embeddings(info.name, zero_shot, arrays["views"], domains=info.domains, metadata=metadata, **whole)
    except InputError as error:
        raise refuse_inside(path, error) from None


def load_federation(path: Path) -> Federation:
    """Read an embedding file that assigns its samples to clients."""
    embeddings = load_embeddings(path)
    if embeddings.client is None:
        raise refuse(str(path), "no fixed clients", "a file with a 'client' tensor (or a partition)")
    return fixed_federation(embeddings)


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


# the plain ``.npz`` layout, for files that were made elsewhere
_NEEDED = ("label", "domain", "domains", "classes", "text")
_OPTIONAL = ("index", "client", "meta")
_SHAPES = {
    "emb": "nD", "views": "nVD", "text": "CD", "label": "n", "domain": "n", "index": "n", "client": "n",
    "classes": "C", "domains": "K", "meta": "",
}  # fmt: skip
_NUMBERS, _INTEGERS, _TEXT = ("f", "real numbers"), ("iu", "whole numbers"), ("US", "text")
_NPZ_TYPES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("emb", "views", "text"), _NUMBERS),
    **dict.fromkeys(("label", "domain", "index", "client"), _INTEGERS),
    **dict.fromkeys(("classes", "domains", "meta"), _TEXT),
}


@dataclass(frozen=True, slots=True)
class NpzInfo:
    """The keys of ``meta`` that are used; the others are stored as a note."""

    logit_scale: float = 100.0
    model: str | None = None
    templates: tuple[str, ...] | None = None


def convert_npz(path: Path) -> Embeddings:
    """Return the embeddings in an ``.npz`` file, named after the file."""
    path = Path(path)
    with open_npz(path, KIND) as npz:
        arrays = npz.read(_read_headers(npz))
    texts = {name: _texts(arrays.pop(name), f"{path}: {name}") for name in ("classes", "domains")}
    note, meta = _read_meta(path, arrays.pop("meta", None))
    metadata = {
        "sources": json.dumps({path.name: checksum(path)}),
        "made": f"converted from {path.name}, which says: {json.dumps(note, sort_keys=True)}",
    }
    if meta.model is not None:
        metadata["encoder"] = meta.model
    if meta.templates is not None:
        metadata["templates"] = json.dumps(meta.templates)
    views = arrays["views"] if "views" in arrays else arrays.pop("emb")[:, None]
    if views.dtype == np.float64:
        views = float32(f"{path}: views", views, "numbers that float32 can hold")
    arrays |= {"views": views, "labels": arrays.pop("label")}
    info = EmbeddingsInfo(path.stem, texts["classes"], texts["domains"], meta.logit_scale)
    return _embeddings(path, info, arrays, metadata)


def is_embedding_npz(path: Path) -> bool:
    """Return whether a file has the arrays of this layout, rather than those of other code."""
    if path.suffix != ".npz":
        return False
    with open_npz(path, KIND) as npz:
        return {"domain", "domains", "text"} <= set(npz.names())


def describe_npz(path: Path) -> tuple[dict[str, int], str | None]:
    """Return the lengths n, V, C and K (domains) and the encoder of an ``.npz`` file; only ``meta`` is unpacked."""
    with open_npz(Path(path), KIND) as npz:
        headers = _read_headers(npz)
        meta = npz.read({"meta": headers["meta"]})["meta"] if "meta" in headers else None
    sizes = {"V": 1}
    for name, header in headers.items():
        sizes |= dict(zip(_SHAPES[name], header.shape, strict=True))
    return sizes, _read_meta(path, meta)[1].model


def _read_headers(npz: Npz) -> dict[str, ArrayHeader]:
    """Return the arrays that are needed, with types and shapes that fit each other."""
    present = set(npz.names())
    missing = [name for name in _NEEDED if name not in present]
    missing += [] if {"emb", "views"} & present else ["emb or views"]
    if missing:
        raise refuse(str(npz.path), f"no array {', '.join(missing)}", "emb or views, " + ", ".join(_NEEDED))
    rows = "views" if "views" in present else "emb"
    headers = npz.headers([rows, *_NEEDED, *(name for name in _OPTIONAL if name in present)])
    sizes: dict[str, tuple[int, str]] = {}  # the lengths known by letter, and which array has them
    for name, header in headers.items():
        (kinds, want), letters = _NPZ_TYPES[name], _SHAPES[name]
        if header.dtype.kind not in kinds:
            raise refuse(f"{npz.path}: {name}", f"{header.dtype}", want)
        fits = len(header.shape) == len(letters) and all(
            sizes.setdefault(letter, (length, name))[0] == length
            for letter, length in zip(letters, header.shape, strict=True)
        )
        if not fits:
            known = ", ".join(
                "{} = {} as in {}".format(letter, *sizes[letter]) for letter in letters if letter in sizes
            )
            want = f"({', '.join(letters)}){f' with {known}' if known else ''}"
            raise refuse(f"{npz.path}: {name}", f"shape {header.shape}", want)
    return headers


def _texts(array: NDArray[Any], name: str) -> tuple[str, ...]:
    """Return an array of text as strings; numpy keeps code points (or bytes) unchecked."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "U" and flat.view(np.uint32).max(initial=0) > sys.maxunicode:
        raise refuse(name, "code points that Unicode does not have", "Unicode text")
    try:
        values = flat.tolist()
        texts = tuple(value.decode() if isinstance(value, bytes) else str(value) for value in values)
        check_text("".join(texts))
    except ValueError as error:
        raise refuse(name, f"what is no text ({shorten(error)})", "Unicode text, or bytes in UTF-8") from None
    return texts


def _read_meta(path: Path, meta: NDArray[Any] | None) -> tuple[dict[str, Any], NpzInfo]:
    """Return the note in the array ``meta``, and what of it is used."""
    name = f"{path}: meta"
    note = parse_json(_texts(meta, name)[0] if meta is not None else "{}", name)
    if not isinstance(note, dict):
        raise refuse(name, type(note).__name__, "a JSON object")
    return note, structure(note, NpzInfo, name, extra=True)
