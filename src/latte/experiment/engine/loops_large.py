"""The loops for very many clients, compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, loosely


@exactly
def best_of_rows(scores: Any, k: int) -> Any:
    """Return the columns (M, k) of the largest of each row, best first, the first among equals."""
    columns, values = np.empty((len(scores), k), np.int64), np.empty(k, scores.dtype)
    for m in range(len(scores)):
        row, chosen, found = scores[m], columns[m], 0
        for j in range(len(row)):
            if found == k and row[j] <= values[k - 1]:
                continue
            at = min(found, k - 1)
            while at > 0 and values[at - 1] < row[j]:
                values[at], chosen[at] = values[at - 1], chosen[at - 1]
                at -= 1
            values[at], chosen[at] = row[j], j
            found = min(found + 1, k)
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
