"""Pictures that arrive in a folder: the system tells of them where it can (inotify), and the folder is looked at, too.

Looking works on any file system, also on a share where the system hears of nothing that other machines write. A picture
is ready when it has not changed for a while, a short one if its writer has closed it. A file that is still being
written has a newer time or another size at the next look.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...encoders.pictures import HEIC_SUFFIXES, PICTURE_SUFFIXES
from .record import Source

SETTLED_SECONDS = 1.0  # seconds without a change after which a file is tried
CLOSED_SECONDS = 0.3  # the same once its writer has closed it: many programs set its time after that (cp, tar, unzip)
WRITING_PATIENCE = 10.0  # seconds without a change after which an unreadable file counts as finished
MOST_TRIES = 8  # of a file that the system does not let us read, until it is reported: after 1, 2, 4 … seconds
_SELDOM = 3600.0  # seconds between two of the tries after that
_AGAIN = 0.5  # seconds until an unreadable file that may be being written is tried again
_LARGEST, _LEAST = 2**63 - 1, -(2**63)  # nanoseconds: files may be dated after 2262, and the record has 64 bits


@dataclass(slots=True)
class _Watched:
    """A file, the moment (of the monotonic clock) since which it is unchanged, and when to try it."""

    source: Source
    since: float
    due: float
    tries: int = 0  # that failed by no fault of the file


class FolderWatch:
    """Looks for new pictures below ``folder``; ``is_done`` says which pictures are not new.

    Each picture is handed out once; after :meth:`give_back` it is handed out again. Clocks of other machines do not
    matter, except that at the first look a file which seems to be older than ``settled`` seconds is ready at once.
    """

    def __init__(self, folder: Path, is_done: Callable[[Source], bool], settled: float = SETTLED_SECONDS) -> None:
        self.folder, self._is_done, self._settled = folder, is_done, settled
        self._files: dict[str, _Watched] = {}
        self._open: set[str] = set()  # the names of those that have not been handed out
        self.problem = ""  # with a file or a folder below ``folder``, at the last look
        self.heic = ""  # the first picture of a kind that needs another package
        self._first = True
        self._lock = threading.Lock()  # one thread looks, another gives back
        self._events = FolderEvents.open()

    @property
    def hears_all(self) -> bool:
        """Whether the system tells of every new file, so that the folder need not be looked at often."""
        return self._events is not None and self._events.complete and _is_local(self.folder)

    def look(self) -> list[Source]:
        """Return the new pictures that are ready, the oldest first; a folder that cannot be read is an OSError.

        What cannot be looked at below it is left out, and the first such case is the ``problem``.
        """
        problems: list[OSError] = []
        if self._events is not None:
            self._events.complete = True
        present = list(self._below(self.folder, problems.append))  # without the lock: a share may take its time
        error = problems[0] if problems else None
        about = f"{error.filename}: {error.strerror}" if error and error.filename and error.strerror else error
        self.problem = str(about or "")
        with self._lock:
            now, before = time.monotonic(), self._files
            self._files = {}
            for source in present:
                since = now - age(source) if self._first else now
                self._see(source, before.get(source.name), since)
            self._open.intersection_update(self._files)
            self._first = False
            return self._take([name for name in self._open if self._files[name].due <= now])

    def wait(self, seconds: float) -> list[Source] | None:
        """Return the pictures that became ready, after ``seconds`` at the latest; None says that a look is needed."""
        with self._lock:
            due = min((self._files[name].due for name in self._open), default=float("inf"))
        patience = max(0.0, min(seconds, due - time.monotonic()))
        if self._events is None:
            time.sleep(patience)
        elif not self._hear(self._events, patience):
            return None
        return self._settle()

    def _hear(self, events: FolderEvents, seconds: float) -> bool:
        """Take note of what the system says; return False if something was missed."""
        whole = True
        for path, event in events.read(seconds):
            if event == "over":
                whole = whole and path not in ("", str(self.folder))
                continue
            with suppress(OSError):  # it is gone again; the next look says what is wrong
                if event == "folder":
                    for source in self._below(Path(path), lambda error: None):
                        self._see_now(source, self._settled)
                elif self._is_picture(path):
                    about = os.stat(path)  # noqa: PTH116
                    if stat.S_ISREG(about.st_mode):
                        settled = min(CLOSED_SECONDS, self._settled) if event == "closed" else self._settled
                        self._see_now(_source(path, about), settled)
        return whole

    def _see_now(self, source: Source, settled: float) -> None:
        with self._lock:
            now, before = time.monotonic(), self._files.get(source.name)
            if before is not None and before.tries:  # what kept us from it may be over
                before = None
            self._see(source, before, now)
            if source.name in self._open:
                self._files[source.name].due = now + settled

    def _see(self, source: Source, before: _Watched | None, since: float) -> None:
        if before is not None and before.source == source:
            self._files[source.name] = before
        else:
            self._files[source.name] = _Watched(source, since, since + self._settled)
            self._open.add(source.name)

    def _settle(self) -> list[Source]:
        """Return those that are due and have not changed since they were seen."""
        with self._lock:
            now = time.monotonic()
            names = [name for name in self._open if self._files[name].due <= now]
        found: dict[str, Source | None] = {}
        for name in names:  # without the lock
            try:
                found[name] = file_source(name)
            except OSError:
                found[name] = None
        with self._lock:
            now, ready = time.monotonic(), []
            for name, source in found.items():
                if source is None:
                    self._forget(name)
                elif name in self._open and self._files[name].source != source:
                    self._files[name] = _Watched(source, now, now + self._settled)
                elif name in self._open:
                    ready.append(name)
            return self._take(ready)

    def _take(self, names: list[str]) -> list[Source]:
        self._open.difference_update(names)
        new = (source for source in (self._files[name].source for name in names) if not self._is_done(source))
        return sorted(new, key=lambda one: (one.modified, one.name))

    def forget(self, name: str) -> None:
        """Hand a picture out again if it is still there, or comes back."""
        with self._lock:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._files.pop(name, None)
        self._open.discard(name)

    def give_back(self, source: Source, passing: bool = False) -> bool:
        """Take back a picture that cannot be read; return False when it is time to report that.

        A problem that is ``passing``, such as a missing permission, is waited for at growing distances, and reported
        once, after some minutes; a file that may be being written, until it has not changed for a while.
        """
        with self._lock:
            file = self._files.get(source.name)
            if file is None or file.source != source:
                return True  # the next look sees what it is now
            now = time.monotonic()
            file.tries += passing
            patient = file.tries != MOST_TRIES if passing else now - file.since < WRITING_PATIENCE
            if patient or passing:
                file.due = now + (min(2.0 ** min(file.tries - 1, 12), _SELDOM) if passing else _AGAIN)
                self._open.add(source.name)
            return patient

    def _is_picture(self, name: str) -> bool:
        base = name.rpartition(os.sep)[2]
        suffix = os.path.splitext(base)[1].lower()  # noqa: PTH122  for every file, at every look
        if suffix in HEIC_SUFFIXES and suffix not in PICTURE_SUFFIXES and not base.startswith("."):
            self.heic = self.heic or name
        return suffix in PICTURE_SUFFIXES and not base.startswith(".")

    def _below(self, folder: Path, complain: Callable[[OSError], object]) -> Iterator[Source]:
        """Yield the pictures in a folder and the folders in it; hidden ones are left out.

        A file or an inner folder that cannot be looked at is passed to ``complain`` and left out.
        """
        folders = [str(folder)]
        while folders:
            inside = folders.pop()
            try:
                if self._events is not None:
                    self._events.add(inside)  # first, so that nothing comes between this and the look
                with os.scandir(inside) as entries:
                    for entry in entries:
                        try:
                            if entry.is_dir(follow_symlinks=False):
                                folders += [entry.path] if not entry.name.startswith(".") else []
                            elif self._is_picture(entry.path) and entry.is_file():
                                yield _source(entry.path, entry.stat())
                        except FileNotFoundError:  # it was there a moment ago
                            continue
                        except OSError as error:
                            complain(error)
            except FileNotFoundError:
                if inside == str(folder):
                    raise
            except OSError as error:
                if inside == str(folder):
                    raise
                complain(error)


def age(source: Source) -> float:
    """Return the seconds since a file was changed, by the clocks; 0 if its time lies in the future."""
    return max(0.0, time.time() - source.modified / 1e9)


def file_source(path: str | Path) -> Source:
    """Return a file as it is now."""
    name = os.fspath(path)
    return _source(name, os.stat(name))  # noqa: PTH116  for every picture, twice: half the time of Path.stat


def _source(name: str, about: os.stat_result) -> Source:
    return Source(name, min(max(about.st_mtime_ns, _LEAST), _LARGEST), about.st_size)


_ATTRIB, _CLOSED, _MOVED, _CREATED = 0x4, 0x8, 0x80, 0x100  # <sys/inotify.h>
_SELF_DELETED, _SELF_MOVED, _UNMOUNTED, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_IS_FOLDER, _ONLY_FOLDERS = 0x40000000, 0x01000000
_WANTED = _ATTRIB | _CLOSED | _MOVED | _CREATED | _SELF_DELETED | _SELF_MOVED | _ONLY_FOLDERS
_HEAD = struct.Struct("iIII")
_ROOM = 1 << 16  # bytes of events that are read at once
# file systems that no other machine writes to
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ramfs", "vfat", "exfat", "ntfs3", "zfs", "overlay")


class FolderEvents:
    """What the system (Linux) says about folders; ``complete`` unless it had no room for one of them."""

    def __init__(self, system: ctypes.CDLL, descriptor: int) -> None:
        self._system, self._descriptor = system, descriptor
        self._folders: dict[int, str] = {}
        self.complete = True
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def __del__(self) -> None:
        os.close(self._descriptor)

    @classmethod
    def open(cls) -> FolderEvents | None:
        """Begin to listen; None where the system has no inotify, or no room for another listener."""
        if not sys.platform.startswith("linux"):
            return None
        system = ctypes.CDLL(None, use_errno=True)
        descriptor = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        return cls(system, descriptor) if descriptor >= 0 else None

    def add(self, folder: str) -> None:
        """Listen to a folder; one that is listened to already stays so."""
        number = self._system.inotify_add_watch(self._descriptor, os.fsencode(folder), _WANTED)
        if number >= 0:
            self._folders[number] = folder
        elif ctypes.get_errno() in (errno.ENOSPC, errno.ENOMEM):
            self.complete = False

    def read(self, seconds: float) -> Iterator[tuple[str, str]]:
        """Wait, at most so long, and yield what happened to which path.

        A file is "closed", that is complete, or "changed"; of a new "folder" all is new; when it is "over", no more
        is heard of a folder. More happened than the system could tell where that has no name.
        """
        if not self._poll.poll(1e3 * seconds):
            return
        try:
            content = os.read(self._descriptor, _ROOM)
        except BlockingIOError:
            return
        place = 0
        while place < len(content):
            number, kind, _, length = _HEAD.unpack_from(content, place)
            name = content[place + _HEAD.size : place + _HEAD.size + length].rstrip(b"\0")
            place += _HEAD.size + length
            if kind & _OVERFLOW:
                yield "", "over"
                continue
            over = bool(kind & (_SELF_DELETED | _SELF_MOVED | _UNMOUNTED | _IGNORED))
            folder = self._folders.pop(number, "") if kind & _IGNORED else self._folders.get(number, "")
            path = f"{folder.rstrip(os.sep)}{os.sep}{os.fsdecode(name)}"
            if over and folder:
                yield folder, "over"
            elif folder and name and not kind & _IS_FOLDER:
                yield path, "closed" if kind & (_CLOSED | _MOVED) else "changed"
            elif folder and name and not kind & _ATTRIB and not name.startswith(b"."):
                yield path, "folder"


def _is_local(folder: Path) -> bool:
    """Return whether only this machine writes to the file system of a folder, as far as its kind says."""
    try:
        device = folder.stat().st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
            place, _, kind = line.partition(" - ")
            if place.split(" ", 3)[2] == wanted:
                return kind.split(" ", 1)[0] in _LOCAL
    except (OSError, IndexError):
        pass
    return False
