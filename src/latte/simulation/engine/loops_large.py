"""The loops for very many clients, compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, loosely, tightly
from .loops_lists import GLANCE, any_above, place

NOTHING_IN_COMMON = np.float32(-2.0)  # below every cosine


@tightly
def offer(products: Any, rows: Any, candidates: Any, total: Any, best: Any) -> None:
    """Offer candidates to the lists of the most similar, and add up their products.

    ``products`` (R, K) are of the lists ``rows`` (R,) with the candidates; ``total`` (B, T), or (B, 0) for none.
    """
    who, places = candidates
    for r in range(len(rows)):
        row, sums = products[r], total[rows[r]]
        if len(sums):
            for c in range(len(places)):
                sums[places[c]] += row[c]
        ids, values = best.who[rows[r]], best.values[rows[r]]
        last = len(values) - 1
        for start in range(0, len(row), GLANCE):
            if start + GLANCE <= len(row) and not any_above(row, start, values[last]):
                continue
            for c in range(start, min(start + GLANCE, len(row))):
                if row[c] > values[last]:
                    place(ids, values, len(ids), who[places[c]], row[c])


@exactly
def offer_means(total: Any, common: Any, members: Any, candidates: Any, lists: Any) -> None:
    """Offer candidates by mean similarity to the lists of classes that members have not seen."""
    _offer_means(total, common, members, candidates, lists, np.empty(total.shape[1], np.float32))


@tightly
def _offer_means(total: Any, common: Any, members: Any, candidates: Any, lists: Any, score: Any) -> None:
    own, unseen = members
    who, seen = candidates
    for m in range(len(own)):
        if not _any(unseen[m]):
            continue
        for j in range(len(score)):
            score[j] = total[m, j] / common[m, j] if common[m, j] > 0 else NOTHING_IN_COMMON
        for y in range(unseen.shape[1]):
            if unseen[m, y]:
                _offer_seen(score, (own[m], who, seen[:, y]), (lists.who[y, m], lists.values[y, m]))


@tightly
def _offer_seen(score: Any, candidates: Any, best: Any) -> None:
    own, who, seen = candidates
    ids, values = best
    last = len(values) - 2  # as many as there are slots: a list has one more
    for start in range(0, len(score), GLANCE):
        if start + GLANCE <= len(score) and not any_above(score, start, values[last]):
            continue
        for j in range(start, min(start + GLANCE, len(score))):
            if score[j] > values[last] and seen[j] and who[j] != own:
                place(ids[: last + 1], values[: last + 1], last + 1, who[j], score[j])


@tightly
def _any(flags: Any) -> Any:
    found = False
    for j in range(len(flags)):
        found = found or flags[j]
    return found


@exactly
def best_of_rows(scores: Any, k: int) -> Any:
    """Return the columns (M, k) of the largest of each row, best first, the first among equals."""
    columns, values = np.empty((len(scores), k), np.int64), np.empty(k, scores.dtype)
    for m in range(len(scores)):
        row, chosen = scores[m], columns[m]
        for j in range(len(row)):
            if j < k or row[j] > values[k - 1]:
                place(chosen, values, min(j, k), j, row[j])
    return columns


@loosely
def _product(a: Any, b: Any) -> Any:
    total = np.float32(0.0)
    for d in range(len(a)):
        total += a[d] * b[d]
    return total


@exactly
def mean_similarities(members: Any, candidates: Any, places: Any, vectors: Any) -> Any:
    """Return the mean similarity (M, K) over the classes that member and candidate have seen.

    ``places`` (C, N) are rows of ``vectors``, -1 for none. A candidate that is nobody, the member itself or there
    already gets -inf; one with nothing in common gets -2.
    """
    scores = np.full(candidates.shape, -np.inf, np.float32)
    for m in range(len(members)):
        i = members[m]
        for c in range(candidates.shape[1]):
            j = candidates[m, c]
            fresh = j >= 0 and j != i
            for other in range(c):
                fresh = fresh and candidates[m, other] != j
            if not fresh:
                continue
            total, common = 0.0, 0
            for y in range(len(places)):
                if places[y, i] >= 0 and places[y, j] >= 0:
                    total += _product(vectors[places[y, i]], vectors[places[y, j]])
                    common += 1
            scores[m, c] = total / common if common else -2.0
    return scores
