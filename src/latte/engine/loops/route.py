"""The syncs: what clients upload, and which client receives which prototypes; compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Mask, Reals, Vectors
from ...methods.latte.donors import NOTHING_IN_COMMON
from ..cache import helper, kernel, loose_helper
from . import queues
from .arrays import (
    CLIENT,
    NEAR_EXACT,
    NONE,
    Integers1,
    Integers2,
    Integers3,
    ItemTable,
    ListChanges,
    Mask1,
    QueueVersions,
    Reals1,
    Reals2,
    RouteRules,
    RouteTable,
    UploadBatch,
    Vectors2,
    Window,
)
from .classify import compare_with_all, copy_row

UNTOUCHED, CHANGED, SHORT = 0, 1, 2  # what new prototypes of others do to a list
fill_queues = kernel(queues.fill_queues)


@kernel
def follow_queues(
    window: Window,
    pushed: Integers1,
    offsets: Integers1,
    label: Integers1,
    slot: Integers1,
    local: Integers3,
    touched: Mask1,
    out: QueueVersions,
) -> int:
    """Follow the local memories (N, C, S) through the pushes of a window; write what changed, return how many rows.

    ``pushed`` (N,) counts the samples that every client had handled at its last push. ``touched`` (C,) is False
    everywhere, before and after.
    """
    count, sync = int(np.int64(0)), 0
    for m in range(len(window.members)):
        while window.starts[sync + 1] <= m:
            sync += 1
        i = window.members[m]
        begin = count
        for k in range(offsets[i] + pushed[i], offsets[i] + window.at[m]):
            y, s = label[k], slot[k]
            if s < 0:
                continue
            local[i, y, s] = k
            if not touched[y]:
                touched[y] = True
                out.sync[count], out.client[count], out.label[count] = sync, i, y
                count += 1
        pushed[i] = window.at[m]
        for u in range(begin, count):
            y = out.label[u]
            for s in range(local.shape[2]):
                out.contents[u, s] = local[i, y, s]
            touched[y] = False
    return count


@kernel
def blend(
    items: ItemTable,
    contents: Integers2,
    weights: Reals2,
    total: Reals1,
    places: Integers1,
    vectors: Vectors2,
    seen: Mask1,
) -> None:
    """Write eq. 1 of the samples in queues (n, S), -1 for none, as LocalMemory.prototypes computes it.

    It goes to ``vectors[places]`` (n, D); ``seen`` (n,) says which there are. ``total`` (D,) is scratch space.
    """
    for r in range(len(contents)):
        for d in range(len(total)):
            total[d] = 0.0
        for s in range(contents.shape[1]):
            if contents[r, s] < 0:
                break  # slots fill in order
            _add(items, contents[r, s], weights[r, s], total)
        square = _square(total)
        seen[r] = square > 0
        shrink = 1.0 / math.sqrt(square) if square > 0 else 1.0
        vector = vectors[places[r]]
        for d in range(len(total)):
            vector[d] = total[d] * shrink


@helper
def _add(items: ItemTable, sample: int, weight: float, total: Reals) -> None:
    row, norm = items.rows[items.row_of[sample]], items.norms[sample]
    if norm == 1:
        for d in range(len(row)):
            total[d] += weight * row[d]
    else:
        for d in range(len(row)):
            total[d] += weight * np.float32(row[d] / norm)


@loose_helper
def _square(vector: Reals) -> float:
    total = 0.0
    for d in range(len(vector)):
        total += vector[d] * vector[d]
    return total


@helper
def push(routes: RouteTable, uploads: UploadBatch, first: int, last: int, now: int) -> None:
    """Store the uploads ``first`` to ``last`` of one sync and compare them with the prototypes of all clients."""
    for u in range(first, last):
        i, y = uploads.client[u], uploads.label[u]
        copy_row(uploads.prototypes[uploads.items[u] - uploads.samples], routes.vectors[y, i])
        routes.current[y, i] = uploads.items[u] if uploads.seen[u] else -1
        routes.changed[y] = routes.stamp[y, i] = now
        if routes.seen[y, i] != uploads.seen[u]:
            change = 1 if uploads.seen[u] else -1
            for j in range(routes.seen.shape[1]):
                if j != i and routes.seen[y, j]:
                    routes.common[i, j] += change
                    routes.common[j, i] += change
            routes.common[i, i] += change
            routes.seen[y, i] = uploads.seen[u]
    start = first
    for u in range(first + 1, last + 1):
        if u == last or uploads.label[u] != uploads.label[start]:
            y = uploads.label[start]
            compare_with_all(routes.vectors[y], uploads.client[start:u], routes.similarity[y])
            start = u
    for u in range(first, last):
        place, i = uploads.items[u] - uploads.samples, uploads.client[u]
        copy_row(routes.similarity[uploads.label[u], i], uploads.beside[place])
        uploads.origin[place, 0], uploads.origin[place, 1] = i, now


@helper
def insert(rows: Integers, values: Vectors | Reals, count: int, row: int, value: float | np.floating) -> int:
    """Insert into a list of ``count``, behind equal values; the last one drops out of a full list.

    Returns the new count.
    """
    at = min(count, len(rows) - 1)
    while at > 0 and values[at - 1] < value:
        values[at], rows[at] = values[at - 1], rows[at - 1]
        at -= 1
    values[at], rows[at] = value, row
    return min(count + 1, len(rows))


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
def choose_seen(routes: RouteTable, rules: RouteRules, i: int, y: int, room: RouteRoom) -> bool:
    """Write the first donors of a list (slots,), -1 for none; return whether the choice is in doubt.

    The released code leaves out the best match, whichever client that is, and counts a client that has not seen the
    class as 0 (B4).
    """
    rows, values, seen = routes.nearest[i, y], routes.values[i, y], routes.seen[y]
    count, skip = routes.length[i, y], 1 if rules.drop_first else 0
    doubtful, sorted_to = False, 0
    for last in (0, rules.slots) if rules.drop_first else (rules.slots - 1, rules.slots - 1):
        if last < 0 or last + 1 >= count or values[last] - values[last + 1] >= rules.near:
            continue
        if not doubtful and (seen[rows[last]] or seen[rows[last + 1]]):
            if sorted_to == 0:
                for e in range(count):
                    room.order[e] = rows[e]
            sorted_to = _sort_around(routes, rules.near, i, y, last, sorted_to, room)
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
def _sort_around(routes: RouteTable, near: float, i: int, y: int, last: int, first: int, room: RouteRoom) -> int:
    """Sort the list in ``room.order`` by exact similarities if it is too close around the place ``last``.

    Returns where the sorted part ends; -1 if even these do not decide, if clients that are not on the list may be as
    near, or if the part would begin before ``first``.
    """
    values, count, vectors = routes.values[i, y], routes.length[i, y], routes.vectors[y]
    begin, end = last, last + 2
    while begin > 0 and values[begin - 1] - values[last + 1] < near:
        begin -= 1
    while end < count and values[last] - values[end] < near:
        end += 1
    if begin < first or values[last] - routes.bound[i, y] < near:
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
    if comparable < min(count, rules.slots):  # a common case where clients have seen few classes:
        filled = comparable  # those with nothing in common are exactly equal, so the ranking decides
        for place in range(len(ranking)):
            j = ranking[place]
            if filled < rules.slots and j != i and seen[j] and room.mean[j] == NOTHING_IN_COMMON:
                room.chosen[filled] = j
                filled += 1
    doubtful = comparable == rules.slots and 0 < rules.slots < count
    return doubtful and room.values[rules.slots - 1] - room.values[rules.slots] < rules.near


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
    for j in range(len(source)):
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


class DonorLists(NamedTuple):
    """The best donors so far, in descending order: clients (..., K), -1 for none, and their similarities (..., K)."""

    clients: Integers
    values: Reals


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
        for c in range(len(row)):
            if row[c] > values[last]:
                insert(best, values, len(best), clients[places[c]], row[c])


@kernel
def offer_means(
    total: Reals,
    common: Vectors,
    members: Integers,
    unseen: Mask,
    clients: Integers,
    seen: Mask,
    score: Reals,
    lists: DonorLists,
) -> None:
    """Offer ``clients`` (T,) by mean similarity to the lists of the classes that members have not seen.

    ``unseen`` is (M, C), ``seen`` (T, C); ``score`` (T,) is scratch space.
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
                best, values = lists.clients[y, m], lists.values[y, m]
                last = len(values) - 1
                for j in range(len(score)):
                    if score[j] > values[last] and seen[j, y] and clients[j] != members[m]:
                        insert(best, values, last + 1, clients[j], score[j])


def accept(routes: RouteTable, i: int, y: int, donors: Integers) -> bool:
    """Give client ``i`` the prototypes of ``donors`` (E,) for class ``y``; return whether its items are others now.

    Compiled inside a pull, and plain where a choice is taken again.
    """
    current, same = routes.current[y], True
    for e in range(len(donors)):
        item = current[donors[e]] if donors[e] >= 0 else -1
        same = same and item == routes.external[i, y, e]
    if same:
        return False
    times = routes.pulls[i] - 1 - routes.since[i, y]
    for e in range(len(donors)):
        if routes.donors[i, y, e] >= 0:
            routes.downloads[i, routes.donors[i, y, e]] += times
        routes.external[i, y, e] = current[donors[e]] if donors[e] >= 0 else -1
        routes.donors[i, y, e] = donors[e]
    routes.since[i, y] = routes.pulls[i] - 1
    return True


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
    classes, starts = len(routes.seen), room.starts
    count, at, doubt = int(np.int64(0)), int(np.int64(0)), False
    while at < len(window.starts) - 1 and not doubt:
        first, last = window.starts[at], window.starts[at + 1]
        if count + (last - first) * classes > len(out.client):
            break
        now = before + at
        begin, end = uploads.starts[at], uploads.starts[at + 1]
        push(routes, uploads, begin, end, now)
        for y in range(classes + 1):
            starts[y] = 0
        for u in range(begin, end):
            starts[uploads.label[u] + 1] += 1
        newest = routes.changed[0]
        for y in range(classes):
            starts[y + 1] += starts[y]
            newest = max(newest, routes.changed[y])
        for m in range(first, last):
            old = count
            count = _pull(routes, rules, window.members[m], now, newest, uploads.client[begin:end], room, out, count)
            for r in range(old, count):
                out.at[r] = window.at[m]
                doubt = doubt or out.doubtful[r]
        at += 1
    return at, count


@helper
def _pull(
    routes: RouteTable,
    rules: RouteRules,
    i: int,
    now: int,
    newest: int,
    uploaders: Integers,
    room: RouteRoom,
    out: ListChanges,
    count: int,
) -> int:
    """Choose the donors of a client again where they may have changed; write new lists, return the new count.

    ``newest`` is the last sync at which anything changed. Those who push in this one are
    ``uploaders[room.starts[y] : room.starts[y + 1]]`` for class y.
    """
    before = routes.pulled[i]
    routes.pulls[i] += 1
    routes.pulled[i] = now
    if rules.empty == CLIENT and newest > before:
        _average(routes, i, room.mean)
    for y in range(len(routes.seen)):
        known = routes.seen[y, i]
        if (routes.changed[y] if known or rules.empty != CLIENT else newest) <= before:
            continue
        if known:
            state = SHORT
            if before == now - 1 and routes.length[i, y] > 0 and routes.stamp[y, i] != now:
                state = _update(routes, rules, i, y, now, uploaders[room.starts[y] : room.starts[y + 1]])
            if state == UNTOUCHED:
                continue
            if state == SHORT:  # make the list anew: of all clients (B4), or of the others that have seen the class
                rows, values, seen = routes.nearest[i, y], routes.values[i, y], routes.seen[y]
                own = -1 if rules.drop_first else i
                length = _find_largest(routes.similarity[y, i], seen, own, routes.length[i, y], rows, values)
                routes.length[i, y] = length
                routes.bound[i, y] = values[length - 1] if length == len(rows) < len(seen) else -np.inf
            doubtful = choose_seen(routes, rules, i, y, room)
        else:
            routes.length[i, y] = 0
            doubtful = choose_unseen(routes.seen[y], routes.ranking, routes.donors[i, y], rules, i, room)
        if _accept(routes, i, y, room.chosen) or doubtful:
            out.client[count], out.label[count], out.doubtful[count] = i, y, doubtful
            copy_row(routes.external[i, y], out.items[count])
            count += 1
    return count


@helper
def _update(routes: RouteTable, rules: RouteRules, i: int, y: int, now: int, uploaders: Integers) -> int:
    """Bring a client's list of the most similar of a class up to date with the new prototypes of others.

    UNTOUCHED: no uploader is or gets on the list. CHANGED: the list is right again. SHORT: too few are left on it.
    """
    rows, values = routes.nearest[i, y], routes.values[i, y]
    similarity, stamp, seen = routes.similarity[y, i], routes.stamp[y], routes.seen[y]
    count, bound = int(np.int64(0)), routes.bound[i, y]
    for e in range(routes.length[i, y]):
        if stamp[rows[e]] != now:
            rows[count], values[count] = rows[e], values[e]
            count += 1
    touched = count < routes.length[i, y]
    for u in range(len(uploaders)):
        j = uploaders[u]
        value = np.float64(similarity[j])
        if value > bound and (rules.drop_first or (j != i and seen[j])):
            if count == len(rows):  # the last one drops out
                bound = max(bound, min(value, values[count - 1]))
            if count < len(rows) or value > values[count - 1]:
                touched = True
                count = insert(rows, values, count, j, value)
    routes.length[i, y], routes.bound[i, y] = count, bound
    if count < rules.slots + 2 and bound > -np.inf:
        return SHORT
    return CHANGED if touched else UNTOUCHED


@loose_helper
def _average(routes: RouteTable, i: int, mean: Reals) -> None:
    """Write the mean similarity over the classes both have seen (N,), ``NOTHING_IN_COMMON`` where none is (B3)."""
    for j in range(len(mean)):
        mean[j] = 0.0
    for y in range(len(routes.seen)):
        if routes.seen[y, i]:
            row = routes.similarity[y, i]
            for j in range(len(mean)):
                mean[j] += row[j]
    for j in range(len(mean)):
        mean[j] = mean[j] / routes.common[i, j] if routes.common[i, j] else NOTHING_IN_COMMON
