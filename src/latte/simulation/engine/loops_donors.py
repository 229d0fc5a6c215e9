"""Which donors a client gets for one class: the most similar, in exact order where it matters, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.near_ties import NOTHING_IN_COMMON
from ...core.types import Integers, Mask, Reals, Vectors
from .array_types import Integers1, Reals1
from .compiled import helper
from .loop_arrays import CLIENT, NONE, LatestPrototypes, NearestLists, RouteRules
from .loops_lists import GLANCE, any_above, insert
from .tolerances import NEAR_EXACT


class RouteRoom(NamedTuple):
    """Scratch space of a pull."""

    chosen: Integers1  # (E,) the donors
    rows: Integers1  # (E + 1,) a list by mean similarity
    values: Reals1  # (E + 1,)
    order: Integers1  # (M,) a list of the most similar of a class in its true order
    exact: Reals1  # (M,) similarities in double precision
    mean: Reals1  # (N,) mean similarities
    starts: Integers1  # (C + 1,) where classes start


@helper
def scan_nearest(latest: LatestPrototypes, nearest: NearestLists, rules: RouteRules, i: int, y: int) -> None:
    """Make a client's list of the most similar of a class: of all clients (B4), or of the others that have seen it."""
    rows, values, seen = nearest.clients[i, y], nearest.values[i, y], latest.seen[y]
    own = -1 if rules.drop_first else i
    count = _find_largest(latest.similarity[y, i], seen, own, nearest.length[i, y], rows, values)
    nearest.length[i, y] = count
    nearest.bound[i, y] = values[count - 1] if count == len(rows) < len(seen) else -np.inf


@helper
def choose_seen(
    latest: LatestPrototypes, nearest: NearestLists, rules: RouteRules, i: int, y: int, room: RouteRoom
) -> bool:
    """Write the first donors of a list (slots,), -1 for none; return whether the choice is in doubt.

    The released code leaves out the best match, whichever client that is, and counts a client that has not seen the
    class as 0 (B4).
    """
    rows, values, seen = nearest.clients[i, y], nearest.values[i, y], latest.seen[y]
    count, skip = nearest.length[i, y], 1 if rules.drop_first else 0
    doubtful, sorted_to = False, 0
    for last in (0, rules.slots) if rules.drop_first else (rules.slots - 1, rules.slots - 1):
        if last < 0 or last + 1 >= count or values[last] - values[last + 1] >= rules.near:
            continue
        if not doubtful and (seen[rows[last]] or seen[rows[last + 1]]):
            if sorted_to == 0:
                for e in range(count):
                    room.order[e] = rows[e]
            sorted_to = _sort_around(latest.vectors[y], nearest, rules.near, i, y, last, sorted_to, room)
            doubtful = sorted_to < 0
            if not rules.drop_first:
                break
    for e in range(rules.slots):
        j = -1
        if e + skip < count:
            j = room.order[e + skip] if sorted_to > 0 else rows[e + skip]
        room.chosen[e] = j if j >= 0 and seen[j] else -1
    return doubtful


@helper
def _sort_around(
    vectors: Vectors, nearest: NearestLists, near: float, i: int, y: int, last: int, first: int, room: RouteRoom
) -> int:
    """Sort the list in ``room.order`` by exact similarities if it is too close around the place ``last``.

    Returns where the sorted part ends; -1 if even these do not decide, if clients that are not on the list may be as
    near, or if the part would begin before ``first``. ``vectors`` (N, D) are those of the class.
    """
    values, count = nearest.values[i, y], nearest.length[i, y]
    begin, end = last, last + 2
    while begin > 0 and values[begin - 1] - values[last + 1] < near:
        begin -= 1
    while end < count and values[last] - values[end] < near:
        end += 1
    if begin < first or values[last] - nearest.bound[i, y] < near:
        return -1
    for e in range(begin, end):
        j, at = room.order[e], e
        similarity = dot_exactly(vectors[i], vectors[j])
        while at > begin and room.exact[at - 1] < similarity:
            room.exact[at], room.order[at] = room.exact[at - 1], room.order[at - 1]
            at -= 1
        room.exact[at], room.order[at] = similarity, j
    return end if room.exact[last] - room.exact[last + 1] > NEAR_EXACT else -1


@helper
def dot_exactly(first: Vectors, second: Vectors) -> float:
    """Return a product summed in double precision, in which products of float32 numbers are exact."""
    total = 0.0
    for d in range(len(first)):
        total += np.float64(first[d]) * np.float64(second[d])
    return total


@helper
def choose_unseen(seen: Mask, ranking: Integers, donors: Integers, rules: RouteRules, i: int, room: RouteRoom) -> bool:
    """Do the same for a class that the client has not seen (B3); ``donors`` (slots,) are those that it has now."""
    if rules.empty != CLIENT:  # joining order, without the first, or nothing
        for e in range(rules.slots):
            j = ranking[e + 1]
            room.chosen[e] = j if rules.empty != NONE and seen[j] else -1
        return False
    seeds = int(np.int64(0))
    for e in range(rules.slots):
        if donors[e] >= 0:
            room.rows[seeds] = donors[e]
            seeds += 1
    count = _find_largest(room.mean, seen, i, seeds, room.rows, room.values)
    comparable = int(np.int64(0))
    for e in range(rules.slots):
        room.chosen[e] = room.rows[e] if e < count else -1
        if e < count and room.values[e] > NOTHING_IN_COMMON:
            comparable += 1
    if comparable < min(count, rules.slots):
        _fill_by_ranking(seen, ranking, rules.slots, i, comparable, room)
    doubtful = comparable == rules.slots and 0 < rules.slots < count
    return doubtful and room.values[rules.slots - 1] - room.values[rules.slots] < rules.near


@helper
def _fill_by_ranking(seen: Mask, ranking: Integers, slots: int, i: int, count: int, room: RouteRoom) -> None:
    """Complete ``count`` chosen donors with clients that have nothing in common with client ``i``.

    These are exactly equal, so the ranking decides. Where clients have seen few classes, that is a common case.
    """
    for place in range(len(ranking)):
        j = ranking[place]
        if count < slots and j != i and seen[j] and room.mean[j] == NOTHING_IN_COMMON:
            room.chosen[count] = j
            count += 1


@helper
def _find_largest(source: Vectors | Reals, seen: Mask, own: int, seeds: int, rows: Integers, values: Reals) -> int:
    """Find the largest values, in descending order; return how many there are.

    ``own`` is the client itself, which is left out, as are clients that have not seen the class; with -1, none is. The
    first ``seeds`` of ``rows`` are a guess: to start from it makes almost all others fail the first comparison.
    """
    count, size = int(np.int64(0)), len(rows)
    for e in range(seeds):
        j = rows[e]
        if own < 0 or (j != own and seen[j]):
            count = insert(rows, values, count, j, np.float64(source[j]))
    for start in range(0, len(source), GLANCE):
        if count == size and start + GLANCE <= len(source) and not any_above(source, start, values[size - 1]):
            continue
        for j in range(start, min(start + GLANCE, len(source))):
            if count == size and source[j] <= values[size - 1]:
                continue
            if own >= 0 and (j == own or not seen[j]):
                continue
            listed = False
            for e in range(count):
                listed = listed or rows[e] == j
            if not listed:
                count = insert(rows, values, count, j, np.float64(source[j]))
    return count
