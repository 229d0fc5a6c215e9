"""Labelled pictures from folders, CIFAR archives and CIFAR-C, all as an :class:`ImageSet`; named by a short text.

========================= ============================================================================
name                      what it is
========================= ============================================================================
``folder:DIR``            DIR / domain / class / image
``classes:DIR``           DIR / class / image, one domain
``vlcs:DIR`` and others   the known layouts of domains and classes (vlcs, terra, pacs, ...)
``cifar10:PATH``          the official archive or folder, clean (also cifar100)
``cifar10c:PATH``         the same images, each under one of the 19 corruptions (also cifar100c)
``cifar10c-npy:DIR``      the published corrupted test images, each image once (also cifar100c-npy)
========================= ============================================================================
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Integers
from ..core.validate import near
from ..errors import refuse
from .cifar import CifarImages, read_cifar
from .cifar_c import open_cifar_c
from .corruptions import CORRUPTIONS
from .corruptions.draws import Bytes
from .corruptions.many import corrupt_each
from .folders import ImageFolders, layouts, read_classes, read_folders, read_layout
from .partition import stratified_folds

CORRUPTED_HERE = ("cifar10c", "cifar100c")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled pictures that are loaded on demand.

    ``labels``, ``domain`` and ``index`` (n,): the class, the domain, and the position of the source image. ``keys`` are
    permanent names of the pictures: their random views depend on them. ``load(positions)`` returns the pictures as
    paths or uint8 arrays. ``sources`` maps the inputs to their sha256; ``corruption`` says how the pictures were
    corrupted while loading, None where they were not.
    """

    name: str
    classnames: tuple[str, ...]
    domains: tuple[str, ...]
    labels: Integers
    domain: Integers
    index: Integers
    keys: tuple[str, ...]
    load: Callable[[Integers], Sequence[Any]]
    sources: dict[str, str]
    corruption: dict[str, int | str] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class CorruptionPlan:
    """How CIFAR-C is computed: its severity, and the seed of both the assignment and the corruptions.

    ``textures`` replace the drawn frost (:func:`.corruptions.load_textures`).
    """

    severity: int = 5
    seed: int = 0
    textures: tuple[Bytes, ...] | None = None

    def facts(self) -> dict[str, int | str]:
        """Return everything that a corrupted pixel depends on; the textures by their sha256.

        >>> CorruptionPlan().facts()
        {'severity': 5, 'seed': 0, 'frost': 'drawn'}
        """
        frost = "drawn" if self.textures is None else _texture_digest(self.textures)
        return {"severity": self.severity, "seed": self.seed, "frost": frost}


def open_images(spec: str, plan: CorruptionPlan | None = None) -> ImageSet:
    """Open the pictures that ``spec`` names; see the table of this module."""
    kind, colon, place = str(spec).partition(":")
    openers = _make_openers(plan or CorruptionPlan())
    if not colon or kind not in openers:
        guess = f" (did you mean folder:{spec}, or classes:{spec}?)" if Path(spec).expanduser().is_dir() else ""
        forms = ", ".join(f"{name}:PATH" for name in near(kind, sorted(openers)))
        raise refuse("dataset", repr(spec), f"one of {forms}{guess}")
    if not place:
        raise refuse("dataset", repr(spec), f"{kind}: followed by a path")
    if plan is not None and plan.textures is not None and kind not in CORRUPTED_HERE:
        want = " or ".join(f"{name}:PATH" for name in CORRUPTED_HERE)
        raise refuse("frost", f"textures for {kind}:", f"{want}: only their corruptions are made here")
    return openers[kind](Path(place).expanduser())


def _make_openers(plan: CorruptionPlan) -> dict[str, Callable[[Path], ImageSet]]:
    openers: dict[str, Callable[[Path], ImageSet]] = {
        "folder": lambda root: from_folders(read_folders(root)),
        "classes": lambda root: from_folders(read_classes(root)),
    }
    for name in layouts():
        openers[name] = lambda root, name=name: from_folders(read_layout(root, name), name)  # type: ignore[misc]
    for name in ("cifar10", "cifar100"):
        openers[name] = lambda root, name=name: from_cifar(read_cifar(root, name), name)  # type: ignore[misc]
        openers[f"{name}c"] = lambda root, name=name: from_corrupted_cifar(read_cifar(root, name), f"{name}c", plan)  # type: ignore[misc]
        openers[f"{name}c-npy"] = lambda root, name=name: from_published_cifar(root, f"{name}c", plan)  # type: ignore[misc]
    return openers


def from_folders(folders: ImageFolders, name: str | None = None) -> ImageSet:
    """Return the images of a folder."""
    return ImageSet(
        name or folders.root.resolve().name,
        folders.classnames,
        folders.domains,
        folders.labels,
        folders.domain,
        np.arange(len(folders)),
        folders.relative(),
        lambda positions: [folders.paths[i] for i in positions],
        {"images": _files_digest(folders)},
    )


def from_cifar(cifar: CifarImages, name: str) -> ImageSet:
    """Return CIFAR without corruption, as one domain."""
    domain = np.zeros(len(cifar.labels), np.int64)
    return _from_arrays(name, cifar, ("clean",), domain, lambda positions: list(cifar.images[positions]))


def from_corrupted_cifar(cifar: CifarImages, name: str, plan: CorruptionPlan) -> ImageSet:
    """Return CIFAR-C as this package computes it: one corruption per image, every class spread evenly over them."""
    which = _assign_corruptions(cifar.labels, plan.seed)

    def load(positions: Integers) -> Sequence[Any]:
        workers = min(os.cpu_count() or 1, 1 + len(positions) // 512)
        batch, index = cifar.images[positions], cifar.index[positions]
        return list(corrupt_each(batch, which[positions], plan.severity, index, plan.seed, workers, plan.textures))

    return replace(_from_arrays(name, cifar, CORRUPTIONS, which, load), corruption=plan.facts())


def from_published_cifar(folder: Path, name: str, plan: CorruptionPlan) -> ImageSet:
    """Return the published CIFAR-C test images, each under one corruption."""
    from .classes import load_classnames

    parts = [open_cifar_c(folder, corruption, plan.severity) for corruption in CORRUPTIONS]
    labels = parts[0][1]
    which = _assign_corruptions(labels, plan.seed)
    images = np.stack([parts[corruption][0][i] for i, corruption in enumerate(which)])
    cifar = CifarImages(images, labels, 50_000 + np.arange(len(labels)), load_classnames(name.removesuffix("c")))
    return _from_arrays(name, cifar, CORRUPTIONS, which, lambda positions: list(images[positions]))


def _assign_corruptions(labels: Integers, seed: int) -> Integers:
    """Return the corruption of each image: one stratified split into as many folds as there are corruptions."""
    which = np.empty(len(labels), np.int64)
    folds = stratified_folds(labels, len(CORRUPTIONS), np.random.default_rng(seed))
    for corruption, positions in enumerate(folds):
        which[positions] = corruption
    return which


def _from_arrays(
    name: str,
    cifar: CifarImages,
    domains: tuple[str, ...],
    domain: Integers,
    load: Callable[[Integers], Sequence[Any]],
) -> ImageSet:
    keys = tuple(f"{domains[d]}/{i}" for d, i in zip(domain, cifar.index, strict=True))
    digest = _digest(cifar.images)
    return ImageSet(name, cifar.classnames, domains, cifar.labels, domain, cifar.index, keys, load, {"images": digest})


def _digest(images: Bytes) -> str:
    return hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()


def _texture_digest(textures: Sequence[Bytes]) -> str:
    """Return one sha256 over the pixels and shapes of the textures, in their order."""
    total = hashlib.sha256()
    for texture in textures:
        total.update(repr(texture.shape).encode() + bytes.fromhex(_digest(texture)))
    return total.hexdigest()


def _files_digest(folders: ImageFolders) -> str:
    """Return one sha256 over names and contents; an unreadable file counts by its name."""
    total = hashlib.sha256()
    for name, path in zip(folders.relative(), folders.paths, strict=True):
        total.update(name.encode(errors="surrogatepass") + b"\0")  # a name need not be text
        try:
            total.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError:
            total.update(b"unreadable")
    return total.hexdigest()
