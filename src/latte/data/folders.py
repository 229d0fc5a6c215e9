"""Images in folders: root / domain / class / image, as DomainBed lays them out, or root / class / image.

The map from class to index is explicit and the same for every domain: an unknown or a missing class folder is refused.
(A loader that numbers the folders of each domain separately mislabels every image after a missing class.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from ..core.types import Integers
from ..core.validate import choice
from ..encoders.pictures import PICTURE_SUFFIXES
from ..errors import refuse
from ..files.documents import parse_toml
from ..files.schema import structure

IGNORED = frozenset({"__MACOSX"})


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
    top = _check_folder(Path(root))
    names = _check_distinct("domains", _folders(top) if domains is None else domains)
    if not names:
        raise refuse("root", f"{top} without folders", "root / domain / class / image")
    class_folders = {name: _folders(_check_folder(top / name)) for name in names}
    every = sorted({name for folders in class_folders.values() for name in folders})
    labels = _check_distinct("classes", every if classnames is None else classnames)
    for domain, present in class_folders.items():
        _check_classes(top / domain, present, labels, allow_missing)
    return _list_images(top, {name: top / name for name in names}, labels, allow_missing)


def read_classes(root: str | Path, classnames: Sequence[str] | None = None) -> ImageFolders:
    """List the images in root / class as one domain with the name of the folder."""
    top = _check_folder(Path(root))
    present = _folders(top)
    labels = _check_distinct("classes", present if classnames is None else classnames)
    if not labels:
        raise refuse("root", f"{top} without folders", "root / class / image")
    _check_classes(top, present, labels, allow_missing=False)
    return _list_images(top, {top.resolve().name: top}, labels, allow_missing=False)


# --- checks -------------------------------------------------------------------------------------------------


def plain_name(name: str) -> str:
    """Return a class name in the form used for comparison: Sea_Lion and "sea lion" are the same class."""
    return " ".join(name.replace("_", " ").split()).casefold()


def _check_folder(folder: Path) -> Path:
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


def _check_distinct(what: str, names: Iterable[str]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for name in names:
        if plain_name(name) in seen:
            raise refuse(what, f"{seen[plain_name(name)]!r} and {name!r}", "different names")
        seen[plain_name(name)] = name
    return tuple(seen.values())


def _check_classes(domain: Path, present: list[str], classnames: tuple[str, ...], allow_missing: bool) -> None:
    known, here = {plain_name(name) for name in classnames}, {plain_name(name) for name in present}
    unknown = [name for name in present if plain_name(name) not in known]
    missing = [name for name in classnames if plain_name(name) not in here]
    if unknown:
        raise refuse("classes", f"unknown {', '.join(unknown)} in {domain}", f"only {', '.join(classnames)}")
    if missing and not allow_missing:
        raise refuse("classes", f"no {', '.join(missing)} in {domain}", "every class (or allow_missing=True)")
    _check_distinct(f"classes in {domain}", present)


# --- listing ------------------------------------------------------------------------------------------------


def _list_images(
    root: Path, domains: dict[str, Path], classnames: tuple[str, ...], allow_missing: bool
) -> ImageFolders:
    rows: list[tuple[Path, int, int]] = []
    for number, folder in enumerate(domains.values()):
        before = len(rows)
        folders = {plain_name(name): folder / name for name in _folders(folder)}
        for label, name in enumerate(classnames):
            images = _images(folders[plain_name(name)]) if plain_name(name) in folders else []
            if not images and not allow_missing:
                raise refuse("folder", f"{folder / name} without images", "at least one image per class")
            rows += [(path, label, number) for path in images]
        if len(rows) == before:
            raise refuse("folder", f"{folder} without images", "at least one image per domain")
    paths, labels, numbers = zip(*rows, strict=True)
    return ImageFolders(root, tuple(domains), classnames, paths, np.array(labels), np.array(numbers))


def _images(folder: Path) -> list[Path]:
    """Return the image files below ``folder``, sorted by their path in it."""
    below = (path for path in folder.rglob("*") if path.suffix.lower() in PICTURE_SUFFIXES)
    relative = ((path.relative_to(folder), path) for path in below)
    visible = ((name.as_posix(), path) for name, path in relative if not any(part[0] == "." for part in name.parts))
    return [path for _, path in sorted(visible) if path.is_file()]
