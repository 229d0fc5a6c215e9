"""The rows of a stored global memory, checked before they are used."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from .stored import exactly, stored_entropies, stored_mask, stored_vectors
from .table import Table, digests_of
from .types import Arrays
from .zero_shot import ZeroShot

LAST_PLACE = 2**63 - 1  # in the order of joining


def stored_table(arrays: Arrays, names: Sequence[str], zero_shot: ZeroShot, by_joining: bool) -> Table:
    """Return the rows of the clients ``names`` from what :meth:`Table.by_client` returned; refuse anything else."""
    seen = stored_mask("seen", arrays["seen"], (len(names), zero_shot.classes))
    entropy = stored_entropies("entropy", arrays["entropy"], seen)
    vectors = stored_vectors("vectors", arrays["vectors"], seen, zero_shot.dim)
    order = exactly("order", arrays["order"], np.uint64, (len(names),))
    order = _order_of_joining(order) if by_joining else _order_of_names(order, names)
    digests = digests_of(vectors.reshape(-1, zero_shot.dim)).reshape(seen.shape)
    return Table(vectors.transpose(1, 0, 2), entropy, seen, order, digests)


def _order_of_names(order: NDArray[np.uint64], names: Sequence[str]) -> NDArray[np.uint64]:
    if order.tolist() != [stable_place(name) for name in names]:
        raise refuse("order", "another order than that of the names", "the state of a memory with this routing")
    return order


def _order_of_joining(order: NDArray[np.uint64]) -> NDArray[np.uint64]:
    if len(np.unique(order)) < len(order) or (order > LAST_PLACE).any():
        raise refuse("order", "a place twice or out of range", "the order of joining")
    if LAST_PLACE in order:  # there is no place behind it: number the clients anew, in the same order
        order = order.copy()
        order[np.argsort(order)] = np.arange(len(order))
    return order


def stable_place(client: str) -> int:
    """Return 64 bits that depend on the name only, so that ties do not depend on the order of joining."""
    return int.from_bytes(hashlib.blake2b(client.encode(), digest_size=8).digest(), "little")
