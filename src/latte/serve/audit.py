"""The audit log: clients that joined or were removed, and refused uploads. JSON lines, which are only ever appended."""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from ..coordination.problems import shorten_detail

AUDIT_FILE = "audit.jsonl"
_PAUSE = 10.0  # seconds between two entries of the same kind for the same client: a flood cannot fill the disk
_MOST = 10_000  # pairs of kind and client whose last entry is remembered
log = logging.getLogger("latte.serve")


class Audit:
    """Writes entries to the file ``audit.jsonl`` of ``folder``; None: to the log only."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / AUDIT_FILE
        self._last: dict[tuple[str, str], tuple[float, int]] = {}  # the time of the last entry, entries left out since
        self._lock = Lock()

    def note(self, event: str, client: str, detail: str = "", always: bool = False, known: bool = True) -> None:
        """Add an entry; without ``always``, the same ``event`` of one client is added at most every ten seconds.

        If the caller is not ``known``, ``client`` is the name it claims, and all such callers count as one.
        """
        with self._lock:
            left_out = 0 if always else self._left_out(event, client if known else "")
            if left_out is None:
                return
            entry: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
            entry |= {"client": client} if client else {}
            entry |= {"detail": shorten_detail(detail)} if detail else {}
            entry |= {"left_out": left_out} if left_out else {}
            log.info(event, extra={"fields": entry})
            self._write(json.dumps(entry), always)

    def _left_out(self, event: str, client: str) -> int | None:
        """Return how many entries were left out since the last one of this kind; None if this one is left out, too."""
        now = time.monotonic()
        when, count = self._last.get((event, client), (-_PAUSE, 0))
        if now - when < _PAUSE:
            self._last[event, client] = when, count + 1
            return None
        if len(self._last) >= _MOST:
            self._last.clear()
        self._last[event, client] = now, 0
        return count

    def _write(self, line: str, sync: bool) -> None:
        if self._path is None:
            return
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, line.encode() + b"\n")
                if sync:
                    os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:  # a full disk must not stop the service: the entry is in the log
            log.error("audit log: %s", error)
