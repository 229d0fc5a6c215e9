"""A small fleet for the tests of the dashboard: clients of two kinds, which see pictures and sync with a server."""

from __future__ import annotations

import sys
import time

import numpy as np

from latte.edge.clients.http import HttpExchange
from latte.methods import create
from latte.wire.messages import DeviceReport
from latte.wire.task import Task
from small_benchmark import unit


class Member:
    """A client that sees pictures in the style of its ``kind``."""

    def __init__(self, name: str, task: Task, kind: int = 0) -> None:
        self.name, self.task = name, task
        self.method = create(task.method, task.zero_shot, task.params)
        self._rng = np.random.default_rng([kind, len(name)])
        self._style = 0.9 * unit(np.random.default_rng(kind), 1, task.zero_shot.dim)[0]
        self.images = self.differing = 0

    def see(self, images: int, classes: int | None = None) -> Member:
        """Classify pictures of the first ``classes`` classes."""
        text = self.task.zero_shot.text[:classes]
        for label in self._rng.integers(0, len(text), images):
            picture = text[label] + self._style + 0.3 * unit(self._rng, 1, text.shape[1])[0]
            self.method.predict(picture / np.linalg.norm(picture))
            self.images += 1
        return self

    def sync(self, exchange: HttpExchange, **report: float) -> Member:
        """Upload and download, and say how it is."""
        facts = DeviceReport(images=self.images, differing=self.differing, software="a test", **report)
        self.method.receive(exchange.push_pull(self.name, self.method.summary(), facts))
        return self


def sync_for_ever(server: str, name: str, token: str) -> None:
    """Be a device that syncs until it is killed."""
    with HttpExchange(server, tokens=token) as exchange:
        member = Member(name, exchange.shared_task)
        while True:
            member.see(1).sync(exchange)
            time.sleep(0.1)


if __name__ == "__main__":
    sync_for_ever(*sys.argv[1:4])
