"""The global memory of the engine: similarities stay in memory, and only what changed is computed again."""

from __future__ import annotations

import numpy as np

from ...core.types import Integers
from ...methods.latte import LatteParams
from .accept import accept
from .loop_arrays import (
    CLIENT,
    NONE,
    RELEASED,
    DownloadCounts,
    ListChanges,
    RouteRules,
    RouteTable,
    UploadBatch,
    first_rows,
)
from .loops_route import RouteRoom, play
from .settle import choose_donors, rank_clients
from .timeline import Window
from .tolerances import NEAR_SIMILARITY

SPARE = 4  # clients on a list beyond those that are needed, so that one that leaves it is replaced without a search
FEWEST_ROWS = 8192  # of the list changes that one call of the loop can write
EMPTY = {"client": CLIENT, "none": NONE, "released": RELEASED}


def route_rules(params: LatteParams, clients: int) -> RouteRules:
    """Return the rules of a federation of so many clients."""
    routing = params.routing
    slots = min(routing.external_slots, clients - 1)
    return RouteRules(slots, routing.drop_first_rank, EMPTY[routing.empty_query], NEAR_SIMILARITY)


class RouteServer:
    """Holds the latest prototypes of all clients, and everything that follows from them."""

    def __init__(self, names: tuple[str, ...], classes: int, dim: int, params: LatteParams) -> None:
        n = len(names)
        self.now, self.rules = 0, route_rules(params, n)
        slots = self.rules.slots
        length = min(n, slots + 2 + SPARE)
        self.routes = RouteTable(
            vectors=np.zeros((classes, n, dim), np.float32),
            similarity=np.zeros((classes, n, n), np.float32),
            seen=np.zeros((classes, n), np.bool_),
            common=np.zeros((n, n), np.int64),
            current=np.full((classes, n), -1, np.int64),
            stamp=np.full((classes, n), -1, np.int64),
            ranking=rank_clients(names, params.routing),
            changed=np.full(classes, -1, np.int64),
            pulled=np.full(n, -1, np.int64),
            external=np.full((n, classes, slots), -1, np.int64),
            donors=np.full((n, classes, slots), -1, np.int64),
            nearest=np.zeros((n, classes, length), np.int64),
            values=np.zeros((n, classes, length)),
            length=np.zeros((n, classes), np.int64),
            bound=np.full((n, classes), -np.inf),
        )
        self.counts = DownloadCounts(*(np.zeros(shape, np.int64) for shape in ((n, n), (n, classes), (n,))))
        lists = np.empty(slots, np.int64), np.empty(slots + 1, np.int64), np.empty(slots + 1)
        self.room = RouteRoom(*lists, np.empty(n), np.empty(classes + 1, np.int64))

    def play(self, window: Window, uploads: UploadBatch, offsets: Integers) -> list[ListChanges]:
        """Play the syncs of a window; return the lists that change in the pulls, in order."""
        parts: list[ListChanges] = []
        at, syncs = 0, len(window.starts) - 1
        while at < syncs:
            out = self._changes(int(np.diff(window.starts[at:]).max()))
            at, count = play(
                self.routes, self.rules, self.counts, window, uploads, offsets, at, self.now, self.room, out
            )
            changes = first_rows(out, count)
            for row in np.flatnonzero(changes.doubtful):
                self._settle(changes, int(row))
            parts.append(changes)
        self.now += syncs
        return parts

    def _changes(self, members: int) -> ListChanges:
        """Return room for what may change in two syncs of so many members."""
        rows = max(2 * members * len(self.routes.seen), FEWEST_ROWS)
        client, label, sample = (np.empty(rows, np.int64) for _ in range(3))
        items = np.empty((rows, self.rules.slots), np.int64)
        return ListChanges(client, label, sample, items, np.zeros(rows, np.bool_))

    def _settle(self, changes: ListChanges, row: int) -> None:
        """Take a choice again with the operations of the readable simulator."""
        routes, client, label = self.routes, int(changes.client[row]), int(changes.label[row])
        donors = choose_donors(routes.vectors, routes.seen, routes.ranking, self.rules, client, label)
        accept(routes, self.counts, client, label, donors)
        changes.items[row] = routes.external[client, label]

    def referenced(self) -> Integers:
        """Return every item that a client may still read."""
        return np.concatenate([self.routes.current.ravel(), self.routes.external.ravel()])

    def downloads(self) -> Integers:
        """Return (N, N): how many prototypes of client j client i received."""
        routes, counts = self.routes, self.counts
        total = counts.downloads.copy()
        times = np.broadcast_to((counts.pulls[:, None] - counts.since)[:, :, None], routes.donors.shape)
        client, _, _ = at = np.nonzero(routes.donors >= 0)
        np.add.at(total, (client, routes.donors[at]), times[at])
        return total
