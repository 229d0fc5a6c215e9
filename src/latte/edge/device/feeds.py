"""Places that the pictures of a device come from: files, a list that grows, a watched folder, frames of a camera.

Files wait where they are: a few decoded pictures are in memory, and nothing is dropped. Of a watched folder, at most
:data:`QUEUE_ROOM` pictures wait in a queue, and the names of all files are in memory; of a list, one line at a time.
Frames of a camera do not wait: see :class:`LatestFrames`.

A file that cannot be read because of the system, not because of what is in it, is tried again after a while. If that
does not help it is recorded as ``Source(name)``: as no version of the file, so that it is tried again, in a watched
folder ever more seldom, otherwise at the next start.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...encoders.pictures import HEIC_HINT, LASTING, BadImageError
from .record import Source
from .watch import WRITING_PATIENCE, FolderWatch, age, file_source

QUEUE_ROOM = 256  # names of files that wait in a queue
PICTURES_AHEAD = 4  # pictures that are decoded ahead: the device never waits for a disk, and few are in memory
WATCH_SECONDS = 0.5  # seconds between two looks at a folder
HEARD_SECONDS = 10.0  # the same where the system tells of new files: in case it does not tell of all
_SHARE = 20  # looking takes at most one part in 20 of the time, however large the folder and however slow the share
_TICK = 0.2  # seconds between two looks at whether to stop
NAMED_TRIES = 3  # of a named file that the system does not let us read: the next one need not wait for long
SLOW_SECONDS = 120.0  # for which a look or a file may take before people are told: a share that is away never answers

Prepare = Callable[[Path], Any]


class Arrival(NamedTuple):
    """A picture to classify: what the encoder takes, or the problem with it."""

    source: Source
    picture: Any


class NamedFiles:
    """Files that are named in advance or, one after the other, by a list that may grow.

    A file that cannot be read may still be being written: it is tried again until it has not changed for some seconds.
    ``failed`` counts those that could not be read.
    """

    waiting, problem, notice = 0, "", ""  # as those of a WatchedFolder: how many files are known, what is wrong

    def __init__(self, files: Iterable[Path], is_done: Callable[[Source], bool]) -> None:
        self._files, self._is_done = files, is_done
        self.skipped = self.failed = 0

    def __iter__(self) -> Iterator[Path]:
        return iter(self._files)

    def read(self, file: Path, prepare: Prepare) -> Arrival | None:
        """Read a file; return None if it has been classified before."""
        try:
            source = file_source(file)
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL byte
            arrival = Arrival(Source(str(file)), _unreadable(file, error))
        else:
            if self._is_done(source):
                self.skipped += 1
                return None
            arrival = _read_written(file, source, prepare)
        self.failed += isinstance(arrival.picture, BadImageError)
        return arrival


def _read_written(path: Path, source: Source, prepare: Prepare) -> Arrival:
    """Read a file as soon as it is complete; a file that stays unreadable is a problem."""
    since: float | None = None  # the moment of the last change, once it matters
    tries = 0
    while True:
        picture = read_picture(path, prepare)
        try:
            now = file_source(path)
        except OSError as error:  # it is gone
            return Arrival(source, picture if not isinstance(picture, BadImageError) else _unreadable(path, error))
        if now != source:
            source, since = now, time.monotonic()
        elif not isinstance(picture, BadImageError):
            return Arrival(source, picture)
        elif picture.passing:
            tries += 1
            if tries == NAMED_TRIES:
                return Arrival(Source(str(path)), picture)
        else:
            since = time.monotonic() - age(source) if since is None else since
            if time.monotonic() - since >= WRITING_PATIENCE:
                return Arrival(source, picture)
        time.sleep(_TICK)


class WatchedFolder:
    """New pictures of a folder. A thread looks for them, so that a slow network share does not delay classifying."""

    def __init__(self, watch: FolderWatch, every: float = WATCH_SECONDS, room: int = QUEUE_ROOM) -> None:
        self._watch, self._every = watch, every
        self._queue: queue.Queue[Source] = queue.Queue(room)
        self._problem = ""
        self._due = float("inf")  # when the thread should be back from the folder
        self.forget = watch.forget

    @property
    def problem(self) -> str:
        """What is wrong with the folder; that it does not answer, too."""
        if time.monotonic() > self._due:
            return f"{self._watch.folder}: no answer from this folder for more than {SLOW_SECONDS:.0f} s"
        return self._problem

    @property
    def waiting(self) -> int:
        """Pictures that are ready and not read yet, up to the room of the queue."""
        return self._queue.qsize()

    @property
    def notice(self) -> str:
        """What is left out, and why."""
        return f"{self._watch.heic} is left out: {HEIC_HINT}" if self._watch.heic else ""

    def __iter__(self) -> Iterator[Source]:
        threading.Thread(target=self._look, name="latte-watch", daemon=True).start()
        while True:
            yield self._queue.get()

    def _look(self) -> None:
        """Look at the folder for ever: whatever goes wrong is a problem that people are told, and may be over."""
        while True:
            start = time.monotonic()
            self._due = start + SLOW_SECONDS
            try:
                ready: list[Source] | None = self._watch.look()
                self._problem = self._watch.problem
                heard = self._watch.hears_all and not self._problem
                pause = max(self._every, HEARD_SECONDS if heard else 0.0, _SHARE * (time.monotonic() - start))
                end = time.monotonic() + pause
                while ready is not None:  # hand out what arrives until the next look; None says that it is due now
                    self._due = float("inf")
                    for source in ready:
                        self._queue.put(source)  # waits while the queue is full
                    left = end - time.monotonic()
                    if left <= 0:
                        break
                    self._due = end + SLOW_SECONDS
                    ready = self._watch.wait(left)
            except Exception as error:
                kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
                self._problem = f"{self._watch.folder}: {kind}{getattr(error, 'strerror', None) or error}"
                ready = None
            if ready is None:
                self._due = float("inf")
                time.sleep(self._every)

    def read(self, file: Source, prepare: Prepare) -> Arrival | None:
        """Read a file; return None if it is gone, or not complete yet, or cannot be read now: then it comes again."""
        path = Path(file.name)
        picture = read_picture(path, prepare)
        if isinstance(picture, BadImageError):
            if not os.path.lexists(path):
                self._watch.forget(file.name)  # a folder that is away may come back
                return None
            if self._watch.give_back(file, picture.passing):
                return None
            return Arrival(Source(str(path)) if picture.passing else file, picture)
        try:
            changed = file_source(path) != file
        except OSError:
            changed = False
        if changed:
            self._watch.forget(file.name)
        return None if changed else Arrival(file, picture)  # the next look sees what it is now


class PictureFeed:
    """The pictures of a place, read and decoded ahead by a thread. While there is none, it yields None now and then."""

    def __init__(self, place: NamedFiles | WatchedFolder, prepare: Prepare, ahead: int = PICTURES_AHEAD) -> None:
        self.place: Any = place
        self._prepare = prepare
        # not a SimpleQueue: in Python 3.11 its get() may hang if a signal arrives as the time is up
        self._ready: queue.Queue[Arrival | BaseException | None] = queue.Queue(ahead)
        self._over = False
        self._file: Path | Source | None = None  # is being read, or waits for room
        self._since = float("inf")  # when reading it began

    @property
    def problem(self) -> str:
        """What is wrong with the place of the pictures, or with reading one of them."""
        file = self._file
        if file is not None and time.monotonic() - self._since > SLOW_SECONDS:
            name = file.name if isinstance(file, Source) else file
            return f"{name}: not read after {SLOW_SECONDS:.0f} s, and those behind it wait"
        return str(self.place.problem)

    @property
    def waiting(self) -> int:
        """Pictures that are known and not classified yet."""
        return int(self.place.waiting) + self._ready.qsize()

    @property
    def more(self) -> bool:
        """Whether another picture is known to come: it waits, or is being read."""
        return self._file is not None or self.waiting > 0

    def __iter__(self) -> Iterator[Arrival | None]:
        threading.Thread(target=self._read, name="latte-read", daemon=True).start()
        while True:
            try:
                arrival = self._ready.get(timeout=_TICK)
            except queue.Empty:
                yield None
                continue
            if arrival is None:
                return
            if isinstance(arrival, BaseException):
                raise arrival
            yield arrival

    def close(self) -> None:
        """Let the thread end with the picture that it reads."""
        self._over = True

    def _read(self) -> None:
        try:
            for file in self.place:
                self._file, self._since = file, time.monotonic()
                arrival = self.place.read(file, self._prepare)
                self._since = float("inf")
                if arrival is not None and not self._put(arrival):
                    return
                self._file = None
        except BaseException as error:  # is raised where the next picture is taken
            self._put(error)
        else:
            self._put(None)

    def _put(self, item: Arrival | BaseException | None) -> bool:
        """Wait for room; return False if nobody takes pictures any more."""
        while not self._over:
            with suppress(queue.Full):
                self._ready.put(item, timeout=_TICK)
                return True
        return False


def read_picture(path: Path, prepare: Prepare) -> Any:
    """Return what the encoder takes, or the problem with a file."""
    try:
        return prepare(path)
    except BadImageError as error:
        return error
    except (OSError, MemoryError) as error:
        return _unreadable(path, error)


def _unreadable(path: Path, error: OSError | ValueError | MemoryError) -> BadImageError:
    passing = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno not in LASTING)
    reason = "not enough memory to read it" if isinstance(error, MemoryError) else getattr(error, "strerror", None)
    return BadImageError(f"{path}: {reason or error}", passing)


class LatestFrames:
    """Frames that do not wait, such as those of a camera: a thread takes them as they come and stores ``room`` at most.

    If frames come faster than they are used, the oldest make room for the newest, and are counted as ``dropped``.
    An error of ``frames`` is raised after the frames before it.

    >>> frames = LatestFrames(range(3))
    >>> list(frames), frames.dropped
    ([0, 1, 2], 0)
    """

    def __init__(self, frames: Iterable[Any], room: int = 8) -> None:
        self._frames, self._stored = frames, deque[Any]()
        self._room, self.dropped = room, 0
        self._change = threading.Condition()
        self._over = False
        self._failure: BaseException | None = None  # of the frames themselves

    @property
    def waiting(self) -> int:
        """Frames that are stored."""
        return len(self._stored)

    def __iter__(self) -> Iterator[Any]:
        threading.Thread(target=self._take, name="latte-frames", daemon=True).start()
        while True:
            with self._change:
                self._change.wait_for(lambda: self._stored or self._over)
                if not self._stored:
                    break
                frame = self._stored.popleft()
            yield frame
        if self._failure is not None:
            raise self._failure

    def _take(self) -> None:
        try:
            for frame in self._frames:
                with self._change:
                    if len(self._stored) >= self._room:
                        self._stored.popleft()
                        self.dropped += 1
                    self._stored.append(frame)
                    self._change.notify()
        except BaseException as error:  # such as that of a camera which was unplugged
            self._failure = error
        finally:
            with self._change:
                self._over = True
                self._change.notify()
