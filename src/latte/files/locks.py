"""A lock that one process holds at a time, and that names its holder.

It is a lock of the operating system (``flock``; on Windows ``msvcrt.locking``) on a small file beside the guarded file,
which may therefore be replaced meanwhile. The system releases the lock when the process ends, in whatever way. The lock
file names its holder and is removed with the lock; a lock file that a killed process left behind does not lock. Who
must be alone in a folder, even if somebody removes the lock file, locks the folder, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.escape import visible
from ..errors import InputError, refuse
from .documents import parse_json
from .schema import structure

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

    def _take_folder(folder: Path) -> int | None:
        """Take nothing: Windows does not let anybody remove a lock file that is open."""
        return -1

    def _remove(path: Path) -> None:
        """Leave the file: Windows removes no file that is open, and a closed one may be another's already."""

else:
    import fcntl

    def _take(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _take_folder(folder: Path) -> int | None:
        """Return a descriptor that locks a folder; None if another process has one."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if _take(descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _remove(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()


@dataclass(frozen=True, slots=True)
class Holder:
    """The contents of a lock file."""

    pid: int
    host: str
    since: str
    command: str


@contextlib.contextmanager
def lock(path: Path, guarded: str, whole_folder: bool = False) -> Iterator[None]:
    """Hold the lock file ``path`` while the block runs; ``guarded`` names what it guards, for the refusal.

    If another process holds the lock, the refusal gives its pid, the time and its command. With ``whole_folder``, the
    lock holds even if the lock file is removed.
    """
    descriptor = _acquire(path, guarded)
    folder: int | None = -1
    try:
        if whole_folder:
            folder = _try_folder(path.parent, guarded)
        if folder is None:
            raise refuse(guarded, "another process at work, whose lock file was removed", "to wait until it has ended")
        with contextlib.suppress(OSError):  # no room: it is locked nevertheless
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, _self().encode())
        yield
    finally:
        if _is_current(descriptor, path):
            _remove(path)  # while we hold it: a process that opened it before sees in _is_current that it is gone
        os.close(descriptor)
        if folder is not None and folder >= 0:
            os.close(folder)


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
    for _ in range(_TRIES):
        descriptor = _open(path, guarded)
        try:
            if not _try_lock(descriptor, path, guarded):
                raise refuse(guarded, f"another process at work: {_holder(descriptor)}", "to wait until it has ended")
            if _is_current(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder has removed it since
    raise refuse(guarded, "a lock that changes hands all the time", "one process at a time")


def _open(path: Path, guarded: str) -> int:
    try:
        descriptor = os.open(path, _FLAGS, 0o666)
    except OSError as error:
        want = "a folder that is there and may be written"
        raise refuse(guarded, f"no lock file {path.name} beside it ({error.strerror})", want) from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise refuse(guarded, f"{path.name} beside it, which is no regular file", "a place for its lock file")


def _try_lock(descriptor: int, path: Path, guarded: str) -> bool:
    try:
        return _take(descriptor)
    except OSError as error:  # some network file systems have no locks
        fault = f"{path.parent}, where no file can be locked ({error.strerror})"
        raise refuse(guarded, fault, "a folder of a file system with locks") from None


def _try_folder(folder: Path, guarded: str) -> int | None:
    try:
        return _take_folder(folder)
    except OSError as error:
        fault = f"{folder}, which cannot be locked ({error.strerror})"
        raise refuse(guarded, fault, "a folder of a local disk") from None


def _is_current(descriptor: int, path: Path) -> bool:
    """Return whether the locked file still has that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _self() -> str:
    program = Path(sys.argv[0])
    name = program.parent.name if program.stem == "__main__" else program.name
    command = visible(shlex.join([name, *sys.argv[1:]])[:_COMMAND])
    return json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), time.strftime("%Y-%m-%d %H:%M:%S %z"), command)))


def _holder(descriptor: int) -> str:
    """Return a description of the holder; "which, it has not said" if the file cannot be read."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = structure(parse_json(os.read(descriptor, _LONGEST), "lock"), Holder, "lock")
    except (OSError, InputError):
        return "which, it has not said"  # it has only just taken the lock, or somebody else wrote the file
    there = "" if holder.host == socket.gethostname() else f" on {holder.host}"
    return visible(f"pid {holder.pid}{there}, since {holder.since}: {holder.command}")
