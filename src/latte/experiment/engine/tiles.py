"""Products of vectors in tiles of two by four, compiled: every vector that is loaded is used several times.

On small operands this is as fast as a matrix product of BLAS, and rows need not be copied together first. A tile
that hangs over the edge computes its last row again. Imported only where numba is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, loosely
from .state import Items


@loosely
def _tile(a: Any, b: Any, p: Any, q: Any, r: Any, s: Any) -> Any:
    """Return a · p, q, r, s and b · p, q, r, s."""
    zero = np.float32(0.0)
    ap = aq = ar = az = bp = bq = br = bz = zero
    for d in range(len(a)):
        x, y = a[d], b[d]
        ap += x * p[d]
        aq += x * q[d]
        ar += x * r[d]
        az += x * s[d]
        bp += y * p[d]
        bq += y * q[d]
        br += y * r[d]
        bz += y * s[d]
    return (ap, aq, ar, az), (bp, bq, br, bz)


@exactly
def against_all(vectors: Any, rows: Any, similarity: Any) -> None:
    """Write the products of some ``rows`` of ``vectors`` (N, D) with all of them, into rows and columns."""
    n, last = len(vectors) - 1, len(rows) - 1
    for u in range(0, last + 1, 2):
        i, k = rows[u], rows[min(u + 1, last)]
        for j in range(0, n + 1, 4):
            four = (j, min(j + 1, n), min(j + 2, n), min(j + 3, n))
            one, two = _tile(
                vectors[i], vectors[k], vectors[four[0]], vectors[four[1]], vectors[four[2]], vectors[four[3]]
            )
            for t in range(4):
                similarity[i, four[t]] = similarity[four[t], i] = one[t]
                similarity[k, four[t]] = similarity[four[t], k] = two[t]


@exactly
def vector_of(items: Items, item: int) -> Any:
    """Return the vector of an item as it is stored."""
    return items.rows[items.index[item]] if item < items.samples else items.prototypes[item - items.samples]


@exactly
def norm_of(items: Items, item: int) -> Any:
    """Return by what its vector is to be divided."""
    return items.norms[item] if item < items.samples else np.float32(1.0)


@exactly
def similarities(items: Items, span: Any, used: Any, out: Any) -> None:
    """Write the products of the samples ``span`` with the items ``used`` (U,) into ``out`` (B, U)."""
    first, last = span
    end = len(used) - 1
    for u in range(0, end + 1, 4):
        four = (u, min(u + 1, end), min(u + 2, end), min(u + 3, end))
        p, q = vector_of(items, used[four[0]]), vector_of(items, used[four[1]])
        r, s = vector_of(items, used[four[2]]), vector_of(items, used[four[3]])
        for k in range(first, last, 2):
            m = min(k + 1, last - 1)
            one, two = _tile(items.rows[items.index[k]], items.rows[items.index[m]], p, q, r, s)
            for t in range(4):
                norm = norm_of(items, used[four[t]])
                out[k - first, four[t]] = one[t] / (items.norms[k] * norm)
                out[m - first, four[t]] = two[t] / (items.norms[m] * norm)


@loosely
def product(items: Items, one: int, other: int) -> Any:
    """Return the product of two items."""
    a, b = vector_of(items, one), vector_of(items, other)
    total = np.float32(0.0)
    for d in range(len(a)):
        total += a[d] * b[d]
    return total / (norm_of(items, one) * norm_of(items, other))
