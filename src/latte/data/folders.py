"""Images in folders: root / domain / class / image, as DomainBed lays them out, or root / class / image.

The map from class to index is explicit and the same for every domain. A loader that numbers the folders of
each domain by itself mislabels every image behind a missing one; here an unknown or a missing folder is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from ..core.types import Integers
from ..core.validate import choice, refuse
from ..encoders.pictures import PICTURE_SUFFIXES
from ..files.documents import parse_toml
from ..files.schema import structure

IGNORED = frozenset({"__MACOSX"})


@dataclass(frozen=True, slots=True)
class Layout:
    """What the folders of a dataset are called, in the benchmark's order."""

    title: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ImageFolders:
    """A list of image files: ``labels`` and ``domain`` (n,) index ``classes`` and ``domains``."""

    root: Path
    domains: tuple[str, ...]
    classes: tuple[str, ...]
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

    >>> layouts()["vlcs"].classes
    ('bird', 'car', 'chair', 'dog', 'person')
    """
    table = parse_toml((files(__package__) / "layouts.toml").read_bytes(), "layouts.toml")
    return structure(table, dict[str, Layout], "layouts.toml")


def read_layout(root: str | Path, name: str, allow_missing: bool = False) -> ImageFolders:
    """List the images of a known dataset, for example ``read_layout("data/VLCS", "vlcs")``."""
    known = layouts()
    choice("layout", name, tuple(known))
    layout = known[name]
    return read_folders(root, layout.domains, layout.classes, allow_missing)


def read_folders(
    root: str | Path,
    domains: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    allow_missing: bool = False,
) -> ImageFolders:
    """List the images in root / domain / class, sorted by domain, class and path.

    Without ``domains`` every folder is one; without ``classes`` the class folders of all domains together are
    the classes. Every domain must have every class, unless ``allow_missing``, and no other.
    """
    top = _existing(Path(root))
    chosen = _distinct("domains", _folders(top) if domains is None else domains)
    if not chosen:
        raise refuse("root", f"{top} without folders", "root / domain / class / image")
    found = {name: _folders(_existing(top / name)) for name in chosen}
    named = sorted({c for of in found.values() for c in of}) if classes is None else classes
    labels = _distinct("classes", named)
    for domain, present in found.items():
        _same_classes(top / domain, present, labels, allow_missing)
    return _listed(top, {name: top / name for name in chosen}, labels, allow_missing)


def read_classes(root: str | Path, classes: Sequence[str] | None = None) -> ImageFolders:
    """List the images in root / class as one domain, called like the folder."""
    top = _existing(Path(root))
    present = _folders(top)
    labels = _distinct("classes", present if classes is None else classes)
    if not labels:
        raise refuse("root", f"{top} without folders", "root / class / image")
    _same_classes(top, present, labels, allow_missing=False)
    return _listed(top, {top.resolve().name: top}, labels, allow_missing=False)


# --- checks -------------------------------------------------------------------------------------------------


def plain(name: str) -> str:
    """Return a class name as a prompt reads it, so that Sea_Lion and "sea lion" are the same class."""
    return " ".join(name.replace("_", " ").split()).casefold()


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise refuse("folder", f"{folder}, which is not there", "root / domain / class / image")
    return folder


def _folders(parent: Path) -> list[str]:
    """Return the names of the folders in ``parent``, sorted; hidden ones do not count."""
    return sorted(
        entry.name
        for entry in parent.iterdir()
        if entry.is_dir() and not entry.name.startswith(".") and entry.name not in IGNORED
    )


def _distinct(what: str, names: Iterable[str]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for name in names:
        if plain(name) in seen:
            raise refuse(what, f"{seen[plain(name)]!r} and {name!r}", "different names")
        seen[plain(name)] = name
    return tuple(seen.values())


def _same_classes(domain: Path, present: list[str], classes: tuple[str, ...], allow_missing: bool) -> None:
    known, here = {plain(name) for name in classes}, {plain(name) for name in present}
    unknown = [name for name in present if plain(name) not in known]
    missing = [name for name in classes if plain(name) not in here]
    if unknown:
        raise refuse("classes", f"unknown {', '.join(unknown)} in {domain}", f"only {', '.join(classes)}")
    if missing and not allow_missing:
        raise refuse("classes", f"no {', '.join(missing)} in {domain}", "every class (or allow_missing=True)")
    _distinct(f"classes in {domain}", present)


# --- listing ------------------------------------------------------------------------------------------------


def _listed(root: Path, domains: dict[str, Path], classes: tuple[str, ...], allow_missing: bool) -> ImageFolders:
    rows: list[tuple[Path, int, int]] = []
    for number, folder in enumerate(domains.values()):
        before = len(rows)
        named = {plain(name): folder / name for name in _folders(folder)}
        for label, name in enumerate(classes):
            images = _images(named[plain(name)]) if plain(name) in named else []
            if not images and not allow_missing:
                raise refuse("folder", f"{folder / name} without images", "at least one image per class")
            rows += [(path, label, number) for path in images]
        if len(rows) == before:
            raise refuse("folder", f"{folder} without images", "at least one image per domain")
    paths, labels, numbers = zip(*rows, strict=True)
    return ImageFolders(root, tuple(domains), classes, paths, np.array(labels), np.array(numbers))


def _images(folder: Path) -> list[Path]:
    """Return the image files below ``folder``, sorted by their path in it."""
    below = (path for path in folder.rglob("*") if path.suffix.lower() in PICTURE_SUFFIXES)
    shown = ((path.relative_to(folder), path) for path in below)
    kept = ((rel.as_posix(), path) for rel, path in shown if not any(part[0] == "." for part in rel.parts))
    return [path for _, path in sorted(kept) if path.is_file()]
