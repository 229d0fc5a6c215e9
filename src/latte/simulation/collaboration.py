"""Who downloads from whom."""

from __future__ import annotations

import numpy as np

from ..core.global_memory import GlobalMemory
from ..core.types import External, Integers, Prototypes


class CountingExchange:
    """A global memory that counts: ``downloads`` (N, N), row i what client i was given, column j from whom."""

    def __init__(self, memory: GlobalMemory, clients: tuple[str, ...]) -> None:
        self.memory = memory
        self._position = {name: i for i, name in enumerate(clients)}
        self.downloads: Integers = np.zeros((len(clients), len(clients)), np.int64)

    def push(self, client: str, prototypes: Prototypes) -> None:
        """Pass the upload on."""
        self.memory.push(client, prototypes)

    def pull(self, client: str) -> External:
        """Pass the download on, and count it."""
        donors, valid = self.memory.neighbours(client)
        names = self.memory.clients
        given = [self._position[names[row]] for row in donors[valid]]
        np.add.at(self.downloads[self._position[client]], given, 1)
        return self.memory.gather(donors, valid)


def share_inside(downloads: Integers, groups: Integers) -> float:
    """Return the share of downloads in per cent that stay inside a group: ``groups`` (N,) says who is in which."""
    total = downloads.sum()
    same = groups[:, None] == groups[None, :]
    return float(100 * downloads[same].sum() / total) if total else float("nan")
