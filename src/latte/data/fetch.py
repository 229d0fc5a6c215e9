"""Fetch a dataset: download it or take it from a folder, verify its checksums, and unpack it."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePosixPath

from ..core.validate import choice
from ..errors import InputError, refuse
from ..files.archives import open_tar
from ..files.atomic import replacing
from ..files.documents import parse_toml
from ..files.schema import shorten, structure
from .download import ByteProgress, Sums, download
from .folders import layouts, read_layout


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """Where a dataset comes from.

    ``file`` is an archive with its ``sums`` and ``urls``; ``folder`` is the folder that it unpacks to, empty if it is
    read packed. ``manual`` gives the steps for a dataset that has to be downloaded by hand.
    """

    name: str
    title: str
    page: str
    file: str = ""
    sums: Sums = field(default_factory=Sums)
    urls: tuple[str, ...] = ()
    folder: str = ""
    manual: str = ""


def dataset_sources() -> dict[str, DatasetSource]:
    """Return the known datasets by name.

    >>> dataset_sources()["cifar10"].file
    'cifar-10-binary.tar.gz'
    """
    table = parse_toml((files(__package__) / "datasets.toml").read_bytes(), "datasets.toml")
    entries = {name: {"name": name, **entry} for name, entry in table.items()}
    return structure(entries, dict[str, DatasetSource], "datasets.toml")


def fetch_dataset(
    name: str,
    dest: str | Path,
    from_dir: str | Path | None = None,
    progress: ByteProgress | None = None,
    known: Mapping[str, DatasetSource] | None = None,
) -> Path:
    """Put the dataset ``name`` into the folder ``dest`` and return the archive or the unpacked folder.

    A dataset that is already there is verified and left. ``from_dir`` is a folder that holds the archive (or the folder
    of a dataset that has to be downloaded by hand): it is verified, then linked or copied, without a download.
    ``known`` replaces the package's own list of datasets.
    """
    table = dataset_sources() if known is None else known
    choice("name", name, tuple(table))
    source, into = table[name], Path(dest)
    if source.manual:
        return _check_manual(source, into, None if from_dir is None else Path(from_dir))
    if source.folder and (into / source.folder).is_dir():  # appears only when it is complete
        return into / source.folder
    archive = into / source.file
    if not archive.is_file():
        _obtain(source, archive, from_dir, progress)
    elif (fault := source.sums.fault(archive)) is not None:
        raise refuse(str(archive), fault, "the official file: delete it and fetch again")
    return unpack_archive(archive, source.folder) if source.folder else archive


def _obtain(source: DatasetSource, archive: Path, from_dir: str | Path | None, progress: ByteProgress | None) -> None:
    if from_dir is None:
        try:
            download(source.urls, archive, source.sums, progress)
        except ConnectionError as error:
            advice = f"get {source.file} from {source.page} and use --from DIR"
            raise ConnectionError(f"{error}; {advice}") from None
        return
    present = Path(from_dir) / source.file
    if not present.is_file():
        raise refuse("from_dir", f"{from_dir} without {source.file}", f"the file from {source.page}")
    if (fault := source.sums.fault(present)) is not None:
        raise refuse(str(present), fault, "the official file")
    archive.parent.mkdir(parents=True, exist_ok=True)
    _link_or_copy(present, archive)


def _link_or_copy(present: Path, target: Path) -> None:
    """Make a hard link, or a copy where the disk has none; the target appears only when it is complete."""
    try:
        os.link(present.resolve(), target)
    except OSError:
        with replacing(target) as part:
            shutil.copyfile(present, part)


def _check_manual(source: DatasetSource, into: Path, from_dir: Path | None) -> Path:
    """Check a dataset that was downloaded by hand, or refuse with the steps to get it."""
    target = into / source.folder
    if not target.exists() and from_dir is not None:
        present = next((p for p in (from_dir / source.folder, from_dir) if _fits(p, source.name)), None)
        if present is None:
            raise refuse("from_dir", f"{from_dir} without {source.folder}", _example(source, from_dir))
        into.mkdir(parents=True, exist_ok=True)
        target.symlink_to(present.resolve(), target_is_directory=True)
    if not target.exists():
        place = _example(source, Path("DIR"))
        raise InputError(
            f"{source.name} has to be downloaded by hand ({source.page}): {source.manual}; "
            f"then, with {place} in it: latte data fetch {source.name} --from DIR"
        )
    read_layout(target, source.name, allow_missing=True)  # refuses wrong folders
    return target


def _fits(folder: Path, name: str) -> bool:
    return all((folder / domain).is_dir() for domain in layouts()[name].domains)


def _example(source: DatasetSource, where: Path) -> str:
    layout = layouts()[source.name]
    return f"{where / source.folder / layout.domains[0] / layout.classnames[0]}/"


def unpack_archive(archive: Path, folder: str) -> Path:
    """Unpack ``folder`` from a tar archive beside it; it appears only when it is complete.

    Links, devices and paths that lead out of the folder are refused.
    """
    target = archive.parent / folder
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".unpack-") as scratch:
        with open_tar(archive) as tar:
            for member in tar:
                _extract(tar, member, Path(scratch), folder)
        if not (Path(scratch) / folder).is_dir():
            raise refuse(str(archive), f"an archive without {folder}/", "the official file")
        (Path(scratch) / folder).rename(target)
    return target


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, scratch: Path, folder: str) -> None:
    path = PurePosixPath(member.name)
    inside = not path.is_absolute() and ".." not in path.parts and path.parts[:1] == (folder,)
    if not inside or not (member.isfile() or member.isdir()):
        raise refuse(str(tar.name), f"the entry {shorten(repr(member.name))}", f"files and folders in {folder}/ only")
    place = scratch.joinpath(*path.parts)
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None  # a regular file has contents
    with content, place.open("wb") as file:
        shutil.copyfileobj(content, file)
