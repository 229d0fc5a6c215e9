"""The choice of donors by its definition, for choices that rounding may decide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...core.donors import donors_among, donors_of, donors_of_unseen
from ...core.global_memory import GlobalMemory
from ...core.near_ties import Uploaded
from ...core.routing import Routing
from ...core.types import Integers, Vectors
from ...core.zero_shot import ZeroShot
from .tolerances import NEAR_SIMILARITY


def choose_donors(
    uploaded: Callable[[slice], Uploaded], routing: Routing, own: int, label: int, seen: bool
) -> Integers:
    """Return the donors (slots,) of a class, -1 for none.

    ``uploaded`` returns the uploads of some classes; ``seen`` says whether the client has seen this one. All classes
    matter only if it has not: then donors are ranked by the mean similarity.
    """
    if not seen and not routing.drop_first_rank:
        return donors_of_unseen(uploaded(slice(None)), routing, own, label)
    donors = donors_of(uploaded(slice(label, label + 1)), routing, own)
    return np.where(donors.valid[0], donors.rows[0], -1)


def choose_among_nearest(uploaded: Uploaded, routing: Routing, own: int, similarity: Vectors) -> Integers:
    """Return the donors (slots,) for the only class of ``uploaded``, which the client has seen; -1 for none.

    ``similarity`` (N,) are its products with all clients, up to rounding: only those near enough are computed again.
    """
    allowed = similarity
    if not routing.drop_first_rank:
        allowed = np.where(uploaded.seen[:, 0], similarity, -np.inf)
        allowed[own] = -np.inf
    least = len(allowed) - min(routing.external_slots + routing.drop_first_rank, len(allowed))
    limit = np.partition(allowed, least)[least] - NEAR_SIMILARITY
    return donors_among(uploaded, routing, own, np.flatnonzero(allowed >= limit))


def rank_clients(names: tuple[str, ...], routing: Routing) -> Integers:
    """Return the clients in the order that decides between equal similarities, as the global memory has it."""
    memory = GlobalMemory(ZeroShot([[1.0], [-1.0]], ("a", "b")), routing, names)
    return np.argsort(memory.state()["order"], kind="stable")
