"""Datasets from the network or from a folder: checksums verified, archives unpacked.

A download goes over HTTP with resume, retries and mirrors, by the standard library only.
"""

from __future__ import annotations

import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePosixPath

from ..core.validate import choice
from ..errors import InputError, refuse
from ..files.arrays import open_tar
from ..files.atomic import lock, publish, replacing
from ..files.documents import checksum, parse_toml, shorten, structure
from .images import layouts, read_layout

READ_BYTES = 1 << 20
TIMEOUT = 30.0
ATTEMPTS_PER_URL = 3  # of one address that keeps cutting the connection

ByteProgress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


@dataclass(frozen=True, slots=True)
class Sums:
    """The expected size and checksums of a file, as far as they are known."""

    size: int | None = None
    md5: str | None = None
    sha256: str | None = None

    def fault(self, file: Path) -> str | None:
        """Return the first difference between ``file`` and what is expected, None if there is none."""
        if self.size is not None and file.stat().st_size != self.size:
            return f"{file.stat().st_size} bytes instead of {self.size}"
        for kind in ("md5", "sha256"):
            want = getattr(self, kind)
            if want is not None and (got := checksum(file, kind)) != want:
                return f"{kind} {got} instead of {want}"
        return None


def download(urls: Sequence[str], target: Path, sums: Sums, progress: ByteProgress | None = None) -> Path:
    """Download ``target`` from the first of ``urls`` whose file passes ``sums``.

    The bytes received so far stay in ``target``.part; the next attempt, or the next run, continues from there.
    """
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    with lock(target.with_name(target.name + ".lock"), f"download of {target}"):
        for url in urls:
            fault = _from(url, part, sums, progress)
            if fault is None:
                publish(part, target)
                return target
            failures.append(f"{url}: {fault}")
    raise ConnectionError(f"could not download {target.name}: {'; '.join(failures)}")


def _from(url: str, part: Path, sums: Sums, progress: ByteProgress | None) -> str | None:
    """Try one address; return the fault, None on success."""
    fault: str | None = "no answer"
    for _ in range(ATTEMPTS_PER_URL):
        begun = part.exists()
        try:
            fault = _receive(url, part, sums.size, progress)
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            return str(getattr(error, "reason", error)) or type(error).__name__
        if fault is not None:  # the connection was cut: go on from there
            continue
        if (fault := sums.fault(part)) is None:
            return None
        part.unlink()  # the bytes are wrong: start from zero
        if not begun:  # otherwise the old part may be the cause: try again from zero
            return fault
    return fault


def _receive(url: str, part: Path, size: int | None, progress: ByteProgress | None) -> str | None:
    """Append the missing bytes to ``part``; return where the connection ended, None if the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    if size is not None and have == size:
        return None
    if size is not None and have > size:
        have = 0
    with _open(url, have) as answer:
        resumed = have > 0 and answer.status == http.HTTPStatus.PARTIAL_CONTENT
        done = have if resumed else 0
        byte_range, length = answer.headers.get("Content-Range", ""), answer.headers.get("Content-Length") or ""
        if resumed and not byte_range.startswith(f"bytes {done}-"):
            raise urllib.error.URLError(f"a request for the bytes from {done} on, answered with {byte_range!r}")
        total = done + int(length) if length.isdigit() else None
        most = total if size is None else size
        with part.open("ab" if resumed else "wb") as file:
            while block := _read(answer):
                done += len(block)
                if most is not None and done > most:
                    raise urllib.error.URLError(f"more than the {most} bytes expected")
                file.write(block)
                if progress is not None:
                    progress(done, most)
    return None if total is None or done >= total else f"the connection ended after {done} of {total} bytes"


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Return the next bytes of an answer; none also where the connection was cut."""
    try:
        return answer.read(READ_BYTES)
    except http.client.IncompleteRead as error:
        return error.partial
    except (ConnectionError, TimeoutError):
        return b""


def _open(url: str, have: int) -> http.client.HTTPResponse:
    if not url.startswith(("http://", "https://")):
        raise refuse("url", url, "http:// or https://")
    headers = {"User-Agent": "latte-tta", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return _open(url, 0)
        raise urllib.error.URLError(f"HTTP {error.code} {error.reason}") from None
    return answer


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
    try:
        os.link(present.resolve(), archive)
    except OSError:  # the disk has no hard links, or the file is on another one
        with replacing(archive) as part:
            shutil.copyfile(present, part)


def _check_manual(source: DatasetSource, into: Path, from_dir: Path | None) -> Path:
    """Check a dataset that was downloaded by hand, or refuse with the steps to get it."""
    target, layout = into / source.folder, layouts()[source.name]
    example = f"{source.folder}/{layout.domains[0]}/{layout.classnames[0]}/"
    if not target.exists() and from_dir is not None:
        for folder in (from_dir / source.folder, from_dir):
            if all((folder / domain).is_dir() for domain in layout.domains):
                into.mkdir(parents=True, exist_ok=True)
                target.symlink_to(folder.resolve(), target_is_directory=True)
                break
        else:
            raise refuse("from_dir", f"{from_dir} without {source.folder}", str(from_dir / example) + "/")
    if not target.exists():
        raise InputError(
            f"{source.name} has to be downloaded by hand ({source.page}): {source.manual}; "
            f"then, with DIR/{example} in it: latte data fetch {source.name} --from DIR"
        )
    read_layout(target, source.name, allow_missing=True)  # refuses wrong folders
    return target


def unpack_archive(archive: Path, folder: str) -> Path:
    """Unpack ``folder`` from a tar archive beside it; it appears only when it is complete.

    Links, devices and paths that lead out of the folder are refused.
    """
    target = archive.parent / folder
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".unpack-") as scratch:
        with open_tar(archive) as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                inside = not path.is_absolute() and ".." not in path.parts and path.parts[:1] == (folder,)
                if not inside or not (member.isfile() or member.isdir()):
                    entry = f"the entry {shorten(repr(member.name))}"
                    raise refuse(str(archive), entry, f"files and folders in {folder}/ only")
                place = Path(scratch, *path.parts)
                (place if member.isdir() else place.parent).mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                if content is not None:  # a file, not a folder
                    with content, place.open("wb") as file:
                        shutil.copyfileobj(content, file)
        if not (Path(scratch) / folder).is_dir():
            raise refuse(str(archive), f"an archive without {folder}/", "the official file")
        (Path(scratch) / folder).rename(target)
    return target
