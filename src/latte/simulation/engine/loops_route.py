"""Which client receives which prototypes: the loops of the syncs, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Reals, Vectors
from .accept import accept
from .compiled import copy_row, helper, kernel, loose_helper
from .loop_arrays import CLIENT, NONE, DownloadCounts, ListChanges, RouteRules, RouteTable, UploadBatch
from .loops_lists import GLANCE, any_above, insert
from .loops_push import find_starts, push
from .timeline import Window

UNTOUCHED, CHANGED, SHORT = 0, 1, 2  # what new prototypes of others do to a list


class RouteRoom(NamedTuple):
    """Scratch space: the chosen donors (E,), a list (E + 1,), mean similarities (N,), where classes start (C + 1,)."""

    chosen: Integers
    rows: Integers
    values: Reals
    mean: Reals
    starts: Integers


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
    counts: DownloadCounts,
    window: Window,
    uploads: UploadBatch,
    offsets: Integers,
    at: int,
    before: int,
    room: RouteRoom,
    out: ListChanges,
) -> tuple[int, int]:
    """Play the syncs of a window from sync ``at`` on: all members push, then all pull.

    ``before`` counts the syncs before this window, ``offsets`` (N + 1,) says where the samples of each client start.
    Stops after a sync with a choice in doubt, or when ``out`` is full. Returns the next sync to play and the number of
    rows in ``out``.
    """
    classes = len(routes.seen)
    count, doubt = int(np.int64(0)), False
    while at < len(window.starts) - 1 and not doubt:
        first, last = window.starts[at], window.starts[at + 1]
        if count + (last - first) * classes > len(out.client):
            break
        now = before + at
        begin, end = uploads.starts[at], uploads.starts[at + 1]
        push(routes, uploads, begin, end, now)
        find_starts(uploads.label[begin:end], room.starts)
        fresh = NewUploads(uploads.client[begin:end], room.starts)
        newest = routes.changed[0]
        for y in range(1, classes):
            newest = max(newest, routes.changed[y])
        for m in range(first, last):
            i, old = window.members[m], count
            count = _pull(routes, rules, counts, Pull(i, now, newest), fresh, room, out, count)
            for r in range(old, count):
                out.sample[r] = offsets[i] + window.at[m]
                doubt = doubt or out.doubtful[r]
        at += 1
    return at, count


@helper
def _pull(
    routes: RouteTable,
    rules: RouteRules,
    counts: DownloadCounts,
    pull: Pull,
    fresh: NewUploads,
    room: RouteRoom,
    out: ListChanges,
    count: int,
) -> int:
    """Choose the donors of a client again where they may have changed; write new lists, return the new count."""
    i, before = pull.client, routes.pulled[pull.client]
    counts.pulls[i] += 1
    routes.pulled[i] = pull.now
    if rules.empty == CLIENT and pull.newest > before:
        _average(routes, i, room.mean)
    for y in range(len(routes.seen)):
        known = routes.seen[y, i]
        if (routes.changed[y] if known or rules.empty != CLIENT else pull.newest) <= before:
            continue
        if known:
            state = SHORT
            if before == pull.now - 1 and routes.length[i, y] > 0 and routes.stamp[y, i] != pull.now:
                state = _update(routes, rules, i, y, pull.now, fresh.uploaders[fresh.starts[y] : fresh.starts[y + 1]])
            if state == UNTOUCHED:
                continue
            if state == SHORT:
                _scan(routes, rules, i, y)
            doubtful = _choose_seen(routes, rules, i, y, room.chosen)
        else:
            routes.length[i, y] = 0
            doubtful = _choose_unseen(routes, rules, i, y, room)
        if _accept(routes, counts, i, y, room.chosen) or doubtful:
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
    """Write the mean similarity over the classes both have seen (N,), -2 where there is none (B3)."""
    for j in range(len(mean)):
        mean[j] = 0.0
    for y in range(len(routes.seen)):
        if routes.seen[y, i]:
            row = routes.similarity[y, i]
            for j in range(len(mean)):
                mean[j] += row[j]
    for j in range(len(mean)):
        mean[j] = mean[j] / routes.common[i, j] if routes.common[i, j] else -2.0


@helper
def _scan(routes: RouteTable, rules: RouteRules, i: int, y: int) -> None:
    """Make a client's list of the most similar of a class: of all clients (B4), or of the others that have seen it."""
    rows, values, seen = routes.nearest[i, y], routes.values[i, y], routes.seen[y]
    own = -1 if rules.drop_first else i
    count = _find_largest(routes.similarity[y, i], seen, own, routes.length[i, y], rows, values)
    routes.length[i, y] = count
    routes.bound[i, y] = values[count - 1] if count == len(rows) < len(seen) else -np.inf


@helper
def _choose_seen(routes: RouteTable, rules: RouteRules, i: int, y: int, chosen: Integers) -> bool:
    """Write the first donors of a list (slots,), -1 for none; return whether the choice is in doubt.

    The released code leaves out the best match, whichever client that is, and counts a client that has not seen the
    class as 0 (B4).
    """
    rows, values, seen = routes.nearest[i, y], routes.values[i, y], routes.seen[y]
    count, skip = routes.length[i, y], 1 if rules.drop_first else 0
    for e in range(rules.slots):
        chosen[e] = rows[e + skip] if e + skip < count and seen[rows[e + skip]] else -1
    doubtful = False
    for last in (0, rules.slots) if rules.drop_first else (rules.slots - 1, rules.slots - 1):
        if last >= 0 and last + 1 < count and values[last] - values[last + 1] < rules.near:
            doubtful = doubtful or seen[rows[last]] or seen[rows[last + 1]]
    return doubtful


@helper
def _choose_unseen(routes: RouteTable, rules: RouteRules, i: int, y: int, room: RouteRoom) -> bool:
    """Do the same for a class that the client has not seen (B3)."""
    seen = routes.seen[y]
    if rules.empty != CLIENT:  # joining order, without the first, or nothing
        for e in range(rules.slots):
            j = routes.ranking[e + 1]
            room.chosen[e] = j if rules.empty != NONE and seen[j] else -1
        return False
    seeds = int(np.int64(0))
    for e in range(rules.slots):
        if routes.donors[i, y, e] >= 0:
            room.rows[seeds] = routes.donors[i, y, e]
            seeds += 1
    count = _find_largest(room.mean, seen, i, seeds, room.rows, room.values)
    for e in range(rules.slots):
        room.chosen[e] = room.rows[e] if e < count else -1
    return 0 < rules.slots < count and room.values[rules.slots - 1] - room.values[rules.slots] < rules.near


@helper
def _find_largest(source: Vectors | Reals, seen: Integers, own: int, seeds: int, rows: Integers, values: Reals) -> int:
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
