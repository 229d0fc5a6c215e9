"""A folder instead of a server address: two processes of one machine exchange messages through its files.

The device writes an offer (``offer.latte``). The carrier of messages, such as a Flower client, brings it to the server
and writes the answer (``answer.latte``). Each file is written under another name and then renamed, so that a reader
sees the old file or the new one, never a part, even if one of the processes is killed. An offer stays until the next
offer replaces it: it can be sent again, and its version makes that harmless.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import refuse
from ..files.atomic import write_bytes
from ..files.reading import open_file
from ..wire.array_blocks import Block
from ..wire.messages import NO_VERSION, DeviceReport, Key, Short, Version, pack, unpack
from ..wire.task_file import Task, read_task, write_task

OFFER_FILE, ANSWER_FILE, TASK_FILE = "offer.latte", "answer.latte", "task.safetensors"
LOOK_SECONDS = 0.1  # seconds between two looks at a file
_MAGIC = b"latte-folder/1\n"
_MOST = 1 << 30  # bytes of a file

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")


class Hidden(msgspec.Struct, frozen=True):
    """What was done to an upload for privacy: see :class:`latte.Privacy`."""

    least_images: int = 1
    noise: float = 0.0


class Offer(msgspec.Struct, frozen=True):
    """The latest upload of a device, as complete blocks; ``precision`` is that of the download to come."""

    task: Short
    version: Version
    key: Key
    upload: tuple[Block, ...]
    precision: Short = "exact"
    report: DeviceReport | None = None
    hidden: Hidden = Hidden()


class FolderAnswer(msgspec.Struct, frozen=True):
    """The server's answer to the offer of this ``version``: a download, or the ``code`` of a problem.

    With a problem, ``stored`` is the version of the upload that the server has.
    """

    task: Short
    version: Version
    download: tuple[Block, ...] | None = None
    code: Short = ""
    detail: str = ""
    stored: Version = NO_VERSION


class ExchangeFolder:
    """The files of one device in ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> ExchangeFolder:
        """Make the folder if it does not exist."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self

    def task(self) -> Task | None:
        """Return the task of the federation, if it has come."""
        path = self.path / TASK_FILE
        return read_task(path) if path.is_file() else None

    def put_task(self, task: Task) -> None:
        """Store the task of the federation."""
        write_task(self.path / TASK_FILE, task)

    def offer(self) -> Offer | None:
        """Return the offer of the device; a damaged file is refused."""
        return _read(self.path / OFFER_FILE, Offer)

    def put_offer(self, offer: Offer) -> None:
        """Store an offer; it replaces the one before."""
        _write(self.path / OFFER_FILE, offer)

    def answer(self) -> FolderAnswer | None:
        """Return the last answer; a damaged file is refused."""
        return _read(self.path / ANSWER_FILE, FolderAnswer)

    def put_answer(self, answer: FolderAnswer) -> None:
        """Store the last answer."""
        _write(self.path / ANSWER_FILE, answer)


def _write(path: Path, message: msgspec.Struct) -> None:
    body = pack(message)
    write_bytes(path, _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body)


def _read(path: Path, kind: type[T]) -> T | None:
    if not path.is_file():
        return None
    with open_file(path, "exchange folder") as file:
        content = file.read(_MOST)
    start = len(_MAGIC) + 4
    body = content[start:]
    if content[:start] != _MAGIC + zlib.crc32(body).to_bytes(4, "little"):
        raise refuse(
            f"exchange folder: {path}", "a damaged file", "the file as it was written: the next one replaces it"
        )
    return unpack(body, kind)


def look_for(look: Callable[[], V | None], seconds: float, every: float = LOOK_SECONDS) -> V | None:
    """Call ``look`` until it returns something; return that, or None after some seconds."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen is not None or time.monotonic() >= end:
            return seen
        time.sleep(every)
