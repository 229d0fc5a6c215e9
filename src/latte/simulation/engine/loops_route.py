"""Which client receives which prototypes: the loops of the syncs, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.near_ties import NOTHING_IN_COMMON
from ...core.types import Integers, Mask, Reals, Vectors
from .accept import accept
from .array_types import Integers1, Reals1
from .compiled import copy_row, helper, kernel, loose_helper
from .loop_arrays import (
    CLIENT,
    NONE,
    LatestPrototypes,
    ListChanges,
    NearestLists,
    RouteRules,
    RouteTable,
    UploadBatch,
)
from .loops_lists import GLANCE, any_above, insert
from .loops_push import find_starts, push
from .timeline import Window
from .tolerances import NEAR_EXACT

UNTOUCHED, CHANGED, SHORT = 0, 1, 2  # what new prototypes of others do to a list


class RouteRoom(NamedTuple):
    """Scratch space of a pull."""

    chosen: Integers1  # (E,) the donors
    rows: Integers1  # (E + 1,) a list by mean similarity
    values: Reals1  # (E + 1,)
    order: Integers1  # (M,) a list of the most similar of a class in its true order
    exact: Reals1  # (M,) similarities in double precision
    mean: Reals1  # (N,) mean similarities
    starts: Integers1  # (C + 1,) where classes start


class Pull(NamedTuple):
    """One client pulls: which, in which sync, and the last sync at which anything changed."""

    client: int
    now: int
    newest: int


class NewUploads(NamedTuple):
    """The clients that pushed in a sync, by class: ``uploaders[starts[y] : starts[y + 1]]``."""

    uploaders: Integers
    starts: Integers


_accept = helper(accept)


@kernel
def play(
    routes: RouteTable,
    rules: RouteRules,
    window: Window,
    uploads: UploadBatch,
    before: int,
    room: RouteRoom,
    out: ListChanges,
) -> tuple[int, int]:
    """Play the syncs of a window: all members push, then all pull. ``before`` counts the syncs before this window.

    Stops after a sync with a choice in doubt, or when ``out`` is full. Returns how many syncs were played and the
    number of rows in ``out``.
    """
    latest, classes = routes.latest, len(routes.latest.seen)
    count, at, doubt = int(np.int64(0)), int(np.int64(0)), False
    while at < len(window.starts) - 1 and not doubt:
        first, last = window.starts[at], window.starts[at + 1]
        if count + (last - first) * classes > len(out.client):
            break
        now = before + at
        begin, end = uploads.starts[at], uploads.starts[at + 1]
        push(latest, uploads, begin, end, now)
        find_starts(uploads.label[begin:end], room.starts)
        fresh = NewUploads(uploads.client[begin:end], room.starts)
        newest = latest.changed[0]
        for y in range(1, classes):
            newest = max(newest, latest.changed[y])
        for m in range(first, last):
            old = count
            count = _pull(routes, rules, Pull(window.members[m], now, newest), fresh, room, out, count)
            for r in range(old, count):
                out.at[r] = window.at[m]
                doubt = doubt or out.doubtful[r]
        at += 1
    return at, count


@helper
def _pull(
    routes: RouteTable,
    rules: RouteRules,
    pull: Pull,
    fresh: NewUploads,
    room: RouteRoom,
    out: ListChanges,
    count: int,
) -> int:
    """Choose the donors of a client again where they may have changed; write new lists, return the new count."""
    latest, nearest, received = routes
    i, before = pull.client, received.pulled[pull.client]
    received.pulls[i] += 1
    received.pulled[i] = pull.now
    if rules.empty == CLIENT and pull.newest > before:
        _average(latest, i, room.mean)
    for y in range(len(latest.seen)):
        known = latest.seen[y, i]
        if (latest.changed[y] if known or rules.empty != CLIENT else pull.newest) <= before:
            continue
        if known:
            state = SHORT
            if before == pull.now - 1 and nearest.length[i, y] > 0 and latest.stamp[y, i] != pull.now:
                uploaders = fresh.uploaders[fresh.starts[y] : fresh.starts[y + 1]]
                state = _update(latest, nearest, rules, i, y, pull.now, uploaders)
            if state == UNTOUCHED:
                continue
            if state == SHORT:
                _scan(latest, nearest, rules, i, y)
            doubtful = _choose_seen(latest, nearest, rules, i, y, room)
        else:
            nearest.length[i, y] = 0
            doubtful = _choose_unseen(latest.seen[y], latest.ranking, received.donors[i, y], rules, i, room)
        if _accept(received, latest.current[y], i, y, room.chosen) or doubtful:
            out.client[count], out.label[count], out.doubtful[count] = i, y, doubtful
            copy_row(received.external[i, y], out.items[count])
            count += 1
    return count


@helper
def _update(
    latest: LatestPrototypes, nearest: NearestLists, rules: RouteRules, i: int, y: int, now: int, uploaders: Integers
) -> int:
    """Bring a client's list of the most similar of a class up to date with the new prototypes of others.

    UNTOUCHED: no uploader is or gets on the list. CHANGED: the list is right again. SHORT: too few are left on it.
    """
    rows, values = nearest.clients[i, y], nearest.values[i, y]
    similarity, stamp, seen = latest.similarity[y, i], latest.stamp[y], latest.seen[y]
    count, bound = int(np.int64(0)), nearest.bound[i, y]
    for e in range(nearest.length[i, y]):
        if stamp[rows[e]] != now:
            rows[count], values[count] = rows[e], values[e]
            count += 1
    touched = count < nearest.length[i, y]
    for u in range(len(uploaders)):
        j = uploaders[u]
        value = np.float64(similarity[j])
        if value > bound and (rules.drop_first or (j != i and seen[j])):
            if count == len(rows):  # the last one drops out
                bound = max(bound, min(value, values[count - 1]))
            if count < len(rows) or value > values[count - 1]:
                touched = True
                count = insert(rows, values, count, j, value)
    nearest.length[i, y], nearest.bound[i, y] = count, bound
    if count < rules.slots + 2 and bound > -np.inf:
        return SHORT
    return CHANGED if touched else UNTOUCHED


@loose_helper
def _average(latest: LatestPrototypes, i: int, mean: Reals) -> None:
    """Write the mean similarity over the classes both have seen (N,), ``NOTHING_IN_COMMON`` where none is (B3)."""
    for j in range(len(mean)):
        mean[j] = 0.0
    for y in range(len(latest.seen)):
        if latest.seen[y, i]:
            row = latest.similarity[y, i]
            for j in range(len(mean)):
                mean[j] += row[j]
    for j in range(len(mean)):
        mean[j] = mean[j] / latest.common[i, j] if latest.common[i, j] else NOTHING_IN_COMMON


@helper
def _scan(latest: LatestPrototypes, nearest: NearestLists, rules: RouteRules, i: int, y: int) -> None:
    """Make a client's list of the most similar of a class: of all clients (B4), or of the others that have seen it."""
    rows, values, seen = nearest.clients[i, y], nearest.values[i, y], latest.seen[y]
    own = -1 if rules.drop_first else i
    count = _find_largest(latest.similarity[y, i], seen, own, nearest.length[i, y], rows, values)
    nearest.length[i, y] = count
    nearest.bound[i, y] = values[count - 1] if count == len(rows) < len(seen) else -np.inf


@helper
def _choose_seen(
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
    """Sort the list in ``room.order`` by exact similarities where it is too close around the place ``last``.

    Returns where the sorted part ends; -1 where even these do not decide, where clients that are not on the list may be
    as near, or where the part would begin before ``first``. ``vectors`` (N, D) are those of the class.
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
def dot_exactly(one: Vectors, other: Vectors) -> float:
    """Return a product summed in double precision, in which products of float32 numbers are exact."""
    total = 0.0
    for d in range(len(one)):
        total += np.float64(one[d]) * np.float64(other[d])
    return total


@helper
def _choose_unseen(seen: Mask, ranking: Integers, donors: Integers, rules: RouteRules, i: int, room: RouteRoom) -> bool:
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

    ``own`` is the client itself, which is left out, as are those that have not seen the class; with -1 none is. The
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
