"""Labelled pictures from folders, CIFAR archives and CIFAR-C, all as an :class:`ImageSet`; named by a short text.

========================= ============================================================================
name                      what it is
========================= ============================================================================
``folder:DIR``            DIR / domain / class / image, as DomainBed lays them out
``classes:DIR``           DIR / class / image, one domain
``imagenet:DIR``          the same with ImageNet's folders (n01440764 or 0 to 999), all or some of them
``coop:PATH``             the test pictures of a split_zhou_*.json (also coop-train, coop-val)
``vlcs:DIR`` and others   the known layouts of domains and classes (vlcs, terra, pacs, ...)
``cifar10:PATH``          the official archive or folder, clean (also cifar100)
``cifar10c:PATH``         the same images, each under one of the 19 corruptions (also cifar100c)
``cifar10c-npy:DIR``      the published corrupted test images, each image once (also cifar100c-npy)
========================= ============================================================================

In folders the map from class to index is explicit and the same for every domain: an unknown or a missing class folder
is refused. (A loader that numbers the folders of each domain separately mislabels every image after a missing class.)
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ..core.types import Integers
from ..core.validate import choice, near
from ..encoders.pictures import PICTURE_SUFFIXES
from ..encoders.prompts import plain_name
from ..errors import refuse
from ..files.documents import parse_toml, read_json, structure
from .cifar import CifarImages, load_classnames, open_cifar_c, read_cifar
from .corruptions import CORRUPTIONS, corrupt_each
from .corruptions.filters import Bytes
from .federation import stratified_folds

IGNORED = frozenset({"__MACOSX"})
CORRUPTED_HERE = ("cifar10c", "cifar100c")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled pictures that are loaded on demand.

    - ``labels``, ``domain`` and ``index`` (n,): the class, the domain, and the position of the source image
    - ``keys``: permanent names of the pictures, on which their random views depend
    - ``load(positions)``: the pictures as paths or uint8 arrays
    - ``sources``: the sha256 of each input
    - ``corruption``: how the pictures were corrupted while loading; None where they were not
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
    """How CIFAR-C is computed.

    - ``severity``: 1 to 5
    - ``seed``: of both the assignment and the corruptions
    - ``textures``: instead of the drawn frost (:func:`.corruptions.load_textures`)
    """

    severity: int = 5
    seed: int = 0
    textures: tuple[Bytes, ...] | None = None

    def facts(self) -> dict[str, int | str]:
        """Return everything that a corrupted pixel depends on; the textures by their sha256.

        >>> CorruptionPlan().facts()
        {'severity': 5, 'seed': 0, 'frost': 'drawn'}
        """
        if self.textures is None:
            return {"severity": self.severity, "seed": self.seed, "frost": "drawn"}
        total = hashlib.sha256()
        for texture in self.textures:
            total.update(repr(texture.shape).encode() + hashlib.sha256(np.ascontiguousarray(texture).data).digest())
        return {"severity": self.severity, "seed": self.seed, "frost": total.hexdigest()}


def open_images(spec: str, plan: CorruptionPlan | None = None) -> ImageSet:
    """Open the pictures that ``spec`` names; see the table of this module."""
    kind, colon, place = str(spec).partition(":")
    cifar = [name + ending for name in ("cifar10", "cifar100") for ending in ("", "c", "c-npy")]
    coop = ("coop", "coop-train", "coop-val")
    kinds = ("folder", "classes", "imagenet", *coop, *layouts(), *cifar)
    if not colon or kind not in kinds:
        guess = f" (did you mean folder:{spec}, or classes:{spec}?)" if Path(spec).expanduser().is_dir() else ""
        forms = ", ".join(f"{name}:PATH" for name in near(kind, sorted(kinds)))
        raise refuse("dataset", repr(spec), f"one of {forms}{guess}")
    if not place:
        raise refuse("dataset", repr(spec), f"{kind}: followed by a path")
    plan, root = plan or CorruptionPlan(), Path(place).expanduser()
    if plan.textures is not None and kind not in CORRUPTED_HERE:
        want = " or ".join(f"{name}:PATH" for name in CORRUPTED_HERE)
        raise refuse("frost", f"textures for {kind}:", f"{want}: only their corruptions are made here")
    if kind in CORRUPTED_HERE:
        return from_corrupted_cifar(read_cifar(root, kind[:-1]), kind, plan)
    if kind.endswith("-npy"):
        return from_published_cifar(root, kind.removesuffix("-npy"), plan)
    if kind in cifar:
        pictures = read_cifar(root, kind)
        clean = np.zeros(len(pictures.labels), np.int64)
        return _from_arrays(kind, pictures, ("clean",), clean, lambda positions: list(pictures.images[positions]))
    if kind == "imagenet":
        return from_folders(read_imagenet(root))
    if kind in coop:
        return from_folders(read_split(root, kind.partition("-")[2] or "test"))
    if kind == "folder":
        return from_folders(read_folders(root))
    return from_folders(read_classes(root)) if kind == "classes" else from_folders(read_layout(root, kind), kind)


def from_folders(folders: ImageFolders, name: str | None = None) -> ImageSet:
    """Return the images of a folder; their digest is over names and contents, an unreadable file counts by its name."""
    keys, total = folders.relative(), hashlib.sha256()
    for key, path in zip(keys, folders.paths, strict=True):
        total.update(key.encode(errors="surrogatepass") + b"\0")  # a name need not be text
        try:
            total.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError:
            total.update(b"unreadable")
    return ImageSet(
        name or folders.root.resolve().name,
        folders.classnames,
        folders.domains,
        folders.labels,
        folders.domain,
        np.arange(len(folders)),
        keys,
        lambda positions: [folders.paths[i] for i in positions],
        {"images": total.hexdigest()},
    )


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
    digest = hashlib.sha256(np.ascontiguousarray(cifar.images).data).hexdigest()
    return ImageSet(name, cifar.classnames, domains, cifar.labels, domain, cifar.index, keys, load, {"images": digest})


@dataclass(frozen=True, slots=True)
class Layout:
    """The domain and class folders of a known dataset, in the benchmark's order."""

    title: str
    domains: tuple[str, ...]
    classnames: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ImageFolders:
    """A list of image files: ``labels`` and ``domain`` (n,) index ``classnames`` and ``domains``."""

    root: Path
    domains: tuple[str, ...]
    classnames: tuple[str, ...]
    paths: tuple[Path, ...]
    labels: Integers
    domain: Integers

    def __len__(self) -> int:
        return len(self.paths)

    def relative(self) -> tuple[str, ...]:
        """Return the paths below the root, with forward slashes: the same on every machine."""
        return tuple(path.relative_to(self.root).as_posix() for path in self.paths)


def layouts() -> dict[str, Layout]:
    """Return the known layouts by name.

    >>> layouts()["vlcs"].classnames
    ('bird', 'car', 'chair', 'dog', 'person')
    """
    table = parse_toml((files(__package__) / "layouts.toml").read_bytes(), "layouts.toml")
    return structure(table, dict[str, Layout], "layouts.toml")


def read_layout(root: str | Path, name: str, allow_missing: bool = False) -> ImageFolders:
    """List the images of a known dataset, for example ``read_layout("data/VLCS", "vlcs")``."""
    known = layouts()
    choice("layout", name, tuple(known))
    layout = known[name]
    return read_folders(root, layout.domains, layout.classnames, allow_missing)


def read_folders(
    root: str | Path,
    domains: Sequence[str] | None = None,
    classnames: Sequence[str] | None = None,
    allow_missing: bool = False,
) -> ImageFolders:
    """List the images in root / domain / class, sorted by domain, class and path.

    Without ``domains`` every folder is a domain; without ``classnames`` the classes are the class folders of all
    domains together. Every domain must have exactly these classes; with ``allow_missing`` some may be absent.
    """
    top = Path(root)
    names = _check_distinct("domains", list_folders(top) if domains is None else domains)
    if not names:
        raise refuse("root", f"{top} without folders", "root / domain / class / image")
    return _list_images(top, {name: top / name for name in names}, classnames, allow_missing)


def read_classes(root: str | Path) -> ImageFolders:
    """List the images in root / class as one domain with the name of the folder."""
    top = Path(root)
    if not list_folders(top):
        raise refuse("root", f"{top} without folders", "root / class / image")
    return _list_images(top, {top.resolve().name: top}, None, allow_missing=False)


def _list_images(
    root: Path, domains: dict[str, Path], classnames: Sequence[str] | None, allow_missing: bool
) -> ImageFolders:
    present = {folder: list_folders(folder) for folder in domains.values()}
    every = sorted({name for names in present.values() for name in names})
    classes = _check_distinct("classes", every if classnames is None else classnames)
    known = {plain_name(name): label for label, name in enumerate(classes)}
    for folder, names in present.items():
        if unknown := [name for name in names if plain_name(name) not in known]:
            raise refuse("classes", f"unknown {', '.join(unknown)} in {folder}", f"only {', '.join(classes)}")
        missing = [name for name in classes if plain_name(name) not in map(plain_name, names)]
        if missing and not allow_missing:
            raise refuse("classes", f"no {', '.join(missing)} in {folder}", "every class (or allow_missing=True)")
        _check_distinct(f"classes in {folder}", names)
    rows: list[tuple[Path, int, int]] = []
    for number, (folder, names) in enumerate(present.items()):
        before = len(rows)
        for name in sorted(names, key=lambda name: known[plain_name(name)]):
            images = list_pictures(folder / name)
            if not images and not allow_missing:
                raise refuse("folder", f"{folder / name} without images", "at least one image per class")
            rows += [(path, known[plain_name(name)], number) for path in images]
        if len(rows) == before:
            raise refuse("folder", f"{folder} without images", "at least one image per domain")
    paths, labels, numbers = zip(*rows, strict=True)
    shown = classes if classnames is not None else _check_distinct("classes", map(clean_name, classes))
    return ImageFolders(root, tuple(domains), shown, paths, np.array(labels), np.array(numbers))


def clean_name(name: str) -> str:
    """Return a class name without the number that some datasets put before it.

    >>> clean_name("001.Black_footed_Albatross"), clean_name("3_wheeler"), clean_name("007")
    ('Black_footed_Albatross', '3_wheeler', '007')
    """
    return re.sub(r"^[0-9]+\.(?=.)", "", name)


def read_split(place: str | Path, split: str = "test") -> ImageFolders:
    """List the pictures of one of CoOp's splits, in its order; ``place`` is the JSON file or the folder that has it.

    The file has a list of [picture, label, class name] for train, val and test. The pictures are below its folder, or
    below one folder in it.
    """
    choice("split", split, ("train", "val", "test"))
    file = Path(place)
    if file.is_dir():
        found = sorted(file.glob("split_zhou_*.json"))
        if len(found) != 1:
            raise refuse(str(file), f"{len(found)} files split_zhou_*.json", "one, or the path of the file itself")
        file = found[0]
    splits = read_json(file, dict[str, list[tuple[str, int, str]]], extra=True)
    names: dict[int, str] = {}
    for _, label, name in (row for rows in splits.values() for row in rows):
        if names.setdefault(label, clean_name(name)) != clean_name(name):
            raise refuse(str(file), f"label {label} for {names[label]!r} and {name!r}", "one name for every label")
    if not splits.get(split) or sorted(names) != list(range(len(names))):
        got = f"{len(splits.get(split, ()))} pictures for {split}, labels {sorted(names)[:9]}"
        raise refuse(str(file), got, "at least one picture, and labels from 0 on")
    pictures = [PurePosixPath(picture) for picture, _, _ in splits[split]]
    if odd := next((one for one in pictures if one.is_absolute() or ".." in one.parts), None):
        raise refuse(str(file), f"the picture {str(odd)!r}", "paths below the folder")
    homes = [file.parent, *(file.parent / name for name in list_folders(file.parent))]
    root = max(homes, key=lambda home: sum((home / one).is_file() for one in pictures[:20]))
    paths = tuple(root / one for one in pictures)
    if missing := [path for path in paths if not path.is_file()]:
        want = "the pictures beside the split, or in a folder beside it"
        raise refuse(str(file), f"{len(missing)} of {len(paths)} pictures missing, such as {missing[0]}", want)
    labels = np.array([label for _, label, _ in splits[split]])
    title = file.stem.removeprefix("split_zhou_")
    return ImageFolders(root, (title,), tuple(names[i] for i in sorted(names)), paths, labels, np.zeros_like(labels))


def read_imagenet(root: str | Path) -> ImageFolders:
    """List the pictures in root / class, with the names of the classes that are there, in ImageNet's order.

    The folders are named by WordNet id (n01440764) or by number (0 to 999, as in ImageNetV2). The names are those that
    CLIP's authors use, but for two that they have twice: "projectile" and "sunglass" are WordNet's.
    """
    top = Path(root)
    known = [line.partition(" ")[::2] for line in load_classnames("imagenet")]  # (WordNet id, name)
    numbers = {name: i for i, (synset, _) in enumerate(known) for name in (synset, str(i))}
    folders = sorted(list_folders(top), key=lambda name: numbers.get(name, -1))
    if unknown := [name for name in folders if name not in numbers]:
        raise refuse(str(top), f"the folder {unknown[0]}", "folders named n01440764 and so on, or 0 to 999")
    if len(folders) < 2 or len({numbers[name] for name in folders}) < len(folders):
        raise refuse(str(top), f"{len(folders)} folders", "at least two classes of ImageNet, each once")
    pictures = [list_pictures(top / name) for name in folders]
    if empty := [name for name, found in zip(folders, pictures, strict=True) if not found]:
        raise refuse(str(top), f"no image in {', '.join(empty)}", "at least one image per class")
    labels = np.repeat(np.arange(len(folders)), [len(found) for found in pictures])
    names = tuple(known[numbers[name]][1] for name in folders)
    paths = tuple(path for found in pictures for path in found)
    return ImageFolders(top, (top.resolve().name,), names, paths, labels, np.zeros_like(labels))


def list_folders(parent: Path) -> list[str]:
    """Return the names of the folders in ``parent``, sorted; hidden ones do not count."""
    if not parent.is_dir():
        raise refuse("folder", f"{parent}, which is not there", "root / domain / class / image")
    names = (entry.name for entry in parent.iterdir() if entry.is_dir())
    return sorted(name for name in names if not name.startswith(".") and name not in IGNORED)


def _check_distinct(what: str, names: Iterable[str]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for name in names:
        if plain_name(name) in seen:
            raise refuse(what, f"{seen[plain_name(name)]!r} and {name!r}", "different names")
        seen[plain_name(name)] = name
    return tuple(seen.values())


def list_pictures(folder: Path) -> list[Path]:
    """Return the image files below ``folder``, sorted by their path in it."""
    below = (path for path in folder.rglob("*") if path.suffix.lower() in PICTURE_SUFFIXES)
    relative = ((path.relative_to(folder), path) for path in below)
    visible = ((name.as_posix(), path) for name, path in relative if not any(part[0] == "." for part in name.parts))
    return [path for _, path in sorted(visible) if path.is_file()]
