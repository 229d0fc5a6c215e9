"""The plain ``.npz`` layout of embeddings, for files that were made elsewhere.

``emb`` (n, D) or ``views`` (n, V, D), ``label``, ``domain``, ``domains``, ``classes``, ``text`` (C, D), and where known
``index`` and ``meta`` (a JSON string). No pickle is read.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.validate import refuse
from ..core.zero_shot import ZeroShot
from .benchmark import Embeddings
from .embeddings import checksum

_NEEDED = ("label", "domain", "domains", "classes", "text")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError)


def convert_npz(path: Path) -> Embeddings:
    """Return the embeddings in an ``.npz`` file, named after the file."""
    path = Path(path)
    arrays = _arrays(path)
    info = _info(path, arrays)
    try:
        return _embeddings(path, arrays, info)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise refuse("embedding file", f"{path}, which is not there", "a file that exists")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except _DAMAGE as error:
        raise refuse(str(path), f"a damaged or truncated file ({error})", "a whole .npz file") from None
    missing = [name for name in _NEEDED if name not in arrays]
    missing += [] if {"emb", "views"} & set(arrays) else ["emb or views"]
    if missing:
        raise refuse(str(path), f"no array {', '.join(missing)}", "emb or views, " + ", ".join(_NEEDED))
    return arrays


def _info(path: Path, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    try:
        info = json.loads(str(arrays.get("meta", "{}")))
    except json.JSONDecodeError as error:
        raise refuse(f"{path}: meta", f"text that is not JSON ({error})", "a JSON object") from None
    if not isinstance(info, dict):
        raise refuse(f"{path}: meta", type(info).__name__, "a JSON object")
    return info


def _embeddings(path: Path, arrays: dict[str, NDArray[Any]], info: dict[str, Any]) -> Embeddings:
    views = arrays["views"] if "views" in arrays else arrays["emb"][:, None]
    scale = float(info.get("logit_scale", 100.0))
    return Embeddings(
        path.stem,
        ZeroShot(arrays["text"].astype(np.float32), tuple(map(str, arrays["classes"])), scale),
        views,
        arrays["label"].astype(np.int64),
        arrays["domain"].astype(np.int64),
        tuple(map(str, arrays["domains"])),
        _metadata(path, info),
        arrays["index"].astype(np.int64) if "index" in arrays else None,
    )


def _metadata(path: Path, info: dict[str, Any]) -> dict[str, str]:
    """Keep what the file says about itself; what it does not say is left out, never made up."""
    metadata = {
        "sources": json.dumps({path.name: checksum(path)}),
        "made": f"converted from {path.name}, which says: {json.dumps(info, sort_keys=True)}",
    }
    if "model" in info:
        metadata["encoder"] = str(info["model"])
    if "templates" in info:
        metadata["templates"] = json.dumps(info["templates"])
    return metadata
