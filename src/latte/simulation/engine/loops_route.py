"""Who gets whose prototypes: the loops of a pull, compiled.

Imported only where numba is installed; ``plain_share`` does the same with numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, loosely, put, tightly
from .loops_lists import GLANCE, any_above, place
from .loops_share import accept, push
from .state import CLIENT, NONE, Counts, Given, Routes, Rules, Uploads
from .timeline import Window

UNTOUCHED, CHANGED, ANOTHER = 0, 1, 2  # what new prototypes of others do to a list


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
    given = _room(rules, max(2 * largest * classes, 8192))
    top = (np.empty(rules.slots + 1, np.int64), np.empty(rules.slots + 1))
    scratch = (np.empty(rules.slots, np.int64), top, np.empty(routes.seen.shape[1]))
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
            count = _pull(routes, rules, counts, turn, fresh, scratch, given)
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
    rows, top, mean = scratch
    before = routes.pulled[i]
    counts.pulls[i] += 1
    routes.pulled[i] = now
    if rules.empty == CLIENT and newest > before:
        _means(routes, i, mean)
    for y in range(len(routes.seen)):
        known = routes.seen[y, i]
        if (routes.changed[y] if known or rules.empty != CLIENT else newest) <= before:
            continue
        if known:
            verdict = ANOTHER
            if before == now - 1 and routes.length[i, y] > 0 and routes.stamp[y, i] != now:
                verdict = _update(routes, rules, (i, y, now), uploaders[starts[y] : starts[y + 1]])
            if verdict == UNTOUCHED:
                continue
            if verdict == ANOTHER:
                _scan(routes, rules, i, y)
            doubtful = _first_of(routes, rules, (i, y), rows)
        else:
            routes.length[i, y] = 0
            doubtful = _unseen(routes, rules, (i, y), mean, (rows, top))
        if accept(routes, counts, i, y, rows) or doubtful:
            given.client[count], given.label[count], given.doubtful[count] = i, y, doubtful
            put(routes.external[i, y], given.items[count])
            count += 1
    return count


@tightly
def _update(routes: Routes, rules: Rules, query: Any, uploaders: Any) -> Any:
    """Bring a client's list of the most similar of a class up to date with the new prototypes of others.

    UNTOUCHED: none of them is or gets on the list. CHANGED: the list is right again. ANOTHER: too few are left on it.
    """
    i, y, now = query
    rows, values = routes.nearest[i, y], routes.values[i, y]
    similarity, stamp, seen = routes.similarity[y, i], routes.stamp[y], routes.seen[y]
    found, bound = 0, routes.bound[i, y]
    for e in range(routes.length[i, y]):
        if stamp[rows[e]] != now:
            rows[found], values[found] = rows[e], values[e]
            found += 1
    touched = found < routes.length[i, y]
    for u in range(len(uploaders)):
        j = uploaders[u]
        if similarity[j] > bound and (rules.drop_first or (j != i and seen[j])):
            if found == len(rows):  # somebody falls off
                bound = max(bound, min(similarity[j], values[found - 1]))
            if found < len(rows) or similarity[j] > values[found - 1]:
                touched = True
                found = place(rows, values, found, j, similarity[j])
    routes.length[i, y], routes.bound[i, y] = found, bound
    if found < rules.slots + 2 and bound > -np.inf:
        return ANOTHER
    return CHANGED if touched else UNTOUCHED


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
def _scan(routes: Routes, rules: Rules, i: int, y: int) -> None:
    """Make a client's list of the most similar of a class: of all clients (B4), or of the others who have seen it."""
    rows, values, seen = routes.nearest[i, y], routes.values[i, y], routes.seen[y]
    own = -1 if rules.drop_first else i
    found = _largest(routes.similarity[y, i], seen, own, routes.length[i, y], rows, values)
    routes.length[i, y] = found
    routes.bound[i, y] = values[found - 1] if found == len(rows) < len(seen) else -np.inf


@tightly
def _first_of(routes: Routes, rules: Rules, query: Any, chosen: Any) -> Any:
    """Write the first of a list (slots,), -1 for none, into ``chosen``; return whether the choice is in doubt.

    The released code leaves out the best match, whoever that is, and counts who has not seen the class as 0 (B4).
    """
    i, y = query
    rows, values, seen = routes.nearest[i, y], routes.values[i, y], routes.seen[y]
    found, skip = routes.length[i, y], 1 if rules.drop_first else 0
    for e in range(rules.slots):
        chosen[e] = rows[e + skip] if e + skip < found and seen[rows[e + skip]] else -1
    doubtful = False
    for last in (0, rules.slots) if rules.drop_first else (rules.slots - 1, rules.slots - 1):
        if last >= 0 and last + 1 < found and values[last] - values[last + 1] < rules.near:
            doubtful = doubtful or seen[rows[last]] or seen[rows[last + 1]]
    return doubtful


@tightly
def _unseen(routes: Routes, rules: Rules, query: Any, mean: Any, scratch: Any) -> Any:
    """Do the same for a class that the client has not seen (B3)."""
    i, y = query
    chosen, (rows, values) = scratch
    seen = routes.seen[y]
    if rules.empty != CLIENT:  # joining order, without the first, or nothing
        for e in range(rules.slots):
            j = routes.ranking[e + 1]
            chosen[e] = j if rules.empty != NONE and seen[j] else -1
        return False
    seeds = 0
    for e in range(rules.slots):
        if routes.donors[i, y, e] >= 0:
            rows[seeds] = routes.donors[i, y, e]
            seeds += 1
    found = _largest(mean, seen, i, seeds, rows, values)
    for e in range(rules.slots):
        chosen[e] = rows[e] if e < found else -1
    return 0 < rules.slots < found and values[rules.slots - 1] - values[rules.slots] < rules.near


@tightly
def _largest(source: Any, seen: Any, own: int, seeds: int, rows: Any, values: Any) -> Any:
    """Find the largest values, best first; return how many there are.

    ``own`` is the client itself, who is left out as are those that have not seen the class; with -1 nobody is. The
    first ``seeds`` of ``rows`` are a guess: to start from it makes almost everyone else fail the first comparison.
    """
    found, size = 0, len(rows)
    for e in range(seeds):
        j = rows[e]
        if own < 0 or (j != own and seen[j]):
            found = place(rows, values, found, j, source[j])
    for start in range(0, len(source), GLANCE):
        if found == size and start + GLANCE <= len(source) and not any_above(source, start, values[size - 1]):
            continue
        for j in range(start, min(start + GLANCE, len(source))):
            if found == size and source[j] <= values[size - 1]:
                continue
            if own >= 0 and (j == own or not seen[j]):
                continue
            known = False
            for e in range(found):
                known = known or rows[e] == j
            if not known:
                found = place(rows, values, found, j, source[j])
    return found
