"""A whole device from one call: its place in the fleet, its encoder, its record, and where its pictures come from."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from ...core.types import Method
from ...encoders import Encoder, Picture, as_encoder, open_picture
from ...encoders.own import Embed
from ...encoders.pictures import MOST_PIXELS
from ...errors import refuse
from ...wire.task import Task
from ..classify.classify import Answer, absolute_name, find_pictures
from ..joining import (
    Membership,
    as_membership,
    begin_version,
    check_encoder,
    join,
    link_to,
    new_member,
    settle_version,
)
from .device import DeviceLoop
from .feeds import NamedFiles, PictureFeed, WatchedFolder
from .record import DeviceRecord, DeviceStatus, DiskFullError, Source, default_folder, raise_full
from .syncing import SYNC_PAUSE, SYNC_SECONDS, SyncTimes, log_problem
from .watch import FolderWatch, file_source

log = logging.getLogger("latte.device")


class Device:
    """A device of a fleet: it labels pictures as they come, adapts, records every answer, and syncs in the background.

    This is the program ``latte edge`` as a class. The first start asks the server for the task (class names, text rows,
    method); later ones need no server. A crash or a power cut loses nothing: the next start goes on with the next
    picture. No answer waits for the network, and what is wrong with it is one line of the log ``latte``.

    ::

        with latte.Device("http://127.0.0.1:8420", encoder="onnx:clip-b16", name="camera-7") as device:
            for answer in device.watch("photos"):
                print(answer.file, answer.label)

    Parameters
    ----------
    server
        The address of ``latte serve``, or "folder:DIR" of a Flower node. A :class:`Membership` says more: a file with
        the token, certificates, the precision of messages, the privacy of single images.
    encoder
        The name of a model such as "onnx:DIR" (see ``load_encoder``), an encoder, or any function that takes a list of
        pictures and returns their embeddings (n, D). A function gets files as RGB pictures of Pillow, and frames as
        they are. It must be the encoder of the task: a function is trusted to be.
    name, token
        The name in the fleet, or the token that is bound to one. Without both, a name is made from the machine's.
    state
        The folder of the record, with the task. One device at a time may use it. Default: as for ``latte edge``.
    any_encoder
        Take an encoder of another fingerprint than the task's: the same model in another form.
    sync_seconds
        Sync after this time at the latest, if there is anything new; 0: only when the task says so.
    fallback
        Predict with zero-shot while labels prove that adapting hurts.
    """

    def __init__(
        self,
        server: str | Membership,
        *,
        encoder: str | Encoder | Embed,
        name: str | None = None,
        token: str | None = None,
        state: str | Path | None = None,
        any_encoder: bool = False,
        sync_seconds: float = SYNC_SECONDS,
        fallback: bool = True,
    ) -> None:
        self._loop = open_loop(
            as_membership(server, name, token),
            default_folder() if state is None else Path(state),
            lambda task: as_encoder(encoder, task.zero_shot.dim),
            any_encoder=any_encoder,
            seconds=sync_seconds,
            fallback=fallback,
            tell=log_problem,
        )
        self._open = True

    def __repr__(self) -> str:
        status = self._loop.status
        return f"Device({status.server!r}, name={status.name!r}, encoder={self.encoder!r}, state={str(self.state)!r})"

    @property
    def name(self) -> str:
        """The name in the fleet."""
        return self._loop.status.name

    @property
    def task(self) -> Task:
        """What all devices of the fleet share; ``task.zero_shot`` has class names, text rows and logit scale."""
        return self._loop.task

    @property
    def encoder(self) -> Encoder:
        """What makes the embeddings."""
        return self._loop.encoder

    @property
    def method(self) -> Method:
        """What adapts."""
        return self._loop.method

    @property
    def state(self) -> Path:
        """The folder of the record; ``latte edge status --state`` reads it."""
        return self._loop.record.folder

    @property
    def status(self) -> DeviceStatus:
        """How it goes: name and server, pictures that wait, the last sync, and what is wrong, if anything."""
        return self._loop.current_status()

    # --- pictures -----------------------------------------------------------------------------------------

    def watch(self, folder: str | Path) -> Iterator[Answer]:
        """Answer pictures as they arrive in a folder or in folders below it, for ever, each once."""
        if not Path(folder).is_dir():
            raise refuse("folder", f"{folder}, which is not there", "a folder")
        return self._answers(
            WatchedFolder(FolderWatch(Path(absolute_name(Path(folder))), self._at_work().record.is_done))
        )

    def classify(self, *places: str | Path) -> Iterator[Answer]:
        """Answer the pictures in files and folders, in order; those that were answered before are left out."""
        paths = [Path(absolute_name(path)) for path in find_pictures([Path(place) for place in places])]
        return self._answers(NamedFiles(paths, self._at_work().record.is_done))

    def frames(self, frames: Iterable[Picture]) -> Iterator[Answer]:
        """Answer frames of an iterator as they come: uint8 arrays (H, W, 3) in RGB, or whatever the encoder takes.

        Every frame is answered. Of a camera that is faster than the model, ``LatestFrames(camera)`` drops the oldest.
        """
        return (numbered.answer for numbered in self._at_work().answer_frames(frames))

    def answer(self, picture: Picture) -> Answer:
        """Answer one picture, also one that was answered before."""
        if isinstance(picture, (str, os.PathLike)):
            if not Path(picture).exists():
                raise refuse("file", picture, "a file that exists")
            source = file_source(absolute_name(Path(picture)))
        else:
            source = Source(f"frame {self._loop.record.number + 1}")
        return self._at_work().answer(source, picture).answer

    # --- labels -------------------------------------------------------------------------------------------

    def correct(self, file: str, label: str, picture: Picture | None = None) -> None:
        """Learn that the picture that was answered as ``file`` shows ``label``; "" is none of the classes.

        A frame has no file, so the ``picture`` is needed once more.
        """
        self._at_work().correct(file, label, picture)

    def withdraw(self, file: str) -> None:
        """Take a label back, and what was learnt from it."""
        self._at_work().withdraw(file)

    def _at_work(self) -> DeviceLoop:
        if not self._open:
            raise refuse("device", f"{self.name}, which was closed", "a new Device: it goes on where this one was")
        return self._loop

    def _answers(self, place: NamedFiles | WatchedFolder) -> Iterator[Answer]:
        feed, said = open_feed(self._loop, place), ""
        try:
            for numbered in self._loop.answers(feed):
                if (wrong := feed.problem or str(feed.place.notice)) != said:
                    said = wrong
                    log.warning("%s", wrong) if wrong else log.info("nothing is wrong with the pictures any more")
                if numbered is not None:
                    yield numbered.answer
        finally:
            feed.close()

    # --- the end ------------------------------------------------------------------------------------------

    def close(self, patience: float = 5.0) -> None:
        """Save and share what is new, for which a server that answers gets ``patience`` seconds; end the syncs."""
        if self._open:
            self._open = False
            try:
                self._loop.close(patience)
            finally:
                self._loop.record.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_loop(
    membership: Membership,
    folder: Path,
    make_encoder: Callable[[Task], Encoder],
    *,
    any_encoder: bool = False,
    seconds: float = SYNC_SECONDS,
    pause: float = SYNC_PAUSE,
    on_full: Callable[[DiskFullError], None] = raise_full,
    fallback: bool = True,
    most_pixels: int = MOST_PIXELS,
    tell: Callable[[str], object] = lambda problem: None,
) -> DeviceLoop:
    """Join the fleet, make the encoder, and continue what the record in ``folder`` has."""
    task, name = join(membership, folder)
    method = new_member(task, membership.privacy, membership.without)
    record = DeviceRecord(folder, task.fingerprint, on_full)
    try:
        encoder = make_encoder(task)  # after all that can be refused at once
        check_encoder(task, encoder, any_encoder)
        link = link_to(membership, task, name, tell)
        times = SyncTimes(task.sync, task.period, seconds, pause)

        def read(path: Path) -> Any:
            return encoder.preprocess(open_picture(path, most_pixels))

        def renew(newer: Task, earlier: Method) -> Method:
            check_encoder(newer, encoder, any_encoder)
            return begin_version(newer, earlier, membership, folder)

        renewed = partial(settle_version, folder)
        loop = DeviceLoop(encoder, task, method, record, link, times, fallback, read, renew, renewed)
    except BaseException:
        record.close()
        raise
    loop.status = replace(loop.status, name=name, server=membership.server)
    return loop


def open_feed(loop: DeviceLoop, place: NamedFiles | WatchedFolder) -> PictureFeed:
    """Return the pictures of a place, in the form that the encoder takes."""
    return PictureFeed(place, loop.read)
