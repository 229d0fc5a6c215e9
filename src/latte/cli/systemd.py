"""Messages to systemd over NOTIFY_SOCKET (sd_notify): the device is ready, it works, how it is doing.

Without that variable, nothing is sent.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

_STATUS_SECONDS = 10.0  # between two words on how it is doing


class Notifier:
    """Tells a service manager about this process; :meth:`beat` is for the thread whose work is watched."""

    def __init__(self) -> None:
        path = os.environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path  # @: a name in no folder
        watched = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = os.environ.get("WATCHDOG_USEC", "") if watched else ""
        self._every = int(usec) / 2e6 if usec.isdecimal() else 0.0  # twice as often as it has to be
        self._beat = self._said = 0.0
        self._status = ""

    def send(self, *lines: str) -> None:
        """Send a message; a service manager that does not listen is no reason to stop."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(errors="replace"), self._address)

    def beat(self, status: str = "") -> None:
        """Say, as often as is asked for, that the work goes on; and how, if that has changed."""
        now = time.monotonic()
        if self._every and now - self._beat >= self._every:
            self._beat = now
            self.send("WATCHDOG=1")
        if status and status != self._status and now - self._said >= _STATUS_SECONDS:
            self._said, self._status = now, status
            self.send(f"STATUS={' '.join(status.split())}")


notifier = Notifier()
