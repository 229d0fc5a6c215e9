"""Feature caches of others: arrays in .npz, .npy or .pt files, whatever their names, as embeddings.

Read are features (n, D) or (n, V, D), labels (n,), text embeddings (C, D) or (D, C) and class names; each is found by a
name that is in use, a part that a file does not have can come from another file. A ``.pt`` file is read with
``weights_only``: nothing in it is executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from ..core.types import Vectors
from ..core.validate import unit_rows
from ..core.zero_shot import ZeroShot
from ..errors import need, refuse
from ..files.arrays import map_npy, open_npz
from ..files.documents import checksum, shorten
from .embeddings import numbered
from .federation import Embeddings

NAMES = {  # in lower case and without "test_" or "val_" before; the first that a file has counts
    "features": "features feature feats f emb embs embeddings image_features image_embeds img_features views x keys",
    "labels": "labels label l targets target gt y",
    "text": "text text_features text_embeds text_embeddings clip_weights zeroshot_weights classifier weights",
    "classes": "classes classnames class_names names categories",
}


def read_cache(
    source: Path,
    labels: Path | None = None,
    text: Path | None = None,
    classes: tuple[str, ...] | None = None,
    scale: float = 100.0,
    encoder: str | None = None,
) -> Embeddings:
    """Return the embeddings in ``source`` as one domain; ``labels``, ``text`` and ``classes`` are for what it lacks."""
    places = {"features": source, "labels": labels or source, "text": text or source}
    found = {part: _find(place, part, part == "features" or place != source) for part, place in places.items()}
    names = classes or tuple(map(str, _find(source, "classes", False).reshape(-1)))
    features, truth = found["features"], found["labels"].reshape(-1)
    views = features[:, None] if features.ndim == 2 else features
    if views.ndim != 3 or truth.shape != views.shape[:1] or truth.dtype.kind not in "iu":
        got = f"features {features.shape}, labels {truth.dtype} {found['labels'].shape}"
        raise refuse(str(source), got, "features (n, D) or (n, V, D), and whole numbers (n,)")
    n, count, dim = views.shape
    rows = unit_rows("features", views.reshape(n * count, dim), dim, normalise=True).reshape(n, count, dim)
    classifier = ZeroShot(_by_class(found["text"], len(names), dim, source), numbered(names), scale)
    about = {
        "sources": json.dumps({place.name: checksum(place) for place in sorted({*places.values()})}),
        "made": f"converted from {source.name}: rows made unit length, scale {scale:g} as it was given",
    }
    about |= {} if encoder is None else {"encoder": encoder}
    domain = np.zeros(n, np.int64)
    return Embeddings(
        source.stem, classifier, rows, truth.astype(np.int64), domain, (source.stem,), about, np.arange(n)
    )


def _by_class(text: NDArray[Any], classes: int, dim: int, source: Path) -> Vectors:
    """Return the classifier as (C, D) unit rows; many caches hold it the other way round."""
    if text.shape == (classes, dim) == (dim, classes):  # which way round, the lengths say
        lengths = [np.abs(np.linalg.norm(text.astype(np.float64), axis=axis) - 1).max() for axis in (1, 0)]
        text = text if lengths[0] <= lengths[1] else text.T
    elif text.shape == (dim, classes):
        text = text.T
    elif text.shape != (classes, dim):
        raise refuse(str(source), f"text embeddings {text.shape}", f"({classes}, {dim}): as many as class names")
    return unit_rows("text", text, dim, normalise=True)


def _find(path: Path, part: str, only: bool) -> NDArray[Any]:
    """Return the array of a file that is called like ``part``; with ``only``, that of a file with a single one."""
    arrays = _arrays(path)
    plain = {name: name.casefold().removeprefix("test_").removeprefix("val_") for name in arrays}
    fitting = [name for known in NAMES[part].split() for name in arrays if plain[name] == known]
    if not fitting and len(arrays) == 1 and only:
        fitting = list(arrays)
    if not fitting:
        option = {"features": "", "labels": " (--labels FILE)", "text": " (--text FILE)"}.get(part, " (--classes FILE)")
        raise refuse(str(path), f"{', '.join(map(shorten, arrays))}", f"an array {NAMES[part].split()[0]}{option}")
    return arrays[fitting[0]]


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    if path.suffix == ".npy":
        return {path.stem: map_npy(path)}
    if path.suffix == ".npz":
        with open_npz(path, "feature cache") as npz:
            return npz.read(npz.headers(npz.names()))
    if path.suffix not in (".pt", ".pth"):
        raise refuse(str(path), f"a {path.suffix or 'nameless'} file", "a feature cache: .npz, .npy or .pt")
    torch = need("torch", "torch")
    size = path.stat().st_size
    try:
        if is_zipfile(path) and (whole := sum(part.file_size for part in ZipFile(path).infolist())) > size:
            raise ValueError(f"{size} bytes that unpack to {whole}")  # torch writes its archives without compression
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what torch does not trust, and what is no such file
        raise refuse(str(path), f"what torch does not load safely ({shorten(error, 160)})", "tensors only") from None
    if isinstance(content, torch.Tensor):
        content = {path.stem: content}
    elif isinstance(content, (list, tuple)) and len(content) == 2:  # (features, labels)
        content = dict(zip(("features", "labels"), content, strict=True))
    if not isinstance(content, dict):
        raise refuse(str(path), f"a {type(content).__name__}", "a tensor, a pair (features, labels), or a dictionary")
    found = {}
    for name, value in content.items():
        if isinstance(value, torch.Tensor):
            try:
                if value.numel() * value.element_size() > size:
                    raise TypeError(f"{value.numel()} numbers in {size} bytes")  # one of them, repeated by its strides
                found[str(name)] = (value.float() if value.is_floating_point() else value).numpy(force=True)
            except (TypeError, RuntimeError) as error:  # sparse, quantised, nested, or without values
                got = f"what is no plain array ({shorten(error, 120)})"
                raise refuse(f"{path}: {shorten(name)}", got, "a dense tensor of numbers") from None
        elif isinstance(value, (list, tuple)) and value and all(isinstance(one, (str, int)) for one in value):
            found[str(name)] = np.array(value)
    return found
