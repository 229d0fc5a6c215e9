"""Atomic writes: a file is complete or absent. Results, caches and memories are all written here.

Any number of threads and processes may write the same file at once: each writes under a name of its own, and a reader
sees the old file or one of the new files, never a part of a file.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import refuse

ENDING = ".part"
STALE = 3600.0  # seconds without a write after which a temporary file counts as left behind by a killed process


@contextmanager
def replacing(path: Path, private: bool = False) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; the file written there becomes ``path`` when the block ends.

    If the block raises, that file is removed and ``path`` is unchanged. A link is followed, not replaced. The file has
    the permissions of the one that it replaces; a ``private`` one has its own.
    """
    target = Path(os.path.realpath(path))
    start = f".{target.name[:40]}."
    _remove_stale(target.parent, start)
    part = target.with_name(f"{start}{secrets.token_hex(8)}{ENDING}")
    try:
        yield part
        publish(part, target, private)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and (error.filename in (str(part), part) or _is_nameless_full_disk(error)):
            error.filename, error.filename2 = str(path), None  # the name that the caller knows
        raise


def _is_nameless_full_disk(error: OSError) -> bool:
    """Say whether a write to an open file had no room: such an error names no file."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes ``path`` when the block ends; a pipe or a terminal is written to as it is."""
    if _is_special(path):
        with Path(path).open("wb") as file:
            yield file
        return
    with replacing(path) as part, part.open("xb") as file:
        yield file


@contextmanager
def writing_private(path: Path) -> Iterator[BinaryIO]:
    """Do what :func:`writing` does, with a file that only its owner may read, whatever was there."""
    if _is_special(path):
        with writing(path) as file:
            yield file
        return
    with replacing(path, private=True) as part, os.fdopen(_new_private(part), "wb") as file:
        yield file


def _new_private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file; after a crash it is either the old file or the new one."""
    with writing(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 text; newlines are not translated."""
    write_bytes(path, text.encode())


def append_line(path: Path, line: str) -> None:
    """Add a line to a file and wait until it is on disk."""
    with Path(path).open("ab") as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def check_writable(path: Path, what: str = "file") -> None:
    """Refuse a path at which no file can be written, before the work whose result belongs there.

    ``what`` names the path in the refusal. Missing folders are refused, too; a pipe or a terminal is writable as it is.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise refuse(what, f"{path}, which is a folder", "the name of a file")
    if not target.parent.is_dir():
        raise refuse(what, f"{path}, whose folder is not there", "a file in a folder that is")
    if not _is_special(path):
        _try_to_write(target.parent, path, what)


def check_writable_folder(folder: Path, what: str = "folder") -> None:
    """Refuse a folder that does not exist and cannot be made, or in which no file can be written."""
    target = Path(os.path.realpath(folder))
    if target.exists() and not target.is_dir():
        raise refuse(what, f"{folder}, which is no folder", "a folder, or a name that is still free")
    there = next(parent for parent in (target, *target.parents) if parent.exists())
    if not there.is_dir():
        raise refuse(what, f"{folder}, inside {there}, which is no folder", "a folder that can be made")
    _try_to_write(there, folder, what)


def _try_to_write(folder: Path, path: Path, what: str) -> None:
    part = folder / f".{secrets.token_hex(8)}{ENDING}"
    try:
        part.open("xb").close()
        part.unlink()
    except OSError as error:
        raise refuse(what, f"{path}, which cannot be written ({error.strerror})", "a place that can") from None


def publish(part: Path, target: Path, private: bool = False) -> None:
    """Give a finished file its name, once its bytes are on disk.

    It gets the permissions of the file that it replaces, unless it is ``private``.
    """
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    with suppress(FileNotFoundError):
        if not private:
            part.chmod(stat.S_IMODE(target.stat().st_mode))
    part.replace(target)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Sync the new name to disk too; systems that cannot open a folder do not need it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_special(path: Path) -> bool:
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _remove_stale(folder: Path, start: str) -> None:
    for part in folder.glob(f"{glob.escape(start)}*{ENDING}"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > STALE:
                part.unlink()
