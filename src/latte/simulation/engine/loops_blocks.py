"""The lists of the most similar clients for very many clients, compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import NamedTuple

from ...core.near_ties import NOTHING_IN_COMMON
from ...core.types import Integers, Mask, Reals, Vectors
from .compiled import helper, kernel
from .loops_lists import GLANCE, any_above, insert


class DonorLists(NamedTuple):
    """The best donors so far, in descending order: clients (..., K), -1 for none, and their similarities (..., K)."""

    clients: Integers
    values: Reals


class OfferedClients(NamedTuple):
    """Some clients (T,), and the classes that they have seen (T, C)."""

    clients: Integers
    seen: Mask


@kernel
def offer(
    products: Vectors, rows: Integers, clients: Integers, places: Integers, total: Reals, lists: DonorLists
) -> None:
    """Offer clients to the lists of the most similar of one class, and add up their products.

    ``products`` (R, K) are those of the lists ``rows`` (R,) with ``clients[places]``; ``total`` is (B, T), or (B, 0).
    """
    last = lists.values.shape[1] - 1
    for r in range(len(rows)):
        row, sums = products[r], total[rows[r]]
        if len(sums):
            for c in range(len(places)):
                sums[places[c]] += row[c]
        best, values = lists.clients[rows[r]], lists.values[rows[r]]
        for start in range(0, len(row), GLANCE):
            if start + GLANCE <= len(row) and not any_above(row, start, values[last]):
                continue
            for c in range(start, min(start + GLANCE, len(row))):
                if row[c] > values[last]:
                    insert(best, values, len(best), clients[places[c]], row[c])


@kernel
def offer_means(
    total: Reals,
    common: Vectors,
    members: Integers,
    unseen: Mask,
    offered: OfferedClients,
    score: Reals,
    lists: DonorLists,
) -> None:
    """Offer clients by mean similarity to the lists of the classes that members have not seen.

    ``unseen`` is (M, C); ``score`` (T,) is scratch space.
    """
    for m in range(len(members)):
        some = False
        for y in range(unseen.shape[1]):
            some = some or unseen[m, y]
        if not some:
            continue
        for j in range(len(score)):
            score[j] = total[m, j] / common[m, j] if common[m, j] > 0 else NOTHING_IN_COMMON
        for y in range(unseen.shape[1]):
            if unseen[m, y]:
                _offer_seen(
                    score, members[m], offered.clients, offered.seen[:, y], lists.clients[y, m], lists.values[y, m]
                )


@helper
def _offer_seen(score: Reals, own: int, clients: Integers, seen: Mask, best: Integers, values: Reals) -> None:
    last = len(values) - 1
    for start in range(0, len(score), GLANCE):
        if start + GLANCE <= len(score) and not any_above(score, start, values[last]):
            continue
        for j in range(start, min(start + GLANCE, len(score))):
            if score[j] > values[last] and seen[j] and clients[j] != own:
                insert(best, values, last + 1, clients[j], score[j])
