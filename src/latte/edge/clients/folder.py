"""The exchange of a federation through a folder: two processes of one machine exchange messages in its files.

The device writes an offer (``offer.latte``). The carrier of messages, such as a Flower client, brings it to the server
and writes the answer (``answer.latte``). Each file is written under another name and then renamed, so that a reader
sees the old file or the new one, never a part, even if one of the processes is killed. An offer stays until the next
offer replaces it: it can be sent again, and its version makes that harmless.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...core.validate import choice, message
from ...errors import InputError, refuse
from ...files.atomic import write_bytes
from ...files.documents import open_file
from ...methods import describe
from ...wire.blocks import AtMost, Block, complete, decode, encode
from ...wire.messages import NO_VERSION, DeviceReport, Key, Short, Version, pack, unpack
from ...wire.rows import PRECISIONS
from ...wire.task import Task, read_task, write_task
from .calls import RefusedError, UnreachableError

OFFER_FILE, ANSWER_FILE, TASK_FILE = "offer.latte", "answer.latte", "task.safetensors"
LOOK_SECONDS = 0.1  # seconds between two looks at a file
_MAGIC = b"latte-folder/1\n"
_MOST = 1 << 30  # bytes of a file, and of one array of a download
FOLDER = "folder:"  # what the address of a folder begins with
ANSWER_PATIENCE = 120.0  # seconds: a sync through Flower takes about ten

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")


class Hidden(msgspec.Struct, frozen=True):
    """What was done to an upload for privacy: see :class:`latte.Privacy`."""

    least_images: int = 1
    noise: float = 0.0
    labels: bool | msgspec.UnsetType = msgspec.UNSET  # whether sums of labels may be in it beside noise


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


def look_for(look: Callable[[], V | None], seconds: float) -> V | None:
    """Call ``look`` until it returns something; return that, or None after some seconds."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen is not None or time.monotonic() >= end:
            return seen
        time.sleep(LOOK_SECONDS)


def is_folder(server: str) -> bool:
    """Return whether an address is that of a folder.

    >>> is_folder("folder:/var/lib/latte/node"), is_folder("https://latte.example.org")
    (True, False)
    """
    return server.startswith(FOLDER)


def folder_of(server: str) -> ExchangeFolder:
    """Return the folder of an address."""
    return ExchangeFolder(Path(server.removeprefix(FOLDER)).absolute())


class FolderExchange:
    """The exchange behind ``folder``, for the one device that uses it.

    The versions of its offers grow from one start to the next, because the last offer stays in the folder.
    """

    def __init__(
        self,
        folder: ExchangeFolder,
        task: Task,
        precision: str = "exact",
        hidden: Hidden | None = None,
        patience: float = ANSWER_PATIENCE,
    ) -> None:
        choice("precision", precision, PRECISIONS)
        self.folder, self.shared_task, self.precision = folder.make(), task, precision
        self.hidden, self._patience = hidden or Hidden(), patience
        self._info = describe(task.method)
        self._version = NO_VERSION

    def __repr__(self) -> str:
        return f"FolderExchange({str(self.folder.path)!r}, {self.shared_task!r})"

    @property
    def task(self) -> str:
        """The fingerprint of the classifier that all clients share."""
        return self.shared_task.zero_shot.fingerprint

    def push_pull(self, upload: Any, report: DeviceReport | None = None) -> Any:
        """Offer an upload and wait for what comes back for it."""
        answer = self._wait_for_answer(self.offer(upload, report))
        if answer.code == "stale_version":  # the folder is younger than what the server has of this node
            self._version = max(self._version, answer.stored)
            answer = self._wait_for_answer(self.offer(upload, report))
        return self.download_of(answer)

    def _wait_for_answer(self, version: int) -> FolderAnswer:
        def look() -> FolderAnswer | None:
            with suppress(InputError):  # the next answer replaces a damaged one
                answer = self.folder.answer()
                return answer if answer is not None and answer.version == version else None
            return None

        answer = look_for(look, self._patience)
        if answer is None:
            waited = f"no answer for {self._patience:g} s"
            raise UnreachableError(f"{self.folder.path}: {waited}; is the SuperNode running, and its run?")
        return answer

    def offer(self, upload: Any, report: DeviceReport | None = None) -> int:
        """Write an offer and return its version."""
        message("upload", upload, self._info.kind.Upload, self.task)
        blocks = encode(upload, self.precision, self.shared_task.zero_shot.dim)
        whole = complete(blocks, AtMost(_MOST), {})
        self._version = max(self._version, self._last_version()) + 1
        key, task = secrets.token_bytes(16), self.shared_task.fingerprint
        self.folder.put_offer(Offer(task, self._version, key, whole, self.precision, report, self.hidden))
        return self._version

    def download_of(self, answer: FolderAnswer) -> Any:
        """Return the download of an answer; a problem is raised as a refusal of the server."""
        if answer.code:
            raise RefusedError(answer.code, 0, answer.detail, answer.stored)
        blocks = complete(answer.download or (), AtMost(_MOST), {})
        return decode(blocks, self._info.kind.Download, self.task)

    def _last_version(self) -> int:
        """Return the highest version in the folder; damaged files do not count."""
        versions = [NO_VERSION]
        for read in (self.folder.offer, self.folder.answer):
            with suppress(InputError):
                last = read()
                versions.append(last.version if last else NO_VERSION)
        return max(versions)
