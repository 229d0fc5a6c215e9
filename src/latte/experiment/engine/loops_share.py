"""The loops of the queues, the uploads and the routing, compiled.

Imported only where numba is installed; ``plain_share`` does the same with numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, loosely
from .state import CLIENT, NONE, Counts, Given, Items, Routes, Rules

COMPILED = True

# --- the local memories -----------------------------------------------------------------------------------


@exactly
def fill_queues(sequence: Any, starts: Any, pseudo: Any, entropy: Any, shape: Any) -> Any:
    """Return the slot (n,) that each sample goes into, -1 for none, as LocalMemory.put does.

    ``sequence`` orders the samples; a new set of queues starts at each of ``starts``.
    """
    classes, slots = shape
    slot = np.full(len(sequence), -1, np.int64)
    held = np.empty((classes, slots))
    count = np.zeros(classes, np.int64)
    for part in range(len(starts) - 1):
        count[:] = 0
        for place in range(starts[part], starts[part + 1]):
            k = sequence[place]
            y = pseudo[k]
            if count[y] < slots:
                s = count[y]
                count[y] += 1
            else:
                s = _last_largest(held[y])
                if entropy[k] >= held[y, s]:
                    continue
            held[y, s] = entropy[k]
            slot[k] = s
    return slot


@exactly
def _last_largest(values: Any) -> Any:
    best = 0
    for s in range(1, len(values)):
        if values[s] >= values[best]:
            best = s
    return best


# --- uploads ----------------------------------------------------------------------------------------------


@exactly
def upload(sync: Any, pushed: Any, offsets: Any, items: Items, local: Any) -> Any:
    """Bring the members' local memories (N, C, S) up to date; return (client, class, contents) of what changed."""
    members, handled = sync
    room = 0
    for m in range(len(members)):
        room += handled[m] - pushed[members[m]]
    room = min(room, len(members) * local.shape[1])
    client, label = np.empty(room, np.int64), np.empty(room, np.int64)
    contents = np.empty((room, local.shape[2]), np.int64)
    touched = np.zeros(local.shape[1], np.bool_)
    count = 0
    for m in range(len(members)):
        i = members[m]
        touched[:] = False
        for k in range(offsets[i] + pushed[i], offsets[i] + handled[m]):
            if items.slot[k] >= 0:
                local[i, items.pseudo[k], items.slot[k]] = k
                touched[items.pseudo[k]] = True
        pushed[i] = handled[m]
        for y in range(len(touched)):
            if touched[y]:
                client[count], label[count] = i, y
                contents[count] = local[i, y]
                count += 1
    return client[:count], label[:count], contents[:count]


# --- routing ----------------------------------------------------------------------------------------------


@loosely
def compare(vectors: Any, rows: Any, similarity: Any) -> None:
    """Write the products of some ``rows`` of ``vectors`` (N, D) with all of them, into rows and columns."""
    for r in range(len(rows)):
        own = vectors[rows[r]]
        for j in range(len(vectors)):
            total = np.float32(0.0)
            for d in range(len(own)):
                total += own[d] * vectors[j, d]
            similarity[rows[r], j] = total
            similarity[j, rows[r]] = total


@exactly
def pull(routes: Routes, rules: Rules, counts: Counts, members: Any, now: int) -> Any:
    """Choose the donors of every member anew where that is needed; return what is different now."""
    classes, n = routes.seen.shape
    room = len(members) * classes
    given = Given(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty((room, rules.slots), np.int64),
        np.zeros(room, np.bool_),
    )
    rows, scores, mean = np.empty(rules.slots + 3, np.int64), np.empty(rules.slots + 3), np.empty(n)
    newest = routes.changed.max()
    count = 0
    for m in range(len(members)):
        i = members[m]
        before = routes.pulled[i]
        counts.pulls[i] += 1
        routes.pulled[i] = now
        if rules.empty == CLIENT and newest > before:
            _mean_similarity(routes, i, mean)
        for y in range(classes):
            by_client = rules.empty == CLIENT and not routes.seen[y, i]
            if (newest if by_client else routes.changed[y]) <= before:
                continue
            doubtful = _choose(routes, rules, (i, y), mean, (rows, scores))
            if accept(routes, counts, i, y, rows[: rules.slots]) or doubtful:
                given.client[count], given.label[count] = i, y
                given.items[count] = routes.external[i, y]
                given.doubtful[count] = doubtful
                count += 1
    return Given(given.client[:count], given.label[:count], given.items[:count], given.doubtful[:count])


@loosely
def _mean_similarity(routes: Routes, i: int, mean: Any) -> None:
    """Write the mean similarity over the classes both have seen (N,), -2 where there is none (B3)."""
    complete = True
    for y in range(len(routes.seen)):
        complete = complete and routes.seen[y, i]
    if complete:
        return
    mean[:] = 0.0
    for y in range(len(routes.seen)):
        if routes.seen[y, i]:
            row = routes.similarity[y, i]
            for j in range(len(mean)):
                mean[j] += row[j]
    for j in range(len(mean)):
        mean[j] = mean[j] / routes.common[i, j] if routes.common[i, j] else -2.0


@exactly
def _choose(routes: Routes, rules: Rules, query: Any, mean: Any, top: Any) -> Any:
    """Write the chosen rows (slots,), -1 for none, into ``top``; return whether the choice is in doubt."""
    i, y = query
    rows, scores = top
    seen = routes.seen[y]
    if not seen[i] and rules.empty != CLIENT:
        for e in range(rules.slots):
            j = routes.ranking[e + 1]
            rows[e] = j if rules.empty != NONE and seen[j] else -1
        return False
    if rules.drop_first:
        found = _largest(routes.similarity[y, i], seen, routes.ranking, -2, (rules.slots + 2, rows, scores))
        doubtful = _too_close(scores, 0, found, rules.near, seen, rows)
        doubtful = _too_close(scores, rules.slots, found, rules.near, seen, rows) or doubtful
        for e in range(rules.slots):
            rows[e] = rows[e + 1] if seen[rows[e + 1]] else -1
        return doubtful
    if seen[i]:
        found = _largest(routes.similarity[y, i], seen, routes.ranking, i, (rules.slots + 1, rows, scores))
    else:
        found = _largest(mean, seen, routes.ranking, i, (rules.slots + 1, rows, scores))
    doubtful = _too_close(scores, rules.slots - 1, found, rules.near, seen, rows)
    for e in range(found, rules.slots):
        rows[e] = -1
    return doubtful


@exactly
def _largest(values: Any, seen: Any, ranking: Any, own: int, top: Any) -> Any:
    """Find the largest values, best first, the earlier in the ranking among equals; return how many there are.

    ``own`` is left out, and so is who has not seen the class; with -2 nobody is.
    """
    size, rows, scores = top
    found = 0
    for place in range(len(ranking)):
        j = ranking[place]
        if own != -2 and (j == own or not seen[j]):
            continue
        value = values[j]
        if found == size and value <= scores[size - 1]:
            continue
        at = min(found, size - 1)
        while at > 0 and scores[at - 1] < value:
            scores[at], rows[at] = scores[at - 1], rows[at - 1]
            at -= 1
        scores[at], rows[at] = value, j
        found = min(found + 1, size)
    return found


@exactly
def _too_close(scores: Any, last: int, found: int, near: float, seen: Any, rows: Any) -> Any:
    """Say whether rounding could have exchanged places ``last`` and ``last + 1``, and whether that would matter."""
    if last + 1 >= found or scores[last] - scores[last + 1] >= near:
        return False
    return seen[rows[last]] or seen[rows[last + 1]]


@exactly
def accept(routes: Routes, counts: Counts, i: int, y: int, rows: Any) -> Any:
    """Replace a client's list of a class; return whether it is another one than before."""
    same = True
    for e in range(len(rows)):
        item = routes.current[y, rows[e]] if rows[e] >= 0 else -1
        same = same and item == routes.external[i, y, e]
    if same:
        return False
    _count(counts, routes, i, y)
    for e in range(len(rows)):
        routes.external[i, y, e] = routes.current[y, rows[e]] if rows[e] >= 0 else -1
        routes.donors[i, y, e] = rows[e]
    return True


@exactly
def _count(counts: Counts, routes: Routes, i: int, y: int) -> None:
    """Add what a list gave until the pull before this one."""
    times = counts.pulls[i] - 1 - counts.since[i, y]
    for e in range(routes.donors.shape[2]):
        if routes.donors[i, y, e] >= 0:
            counts.downloads[i, routes.donors[i, y, e]] += times
    counts.since[i, y] = counts.pulls[i] - 1
