"""The audit log: clients that joined or were removed, and refused uploads. JSON lines, which are only ever appended.

Nobody can fill a disk with it: what clients cause is noted at most every ten seconds for each kind and client, and the
file is renamed when it is full, to ``audit.jsonl.1`` and so on; the oldest is removed.
"""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from ...wire.messages import shorten_detail

AUDIT_FILE = "audit.jsonl"
LARGEST = 16 << 20  # bytes of a file
OLDER = 7  # files beside the one that is written: 128 MiB in all
_PAUSE = 10.0  # seconds between two entries of the same kind for the same client
_MOST = 10_000  # pairs of kind and client whose last entry is remembered
log = logging.getLogger("latte.server")


class Audit:
    """Writes entries to the file ``audit.jsonl`` of ``folder``; None: to the log only."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / AUDIT_FILE
        self._last: dict[tuple[str, str], tuple[float, int]] = {}  # the time of the last entry, entries left out since
        self._lock = Lock()

    def note(self, event: str, client: str, detail: str = "", always: bool = False, known: bool = True) -> None:
        """Add an entry; without ``always``, the same ``event`` of one client is added at most every ten seconds.

        ``always`` is for what the owner does, and waits for the disk.

        If the caller is not ``known``, ``client`` is the name it claims, and all such callers count as one.
        """
        with self._lock:
            left_out = 0
            if not always:
                key, now = (event, client if known else ""), time.monotonic()
                when, left_out = self._last.get(key, (-_PAUSE, 0))
                if now - when < _PAUSE:
                    self._last[key] = when, left_out + 1
                    return
                self._last.pop(key, None)
                if len(self._last) >= _MOST:
                    del self._last[next(iter(self._last))]  # the one that was noted longest ago
                self._last[key] = now, 0
            entry: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
            entry |= {"client": client} if client else {}
            entry |= {"detail": shorten_detail(detail)} if detail else {}
            entry |= {"left_out": left_out} if left_out else {}
            log.info(event, extra={"fields": entry})
            self._write(json.dumps(entry), always)

    def _write(self, line: str, sync: bool) -> None:
        if self._path is None:
            return
        try:
            if self._path.exists() and self._path.stat().st_size >= LARGEST:
                for number in range(OLDER, 0, -1):
                    newer = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
                    if newer.exists():
                        newer.replace(self._path.with_name(f"{self._path.name}.{number}"))
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, line.encode() + b"\n")
                if sync:
                    os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:  # a full disk must not stop the service: the entry is in the log
            log.error("audit log: %s", error)
