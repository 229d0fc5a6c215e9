"""The plain ``.npz`` layout of embeddings, for files that were made elsewhere.

``emb`` (n, D) or ``views`` (n, V, D), ``label``, ``domain``, ``domains``, ``classes``, ``text`` (C, D), and where known
``index``, ``client`` and ``meta`` (a JSON string). Types and shapes are checked before anything is unpacked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.validate import float32
from ..core.zero_shot import ZeroShot
from ..errors import InputError, refuse
from ..files.arrays import ArrayHeader, Npz, open_npz
from ..files.checksums import checksum
from ..files.documents import parse_json
from ..files.reading import check_text
from ..files.schema import refuse_inside, shorten, structure
from .benchmark import Embeddings
from .embeddings import integers, numbered

KIND = "embedding file"
_NEEDED = ("label", "domain", "domains", "classes", "text")
_OPTIONAL = ("index", "client", "meta")
_SHAPES = {
    "emb": "nD", "views": "nVD", "text": "CD", "label": "n", "domain": "n", "index": "n", "client": "n",
    "classes": "C", "domains": "K", "meta": "",
}  # fmt: skip
_NUMBERS, _INTEGERS, _TEXT = ("f", "real numbers"), ("iu", "whole numbers"), ("US", "text")
_TYPES: dict[str, tuple[str, str]] = {
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
    texts = {name: _texts(array, f"{path}: {name}") for name, array in arrays.items() if _TYPES[name] == _TEXT}
    note = _note(path, texts.get("meta"))
    info = _info(path, note)
    try:
        return _embeddings(path.stem, arrays, texts, info.logit_scale, _metadata(path, note, info))
    except InputError as error:
        raise refuse_inside(path, error) from None


def describe_npz(path: Path) -> tuple[dict[str, int], str | None]:
    """Return the lengths n, V, C and K (domains) and the encoder of an ``.npz`` file; only ``meta`` is unpacked."""
    with open_npz(Path(path), KIND) as npz:
        headers = _read_headers(npz)
        meta = npz.read({"meta": headers["meta"]}) if "meta" in headers else {}
    texts = _texts(meta["meta"], f"{path}: meta") if meta else None
    sizes = {"V": 1}
    for name, header in headers.items():
        sizes |= dict(zip(_SHAPES[name], header.shape, strict=True))
    return sizes, _info(path, _note(path, texts)).model


# --- headers ---------------------------------------------------------------------------------------------


def _read_headers(npz: Npz) -> dict[str, ArrayHeader]:
    """Return the arrays that are needed, with types and shapes that fit each other."""
    present = set(npz.names())
    missing = [name for name in _NEEDED if name not in present]
    missing += [] if {"emb", "views"} & present else ["emb or views"]
    if missing:
        raise refuse(str(npz.path), f"no array {', '.join(missing)}", "emb or views, " + ", ".join(_NEEDED))
    rows = "views" if "views" in present else "emb"
    headers = npz.headers([rows, *_NEEDED, *(name for name in _OPTIONAL if name in present)])
    sizes: dict[str, tuple[int, str]] = {}
    for name, header in headers.items():
        _check(f"{npz.path}: {name}", header, name, sizes)
    return headers


def _check(label: str, header: ArrayHeader, name: str, sizes: dict[str, tuple[int, str]]) -> None:
    """Refuse an array of a wrong type or shape; ``sizes`` are the lengths known by letter, and which array has them."""
    kinds, want = _TYPES[name]
    if header.dtype.kind not in kinds:
        raise refuse(label, f"{header.dtype}", want)
    letters = _SHAPES[name]
    fits = len(header.shape) == len(letters) and all(
        sizes.setdefault(letter, (length, name))[0] == length
        for letter, length in zip(letters, header.shape, strict=True)
    )
    if not fits:
        known = ", ".join("{} = {} as in {}".format(letter, *sizes[letter]) for letter in letters if letter in sizes)
        raise refuse(label, f"shape {header.shape}", f"({', '.join(letters)}){f' with {known}' if known else ''}")


# --- contents ---------------------------------------------------------------------------------------------


def _embeddings(
    name: str,
    arrays: Mapping[str, NDArray[Any]],
    texts: Mapping[str, tuple[str, ...]],
    scale: float,
    metadata: Mapping[str, str],
) -> Embeddings:
    views = arrays["views"] if "views" in arrays else arrays["emb"][:, None]
    return Embeddings(
        name,
        ZeroShot(arrays["text"], numbered(texts["classes"]), scale),
        float32("views", views, "numbers that float32 can hold") if views.dtype == np.float64 else views,
        arrays["label"].astype(np.int64),
        arrays["domain"].astype(np.int64),
        texts["domains"],
        metadata,
        integers(arrays.get("index")),
        integers(arrays.get("client")),
    )


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


def _note(path: Path, meta: tuple[str, ...] | None) -> dict[str, Any]:
    note = parse_json(meta[0] if meta else "{}", f"{path}: meta")
    if not isinstance(note, dict):
        raise refuse(f"{path}: meta", type(note).__name__, "a JSON object")
    return note


def _info(path: Path, note: Mapping[str, Any]) -> NpzInfo:
    return structure(note, NpzInfo, f"{path}: meta", extra=True)


def _metadata(path: Path, note: Mapping[str, Any], info: NpzInfo) -> dict[str, str]:
    """Return the metadata that the file provides; missing entries are left out."""
    metadata = {
        "sources": json.dumps({path.name: checksum(path)}),
        "made": f"converted from {path.name}, which says: {json.dumps(note, sort_keys=True)}",
    }
    if info.model is not None:
        metadata["encoder"] = info.model
    if info.templates is not None:
        metadata["templates"] = json.dumps(info.templates)
    return metadata
