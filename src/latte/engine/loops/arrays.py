"""The arrays that flow between the stages of Latte, as named tuples: compiled code takes these, not classes.

An item is anything that a memory can hold. Items are numbered: samples first, in the order of ``Streams``, then the
places of the prototype store. -1 stands for none.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from ...core.types import Integers, Mask, Reals, Vectors
from ..cache import READ_ONLY

# arrays with their number of axes: what a kernel takes is written in these types, and compiled for exactly them
Integers1 = Annotated[Integers, 1]
Integers2 = Annotated[Integers, 2]
Integers3 = Annotated[Integers, 3]
Reals1 = Annotated[Reals, 1]
Reals2 = Annotated[Reals, 2]
Reals3 = Annotated[Reals, 3]
Vectors1 = Annotated[Vectors, 1]
Vectors2 = Annotated[Vectors, 2]
Vectors3 = Annotated[Vectors, 3]
Vectors4 = Annotated[Vectors, 4]
Mask1 = Annotated[Mask, 1]
Mask2 = Annotated[Mask, 2]
FixedReals2 = Annotated[Reals, 2, READ_ONLY]
FixedVectors2 = Annotated[Vectors, 2, READ_ONLY]

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


class Window(NamedTuple):
    """Some rounds: how many samples each client has handled at the end, and the syncs on the way.

    In sync s, the members from ``starts[s]`` to ``starts[s + 1]`` push, then pull; each has handled ``at`` samples.
    """

    handled: Integers1  # (N,)
    members: Integers1  # (M,)
    at: Integers1  # (M,)
    starts: Integers1  # (syncs + 1,)


class ItemTable(NamedTuple):
    """All items: n samples, then P prototypes."""

    samples: int  # n
    rows: FixedVectors2  # (m, D) embeddings, not quite of unit length
    row_of: Integers1  # (n,) the row of a sample
    norms: Vectors1  # (n,) its length
    logits: Reals2  # (n, C) of the zero-shot classifier
    label: Integers1  # (n,) the pseudo-label: which queue a sample enters
    slot: Integers1  # (n,) which slot it takes there, -1 for none
    entropy: Reals1  # (n,)
    prototypes: FixedVectors2  # (P, D)
    stored: Reals1  # (P,) the entropies of the prototypes
    exact: Mask1  # (P,) whether the entropy is the number that the readable method computes, to the last bit
    beside: Vectors2  # (P, N) products with the prototypes of all clients, of the class; (P, 0) where none are kept
    origin: Integers2  # (P, 2) the client that a prototype comes from, and the sync at which it came


class QueueVersions(NamedTuple):
    """The queues that changed before a sync: which sync, client and class (U,), and the samples in it (U, S)."""

    sync: Integers1
    client: Integers1
    label: Integers1
    contents: Integers2


class UploadBatch(NamedTuple):
    """The prototypes that change in the syncs of a window, ordered by sync and class."""

    client: Integers1  # (U,)
    label: Integers1  # (U,)
    items: Integers1  # (U,)
    seen: Mask1  # (U,)
    starts: Integers1  # (syncs + 1,)
    samples: int  # the number of samples: the item of place p is samples + p
    prototypes: Vectors2  # (P, D) as the global memory stores them
    beside: Vectors2  # (P, N) to write: see ItemTable
    origin: Integers2  # (P, 2) to write


class RouteRules(NamedTuple):
    """How donors are chosen: ``slots`` per class, B4, B3, and the distance below which rounding may decide."""

    slots: int
    drop_first: bool
    empty: int
    near: float


class RouteTable(NamedTuple):
    """Everything that the server knows.

    The latest prototypes of all clients; of every client in every class the most similar clients, a few more than
    there are slots; and what every client received last. Downloads are counted when a list changes: until then it was
    received ``pulls - since`` times.
    """

    vectors: Vectors3  # (C, N, D) as the global memory stores them
    similarity: Vectors3  # (C, N, N) g_i,y · g_j,y, 0 where one of the two clients has not seen y
    seen: Mask2  # (C, N)
    common: Integers2  # (N, N) the number of classes that both clients have seen
    current: Integers2  # (C, N) items
    stamp: Integers2  # (C, N) the sync of the latest upload
    changed: Integers1  # (C,) the last sync at which a prototype of the class changed
    ranking: Integers1  # (N,) the clients in the order that decides between equal similarities

    nearest: Integers3  # (N, C, M)
    values: Reals3  # (N, C, M) their similarities, in descending order
    length: Integers2  # (N, C) the number of clients on the list
    bound: Reals2  # (N, C) no client that is not on the list is more similar than this

    external: Integers3  # (N, C, E) items
    donors: Integers3  # (N, C, E) the clients that the items come from
    pulled: Integers1  # (N,) the last sync at which a client pulled
    pulls: Integers1  # (N,) how often it has
    since: Integers2  # (N, C) how often it had when the list changed
    downloads: Integers2  # (N, N) without what the current lists amount to


class ListChanges(NamedTuple):
    """One row per (client, class) whose external list changes in a pull, in the order of the pulls."""

    client: Integers1  # (R,)
    label: Integers1  # (R,)
    at: Integers1  # (R,) how many samples the client has handled at the pull
    items: Integers2  # (R, E)
    doubtful: Mask1  # (R,) whether rounding may have decided


class Arrivals(NamedTuple):
    """The external lists that arrive in a window, ordered by client and time."""

    sample: Integers1  # (R,) the first sample of the client after the arrival
    label: Integers1  # (R,)
    row: Integers1  # (R,) the row of ``items``
    items: Integers2  # (R, E) in the order of the pulls
    bounds: Integers1  # (N + 1,) the arrivals of client i are bounds[i] to bounds[i + 1]


class WindowTask(NamedTuple):
    """One window to read: the samples ``first`` to ``last`` of every client, and what the replay knew at its end."""

    first: Integers1  # (N,)
    last: Integers1  # (N,)
    finished: Mask1  # (N,) the client was at its end before the window: nothing that arrives will be read
    items: ItemTable
    arrivals: Arrivals


class ClientSpan(NamedTuple):
    """The samples ``first`` to ``last`` of one client in a window, and its arrivals ``begin`` to ``end``."""

    first: int
    last: int
    begin: int
    end: int


class Memories(NamedTuple):
    """The items that all clients hold."""

    local: Integers3  # (N, C, S)
    external: Integers3  # (N, C, E)
    merged: Integers3  # (N, C, K) what is read: K = S, or E where only the external memory is read
    gram: Vectors4  # (N, C, K, K) the products of the merged items


class ClientItems(NamedTuple):
    """The items that one client holds."""

    local: Integers2  # (C, S)
    external: Integers2  # (C, E)
    merged: Integers2  # (C, K)


class ColumnRoom(NamedTuple):
    """The items that a client reads in a window, one column each; there is room for U columns."""

    item: Integers1  # (U,)
    born: Integers1  # (U,) the first sample that reads the item
    dead: Integers1  # (U,) the first sample that does not read it any more
    order: Integers1  # (U,) in which order to take the columns
    scale: Vectors1  # (U,) one over the length of the item
    entropy: Reals1  # (U,)
    client: Integers1  # (U,) that a prototype comes from
    sync: Integers1  # (U,) at which it came
    start: Integers2  # (C, K) the columns of every class before the window
    now: Integers2  # (C, K) and at the event that is being numbered
    ends: Integers1  # (B / ROUGHLY + 3,)


class ReadoutGrid(NamedTuple):
    """The parameters of the readout; ``alphas`` and ``betas`` make a grid."""

    mode: int
    alphas: Reals1
    betas: Reals1
    gamma: float
    gate: float  # negative: none
    scale: float
    confidences: Reals3  # (alphas, betas, n) to write: the probabilities of the predicted classes; empty: not wanted


# How close two numbers may be before rounding could order them either way:
#
# Two cosines of float32 prototypes, beside their exact values, which decide. A sum of D products over 8 or more lanes
# rounds by about u per addition in a lane; how many lanes there are depends on the processor. Up to 3.7e-7 was measured
# for the difference of two, with up to 2,048 dimensions and vectors that round badly. The rest is reserve. For the
# same cosines, the readable simulator has more (4e-6, NEAR of core.near_ties): what is close costs it less. Either only
# decides what is computed again exactly, so the choices are the same.
NEAR_SIMILARITY = 1e-6

# Two cosines of float32 prototypes, summed in double precision. The products of the elements are exact there; each of
# the D additions loses at most 2^-53 of a sum that is at most 1: 2.3e-13 for D = 2,048, in both, and as much in the
# sum that is compared with. The rest is reserve.
NEAR_EXACT = 2e-12

# Two zero-shot logits, per unit of the logit scale. Products are summed in float64, which loses nothing here. What is
# left is the division of a row by its length: lengths from two orders of summation differ in the last bit, the
# divided rows by u per element, a cosine by at most 2 u, the difference of two by 4 u = 2.4e-7. The rest is reserve.
NEAR_LOGIT = 2e-6

# Two entropies, relative to their size. The logits of a prototype are known to the scale times a few u, that is to
# 1e-5 at the scale of 100 that CLIP uses. The entropy of a certain prediction is about e^-gap * gap, of which an error
# of the gap is the relative error; a row on the border of what counts as unit length (see core.validate) adds 5e-7 of
# a gap of up to 50.
NEAR_ENTROPY = 5e-5

# The same absolutely: the entropy of a certain prediction is a difference of float64 numbers near 0 to 5.
ENTROPY_NOISE = 1e-13

# An entropy or a probability beside a limit of TDA's negative cache, relative to the limit: twice NEAR_ENTROPY.
NEAR_LIMIT = 1e-4
