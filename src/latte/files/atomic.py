"""Atomic writes and locks: a file is complete or absent, and one process at a time works on what a lock guards.

Any number of threads and processes may write the same file at once: each writes under a name of its own, and a reader
sees the old file or one of the new files, never a part of a file. A lock names its holder.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import secrets
import shlex
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError, refuse
from ..text import visible
from .documents import parse_json

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
    for left in target.parent.glob(f"{glob.escape(start)}*{ENDING}"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE:
                left.unlink()
    part = target.with_name(f"{start}{secrets.token_hex(8)}{ENDING}")
    try:
        yield part
        publish(part, target, private)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            full = error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT)  # a write to an open file
            if full or error.filename in (str(part), part):
                error.filename, error.filename2 = str(path), None  # the name that the caller knows
        raise


@contextmanager
def writing(path: Path, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a file that becomes ``path`` when the block ends; a pipe or a terminal is written to as it is.

    A ``private`` one may be read by its owner only, whatever was there.
    """
    if _is_special(path):
        with Path(path).open("wb") as file:
            yield file
        return
    with replacing(path, private) as part:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(part, flags, 0o600 if private else 0o666), "wb") as file:
            yield file


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
    with suppress(OSError):  # the new name, too; systems that cannot open a folder do not need it
        handle = os.open(target.parent, os.O_RDONLY)
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


_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_LONGEST = 4096  # bytes of a lock file that are read: anybody may have written it
_COMMAND = 200  # characters of a command that are shown
_TRIES = 100  # how often the holder may let go between our opening the file and our locking it

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> bool:
        os.lseek(descriptor, _LONGEST, os.SEEK_SET)  # Windows keeps others from reading what is locked: lock behind it
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _take(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Holder:
    """The contents of a lock file."""

    pid: int
    host: str
    since: str
    command: str


@contextmanager
def lock(path: Path, guarded: str, whole_folder: bool = False) -> Iterator[None]:
    """Hold the lock file ``path`` while the block runs; ``guarded`` names what it guards, for the refusal.

    If another process holds the lock, the refusal gives its pid, the time and its command. With ``whole_folder``, the
    lock holds even if the lock file is removed. The system lets go when the process ends, however it ends.
    """
    with ExitStack() as held:
        descriptor = _acquire(path, guarded)
        held.callback(_release, descriptor, path)
        if whole_folder and sys.platform != "win32":  # there nobody can remove a lock file that is open
            try:
                folder = os.open(path.parent, os.O_RDONLY)
                held.callback(os.close, folder)
                alone = _take(folder)
            except OSError as error:
                fault = f"{path.parent}, which cannot be locked ({error.strerror})"
                raise refuse(guarded, fault, "a folder of a local disk") from None
            if not alone:
                got = "another process at work, whose lock file was removed"
                raise refuse(guarded, got, "to wait until it has ended")
        program = Path(sys.argv[0])
        name = program.parent.name if program.stem == "__main__" else program.name
        command = visible(shlex.join([name, *sys.argv[1:]])[:_COMMAND])
        holder = Holder(os.getpid(), socket.gethostname(), time.strftime("%Y-%m-%d %H:%M:%S %z"), command)
        with suppress(OSError):  # no room: it is locked nevertheless
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, json.dumps(asdict(holder)).encode())
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock file ``path`` now."""
    try:
        descriptor = os.open(path, _FLAGS & ~os.O_CREAT)
    except OSError:
        return False
    try:
        return not _take(descriptor)  # closing the file lets go again
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _acquire(path: Path, guarded: str) -> int:
    """Return the descriptor of the lock file, locked."""
    for _ in range(_TRIES):
        try:
            descriptor = os.open(path, _FLAGS, 0o666)
        except OSError as error:
            want = "a folder that is there and may be written"
            raise refuse(guarded, f"no lock file {path.name} beside it ({error.strerror})", want) from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise refuse(guarded, f"{path.name} beside it, which is no regular file", "a place for its lock file")
            if not _take(descriptor):
                raise refuse(guarded, f"another process at work: {_holder(descriptor)}", "to wait until it has ended")
            if _is_current(descriptor, path):
                return descriptor
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):  # some network file systems have no locks
                fault = f"{path.parent}, where no file can be locked ({error.strerror})"
                raise refuse(guarded, fault, "a folder of a file system with locks") from None
            raise
        os.close(descriptor)  # its last holder has removed it since
    raise refuse(guarded, "a lock that changes hands all the time", "one process at a time")


def _release(descriptor: int, path: Path) -> None:
    """Remove the lock file while it is locked: a process that opened it before sees that it is gone."""
    if sys.platform != "win32" and _is_current(descriptor, path):  # there no file that is open can be removed
        with suppress(OSError):
            path.unlink()
    os.close(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    """Return whether the locked file still has that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _holder(descriptor: int) -> str:
    """Return a description of the holder; "which, it has not said" if the file cannot be read."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder: Holder = parse_json(os.read(descriptor, _LONGEST), "lock", Holder)
    except (OSError, InputError):
        return "which, it has not said"  # it has only just taken the lock, or somebody else wrote the file
    there = "" if holder.host == socket.gethostname() else f" on {holder.host}"
    return visible(f"pid {holder.pid}{there}, since {holder.since}: {holder.command}")
