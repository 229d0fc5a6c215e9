"""A device: pictures come in, answers go out, and between two pictures what was learnt is saved and synced.

Inference never waits for the network: a thread of its own sends summaries and brings back what others learnt, and the
device takes that over between two pictures.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...core.evidence import Pairs
from ...core.privacy import PrivateClient
from ...core.sync import upload_of
from ...core.types import Collaborative, Integers, Method, Teachable, Vectors, can_be_taught
from ...core.unknown import BINS, bin_of, pack_counts
from ...core.validate import choice
from ...encoders import BadImageError, Encoder
from ...errors import InputError, refuse
from ...version import __version__
from ...wire.messages import DeviceReport, FleetWord
from ...wire.task import Task
from ..classify.classify import EmbeddedPicture, OwnServer, answer_picture, fill_of
from ..classify.evidence import Labelled, Tally, collapse_of
from ..classify.masked import Masked
from .feeds import PictureFeed
from .labels import (
    NOTHING,
    Lesson,
    add_labels,
    due_lessons,
    has_labels,
    read_known,
    read_labelled,
    read_scores,
    remove_labels,
)
from .record import DeviceRecord, DeviceStatus, NumberedAnswer, Source, read_fleet
from .syncing import BackgroundSync, SyncClock, SyncState, SyncTimes
from .watch import file_source

SAVE_EVERY = 500  # pictures that have to be seen again after a crash, at most: they take a tenth of a second
LEARN_EVERY = 0.2  # seconds for which encoded pictures of a backlog wait for each other, to be learnt from in a row
STATUS_EVERY = 1.0  # seconds at least between two looks at whether the status has changed
STATUS_PAUSE = 60.0  # seconds to which the pause grows while only the status changes
LABELS_EVERY = 2.0  # seconds between two looks at the labels that were given
_SHARE = 20  # looking for them takes at most one part in 20 of the time
LESSON_SECONDS = 0.5  # of learning from labels between two pictures


class DeviceLoop:
    """Classifies one picture after the other with ``method``, and keeps ``record`` of everything.

    ``link`` sends summaries to a server; without one the device is alone. What the record holds of an earlier run is
    continued: the memory is restored to the last bit. ``read`` opens a picture once more that somebody has labelled.
    With ``fallback``, answers are zero-shot's while it is proven that adapting hurts. ``renew`` returns a method that
    goes on, with a later version of the task, where this one is, and ``renewed`` is called when the record has it.
    """

    def __init__(
        self,
        encoder: Encoder,
        task: Task,
        method: Method,
        record: DeviceRecord,
        link: BackgroundSync | None = None,
        times: SyncTimes | None = None,
        fallback: bool = True,
        read: Callable[[Path], Any] = Path,
        renew: Callable[[Task, Method], Method] | None = None,
        renewed: Callable[[], object] = lambda: None,
    ) -> None:
        self._renew, self._renewed, self._stays = renew, renewed, ""  # the last: why it cannot follow
        self.encoder, self.task, self.method, self.record = encoder, task, method, record
        self.link = link
        self.restored = self._unsaved = record.restore(method, task.zero_shot.dim)
        self.tally = record.tally()
        before = record.last_status()
        self.status = DeviceStatus(
            pid=os.getpid(), started=time.time(), synced=before.synced, sync_images=before.sync_images
        )
        self.log = before.log, before.logged  # a file of answers, and the last one in it
        self._encoded: dict[Source, EmbeddedPicture] = {}  # and not learnt from yet
        self._learnt = 0.0  # when that was done for the last time
        self._unseen: deque[NumberedAnswer] = deque()  # recorded, and not given to anybody yet
        self._feed: Any = None  # where pictures come from: says how many wait or were dropped, and what is wrong
        self._forget: Callable[[str], None] = lambda name: None  # hands a picture out again
        self._looked = self._reported = 0.0
        self._said: tuple[DeviceStatus, int] | None = None  # what was stored, and after how many pictures
        self._status_pause = STATUS_EVERY
        self.read = read
        self._labelled = read_labelled(record.database)  # as the fleet knows
        self._labels_due = 0.0  # when to look for new labels
        self._reviewed, self._hurts = has_labels(record.database), False
        self._untaught: set[Lesson] = set()  # whose picture is not there any more
        self._unshared_lessons = 0
        self._given: dict[str, Any] = {}  # pictures whose label comes with them
        self._fleet = replace(read_fleet(record.database), fallback=fallback)
        self._mcm = self._scores()
        if self._fleet != read_fleet(record.database):  # the switch is another one than in the last run
            record.know(self._fleet)
        self._weigh(self._labelled[1])
        self._clock = SyncClock(times or SyncTimes(task.sync, task.period), self.tally.answered)

    def _scores(self) -> Integers:
        """Return the histogram of what the record has, where the server asks for it."""
        histogram = np.zeros(BINS, np.int64)
        for score in read_scores(self.record.database) if self._fleet.share else ():
            histogram[bin_of(score, self.task.zero_shot.classes)] += 1
        return histogram

    # --- pictures -----------------------------------------------------------------------------------------

    def answers(self, feed: PictureFeed) -> Iterator[NumberedAnswer | None]:
        """Answer the pictures of ``feed``, each once; None now and then while there is nothing to answer.

        An answer comes when it is on disk, with all that it stands for: a power cut does not take it back. While more
        pictures wait, many share a transaction, so an answer may come ten seconds late; the last one comes at once.

        The encoder fills the caches of a processor: to learn from a picture right after it takes four times as long as
        right after another picture. So several are encoded, and then learnt from, in their order.
        """
        self._feed, self._forget = feed, getattr(feed.place, "forget", self._forget)
        for arrival in feed:
            if arrival is not None and not (arrival.source in self._encoded or self.record.has(arrival.source)):
                self._encoded[arrival.source] = self._encode(*arrival)
            more, due = feed.more, self.link is not None and self._clock.is_time()
            if due or not more or time.monotonic() - self._learnt >= LEARN_EVERY:
                self._learn_encoded()
                self._between_pictures()
                self._record(self.record.commit if more else self.record.flush)
            if not self._unseen:
                yield None
            while self._unseen:  # those that nobody takes come with the next call
                yield self._unseen.popleft()
        yield from self.flush()

    def answer_frames(self, frames: Iterable[Any]) -> Iterator[NumberedAnswer]:
        """Answer pictures as they come from an iterator, such as frames of a camera (see ``LatestFrames``)."""
        self._feed = frames
        for frame in frames:
            yield self.answer(Source(f"frame {self.record.number + 1}"), frame)

    def answer(self, source: Source, picture: Any) -> NumberedAnswer:
        """Answer one picture: a path, bytes, a PIL image, a uint8 or preprocessed array, or the problem with it.

        It is recorded before it is returned. If that fails, nothing has been learnt from the picture.
        """
        self._learn_encoded()
        numbered = self._learn(source, self._encode(source, picture))
        self._between_pictures()
        self._record(lambda: self.record.flush(durable=False))
        self._unseen.clear()
        return numbered

    def correct(self, name: str, label: str, picture: Any = None) -> None:
        """Learn that the picture that was answered as ``name`` shows ``label``; "" is none of the classes.

        A ``picture`` is needed where there is no file of that name, such as for frames of a camera.
        """
        if label:
            choice("label", label, self.task.zero_shot.classnames)
        self._learn_encoded()
        self._record(self.record.flush)
        answered, embedded = read_known(self.record.database, name)
        if not answered and not os.path.lexists(name):
            raise refuse("file", name, "the file of an answer of this device, or one that is there")
        if label and picture is None and not embedded and not os.path.lexists(name):
            raise refuse("picture", "none", f"the image once more, because there is no file {name}")
        add_labels(self.record.database, {name: label})
        self._reviewed, self._given[name] = True, picture
        try:
            self._teach()
        finally:
            del self._given[name]

    def withdraw(self, name: str) -> None:
        """Take a label back, and what was learnt from it."""
        remove_labels(self.record.database, [name])
        self._teach()

    def _encode(self, source: Source, picture: Any) -> EmbeddedPicture:
        try:
            if isinstance(picture, BadImageError):
                raise picture
            row = self.encoder.images([picture])[0]
        except BadImageError as error:
            return EmbeddedPicture(source.name, None, str(error))
        self._clock.count()
        return EmbeddedPicture(source.name, row)

    def _learn_encoded(self) -> None:
        encoded, self._encoded, self._learnt = self._encoded, {}, time.monotonic()
        for source, picture in encoded.items():
            self._learn(source, picture)
            self._record(self.record.commit)

    def _learn(self, source: Source, picture: EmbeddedPicture) -> NumberedAnswer:
        """Answer one picture; the answer is not recorded yet."""
        try:
            answer = answer_picture(
                picture,
                self.task.zero_shot,
                self.method,
                fallback=self.falls_back,
                threshold=self._fleet.threshold if self._fleet.share else None,
                reviewed=self._reviewed,
            )
        except BaseException:
            self._forget_unrecorded()
            raise
        numbered = self.record.add(source, answer, picture.row)
        self.tally.count(answer)
        if answer.mcm is not None:
            self._mcm[bin_of(answer.mcm, self.task.zero_shot.classes)] += 1
        self._unsaved += 1
        return numbered

    def _record(self, write: Callable[[], list[NumberedAnswer]]) -> None:
        """Record what is due; where that fails, nothing unrecorded has been learnt."""
        try:
            self._unseen.extend(write())
        except BaseException:
            self._forget_unrecorded()
            raise

    def _forget_unrecorded(self) -> None:
        self._unsaved = self.record.restore(self.method, self.task.zero_shot.dim)
        self.tally = self.record.tally()
        self._clock.images = self.tally.answered

    def flush(self) -> list[NumberedAnswer]:
        """Record everything; return the answers that :meth:`answers` has not given yet."""
        self._learn_encoded()
        self._record(self.record.flush)
        unseen, self._unseen = list(self._unseen), deque()
        return unseen

    # --- between two pictures -------------------------------------------------------------------------------

    def idle(self) -> None:
        """Do what is due while there is no picture: take over a download, share, say how it goes, record."""
        self._learn_encoded()
        self._between_pictures()
        self._record(self.record.flush)

    def _between_pictures(self) -> None:
        now = time.monotonic()
        if self.link is not None:
            self._receive(self.link)
        new_labels = self._look_for_labels()
        if self.link is not None and (self._clock.is_time() or new_labels):
            self._share(self.link)
        if self._unsaved >= SAVE_EVERY:
            self._save()
        if now - self._looked > STATUS_EVERY:
            self._looked = now
            self.record.check()
            if names := self.record.retried():  # unreadable pictures, which count when they have been tried again
                self._record(self.record.flush)
                self.tally = self.record.tally()
                for name in names:
                    self._forget(name)
            self._report_changes()

    def _report_changes(self) -> None:
        """Store the status if it has changed: with new pictures, or alone, ever more seldom while none come."""
        status, pictures = self.current_status(), self.record.number
        said = replace(status, updated=0.0, waiting=min(status.waiting, 1)), pictures
        if self._said is None or pictures != self._said[1]:
            self._status_pause = STATUS_EVERY
        elif said == self._said or time.monotonic() - self._reported < self._status_pause:
            return
        else:
            self._status_pause = min(2 * self._status_pause, STATUS_PAUSE)
        self._said, self._reported = said, time.monotonic()
        self.record.report(status)

    def _look_for_labels(self) -> bool:
        """Learn from new labels, now and then; return whether there is something new to tell the fleet."""
        start, database = time.monotonic(), self.record.database
        if start < self._labels_due:
            return False
        self._reviewed = has_labels(database)
        left, news = False, self._unshared_lessons > 0
        if self._reviewed or self._labelled != NOTHING:
            left = self._teach(start + LESSON_SECONDS)
            labelled = read_labelled(database)
            news = self._unshared_lessons > 0 or labelled != self._labelled
            self._weigh(labelled[1])
        took = time.monotonic() - start
        self._labels_due = start if left else start + max(LABELS_EVERY, _SHARE * took)
        return news and not left

    def _teach(self, end: float = math.inf) -> bool:
        """Learn what is due, up to a moment; return whether something is left.

        The memory is saved in the transaction that says what was learnt: a crash loses no label and doubles none.
        """
        if not can_be_taught(self.method):
            return False
        due = [lesson for lesson in due_lessons(self.record.database) if lesson not in self._untaught]
        learnt = tried = 0
        try:
            for lesson in due:
                tried += 1
                learnt += self._learn_label(lesson)
                if time.monotonic() >= end:
                    break
            if learnt:
                self._save()
                self._unshared_lessons += learnt
                self._record(self.record.flush)
        except BaseException:
            self._forget_unrecorded()
            raise
        return tried < len(due)

    def _learn_label(self, lesson: Lesson) -> bool:
        """Learn one label, or unlearn it; return False if the picture is not there any more."""
        names, method = self.task.zero_shot.classnames, _teachable(self.method)
        row = None if lesson.row is None else np.frombuffer(lesson.row, "<f4").astype(np.float32)
        if lesson.label and row is None:
            row = self._row_again(lesson.source)
        if lesson.label and (row is None or lesson.label not in names):
            self._untaught.add(lesson)
            return False
        if lesson.label:
            assert row is not None
            soft = None if lesson.soft_label is None else np.frombuffer(lesson.soft_label, "<f4")
            method.correct(row, names.index(lesson.label), soft)
            self.record.learn(lesson.source, lesson.number, lesson.label, row.astype("<f4").tobytes())
        else:  # it was taken back, or shows none of the classes
            if lesson.taught:
                assert row is not None
                method.withdraw(row)
            self.record.learn(lesson.source, lesson.number, lesson.label, None)
        return True

    def _row_again(self, source: Source) -> Vectors | None:
        """Return the embedding of a picture that has been answered; None if it is gone, or another one by now."""
        path = Path(source.name)
        try:
            picture = self._given.get(source.name)
            if picture is None:
                if file_source(path) != source:
                    return None
                picture = self.read(path)
            row: Vectors = self.encoder.images([picture])[0]
            return row.astype(np.float32, copy=False)
        except (OSError, ValueError, BadImageError):
            return None

    @property
    def falls_back(self) -> bool:
        """Whether answers are zero-shot's, because it is proven that adapting hurts."""
        return self._fleet.fallback and self._hurts

    def _weigh(self, own: Pairs) -> None:
        """Decide whether adapting hurts, from the labels of the whole fleet, or from its own where it knows of more."""
        pairs = max(Pairs(*self._fleet.pairs), own, key=lambda each: each.differing)
        self._hurts = pairs.verdict == "hurts"

    def _hear(self, word: FleetWord) -> None:
        """Take over what the server says of the whole fleet."""
        known = replace(self._fleet, pairs=word.pairs, share=word.share, threshold=word.threshold)
        if known != self._fleet:
            self._fleet = known
            self._weigh(self._labelled[1])
            self.record.know(known)

    def _receive(self, link: BackgroundSync) -> None:
        """Take over what others learnt; the memory is saved, because pictures alone cannot restore it any more."""
        if link.word is not None:
            word, link.word = link.word, None
            self._hear(word)
        if link.deliver(_collaborative(self.method)):
            self._save()
        task = link.newer()
        if task is not None and self._renew is not None:
            self._follow(link, task, self._renew)

    def _follow(self, link: BackgroundSync, task: Task, renew: Callable[[Task, Method], Method]) -> None:
        """Go on with a later version of the task, in which classes have joined or left."""
        self._teach()  # labels that were given before: with the soft labels of their answers
        self._record(self.record.flush)
        try:
            method = renew(task, self.method)
        except InputError as error:  # a method that cannot, or another encoder: the device goes on as it is
            self._renew, self._stays = None, f"the classes of the task have changed, and this device stays: {error}"
            return link.complain(self._stays)
        self.record.move(task.fingerprint, task.zero_shot.classnames, method)
        self._record(self.record.flush)
        self.method, self.task, self._unsaved = method, task, 0
        self._renewed()
        self._mcm, self._labels_due = self._scores(), 0.0
        self._untaught.clear()
        link.follow(task)
        return self._share(link)

    def _share(self, link: BackgroundSync) -> None:
        upload = upload_of(_collaborative(self.method))
        if getattr(self.method, "unsaved_noise", False):  # on disk before it is sent: a restart must not draw it anew
            self.save()
        if upload is not None:
            link.offer(upload, self.summary_report())
        if link.state.problem and self._stand_in():
            self._save()  # as after a download
        self._clock.restart()
        self._unshared_lessons = 0

    def _stand_in(self) -> bool:
        """Learn from its own images only, while the server is away; return whether that changed anything.

        With noise it does not: a head that was made without noise must not have a part in what is uploaded.
        """
        method: Any = self.method
        if isinstance(method, PrivateClient):
            method = None if method.privacy.noise else method.method
        method = method.method if isinstance(method, Masked) else method
        return isinstance(method, OwnServer) and method.stand_in()

    def save(self) -> None:
        """Store the memory now."""
        self._save()
        self._record(self.record.flush)

    def _save(self) -> None:
        """Store the memory, with the next transaction."""
        self.record.save(self.method)
        self._unsaved = 0

    def current_status(self) -> DeviceStatus:
        """Return what this device says of itself; of syncs, what an earlier run knew until there is a new one."""
        sync = self.link.state if self.link else SyncState()
        return replace(
            self.status,
            updated=time.time(),
            waiting=getattr(self._feed, "waiting", 0),
            dropped=getattr(self._feed, "dropped", 0),
            problem=getattr(self._feed, "problem", ""),
            synced=sync.synced or self.status.synced,
            sync_images=sync.images or self.status.sync_images,
            sync_problem=sync.problem and (self._stays or sync.problem),
            log=self.log[0],
            logged=self.log[1],
        )

    def summary_report(self) -> DeviceReport:
        """Return what the owner of the fleet gets to know with a sync."""
        self._labelled = read_labelled(self.record.database)
        labelled, pairs = self._labelled
        self._weigh(pairs)
        waiting, dropped = getattr(self._feed, "waiting", 0), getattr(self._feed, "dropped", 0)
        more: dict[str, Any] = {}
        if self._reviewed:
            more |= {"helped": pairs.helped, "harmed": pairs.harmed, "neither": pairs.neither}
        if self._fleet.share:
            more["mcm"] = pack_counts(self._mcm)
        classes = self.task.zero_shot.classes
        return report_to_owner(self.method, classes, self.tally, labelled, waiting, dropped, **more)

    def close(self, patience: float = 5.0) -> None:
        """Share what is new, for which a server that answers gets ``patience`` seconds; save, and end the syncs.

        Answers that :meth:`answers` has not given are recorded, not returned: see :meth:`flush`.
        """
        self._learn_encoded()
        if has_labels(self.record.database):
            self._teach()
        if self.link is not None:
            if self._unshared_lessons or self._clock.unshared or read_labelled(self.record.database) != self._labelled:
                self._share(self.link)
            self.link.drain(patience)
            self._receive(self.link)  # perhaps a later version of the task, with which it is shared again
            self.link.drain(patience)
            self.link.stop(patience)
            self._receive(self.link)
        self._save()
        self.record.report(replace(self.current_status(), waiting=0))
        self._record(self.record.flush)


def report_to_owner(
    method: Method,
    classes: int,
    tally: Tally,
    labelled: Labelled,
    waiting: int = 0,
    dropped: int = 0,
    **more: Any,
) -> DeviceReport:
    """Return what the owner of the fleet gets to know of a device.

    With noise, pictures are only counted: what they show is in the noisy upload, and nowhere else.
    """
    fill, collapse = fill_of(method), collapse_of(tally.zero_shot, classes)
    report = report_of(
        tally,
        labelled,
        classes=fill.classes if fill else 0,
        waiting=waiting,
        dropped=dropped,
        collapsed=collapse[1] if collapse else msgspec.UNSET,
        **more,
    )
    if isinstance(method, PrivateClient) and method.privacy.noise:
        return DeviceReport(
            images=report.images,
            unreadable=report.unreadable,
            waiting=waiting,
            dropped=dropped,
            software=report.software,
        )
    return report


def report_of(tally: Tally, labelled: Labelled, software: str = f"latte {__version__}", **more: Any) -> DeviceReport:
    """Return what a client says of itself; ``more`` is what only a device knows."""
    counts, recent = tally.counts(), tally.recent()
    more |= asdict(labelled)
    return DeviceReport(
        images=counts.answered,
        unreadable=counts.unreadable,
        differing=counts.changed,
        agreement=recent.agreement,
        entropy=min(1.0, max(0.0, recent.entropy)),
        software=software,
        **more,
    )


def _teachable(method: Method) -> Teachable:
    assert isinstance(method, Teachable)  # can_be_taught has been asked
    return method


def _collaborative(method: Method) -> Collaborative[Any, Any]:
    assert isinstance(method, Collaborative)  # a device with a link has one: see joining.new_member
    return method
