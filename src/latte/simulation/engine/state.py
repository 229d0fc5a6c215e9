"""The arrays that the loops share, as named tuples: compiled code takes these, not classes."""

from __future__ import annotations

from typing import NamedTuple

from ...core.types import Integers, Mask, Reals, Vectors

CLIENT, NONE, RELEASED = 0, 1, 2  # what comes back for a class that a client has not seen (B3)
BOTH, LOCAL, EXTERNAL = 0, 1, 2  # what is read
# which of several equal entropies leaves a full queue: the last or first slot, or the latest; ALWAYS is LAST, and what
# comes is taken even if its entropy is not lower (B7)
LAST, FIRST, LATEST, ALWAYS = 0, 1, 2, 3
NEAR_DOT = 2e-6  # two float32 dot products of unit vectors that are closer than this may be ordered either way
NEAR_ENTROPY = 5e-5  # the same for entropies, relative to their size
NOISE = 1e-13  # and absolute: float64 cancellation in the entropy of a certain prediction


class Rules(NamedTuple):
    """How donors are chosen: ``slots`` per class, B4, B3, and the distance below which a choice is in doubt."""

    slots: int
    drop_first: bool
    empty: int
    near: float


class Routes(NamedTuple):
    """Everyone's latest prototypes as the server sees them, and what everyone was given last."""

    vectors: Vectors  # (C, N, D) as the global memory stores them
    similarity: Vectors  # (C, N, N) g_i,y · g_j,y, 0 where one of them has not seen y
    seen: Mask  # (C, N)
    common: Integers  # (N, N) how many classes both have seen
    current: Integers  # (C, N) item numbers, -1 for none
    stamp: Integers  # (C, N) the sync at which they came
    ranking: Integers  # (N,) who comes first among equals
    changed: Integers  # (C,) the last sync at which a prototype of the class changed
    pulled: Integers  # (N,) the last sync at which a client pulled
    external: Integers  # (N, C, E) item numbers, -1 for none
    donors: Integers  # (N, C, E) whose they are
    nearest: Integers  # (N, C, M) the most similar clients, some more than are wanted
    values: Reals  # (N, C, M) how similar they are, best first
    length: Integers  # (N, C) how many there are
    bound: Reals  # (N, C) nobody else is more similar than this


class Counts(NamedTuple):
    """Downloads, counted when a list changes: it was given ``pulls - since`` times."""

    downloads: Integers  # (N, N)
    since: Integers  # (N, C)
    pulls: Integers  # (N,)


class Uploads(NamedTuple):
    """What changed in the syncs of a window, ordered by sync and class: whose prototype, and what it is now."""

    client: Integers  # (U,)
    label: Integers  # (U,)
    prototypes: Vectors  # (P, D) as the global memory stores them
    items: Integers  # (U,)
    seen: Mask  # (U,)
    starts: Integers  # (syncs + 1,)
    samples: int  # items are numbered after so many samples
    beside: Vectors  # (P, N) to write: products of a stored prototype with everyone's of its class
    origin: Integers  # (P, 2) to write: whose it is, and at which sync it came


class Given(NamedTuple):
    """What changed for those who pulled: one row per (client, class) whose list is another now."""

    client: Integers  # (R,)
    label: Integers  # (R,)
    sample: Integers  # (R,) the first sample of the client that comes after
    items: Integers  # (R, E)
    doubtful: Mask  # (R,)


class Items(NamedTuple):
    """Everything that can be in a memory: samples first (n of them), then stored prototypes (P)."""

    samples: int
    entropy: Reals  # (n,)
    slot: Integers  # (n,) where the local memory put the sample, -1 for nowhere
    pseudo: Integers  # (n,)
    rows: Vectors  # (m, D) embeddings, not quite of unit length
    row_of: Integers  # (n,) the row of a sample
    norms: Vectors  # (n,) its length
    logits: Reals  # (n, C) of the zero-shot classifier
    stored: Reals  # (P,) entropies of the prototypes
    exact: Mask  # (P,) whether that is the very number that the readable method computes
    prototypes: Vectors  # (P, D)
    beside: Vectors  # (P, N) products with everyone's prototype of the class when it came; (P, 0) where not kept
    origin: Integers  # (P, 2) whose it is, and at which sync it came


class Memory(NamedTuple):
    """What clients hold, as item numbers, -1 for none; of one client without the first axis."""

    local: Integers  # (N, C, S)
    external: Integers  # (N, C, E)
    merged: Integers  # (N, C, K) K = S, or E where only the external memory is read
    gram: Vectors  # (N, C, K, K) products of what is merged


class Arrivals(NamedTuple):
    """What clients were given in a window, in order: before which sample, which class, which items."""

    sample: Integers  # (R,)
    label: Integers  # (R,)
    row: Integers  # (R,) where in ``items``
    items: Integers  # (R, E) in another order
    bounds: Integers  # (N + 1,) what client i was given is bounds[i] to bounds[i + 1]


class Span(NamedTuple):
    """Which samples of every client a window covers: ``first`` to ``last`` (N,), and whether that is all it has."""

    first: Integers
    last: Integers
    finished: Mask  # (N,) finished before the window: nothing that arrives will be read


class Readout(NamedTuple):
    """The parameters of the readout; ``alphas`` and ``betas`` make a grid."""

    mode: int
    alphas: Reals
    betas: Reals
    gamma: float
    gate: float  # negative: none
    scale: float
