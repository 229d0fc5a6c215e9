"""The arrays that flow between the stages of Latte, as named tuples: compiled code takes these, not classes.

An item is anything that a memory can hold. Items are numbered: samples first, in the order of ``Streams``, then the
places of the prototype store. -1 stands for none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .array_types import (
    FixedVectors2,
    Integers1,
    Integers2,
    Integers3,
    Mask1,
    Mask2,
    Reals1,
    Reals2,
    Reals3,
    Vectors1,
    Vectors2,
    Vectors3,
    Vectors4,
)

CLIENT, NONE, RELEASED = 0, 1, 2  # what a client receives for a class that it has not seen (B3)
BOTH, LOCAL, EXTERNAL = 0, 1, 2  # which memory is read


class ZeroShotResults(NamedTuple):
    """What the zero-shot classifier says of n rows, to write."""

    logits: Reals2  # (n, C)
    pseudo: Integers1  # (n,) their argmax
    entropy: Reals1  # (n,) divided by ln C
    close: Mask1  # (n,) whether rounding may have decided the argmax

    @classmethod
    def empty(cls, rows: int, classes: int) -> ZeroShotResults:
        """Return room for so many rows."""
        return cls(np.empty((rows, classes)), np.empty(rows, np.int64), np.empty(rows), np.empty(rows, np.bool_))

    def of(self, part: slice) -> ZeroShotResults:
        """Return those of some rows, to write."""
        return ZeroShotResults(self.logits[part], self.pseudo[part], self.entropy[part], self.close[part])


class RouteRules(NamedTuple):
    """How donors are chosen: ``slots`` per class, B4, B3, and the distance below which rounding may decide."""

    slots: int
    drop_first: bool
    empty: int
    near: float


class LatestPrototypes(NamedTuple):
    """The latest prototypes of all clients as the server sees them."""

    vectors: Vectors3  # (C, N, D) as the global memory stores them
    similarity: Vectors3  # (C, N, N) g_i,y · g_j,y, 0 where one of the two clients has not seen y
    seen: Mask2  # (C, N)
    common: Integers2  # (N, N) the number of classes that both clients have seen
    current: Integers2  # (C, N) items
    stamp: Integers2  # (C, N) the sync of the latest upload
    changed: Integers1  # (C,) the last sync at which a prototype of the class changed
    ranking: Integers1  # (N,) the clients in the order that decides between equal similarities


class NearestLists(NamedTuple):
    """The most similar clients of every client in every class, a few more than there are slots."""

    clients: Integers3  # (N, C, M)
    values: Reals3  # (N, C, M) their similarities, in descending order
    length: Integers2  # (N, C) the number of clients on the list
    bound: Reals2  # (N, C) no client that is not on the list is more similar than this


class ReceivedLists(NamedTuple):
    """What every client received last, and the downloads.

    These are counted when a list changes: until then it was received ``pulls - since`` times.
    """

    external: Integers3  # (N, C, E) items
    donors: Integers3  # (N, C, E) the clients that the items come from
    pulled: Integers1  # (N,) the last sync at which a client pulled
    pulls: Integers1  # (N,) how often it has
    since: Integers2  # (N, C) how often it had when the list changed
    downloads: Integers2  # (N, N) without what the current lists amount to


class RouteTable(NamedTuple):
    """Everything that the server knows."""

    latest: LatestPrototypes
    nearest: NearestLists
    received: ReceivedLists


class PrototypeProducts(NamedTuple):
    """What the server computed of a prototype when it came; (0, 0) where similarities do not stay in memory."""

    beside: Vectors2  # (P, N) products with the prototypes of all clients, of its class
    origin: Integers2  # (P, 2) the client that it comes from, and the sync at which it came


class UploadBatch(NamedTuple):
    """The prototypes that change in the syncs of a window, ordered by sync and class."""

    client: Integers1  # (U,)
    label: Integers1  # (U,)
    prototypes: Vectors2  # (P, D) as the global memory stores them
    items: Integers1  # (U,)
    seen: Mask1  # (U,)
    starts: Integers1  # (syncs + 1,)
    samples: int  # the number of samples: the item of place p is samples + p
    products: PrototypeProducts  # to write


class ListChanges(NamedTuple):
    """One row per (client, class) whose external list changes in a pull, in the order of the pulls."""

    client: Integers1  # (R,)
    label: Integers1  # (R,)
    at: Integers1  # (R,) how many samples the client has handled at the pull
    items: Integers2  # (R, E)
    doubtful: Mask1  # (R,) whether rounding may have decided


def first_rows(changes: ListChanges, count: int) -> ListChanges:
    """Return the first rows of an array that had room for more."""
    client, label, at, items, doubtful = changes
    return ListChanges(client[:count], label[:count], at[:count], items[:count], doubtful[:count])


class ItemVectors(NamedTuple):
    """The vectors of all items: n samples, then P prototypes."""

    samples: int
    rows: FixedVectors2  # (m, D) embeddings, not quite of unit length
    row_of: Integers1  # (n,) the row of a sample
    norms: Vectors1  # (n,) its length
    prototypes: FixedVectors2  # (P, D)


class ItemEntropies(NamedTuple):
    """The entropies of all items."""

    samples: int
    of_samples: Reals1  # (n,)
    stored: Reals1  # (P,) of the prototypes
    exact: Mask1  # (P,) whether the entropy is the number that the readable method computes, to the last bit


class QueuePlaces(NamedTuple):
    """Which queue every sample enters, and which slot it takes there."""

    label: Integers1  # (n,) the pseudo-label
    slot: Integers1  # (n,) -1 for none


class ItemTable(NamedTuple):
    """All items, and the zero-shot logits (n, C) of the samples."""

    vectors: ItemVectors
    entropies: ItemEntropies
    places: QueuePlaces
    products: PrototypeProducts
    logits: Reals2


class HeldItems(NamedTuple):
    """The items that all clients hold."""

    local: Integers3  # (N, C, S)
    external: Integers3  # (N, C, E)
    merged: Integers3  # (N, C, K) what is read: K = S, or E where only the external memory is read


class ClientItems(NamedTuple):
    """The items that one client holds."""

    local: Integers2  # (C, S)
    external: Integers2  # (C, E)
    merged: Integers2  # (C, K)


class Memories(NamedTuple):
    """What all clients hold, and the products (N, C, K, K) of the merged items."""

    held: HeldItems
    gram: Vectors4


class Arrivals(NamedTuple):
    """The external lists that arrive in a window, ordered by client and time."""

    sample: Integers1  # (R,) the first sample of the client after the arrival
    label: Integers1  # (R,)
    row: Integers1  # (R,) the row of ``items``
    items: Integers2  # (R, E) in the order of the pulls
    bounds: Integers1  # (N + 1,) the arrivals of client i are bounds[i] to bounds[i + 1]


class WindowSpan(NamedTuple):
    """The samples ``first`` to ``last`` (N,) of every client in a window."""

    first: Integers1
    last: Integers1
    finished: Mask1  # (N,) the client was at its end before the window: nothing that arrives will be read


class WindowTask(NamedTuple):
    """One window to read: a snapshot of what the replay knew at its end."""

    span: WindowSpan
    items: ItemTable
    arrivals: Arrivals


class ClientSpan(NamedTuple):
    """The samples ``first`` to ``last`` of one client in a window, and its arrivals ``begin`` to ``end``."""

    first: int
    last: int
    begin: int
    end: int


class ReadoutGrid(NamedTuple):
    """The parameters of the readout; ``alphas`` and ``betas`` make a grid."""

    mode: int
    alphas: Reals1
    betas: Reals1
    gamma: float
    gate: float  # negative: none
    scale: float
    confidences: Reals3  # (alphas, betas, n) to write: the probabilities of the predicted classes; empty: not wanted
