"""The global memory of the engine: similarities stay in memory, and only what changed is computed again."""

from __future__ import annotations

import numpy as np

from ...core.donors import donors_of_unseen
from ...core.near_ties import Uploaded
from ...core.types import Integers
from ...methods.latte import LatteParams
from .accept import accept
from .loop_arrays import (
    CLIENT,
    NONE,
    RELEASED,
    LatestPrototypes,
    ListChanges,
    NearestLists,
    ReceivedLists,
    RouteRules,
    RouteTable,
    UploadBatch,
    first_rows,
)
from .loops_donors import RouteRoom
from .loops_route import play
from .settle import choose_among_nearest, choose_donors, rank_clients
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


def no_prototypes(ranking: Integers, classes: int, dim: int) -> LatestPrototypes:
    """Return the prototypes of clients that have uploaded nothing yet."""
    n = len(ranking)
    return LatestPrototypes(
        vectors=np.zeros((classes, n, dim), np.float32),
        similarity=np.zeros((classes, n, n), np.float32),
        seen=np.zeros((classes, n), np.bool_),
        common=np.zeros((n, n), np.int64),
        current=np.full((classes, n), -1, np.int64),
        stamp=np.full((classes, n), -1, np.int64),
        changed=np.full(classes, -1, np.int64),
        ranking=ranking,
    )


def no_lists(n: int, classes: int, length: int) -> NearestLists:
    """Return the lists of the most similar clients before anything is compared."""
    return NearestLists(
        clients=np.zeros((n, classes, length), np.int64),
        values=np.zeros((n, classes, length)),
        length=np.zeros((n, classes), np.int64),
        bound=np.full((n, classes), -np.inf),
    )


def nothing_received(n: int, classes: int, slots: int) -> ReceivedLists:
    """Return what clients have received before the first sync."""
    return ReceivedLists(
        external=np.full((n, classes, slots), -1, np.int64),
        donors=np.full((n, classes, slots), -1, np.int64),
        pulled=np.full(n, -1, np.int64),
        pulls=np.zeros(n, np.int64),
        since=np.zeros((n, classes), np.int64),
        downloads=np.zeros((n, n), np.int64),
    )


def route_room(n: int, classes: int, slots: int, length: int) -> RouteRoom:
    """Return the scratch space of a pull."""
    return RouteRoom(
        chosen=np.empty(slots, np.int64),
        rows=np.empty(slots + 1, np.int64),
        values=np.empty(slots + 1),
        order=np.empty(length, np.int64),
        exact=np.empty(length),
        mean=np.empty(n),
        starts=np.empty(classes + 1, np.int64),
    )


class RouteServer:
    """Holds the latest prototypes of all clients, and everything that follows from them."""

    def __init__(self, names: tuple[str, ...], classes: int, dim: int, params: LatteParams) -> None:
        n, ranking = len(names), rank_clients(names, params.routing)
        self.now, self.routing, self.rules = 0, params.routing, route_rules(params, n)
        slots = self.rules.slots
        length = min(n, slots + 2 + SPARE)
        latest, nearest = no_prototypes(ranking, classes, dim), no_lists(n, classes, length)
        self.routes = RouteTable(latest, nearest, nothing_received(n, classes, slots))
        self.room = route_room(n, classes, slots, length)

    def play(self, window: Window, uploads: UploadBatch) -> list[ListChanges]:
        """Play the syncs of a window; return the lists that change in the pulls, in order."""
        parts: list[ListChanges] = []
        at, syncs, members = 0, len(window.starts) - 1, int(np.diff(window.starts).max())
        while at < syncs:
            out = self._changes(members)
            rest = window._replace(starts=window.starts[at:]), uploads._replace(starts=uploads.starts[at:])
            played, count = play(self.routes, self.rules, *rest, self.now + at, self.room, out)
            at += played
            changes = first_rows(out, count)
            for row in np.flatnonzero(changes.doubtful):
                self._settle(changes, int(row))
            parts.append(changes)
        self.now += syncs
        return parts

    def _changes(self, members: int) -> ListChanges:
        """Return room for what may change in two syncs of so many members."""
        rows = max(2 * members * len(self.routes.latest.seen), FEWEST_ROWS)
        client, label, at = (np.empty(rows, np.int64) for _ in range(3))
        items = np.empty((rows, self.rules.slots), np.int64)
        return ListChanges(client, label, at, items, np.zeros(rows, np.bool_))

    def _settle(self, changes: ListChanges, row: int) -> None:
        """Take a choice again with the operations of the readable simulator."""
        (latest, _, received), client, label = self.routes, int(changes.client[row]), int(changes.label[row])
        if latest.seen[label, client]:
            uploaded = self._uploaded(slice(label, label + 1))
            donors = choose_among_nearest(uploaded, self.routing, client, latest.similarity[label, client])
        elif self.routing.drop_first_rank:
            donors = choose_donors(self._uploaded, self.routing, client, label, seen=False)
        else:
            donors = donors_of_unseen(
                self._uploaded(slice(None)), self.routing, client, label, latest.similarity[:, client]
            )
        accept(received, latest.current[label], client, label, donors)
        changes.items[row] = received.external[client, label]

    def _uploaded(self, labels: slice) -> Uploaded:
        """Return the uploads of some classes as the definition of the donors takes them."""
        latest = self.routes.latest
        return Uploaded(latest.vectors[labels], latest.seen[labels].T, latest.ranking)

    def referenced(self) -> Integers:
        """Return every item that a client may still read."""
        return np.concatenate([self.routes.latest.current.ravel(), self.routes.received.external.ravel()])

    def downloads(self) -> Integers:
        """Return (N, N): how many prototypes of client j client i received."""
        received = self.routes.received
        total = received.downloads.copy()
        times = np.broadcast_to((received.pulls[:, None] - received.since)[:, :, None], received.donors.shape)
        client, _, _ = at = np.nonzero(received.donors >= 0)
        np.add.at(total, (client, received.donors[at]), times[at])
        return total
