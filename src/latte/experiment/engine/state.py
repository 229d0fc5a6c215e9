"""The arrays that the kernels share, as named tuples: compiled code takes these, not classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Mask, Reals, Vectors

CLIENT, NONE, RELEASED = 0, 1, 2  # what comes back for a class that a client has not seen (B3)
BOTH, LOCAL, EXTERNAL = 0, 1, 2  # what is read
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

    similarity: Vectors  # (C, N, N) g_i,y · g_j,y, 0 where one of them has not seen y
    seen: Mask  # (C, N)
    common: Integers  # (N, N) how many classes both have seen
    current: Integers  # (C, N) item numbers, -1 for none
    ranking: Integers  # (N,) who comes first among equals
    changed: Integers  # (C,) the last sync at which a prototype of the class changed
    pulled: Integers  # (N,) the last sync at which a client pulled
    external: Integers  # (N, C, E) item numbers, -1 for none
    donors: Integers  # (N, C, E)


class Counts(NamedTuple):
    """Downloads, counted when a list changes: it was given ``pulls - since`` times."""

    downloads: Integers  # (N, N)
    since: Integers  # (N, C)
    pulls: Integers  # (N,)


class Given(NamedTuple):
    """What changed for the members of one sync: one row per (client, class) whose list is another now."""

    client: Integers  # (R,)
    label: Integers  # (R,)
    items: Integers  # (R, E)
    doubtful: Mask  # (R,)


class Items(NamedTuple):
    """Entropies of everything that can be in a memory: samples first, then stored prototypes."""

    samples: int
    entropy: Reals  # of the samples (n,)
    slot: Integers  # (n,) where the local memory put the sample, -1 for nowhere
    pseudo: Integers  # (n,)
    stored: Reals  # entropies of the prototypes (P,)
    exact: Mask  # (P,) whether that is the very number that the readable method computes


class Memory(NamedTuple):
    """What one client holds, as item numbers, -1 for none."""

    local: Integers  # (C, S)
    external: Integers  # (C, E)
    merged: Integers  # (C, K) K = S, or E where only the external memory is read


class Arrivals(NamedTuple):
    """What one client was given in a window, in order: before which of its samples, which class, which items."""

    sample: Integers  # (R,)
    label: Integers  # (R,)
    items: Integers  # (R, E)


class Events(NamedTuple):
    """How the memory that one client reads changed: before which sample, which class, its new row."""

    sample: Integers  # (X,)
    label: Integers  # (X,)
    items: Integers  # (X, K)


class Block(NamedTuple):
    """Consecutive samples of one client, and everything that it reads while it handles them."""

    first: int  # number of the first sample
    dots: Vectors  # (B, C) with the text
    similarity: Vectors  # (B, U) with the items
    vectors: Vectors  # (U, D)
    entropy: Reals  # (U,)


class Readout(NamedTuple):
    """The parameters of the readout; ``alphas`` and ``betas`` make a grid."""

    alphas: Reals
    betas: Reals
    gamma: float
    gate: float  # negative: none
    scale: float


def empty_events(rows: int, width: int) -> Events:
    """Return room for ``rows`` events."""
    return Events(np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty((rows, width), np.int64))
