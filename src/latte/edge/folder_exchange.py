"""The exchange of a federation through a folder, as one device sees it: an offer goes out, an answer comes in."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from ..core.validate import choice, message
from ..errors import InputError
from ..methods import describe
from ..wire.array_blocks import complete, decode, encode
from ..wire.expected_arrays import AtMost
from ..wire.messages import NO_VERSION, DeviceReport
from ..wire.rows import PRECISIONS
from ..wire.task_file import Task
from .exchange_folder import ExchangeFolder, FolderAnswer, Hidden, Offer, look_for
from .http_calls import RefusedError, UnreachableError

FOLDER = "folder:"  # what the address of a folder begins with
ANSWER_PATIENCE = 120.0  # seconds: a sync through Flower takes about ten
_MOST_BYTES = 1 << 30  # of one array of a download


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
        answer = look_for(lambda: self._answer_to(version), self._patience)
        if answer is None:
            waited = f"no answer for {self._patience:g} s"
            raise UnreachableError(f"{self.folder.path}: {waited}; is the SuperNode running, and its run?")
        return answer

    def offer(self, upload: Any, report: DeviceReport | None = None) -> int:
        """Write an offer and return its version."""
        message("upload", upload, self._info.kind.Upload, self.task)
        blocks = encode(upload, self.precision, self.shared_task.zero_shot.dim)
        whole = complete(blocks, AtMost(_MOST_BYTES), {})
        self._version = max(self._version, self._last_version()) + 1
        key, task = secrets.token_bytes(16), self.shared_task.fingerprint
        self.folder.put_offer(Offer(task, self._version, key, whole, self.precision, report, self.hidden))
        return self._version

    def download_of(self, answer: FolderAnswer) -> Any:
        """Return the download of an answer; a problem is raised as a refusal of the server."""
        if answer.code:
            raise RefusedError(answer.code, 0, answer.detail, answer.stored)
        blocks = complete(answer.download or (), AtMost(_MOST_BYTES), {})
        return decode(blocks, self._info.kind.Download, self.task)

    def _last_version(self) -> int:
        """Return the highest version in the folder; damaged files do not count."""
        versions = []
        for read in (self.folder.offer, self.folder.answer):
            try:
                last = read()
            except InputError:
                continue
            versions.append(last.version if last else NO_VERSION)
        return max(versions, default=NO_VERSION)

    def _answer_to(self, version: int) -> FolderAnswer | None:
        try:
            answer = self.folder.answer()
        except InputError:  # the next answer replaces a damaged one
            return None
        return answer if answer is not None and answer.version == version else None
