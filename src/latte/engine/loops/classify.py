"""Products of vectors in tiles of two by four, and the zero-shot classifier on many rows, compiled.

Imported only where numba is installed. Every vector that is loaded is used several times.
"""

from __future__ import annotations

import math
from typing import TypeAlias, TypeVar

import numpy as np

from ...core.types import Integers, Reals, Vectors
from ..cache import helper, inlined, kernel, loose_helper
from .arrays import (
    ClientSpan,
    ColumnRoom,
    FixedReals2,
    FixedVectors2,
    Integers1,
    ItemTable,
    Reals2,
    Vectors1,
    ZeroShotResults,
)

Number = TypeVar("Number", float, np.float32)  # the type that is summed in
Eight: TypeAlias = tuple[Number, Number, Number, Number, Number, Number, Number, Number]
TileRow: TypeAlias = Vectors | Reals


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
def copy_row(row: Vectors | Integers, out: Vectors | Integers) -> None:
    """Copy a row element by element, which needs no check of shapes."""
    for d in range(len(out)):
        out[d] = row[d]


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
def vector_of(items: ItemTable, item: int) -> Vectors:
    """Return the vector of an item as it is stored."""
    own = item < items.samples
    vector: Vectors = items.rows[items.row_of[item]] if own else items.prototypes[item - items.samples]
    return vector


@helper
def norm_of(items: ItemTable, item: int) -> np.float32:
    """Return by what its vector is to be divided."""
    return items.norms[item] if item < items.samples else np.float32(1.0)


@helper
def compare_samples(items: ItemTable, span: ClientSpan, columns: ColumnRoom, width: int, near: Vectors) -> None:
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
def _divide(items: ItemTable, span: ClientSpan, columns: ColumnRoom, width: int, near: Vectors) -> None:
    """Divide the products by the lengths of what was multiplied."""
    scale = columns.scale
    for u in range(width):
        scale[u] = np.float32(1.0) / norm_of(items, columns.item[u])
    for k in range(span.first, span.last):
        own = np.float32(1.0) / items.norms[k]
        row = near[(k - span.first) * width : (k - span.first + 1) * width]
        for u in range(width):
            row[u] *= own * scale[u]


@kernel
def squares(rows: FixedVectors2, index: Integers1, out: Vectors1) -> None:
    """Write the squared lengths (n,) of the rows ``index``."""
    for k in range(len(index)):
        out[k] = _square32(rows[index[k]])


@loose_helper
def _square32(row: Vectors) -> np.float32:
    total = np.float32(0.0)
    for d in range(len(row)):
        total += row[d] * row[d]
    return total


@kernel
def classify(
    rows: FixedVectors2,
    index: Integers1,
    norms: Vectors1,
    text: FixedReals2,
    near: float,
    room: Reals2,
    out: ZeroShotResults,
) -> None:
    """Classify the rows ``index``, divided by ``norms``, with ``text``; products are summed in float64.

    Two logits are close if they differ by less than ``near``. ``room`` (2, D) is scratch space.
    """
    last = len(index) - 1
    for k in range(0, last + 1, 2):
        m = min(k + 1, last)
        _widen(rows[index[k]], norms[k], room[0])
        _widen(rows[index[m]], norms[m], room[1])
        _multiply(room[0], room[1], text, out.logits[k], out.logits[m])
    for k in range(len(index)):
        _judge(out.logits[k], near, k, out)


@helper
def _widen(row: Vectors, norm: np.float32, out: Reals) -> None:
    if norm == 1:
        for d in range(len(row)):
            out[d] = row[d]
    else:
        for d in range(len(row)):
            out[d] = np.float32(row[d] / norm)


@loose_helper
def _multiply(a: Reals, b: Reals, text: Reals, of_a: Reals, of_b: Reals) -> None:
    end = len(text) - 1
    for u in range(0, end + 1, 4):
        v, w, x = min(u + 1, end), min(u + 2, end), min(u + 3, end)
        ap, aq, ar, az, bp, bq, br, bz = tile(a, b, text[u], text[v], text[w], text[x], 0.0)
        of_a[u], of_a[v], of_a[w], of_a[x] = ap, aq, ar, az
        of_b[u], of_b[v], of_b[w], of_b[x] = bp, bq, br, bz


@helper
def _judge(logits: Reals, near: float, k: int, out: ZeroShotResults) -> None:
    """Write what follows from the logits (C,) of row ``k``."""
    best, second = 0, -np.inf
    for y in range(1, len(logits)):
        if logits[y] > logits[best]:
            best, second = y, logits[best]
        elif logits[y] > second:
            second = logits[y]
    largest = logits[best]
    total, nats = 0.0, 0.0
    for y in range(len(logits)):
        shifted = logits[y] - largest
        weight = math.exp(shifted)
        total += weight
        nats += weight * shifted
    out.pseudo[k] = best
    out.entropy[k] = min(max(math.log(total) - nats / total, 0.0) / math.log(len(logits)), 1.0)
    out.close[k] = largest - second < near
