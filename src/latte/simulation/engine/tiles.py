"""Products of vectors in tiles of two by four, compiled: every vector that is loaded is used several times.

On small operands this is as fast as a matrix product of BLAS, and rows need not be copied together first. A tile
that hangs over the edge computes its last row again. Imported only where numba is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inlined, loosely, tightly
from .state import Items


@loosely
def tile(a: Any, b: Any, others: Any, zero: Any) -> Any:
    """Return the eight products of two vectors with four others; ``zero`` is of the type to sum in."""
    p, q, r, s = others
    ap = aq = ar = az = bp = bq = br = bz = zero
    for d in range(len(a)):
        ad, bd = a[d], b[d]
        ap += ad * p[d]
        aq += ad * q[d]
        ar += ad * r[d]
        az += ad * s[d]
        bp += bd * p[d]
        bq += bd * q[d]
        br += bd * r[d]
        bz += bd * s[d]
    return ap, aq, ar, az, bp, bq, br, bz


@loosely
def against_all(vectors: Any, rows: Any, similarity: Any) -> None:
    """Write the products of some ``rows`` of ``vectors`` (N, D) with all of them, into rows and columns."""
    end, last, zero = len(vectors) - 1, len(rows) - 1, np.float32(0.0)
    for t in range(0, last + 1, 2):
        i, k = rows[t], rows[min(t + 1, last)]
        a, b = vectors[i], vectors[k]
        for u in range(0, end + 1, 4):
            v, w, x = min(u + 1, end), min(u + 2, end), min(u + 3, end)
            p, q, r, s = vectors[u], vectors[v], vectors[w], vectors[x]
            ap, aq, ar, az, bp, bq, br, bz = tile(a, b, (p, q, r, s), zero)
            similarity[i, u], similarity[i, v], similarity[i, w], similarity[i, x] = ap, aq, ar, az
            similarity[k, u], similarity[k, v], similarity[k, w], similarity[k, x] = bp, bq, br, bz
    for t in range(last + 1):
        for j in range(end + 1):
            similarity[j, rows[t]] = similarity[rows[t], j]


@inlined
def vector_of(items: Items, item: int) -> Any:
    """Return the vector of an item as it is stored."""
    return items.rows[items.row_of[item]] if item < items.samples else items.prototypes[item - items.samples]


@tightly
def norm_of(items: Items, item: int) -> Any:
    """Return by what its vector is to be divided."""
    return items.norms[item] if item < items.samples else np.float32(1.0)


@loosely
def similarities(items: Items, span: Any, used: Any, life: Any, scale: Any, out: Any) -> None:
    """Write the products of the samples ``span`` with the items ``used`` (U,) into ``out`` (B, U).

    ``life`` says from which sample on, and until which, an item is asked for (other products may be missing), and in
    which order to take them.
    ``scale`` (U,) is room for one over their lengths.
    """
    first, last = span
    born, dead, order = life
    rows, index = items.rows, items.row_of
    end, zero = len(used) - 1, np.float32(0.0)
    for g in range(0, end + 1, 4):
        u, v, w, x = order[g], order[min(g + 1, end)], order[min(g + 2, end)], order[min(g + 3, end)]
        p, q = vector_of(items, used[u]), vector_of(items, used[v])
        r, s = vector_of(items, used[w]), vector_of(items, used[x])
        begin = min(min(born[u], born[v]), min(born[w], born[x]))
        stop = max(max(dead[u], dead[v]), max(dead[w], dead[x]))
        for k in range(begin, stop, 2):
            m = min(k + 1, last - 1)
            a, b = rows[index[k]], rows[index[m]]
            ap, aq, ar, az, bp, bq, br, bz = tile(a, b, (p, q, r, s), zero)
            k_, m_ = k - first, m - first
            out[k_, u], out[k_, v], out[k_, w], out[k_, x] = ap, aq, ar, az
            out[m_, u], out[m_, v], out[m_, w], out[m_, x] = bp, bq, br, bz
    _divide(items, span, used, scale, out)


@loosely
def _divide(items: Items, span: Any, used: Any, scale: Any, out: Any) -> None:
    """Divide the products by the lengths of what was multiplied."""
    first, last = span
    for u in range(len(used)):
        scale[u] = np.float32(1.0) / norm_of(items, used[u])
    for k in range(first, last):
        own = np.float32(1.0) / items.norms[k]
        row = out[k - first]
        for u in range(len(used)):
            row[u] *= own * scale[u]


@loosely
def pairs(items: Items, one: Any, other: Any, out: Any) -> None:
    """Write the products of items ``one`` (A,) with items ``other`` (B,) into ``out`` (A, B)."""
    end, last, zero = len(other) - 1, len(one) - 1, np.float32(0.0)
    for t in range(0, last + 1, 2):
        m = min(t + 1, last)
        a, b = vector_of(items, one[t]), vector_of(items, one[m])
        for u in range(0, end + 1, 4):
            v, w, x = min(u + 1, end), min(u + 2, end), min(u + 3, end)
            p, q = vector_of(items, other[u]), vector_of(items, other[v])
            r, s = vector_of(items, other[w]), vector_of(items, other[x])
            ap, aq, ar, az, bp, bq, br, bz = tile(a, b, (p, q, r, s), zero)
            out[t, u], out[t, v], out[t, w], out[t, x] = ap, aq, ar, az
            out[m, u], out[m, v], out[m, w], out[m, x] = bp, bq, br, bz
    for t in range(last + 1):
        own = np.float32(1.0) / norm_of(items, one[t])
        for u in range(end + 1):
            out[t, u] *= own / norm_of(items, other[u])


@loosely
def product(items: Items, one: int, other: int) -> Any:
    """Return the product of two items."""
    a, b = vector_of(items, one), vector_of(items, other)
    total = np.float32(0.0)
    for d in range(len(a)):
        total += a[d] * b[d]
    return total / (norm_of(items, one) * norm_of(items, other))
