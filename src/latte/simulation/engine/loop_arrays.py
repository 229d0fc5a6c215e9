"""The arrays that flow between the stages of Latte, as named tuples: compiled code takes these, not classes.

An item is anything that a memory can hold. Items are numbered: samples first, in the order of ``Streams``, then the
places of the prototype store. -1 stands for none.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.types import Integers, Mask, Reals, Vectors

CLIENT, NONE, RELEASED = 0, 1, 2  # what a client receives for a class that it has not seen (B3)
BOTH, LOCAL, EXTERNAL = 0, 1, 2  # which memory is read


class RouteRules(NamedTuple):
    """How donors are chosen: ``slots`` per class, B4, B3, and the distance below which rounding may decide."""

    slots: int
    drop_first: bool
    empty: int
    near: float


class RouteTable(NamedTuple):
    """The latest prototypes of all clients as the server sees them, and what every client received last."""

    vectors: Vectors  # (C, N, D) as the global memory stores them
    similarity: Vectors  # (C, N, N) g_i,y · g_j,y, 0 where one of the two clients has not seen y
    seen: Mask  # (C, N)
    common: Integers  # (N, N) the number of classes that both clients have seen
    current: Integers  # (C, N) items
    stamp: Integers  # (C, N) the sync of the latest upload
    ranking: Integers  # (N,) the clients in the order that decides between equal similarities
    changed: Integers  # (C,) the last sync at which a prototype of the class changed
    pulled: Integers  # (N,) the last sync at which a client pulled
    external: Integers  # (N, C, E) items
    donors: Integers  # (N, C, E) the clients that the items come from
    nearest: Integers  # (N, C, M) the most similar clients, a few more than there are slots
    values: Reals  # (N, C, M) their similarities, in descending order
    length: Integers  # (N, C) the number of clients on the list
    bound: Reals  # (N, C) no client that is not on the list is more similar than this


class DownloadCounts(NamedTuple):
    """Downloads, counted when a list changes: until then it was received ``pulls - since`` times."""

    downloads: Integers  # (N, N)
    since: Integers  # (N, C)
    pulls: Integers  # (N,)


class UploadBatch(NamedTuple):
    """The prototypes that change in the syncs of a window, ordered by sync and class."""

    client: Integers  # (U,)
    label: Integers  # (U,)
    prototypes: Vectors  # (P, D) as the global memory stores them
    items: Integers  # (U,)
    seen: Mask  # (U,)
    starts: Integers  # (syncs + 1,)
    samples: int  # the number of samples: the item of place p is samples + p
    beside: Vectors  # (P, N) to write: the products of a prototype with those of all clients, of its class
    origin: Integers  # (P, 2) to write: the client of a prototype, and the sync at which it came


class ListChanges(NamedTuple):
    """One row per (client, class) whose external list changes in a pull, in the order of the pulls."""

    client: Integers  # (R,)
    label: Integers  # (R,)
    sample: Integers  # (R,) the first sample of the client after the pull
    items: Integers  # (R, E)
    doubtful: Mask  # (R,) whether rounding may have decided


def first_rows(changes: ListChanges, count: int) -> ListChanges:
    """Return the first rows of an array that had room for more."""
    client, label, sample, items, doubtful = changes
    return ListChanges(client[:count], label[:count], sample[:count], items[:count], doubtful[:count])


class ItemTable(NamedTuple):
    """All items: n samples, then P prototypes."""

    samples: int
    entropy: Reals  # (n,)
    slot: Integers  # (n,) the slot that the sample takes in its queue
    pseudo: Integers  # (n,)
    rows: Vectors  # (m, D) embeddings, not quite of unit length
    row_of: Integers  # (n,) the row of a sample
    norms: Vectors  # (n,) its length
    logits: Reals  # (n, C) of the zero-shot classifier
    stored: Reals  # (P,) entropies of the prototypes
    exact: Mask  # (P,) whether the entropy is the number that the readable method computes, to the last bit
    prototypes: Vectors  # (P, D)
    beside: Vectors  # (P, N) products with the prototypes of all clients at its upload; (P, 0) for many clients
    origin: Integers  # (P, 2) the client of a prototype, and the sync at which it came


class HeldItems(NamedTuple):
    """The items that clients hold; for a single client without the first axis."""

    local: Integers  # (N, C, S)
    external: Integers  # (N, C, E)
    merged: Integers  # (N, C, K) what is read: K = S, or E where only the external memory is read
    gram: Vectors  # (N, C, K, K) products of the merged items


class Arrivals(NamedTuple):
    """The external lists that arrive in a window, ordered by client and time."""

    sample: Integers  # (R,) the first sample of the client after the arrival
    label: Integers  # (R,)
    row: Integers  # (R,) the row of ``items``
    items: Integers  # (R, E) in the order of the pulls
    bounds: Integers  # (N + 1,) the arrivals of client i are bounds[i] to bounds[i + 1]


class WindowSpan(NamedTuple):
    """The samples ``first`` to ``last`` (N,) of every client in a window."""

    first: Integers
    last: Integers
    finished: Mask  # (N,) the client was at its end before the window: nothing that arrives will be read


class ClientSpan(NamedTuple):
    """The samples ``first`` to ``last`` of one client in a window, and its arrivals ``begin`` to ``end``."""

    first: int
    last: int
    begin: int
    end: int


class ReadoutGrid(NamedTuple):
    """The parameters of the readout; ``alphas`` and ``betas`` make a grid."""

    mode: int
    alphas: Reals
    betas: Reals
    gamma: float
    gate: float  # negative: none
    scale: float
