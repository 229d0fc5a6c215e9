"""A device: pictures come in, answers go out, and between two pictures what was learnt is saved and synced.

Inference never waits for the network: a thread of its own sends summaries and brings back what others learnt, and the
device takes that over between two pictures.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..core.contracts import Collaborative, Method
from ..core.private_client import PrivateClient
from ..core.types import Vectors
from ..encoders import BadImageError, Encoder
from ..errors import InputError
from ..wire.messages import DeviceReport
from ..wire.task_file import Task
from .alone import fill_of
from .background_sync import BackgroundSync, SyncState
from .classify import EmbeddedPicture, answer_picture
from .device_file import DeviceStatus, NumberedAnswer, Source
from .device_record import DeviceRecord
from .encoded_pictures import EncodedPicture, EncodedPictures
from .feeds import Arrival, PictureFeed
from .self_report import FeedState, report_of, status_now
from .sync_times import SyncClock, SyncTimes
from .tally import Tally

SAVE_EVERY = 500  # pictures that have to be seen again after a crash, at most: they take a tenth of a second
STATUS_EVERY = 1.0  # seconds at least between two looks at whether the status has changed
STATUS_PAUSE = 60.0  # seconds to which the pause grows while only the status changes
LABELS_EVERY = 5.0  # seconds between two looks at the labels that were given


class Device:
    """Classifies one picture after the other with ``method``, and keeps ``record`` of everything.

    ``link`` sends summaries to a server; without one the device is alone. What the record holds of an earlier run is
    continued: the memory is restored to the last bit.
    """

    def __init__(
        self,
        encoder: Encoder,
        task: Task,
        method: Method,
        record: DeviceRecord,
        link: BackgroundSync | None = None,
        times: SyncTimes | None = None,
    ) -> None:
        self.encoder, self.task, self.method, self.record = encoder, task, method, record
        self.link = link
        self.restored = self._unsaved = record.restore(method, task.zero_shot.dim)
        self.tally = Tally(record.counts(), record.recent())
        before = record.last_status()
        self.status = DeviceStatus(
            pid=os.getpid(), started=time.time(), synced=before.synced, sync_images=before.sync_images
        )
        self.log = before.log, before.logged  # a file of answers, and the last one in it
        self._encoded = EncodedPictures()  # and not learnt from yet
        self._unseen: deque[NumberedAnswer] = deque()  # recorded, and not given to anybody yet
        self._feed: Callable[[], FeedState] = FeedState  # says what is known of where pictures come from
        self._forget: Callable[[str], None] = lambda name: None  # hands a picture out again
        self._looked = self._reported = 0.0
        self._said: tuple[DeviceStatus, int] | None = None  # what was stored, and after how many pictures
        self._status_pause = STATUS_EVERY
        self._labelled = record.labelled()  # as the fleet knows
        self._looked_for_labels = time.monotonic()
        self._clock = SyncClock(times or SyncTimes(task.sync, task.period), self.tally.answered)

    # --- pictures -----------------------------------------------------------------------------------------

    def answers(self, feed: PictureFeed) -> Iterator[NumberedAnswer | None]:
        """Answer the pictures of ``feed``, each once; None now and then while there is nothing to answer.

        An answer comes when it is on disk, with all that it stands for: a power cut does not take it back. While more
        pictures wait, many share a transaction, so an answer may come ten seconds late; the last one comes at once.
        """
        self._feed = lambda: FeedState(feed.waiting, 0, feed.place.problem)
        self._forget = getattr(feed.place, "forget", self._forget)
        for arrival in feed:
            if arrival is not None:
                self._encode(arrival)
            if arrival is None and not feed.more:
                self.idle()
            elif self._encoded.is_due() or self._sync_follows():
                self._learn_encoded()
            elif arrival is None:
                self._between_pictures()
            if self.record.busy:
                self._record(self.record.commit)
            feed.hurry = bool(self._encoded) or self.record.busy
            if not self._unseen:
                yield None
            yield from self._unseen_answers()
        yield from self.flush()

    def _encode(self, arrival: Arrival) -> None:
        """Encode a picture that is new; it is learnt from with others."""
        if not self.record.has(arrival.source):
            self._encoded.add(EncodedPicture(arrival.source, self._embed(arrival.source, arrival.picture)))

    def _learn_encoded(self) -> None:
        """Learn from the pictures that are encoded, in their order; none is answered twice."""
        for source, picture in self._encoded.take():
            if not self.record.has(source):
                self._learn(source, picture)

    def answer_frames(self, frames: Iterable[Any]) -> Iterator[NumberedAnswer]:
        """Answer pictures as they come from an iterator, such as frames of a camera (see ``latest_frames``)."""
        self._feed = lambda: FeedState(getattr(frames, "waiting", 0), getattr(frames, "dropped", 0))
        for frame in frames:
            yield self.answer(Source(f"frame {self.record.number + 1}"), frame)

    def answer(self, source: Source, picture: Any) -> NumberedAnswer:
        """Answer one picture: a path, bytes, a PIL image, a uint8 or preprocessed array, or the problem with it.

        It is recorded before it is returned. If that fails, nothing has been learnt from the picture.
        """
        self._learn_encoded()
        numbered = self._learn(source, self._embed(source, picture))
        self._record(lambda: self.record.flush(durable=False))
        self._unseen.clear()
        return numbered

    def _learn(self, source: Source, picture: EmbeddedPicture) -> NumberedAnswer:
        """Answer one picture; the answer is not recorded yet."""
        try:
            answer = answer_picture(picture, self.task.zero_shot, self.method)
        except BaseException:
            self._forget_unrecorded()
            raise
        numbered = self.record.add(source, answer, picture.row)
        self.tally.count(answer)
        self._unsaved += 1
        if picture.row is not None:
            self._clock.count(self.tally.answered)
        self._between_pictures()
        return numbered

    def _record(self, write: Callable[[], list[NumberedAnswer]]) -> None:
        """Record what is due; where that fails, nothing unrecorded has been learnt."""
        try:
            self._unseen.extend(write())
        except BaseException:
            self._forget_unrecorded()
            raise

    def _forget_unrecorded(self) -> None:
        self._encoded.take()
        self._unsaved = self.record.restore(self.method, self.task.zero_shot.dim)
        self.tally = Tally(self.record.counts(), self.record.recent())

    def _unseen_answers(self) -> Iterator[NumberedAnswer]:
        """Yield answers that are on disk; those that nobody takes come with the next call."""
        while self._unseen:
            yield self._unseen.popleft()

    def flush(self) -> list[NumberedAnswer]:
        """Record everything; return the answers that :meth:`answers` has not given yet."""
        self._flush()
        return list(self._unseen_answers())

    def _flush(self) -> None:
        self._learn_encoded()
        self._record(self.record.flush)

    def _embed(self, source: Source, picture: Any) -> EmbeddedPicture:
        if isinstance(picture, BadImageError):
            return EmbeddedPicture(source.name, None, str(picture))
        try:
            row: Vectors = self.encoder.images([picture])[0]
        except BadImageError as error:
            return EmbeddedPicture(source.name, None, str(error))
        return EmbeddedPicture(source.name, row)

    # --- between two pictures -------------------------------------------------------------------------------

    def idle(self) -> None:
        """Do what is due while there is no picture: take over a download, share, say how it goes, record."""
        self._learn_encoded()
        self._between_pictures()
        self._record(self.record.flush)

    def _between_pictures(self) -> None:
        if self.link is not None:
            self._receive(self.link)
            if self._clock.is_time() or self._has_new_labels():
                self._share(self.link)
        if self._unsaved >= SAVE_EVERY:
            self._save()
        if time.monotonic() - self._looked > STATUS_EVERY:
            self._looked = time.monotonic()
            self.record.check()
            self._try_again(self.record.retried())
            self._report_changes()

    def _try_again(self, names: list[str]) -> None:
        """Take unreadable pictures back, if somebody asked for it: they count when they have been tried again."""
        if names:
            self._record(self.record.flush)
            self.tally = Tally(self.record.counts(), self.record.recent())
        for name in names:
            self._forget(name)

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
        self._said = said
        self.report()

    def _has_new_labels(self) -> bool:
        """Return whether somebody gave labels since the last report; it looks now and then."""
        if time.monotonic() - self._looked_for_labels < LABELS_EVERY:
            return False
        self._looked_for_labels = time.monotonic()
        return self.record.labelled() != self._labelled

    def _sync_follows(self) -> bool:
        """Return whether a sync should follow the pictures that are encoded."""
        images = self.tally.answered + self._encoded.readable
        return self.link is not None and self._clock.is_time_after(images)

    def _receive(self, link: BackgroundSync) -> None:
        """Take over what others learnt; the memory is saved, because pictures alone cannot restore it any more.

        A download that the method refuses changes nothing: the device goes on with what it has, and says so.
        """
        download = link.take()
        if download is None:
            return
        try:
            _collaborative(self.method).receive(download)
        except InputError as error:
            link.complain(f"the server sent what cannot be used: {error}")
        else:
            self._save()

    def _share(self, link: BackgroundSync) -> None:
        upload = _collaborative(self.method).summary()
        if getattr(self.method, "unsaved_noise", False):  # on disk before it is sent: a restart must not draw it anew
            self._save()
            self._record(self.record.flush)
        if not getattr(upload, "empty", False):
            link.offer(upload, self.summary_report())
        self._clock.restart()

    def save(self) -> None:
        """Store the memory now."""
        self._learn_encoded()
        self._save()
        self._record(self.record.flush)

    def _save(self) -> None:
        """Store the memory, with the next transaction."""
        self.record.save(self.method)
        self._unsaved = 0

    def report(self) -> None:
        """Store what this device says of itself."""
        self._reported = time.monotonic()
        self.record.report(self.current_status())

    def current_status(self) -> DeviceStatus:
        """Return what this device says of itself."""
        status = replace(self.status, log=self.log[0], logged=self.log[1])
        return status_now(status, self._feed(), self.link.state if self.link else SyncState())

    def summary_report(self) -> DeviceReport:
        """Return what the owner of the fleet gets to know with a sync."""
        self._labelled = self.record.labelled()
        exact = not (isinstance(self.method, PrivateClient) and self.method.privacy.noise)
        return report_of(self.tally, self._labelled, fill_of(self.method), self._feed(), exact)

    def close(self, patience: float = 5.0) -> None:
        """Share what is new, for which a server that answers gets ``patience`` seconds; save, and end the syncs.

        Answers that :meth:`answers` has not given are recorded, not returned: see :meth:`flush`.
        """
        self._learn_encoded()
        if self.link is not None:
            if self._clock.unshared or self.record.labelled() != self._labelled:
                self._share(self.link)
            self.link.drain(patience)
            self.link.stop(patience)
            self._receive(self.link)
        last = self._feed()._replace(waiting=0)
        self._feed = lambda: last
        self._save()
        self.report()
        self._record(self.record.flush)


def _collaborative(method: Method) -> Collaborative[Any, Any]:
    assert isinstance(method, Collaborative)  # a device with a link has one: see joining.new_member
    return method
