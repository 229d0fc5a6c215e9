"""Which client receives which prototypes: the loops of the syncs, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.near_ties import NOTHING_IN_COMMON
from ...core.types import Integers, Reals
from .accept import accept
from .compiled import copy_row, helper, kernel, loose_helper
from .loop_arrays import (
    CLIENT,
    LatestPrototypes,
    ListChanges,
    NearestLists,
    RouteRules,
    RouteTable,
    UploadBatch,
)
from .loops_donors import RouteRoom, choose_seen, choose_unseen, scan_nearest
from .loops_lists import insert
from .loops_push import find_starts, push
from .timeline import Window

UNTOUCHED, CHANGED, SHORT = 0, 1, 2  # what new prototypes of others do to a list


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
                scan_nearest(latest, nearest, rules, i, y)
            doubtful = choose_seen(latest, nearest, rules, i, y, room)
        else:
            nearest.length[i, y] = 0
            doubtful = choose_unseen(latest.seen[y], latest.ranking, received.donors[i, y], rules, i, room)
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
