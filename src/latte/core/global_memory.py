"""The global memory: everyone's latest prototypes, and who gets which. It is the in-process Exchange."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .maths import top_k
from .types import Arrays, External, Integers, Mask, Prototypes, Reals, State, Vectors
from .validate import MOST_SLOTS, at_least, boolean, choice, entropies, refuse, unit_where

EMPTY_QUERIES = ("client", "none", "released")
NOTHING_IN_COMMON = -2.0  # below every cosine: such a donor comes last, but it may come


@dataclass(frozen=True, slots=True)
class Routing:
    """Who gets which prototypes.

    ``external_slots`` is the paper's k_e; where fewer clients have the class, fewer come back (B10).
    ``empty_query`` says what a client gets for a class it has not seen (B3):

    - ``client``: donors that have the class, ranked by the mean similarity over the classes both have seen;
    - ``none``: nothing;
    - ``released``: what the released code returns, the first clients in joining order.

    ``drop_first_rank`` excludes the best match instead of the client itself, as the released code does (B4).
    """

    external_slots: int
    empty_query: str = "client"
    drop_first_rank: bool = False

    def __post_init__(self) -> None:
        at_least("k_e", self.external_slots, 0, MOST_SLOTS)
        choice("empty_query", self.empty_query, EMPTY_QUERIES)
        if self.drop_first_rank and self.empty_query == "client":
            raise refuse("empty_query", "'client' with drop_first_rank", "'released' or 'none'")

    @property
    def by_joining(self) -> bool:
        """Whether ties go to who joined first (as the released code's row order) or by a hash of the name."""
        return self.empty_query == "released" or self.drop_first_rank


class GlobalMemory:
    """Everyone's latest prototypes in one growing (N, C, D) array.

    >>> import numpy as np
    >>> memory = GlobalMemory(classes=2, dim=2, routing=Routing(external_slots=1))
    >>> both = Prototypes(np.eye(2, dtype=np.float32), np.array([0.1, 0.2]), np.array([True, True]))
    >>> memory.push("ann", both)
    >>> memory.push("bob", both)
    >>> memory.pull("ann").valid
    array([[ True],
           [ True]])
    """

    def __init__(self, classes: int, dim: int, routing: Routing, clients: Iterable[str] = ()) -> None:
        self.classes, self.dim, self.routing = (
            at_least("classes", classes, 2),
            at_least("dim", dim, 1),
            routing,
        )
        self._clear()
        for client in clients:
            self.join(client)

    def _clear(self) -> None:
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._joined = 0
        self._allocate(8)

    def _allocate(self, capacity: int) -> None:
        self._vectors: Vectors = np.zeros((capacity, self.classes, self.dim), np.float32)
        self._entropy: Reals = np.ones((capacity, self.classes))
        self._seen: Mask = np.zeros((capacity, self.classes), np.bool_)
        self._order = np.zeros(capacity, np.uint64)
        self._sorted: Integers | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, client: object) -> bool:
        return client in self._rows

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, by row."""
        return tuple(self._names)

    # --- the exchange -------------------------------------------------------------------------------------

    def push(self, client: str, prototypes: Prototypes) -> None:
        """Store the latest prototypes of ``client``; a new client joins."""
        seen = boolean("prototypes.seen", prototypes.seen, (self.classes,))
        entropy = entropies("prototypes.entropy", prototypes.entropy, seen)
        vectors = unit_where("prototypes.vectors", prototypes.vectors, seen, (self.classes, self.dim))
        row = self.join(client)
        self._vectors[row], self._entropy[row], self._seen[row] = vectors, entropy, seen

    def pull(self, client: str) -> External:
        """Return, per class, the prototypes of the k_e clients most similar to ``client`` (eq. 2)."""
        return self.gather(*self.neighbours(client))

    def gather(self, donors: Integers, valid: Mask) -> External:
        """Return the prototypes of what :meth:`neighbours` chose."""
        columns = np.arange(self.classes)[:, None]
        entropy = np.where(valid, self._entropy[donors, columns], 1.0)
        vectors = self._vectors[donors, columns]
        vectors[~valid] = 0
        return External(vectors, entropy, valid)

    # --- membership ---------------------------------------------------------------------------------------

    def join(self, client: str) -> int:
        """Return the row of ``client``, a new one (with nothing seen) if it was not there."""
        if client in self._rows:
            return self._rows[client]
        if not isinstance(client, str) or not client:
            raise refuse("client", repr(client), "a name: a non-empty string")
        row = len(self._rows)
        if row == len(self._vectors):
            self._grow()
        self._rows[client] = row
        self._names.append(client)
        self._order[row] = self._joined if self.routing.by_joining else _stable_hash(client)
        self._joined += 1
        self._sorted = None
        return row

    def forget(self, client: str) -> None:
        """Remove ``client`` and what it uploaded. Those who already hold its prototypes keep them until they pull."""
        row, last = self._row(client), len(self._rows) - 1
        self._vectors[row], self._entropy[row] = self._vectors[last], self._entropy[last]
        self._seen[row], self._order[row] = self._seen[last], self._order[last]
        self._vectors[last], self._entropy[last], self._seen[last] = 0, 1, False
        self._names[row] = self._names[last]
        self._rows[self._names[row]] = row
        del self._rows[client], self._names[last]
        self._sorted = None

    def _grow(self) -> None:
        vectors, entropy, seen, order = self._vectors, self._entropy, self._seen, self._order
        n = len(vectors)
        self._allocate(2 * n)
        self._vectors[:n], self._entropy[:n], self._seen[:n], self._order[:n] = vectors, entropy, seen, order

    def _row(self, client: str) -> int:
        row = self._rows.get(client)
        if row is None:
            raise refuse("client", repr(client), f"one of the {len(self)} clients that have pushed before")
        return row

    # --- routing ------------------------------------------------------------------------------------------

    def neighbours(self, client: str) -> tuple[Integers, Mask]:
        """Return the rows (C, E) whose prototypes ``client`` gets, most similar first, and which are real."""
        own, n = self._row(client), len(self)
        slots = min(self.routing.external_slots, n - 1)
        ranking = self._by_order()
        similarity = self._similarities(own)[ranking]  # (n, C), in an order that no push can change
        if self.routing.drop_first_rank:
            rows = ranking[top_k(np.ascontiguousarray(similarity.T), slots + 1)[:, 1:]]
            return rows, self._seen[rows, np.arange(self.classes)[:, None]] & self._query_allowed(own)
        scores = np.where(self._seen[own], similarity, self._scores_of_unseen(own, similarity, ranking))
        scores[~self._seen[ranking]] = -np.inf
        scores[ranking == own] = -np.inf  # B4: oneself, by identity
        best = top_k(np.ascontiguousarray(scores.T), slots)
        return ranking[best], np.isfinite(np.take_along_axis(scores.T, best, axis=1))

    def _query_allowed(self, own: int) -> Mask:
        """Return (C, 1): may this class be asked for, given what the client has seen?"""
        allowed = self._seen[own] | (self.routing.empty_query == "released")
        column: Mask = allowed[:, None]
        return column

    def _by_order(self) -> Integers:
        if self._sorted is None:
            self._sorted = np.argsort(self._order[: len(self)], kind="stable")
        return self._sorted

    def _similarities(self, own: int) -> Reals:
        """Return g_own,y · g_j,y as (n, C); 0 where either has not seen y."""
        query = self._vectors[own][:, :, None]
        rows = self._vectors[: len(self)].transpose(1, 0, 2)
        similarity: Reals = np.matmul(rows, query)[:, :, 0].T.astype(np.float64)
        return similarity

    def _scores_of_unseen(self, own: int, similarity: Reals, ranking: Integers) -> Reals:
        """Return the scores (n, 1) or (n, C) by which donors of a class the client has not seen are ranked (B3)."""
        if self.routing.empty_query == "none":
            return np.full((len(ranking), 1), -np.inf)
        if self.routing.empty_query == "released":  # joining order, without the first
            place = np.arange(len(ranking))
            chosen = (place > 0) & (place <= self.routing.external_slots)
            return np.where(chosen, -1.0 * place, -np.inf)[:, None]
        common = self._seen[ranking] & self._seen[own]
        count = common.sum(axis=1)
        total = np.where(common, similarity, 0.0).sum(axis=1)
        mean: Reals = np.where(count > 0, total / np.maximum(count, 1), NOTHING_IN_COMMON)
        return mean[:, None]

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        n = len(self)
        return {
            "clients": np.array(self.clients, dtype=np.str_),
            "vectors": self._vectors[:n].copy(),
            "entropy": self._entropy[:n].copy(),
            "seen": self._seen[:n].copy(),
            "order": self._order[:n].copy(),
        }

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        names = [str(name) for name in arrays["clients"]]
        shape = (len(names), self.classes)
        seen = boolean("seen", arrays["seen"], shape)
        entropy = entropies("entropy", arrays["entropy"], seen)
        vectors = unit_where("vectors", arrays["vectors"], seen, (*shape, self.dim))
        self._clear()
        for name in names:
            self.join(name)
        n = len(names)
        self._vectors[:n], self._entropy[:n], self._seen[:n] = vectors, entropy, seen
        self._order[:n] = arrays["order"]
        self._joined = int(self._order[:n].max(initial=0)) + 1 if self.routing.by_joining else n
        self._sorted = None


def _stable_hash(client: str) -> int:
    """Return 64 bits that depend on the name only, so that ties do not depend on who came first."""
    return int.from_bytes(hashlib.blake2b(client.encode(), digest_size=8).digest(), "little")
