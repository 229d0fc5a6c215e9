"""In which form an exchange stores class sums: those of few clients exactly, those of many in single precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .class_sums import EPS, ClassSums, checked_sums
from .crowd import CrowdTable, draw_directions
from .linear_heads import RistrettoParams
from .neighbourhoods import span_width
from .stored import exactly
from .sums_table import SumsTable
from .types import Arrays, State
from .validate import at_least
from .zero_shot import ZeroShot

LARGEST_SECRET = 2**128 - 1
NO_LIMIT = 2**63 - 1
# Up to so many clients an exact answer costs about as much as an approximate one (measured: benchmarks/ristretto.py
# crowd): in a simulation, where everyone syncs at once, and behind a server, where every pull is one client's.
EXACT_TOGETHER, EXACT_ALONE = 1024, 256
SAMPLE = 256  # clients that a covariance of very many comes from


@dataclass(frozen=True, slots=True)
class Freshness:
    """How many clients are answered exactly, and what answers to more of them rest on.

    Up to ``exact`` clients, the first pull after an upload calculates everything anew from all of them. With more
    clients, class sums are stored in single precision, and

    - the covariance, which all heads share, comes from a ``sample`` of the clients and serves for ``pushes`` uploads;
    - the distance between two clients is measured along ``directions`` random directions. They are drawn from
      ``secret``: a client that knew them could upload class means that only seem to be near, so every server draws a
      secret of its own.

    (The noise and the pooling are those of all clients, and fresh, with any number of them.)
    """

    exact: int = EXACT_TOGETHER
    pushes: int = 256
    directions: int = 48
    secret: int = 0

    def __post_init__(self) -> None:
        for name in ("exact", "pushes", "directions"):
            at_least(name, getattr(self, name), 1)
        at_least("secret", self.secret, 0, LARGEST_SECRET)

    @classmethod
    def of(cls, params: RistrettoParams, secret: int = 0, served: bool = False) -> Freshness:
        """Return what ``params`` ask for; ``served``: every pull is one client's, as behind a server."""
        limit = EXACT_ALONE if served else EXACT_TOGETHER
        return cls(NO_LIMIT if params.approximation == "off" else limit, secret=secret)

    @property
    def sample(self) -> int:
        """How many clients the covariance of more than ``exact`` clients comes from."""
        return min(self.exact, SAMPLE)


def empty_crowd(zero_shot: ZeroShot, freshness: Freshness, trust: str) -> CrowdTable:
    """Return a table for many clients."""
    directions = draw_directions(zero_shot.dim, freshness.directions, freshness.secret)
    span = span_width(zero_shot.classes, zero_shot.dim) if trust == "open" else 0
    return CrowdTable(zero_shot.classes, directions, span)


def fitting(
    table: SumsTable | CrowdTable, zero_shot: ZeroShot, freshness: Freshness, trust: str
) -> SumsTable | CrowdTable:
    """Return the table in the form for its number of clients: itself, or its content in a new table."""
    if isinstance(table, SumsTable) == (len(table) <= freshness.exact):
        return table
    if isinstance(table, SumsTable):
        other: SumsTable | CrowdTable = empty_crowd(zero_shot, freshness, trust)
        evidence = table.evidence
    else:
        other, evidence = SumsTable(*zero_shot.text.shape), table.crowd.evidence(np.arange(len(table)))
    for name, counts, means in zip(table.names, evidence.counts, evidence.means, strict=True):
        other.put(name, ClassSums(counts, means))
    return other


def table_state(table: SumsTable | CrowdTable) -> State:
    """Return a copy of a table, as arrays: ``means`` (n, C, D) or ``sums`` (n, C, D), the other without rows."""
    counts, vectors = (np.array(array, order="C") for array in table.arrays[:2])
    none, few = vectors[:0], isinstance(table, SumsTable)
    means, sums = (vectors, none) if few else (none, vectors)
    return {"counts": counts, "means": means.astype(np.float64), "sums": sums.astype(np.float32)}


def load_table(
    names: list[str], arrays: Arrays, zero_shot: ZeroShot, freshness: Freshness, trust: str
) -> SumsTable | CrowdTable:
    """Return the table that :func:`table_state` has copied; refuse what no clients can have uploaded."""
    (classes, dim), many = zero_shot.text.shape, len(names) > freshness.exact
    counts = exactly("counts", arrays["counts"], np.float64, (len(names), classes))
    means = exactly("means", arrays["means"], np.float64, (0 if many else len(names), classes, dim))
    sums = exactly("sums", arrays["sums"], np.float32, (len(names) if many else 0, classes, dim))
    if not many:
        table = SumsTable(classes, dim)
        for name, count, mean in zip(names, counts, means, strict=True):
            table.put(name, checked_sums(ClassSums(count, mean, zero_shot.fingerprint), zero_shot))
        return table
    crowd = empty_crowd(zero_shot, freshness, trust)
    for name, count, total in zip(names, counts, sums, strict=True):
        mean = total.astype(np.float64) / np.maximum(count, EPS)[:, None]
        checked_sums(ClassSums(count, mean, zero_shot.fingerprint), zero_shot)
        crowd.restore(name, count, total)
    return crowd
