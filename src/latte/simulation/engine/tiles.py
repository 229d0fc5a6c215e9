"""Products of vectors in tiles of two by four, compiled: every vector that is loaded is used several times.

On small operands this is as fast as a matrix product of BLAS, and rows need not be copied together first. A tile
that hangs over the edge computes its last row again. Imported only where numba is installed.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np

from ...core.types import Integers, Reals, Vectors
from .compiled import helper, inlined, loose_helper
from .loop_arrays import ClientSpan, ItemVectors
from .loops_number import ColumnRoom

Number = TypeVar("Number", float, np.float32)  # the type that is summed in
Eight: TypeAlias = tuple[Number, Number, Number, Number, Number, Number, Number, Number]
TileRow: TypeAlias = Vectors | Reals
Single: TypeAlias = np.float32


@loose_helper
def tile(a: TileRow, b: TileRow, p: TileRow, q: TileRow, r: TileRow, s: TileRow, zero: Number) -> Eight[Number]:
    """Return the eight products of two vectors with four others; ``zero`` is of the type to sum in."""
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


@helper
def compare_with_all(vectors: Vectors, rows: Integers, similarity: Vectors) -> None:
    """Write the products of some ``rows`` of ``vectors`` (N, D) with all of them, into rows and columns."""
    end, last, zero = len(vectors) - 1, len(rows) - 1, np.float32(0.0)
    for t in range(0, last + 1, 2):
        i, k = rows[t], rows[min(t + 1, last)]
        for u in range(0, end + 1, 4):
            v, w, x = min(u + 1, end), min(u + 2, end), min(u + 3, end)
            ap, aq, ar, az, bp, bq, br, bz = tile(
                vectors[i], vectors[k], vectors[u], vectors[v], vectors[w], vectors[x], zero
            )
            similarity[i, u], similarity[i, v], similarity[i, w], similarity[i, x] = ap, aq, ar, az
            similarity[k, u], similarity[k, v], similarity[k, w], similarity[k, x] = bp, bq, br, bz
    for t in range(last + 1):
        for j in range(end + 1):
            similarity[j, rows[t]] = similarity[rows[t], j]


@inlined
def vector_of(items: ItemVectors, item: int) -> Vectors:
    """Return the vector of an item as it is stored."""
    own = item < items.samples
    vector: Vectors = items.rows[items.row_of[item]] if own else items.prototypes[item - items.samples]
    return vector


@helper
def norm_of(items: ItemVectors, item: int) -> np.float32:
    """Return by what its vector is to be divided."""
    return items.norms[item] if item < items.samples else np.float32(1.0)


@helper
def compare_samples(items: ItemVectors, span: ClientSpan, columns: ColumnRoom, width: int, near: Vectors) -> None:
    """Write the products of the samples of a client with ``width`` columns into ``near`` (B * U,).

    A product is missing if the sample does not read the item.
    """
    first, last = span.first, span.last
    born, dead, order, used = columns.born, columns.dead, columns.order, columns.item
    rows, index, end, zero = items.rows, items.row_of, width - 1, np.float32(0.0)
    for g in range(0, width, 4):
        u, v, w, x = order[g], order[min(g + 1, end)], order[min(g + 2, end)], order[min(g + 3, end)]
        p, q = vector_of(items, used[u]), vector_of(items, used[v])
        r, s = vector_of(items, used[w]), vector_of(items, used[x])
        begin = min(min(born[u], born[v]), min(born[w], born[x]))
        stop = max(max(dead[u], dead[v]), max(dead[w], dead[x]))
        for k in range(begin, stop, 2):
            m = min(k + 1, last - 1)
            ap, aq, ar, az, bp, bq, br, bz = tile(rows[index[k]], rows[index[m]], p, q, r, s, zero)
            a, b = (k - first) * width, (m - first) * width
            near[a + u], near[a + v], near[a + w], near[a + x] = ap, aq, ar, az
            near[b + u], near[b + v], near[b + w], near[b + x] = bp, bq, br, bz
    _divide(items, span, columns, width, near)


@loose_helper
def _divide(items: ItemVectors, span: ClientSpan, columns: ColumnRoom, width: int, near: Vectors) -> None:
    """Divide the products by the lengths of what was multiplied."""
    scale = columns.scale
    for u in range(width):
        scale[u] = np.float32(1.0) / norm_of(items, columns.item[u])
    for k in range(span.first, span.last):
        own = np.float32(1.0) / items.norms[k]
        row = near[(k - span.first) * width : (k - span.first + 1) * width]
        for u in range(width):
            row[u] *= own * scale[u]


@helper
def compare_with_four(
    items: ItemVectors, item: int, p: int, q: int, r: int, s: int
) -> tuple[Single, Single, Single, Single]:
    """Return the products of an item with four others."""
    zero, a, own = np.float32(0.0), vector_of(items, item), norm_of(items, item)
    ap, aq, ar, az, _, _, _, _ = tile(
        a, a, vector_of(items, p), vector_of(items, q), vector_of(items, r), vector_of(items, s), zero
    )
    return (
        ap / (own * norm_of(items, p)),
        aq / (own * norm_of(items, q)),
        ar / (own * norm_of(items, r)),
        az / (own * norm_of(items, s)),
    )
