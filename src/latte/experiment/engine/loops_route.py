"""Who gets whose prototypes: the loops of a pull, compiled.

Imported only where numba is installed; ``plain_share`` does the same with numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, loosely, put, tightly
from .loops_share import accept, push
from .state import CLIENT, NONE, Counts, Given, Routes, Rules, Uploads
from .timeline import Window

UNTOUCHED, SAME, ANOTHER = 0, 1, 2  # what new prototypes of others do to a list


@exactly
def play(routes: Routes, rules: Rules, counts: Counts, window: Window, uploads: Uploads, progress: Any) -> Any:
    """Play the syncs of a window: everyone pushes, then everyone pulls.

    ``progress`` is the first sync to play, the number of syncs before this window, and where the samples of each
    client start. Stops early after a sync with a choice in doubt, or when there is no more room. Returns the next
    sync to play and what was given.
    """
    at, before, offsets = progress
    classes, members = len(routes.seen), window.members
    largest = 0
    for sync in range(at, len(window.starts) - 1):
        largest = max(largest, window.starts[sync + 1] - window.starts[sync])
    given = _room(rules, max(2 * largest * classes, 1024))
    top, mean = (np.empty(rules.slots + 3, np.int64), np.empty(rules.slots + 3)), np.empty(routes.seen.shape[1])
    starts = np.empty(classes + 1, np.int64)
    count, doubt = 0, False
    while at < len(window.starts) - 1 and not doubt:
        first, last = window.starts[at], window.starts[at + 1]
        if count + (last - first) * classes > len(given.client):
            break
        part = (uploads.starts[at], uploads.starts[at + 1])
        push(routes, uploads, part, before + at)
        _starts(uploads.label[part[0] : part[1]], starts)
        fresh = (uploads.client[part[0] : part[1]], starts)
        newest = routes.changed.max()
        for m in range(first, last):
            begin, turn = count, (members[m], before + at, newest, count)
            count = _pull(routes, rules, counts, turn, fresh, (top, mean), given)
            for r in range(begin, count):
                given.sample[r] = offsets[members[m]] + window.at[m]
                doubt = doubt or given.doubtful[r]
        at += 1
    return at, Given(
        given.client[:count], given.label[:count], given.sample[:count], given.items[:count],
        given.doubtful[:count],
    )  # fmt: skip


@exactly
def _room(rules: Rules, rows: int) -> Any:
    return Given(
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty((rows, rules.slots), np.int64),
        np.zeros(rows, np.bool_),
    )


@tightly
def _starts(label: Any, starts: Any) -> None:
    """Write where each class starts in sorted labels (C + 1,)."""
    starts[:] = 0
    for u in range(len(label)):
        starts[label[u] + 1] += 1
    for y in range(len(starts) - 1):
        starts[y + 1] += starts[y]


@tightly
def _pull(routes: Routes, rules: Rules, counts: Counts, turn: Any, fresh: Any, scratch: Any, given: Given) -> Any:
    """Choose the donors of a client anew where that is needed; write what is different, return the new count."""
    i, now, newest, count = turn
    uploaders, starts = fresh
    top, mean = scratch
    seen, changed, similarity, donors = routes.seen, routes.changed, routes.similarity, routes.donors
    limits, seconds, dropped, stamp = routes.limit, routes.second, routes.dropped, routes.stamp
    before = routes.pulled[i]
    counts.pulls[i] += 1
    routes.pulled[i] = now
    if rules.empty == CLIENT and newest > before:
        _means(routes, i, mean)
    for y in range(len(seen)):
        known = seen[y, i]
        if (changed[y] if known or rules.empty != CLIENT else newest) <= before:
            continue
        doubtful, same = False, False
        if known and before == now - 1 and limits[i, y] > -np.inf:
            bounds = (limits[i, y], seconds[i, y], rules.near)
            verdict, limits[i, y], seconds[i, y] = _compare(
                (similarity[y, i], stamp[y], now), uploaders[starts[y] : starts[y + 1]], donors[i, y], bounds,
                (i, dropped[i, y]),
            )  # fmt: skip
            if verdict == UNTOUCHED:
                continue
            same = verdict == SAME
        if same:
            put(donors[i, y], top[0][: rules.slots])
        else:
            doubtful = _choose(routes, rules, (i, y), mean, top)
        if accept(routes, counts, i, y, top[0][: rules.slots]) or doubtful:
            given.client[count], given.label[count], given.doubtful[count] = i, y, doubtful
            put(routes.external[i, y], given.items[count])
            count += 1
    return count


@tightly
def _compare(state: Any, uploaders: Any, donors: Any, bounds: Any, others: Any) -> Any:
    """Say what new prototypes of others do to a client's list of a class, with the new limit and second best.

    UNTOUCHED: nobody on the list has a new one, and nobody gets on it. SAME: the same donors, some with a new one.
    ANOTHER: that needs another choice. ``others`` is the client itself and who was dropped as the best match.
    """
    similarity, stamp, now = state
    limit, second, near = bounds
    own, best = others
    if stamp[own] == now or (best >= 0 and stamp[best] == now):
        return ANOTHER, limit, second
    hit = False
    for e in range(len(donors)):
        hit = hit or stamp[donors[e]] == now
    newcomer = -np.inf
    for u in range(len(uploaders)):
        value = similarity[uploaders[u]]
        if value > newcomer:
            there = False
            for e in range(len(donors) if hit else 0):
                there = there or donors[e] == uploaders[u]
            newcomer = newcomer if there else value
    second = max(second, newcomer)
    if not hit:
        return (UNTOUCHED if newcomer < limit - near else ANOTHER), limit, second
    limit, largest = np.inf, -np.inf
    for e in range(len(donors)):
        limit, largest = min(limit, similarity[donors[e]]), max(largest, similarity[donors[e]])
    clear = limit - second >= near and (best < 0 or similarity[best] - largest >= near)
    return (SAME if clear else ANOTHER), limit, second


@loosely
def _means(routes: Routes, i: int, mean: Any) -> None:
    """Write the mean similarity over the classes both have seen (N,), -2 where there is none (B3)."""
    mean[:] = 0.0
    for y in range(len(routes.seen)):
        if routes.seen[y, i]:
            row = routes.similarity[y, i]
            for j in range(len(mean)):
                mean[j] += row[j]
    for j in range(len(mean)):
        mean[j] = mean[j] / routes.common[i, j] if routes.common[i, j] else -2.0


@tightly
def _choose(routes: Routes, rules: Rules, query: Any, mean: Any, top: Any) -> Any:
    """Write the chosen rows (slots,), -1 for none, into ``top``; return whether the choice is in doubt."""
    i, y = query
    rows, scores = top
    seen = routes.seen[y]
    routes.limit[i, y] = -np.inf
    if not seen[i]:
        if rules.empty == CLIENT:
            return _of_the_most_similar(mean, seen, (i, routes.donors[i, y]), rules, top)
        for e in range(rules.slots):  # joining order, without the first, or nothing
            j = routes.ranking[e + 1]
            rows[e] = j if rules.empty != NONE and seen[j] else -1
        return False
    if rules.drop_first:
        return _without_best(routes, rules, i, y, top)
    found = _largest(routes.similarity[y, i], seen, (i, routes.donors[i, y]), rules.slots + 1, top)
    for e in range(found, rules.slots):
        rows[e] = -1
    if found > rules.slots:
        routes.limit[i, y], routes.second[i, y] = scores[rules.slots - 1], scores[rules.slots]
        return scores[rules.slots - 1] - scores[rules.slots] < rules.near
    return False


@tightly
def _without_best(routes: Routes, rules: Rules, i: int, y: int, top: Any) -> Any:
    """Choose as the released code does: all but the best match, whoever that is (B4)."""
    rows, scores = top
    seen = routes.seen[y]
    found = _largest(routes.similarity[y, i], seen, (-1, routes.donors[i, y]), rules.slots + 2, top)
    doubtful = False
    for last in (0, rules.slots):
        if last + 1 < found and scores[last] - scores[last + 1] < rules.near:
            doubtful = doubtful or seen[rows[last]] or seen[rows[last + 1]]
    routes.limit[i, y], routes.dropped[i, y] = scores[rules.slots], rows[0]
    routes.second[i, y] = scores[rules.slots + 1] if found > rules.slots + 1 else -np.inf
    for e in range(rules.slots):
        rows[e] = rows[e + 1]
        if not seen[rows[e]]:
            rows[e] = -1
            routes.limit[i, y] = -np.inf
    return doubtful


@tightly
def _of_the_most_similar(mean: Any, seen: Any, who: Any, rules: Rules, top: Any) -> Any:
    """Take the most similar clients who have seen the class; in doubt where the next is as good."""
    rows, scores = top
    found = _largest(mean, seen, who, rules.slots + 1, top)
    for e in range(found, rules.slots):
        rows[e] = -1
    return found > rules.slots and scores[rules.slots - 1] - scores[rules.slots] < rules.near


@tightly
def _largest(values: Any, seen: Any, who: Any, size: int, top: Any) -> Any:
    """Find the largest values, best first; return how many there are.

    ``who`` is the client itself, who is left out as are those that have not seen the class (with -1 nobody is),
    and the list of before: to start from it makes almost everyone else fail the first comparison.
    """
    own, before = who
    rows, scores = top
    found = 0
    for e in range(len(before)):
        if before[e] >= 0 and (own < 0 or seen[before[e]]):
            found = _place(rows, scores, found, size, before[e], values[before[e]])
    started = found
    for j in range(len(values)):
        if found == size and values[j] <= scores[size - 1]:
            continue
        if own >= 0 and (j == own or not seen[j]):
            continue
        known = False
        for e in range(len(before) if started else 0):
            known = known or before[e] == j
        if not known:
            found = _place(rows, scores, found, size, j, values[j])
    return found


@tightly
def _place(rows: Any, scores: Any, found: int, size: int, row: int, score: float) -> Any:
    at = min(found, size - 1)
    while at > 0 and scores[at - 1] < score:
        scores[at], rows[at] = scores[at - 1], rows[at - 1]
        at -= 1
    scores[at], rows[at] = score, row
    return min(found + 1, size)
