"""Who gets whose prototypes, without numba: a class at a time, all members of a sync together."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.types import Integers, Mask, Reals
from .plain_share import accept, push
from .state import CLIENT, NONE, Counts, Given, Routes, Rules, Uploads
from .timeline import Window

NOBODY = -2.0  # the mean similarity of two clients with nothing in common


def play(
    routes: Routes, rules: Rules, counts: Counts, window: Window, uploads: Uploads, progress: tuple[int, int, Integers]
) -> tuple[int, Given]:
    """Play the next sync of a window: everyone pushes, then everyone pulls; return the sync after it."""
    at, before, offsets = progress
    members = window.members[window.starts[at] : window.starts[at + 1]]
    push(routes, uploads, (int(uploads.starts[at]), int(uploads.starts[at + 1])), before + at)
    counts.pulls[members] += 1
    newest = routes.changed > routes.pulled[members].min(initial=before + at)
    routes.pulled[members] = before + at
    mean = _means(routes, members) if rules.empty == CLIENT else np.zeros((0, 0))
    handled = dict(zip(members.tolist(), window.at[window.starts[at] : window.starts[at + 1]].tolist(), strict=True))
    rows: list[tuple[int, int, bool]] = []
    for y in range(len(newest)):
        if newest[y] or (newest.any() and rules.empty == CLIENT):
            rows += _one_class(routes, rules, counts, members, y, mean)
    return at + 1, _given(routes, rows, {i: offsets[i] + n for i, n in handled.items()})


def _one_class(
    routes: Routes, rules: Rules, counts: Counts, members: Integers, y: int, mean: Reals
) -> list[tuple[int, int, bool]]:
    """Choose the donors of one class for all members; return (client, class, in doubt) of those with a new list."""
    chosen, doubtful = _choose(routes, rules, members, y, mean)
    items = np.where(chosen >= 0, routes.current[y, chosen], -1)
    different = (items != routes.external[members, y]).any(axis=1)
    for m in np.flatnonzero(different):
        accept(routes, counts, int(members[m]), y, chosen[m])
    return [(int(members[m]), y, bool(doubtful[m])) for m in np.flatnonzero(different | doubtful)]


def _choose(routes: Routes, rules: Rules, members: Integers, y: int, mean: Reals) -> tuple[Integers, Mask]:
    """Return the chosen rows (M, slots), -1 for none, and which choices are in doubt (M,)."""
    ranking, seen = routes.ranking, routes.seen[y]
    known = seen[members]
    scores = routes.similarity[y][members][:, ranking].astype(np.float64)
    if not rules.drop_first:
        if rules.empty == CLIENT:
            scores = np.where(known[:, None], scores, mean[:, ranking])
        scores[:, ~seen[ranking]] = -np.inf
        scores[ranking == members[:, None]] = -np.inf
    skip = int(rules.drop_first)
    best = np.argsort(-scores, axis=1, kind="stable")[:, : rules.slots + skip + 1]
    top = np.take_along_axis(scores, best, axis=1)
    rows = ranking[best]
    doubtful = _too_close(top, rows, seen, rules, rules.slots + skip - 1)
    if skip:
        doubtful |= _too_close(top, rows, seen, rules, 0)
    chosen, value = rows[:, skip : rules.slots + skip], top[:, skip : rules.slots + skip]
    chosen = np.where(seen[chosen] & np.isfinite(value), chosen, -1)
    if rules.empty != CLIENT:
        first = ranking[1 : rules.slots + 1]
        blank = np.where(seen[first] & (rules.empty != NONE), first, -1)
        chosen, doubtful = np.where(known[:, None], chosen, blank), doubtful & known
    return chosen, doubtful


def _too_close(top: Reals, rows: Integers, seen: Mask, rules: Rules, last: int) -> Mask:
    """Say where rounding could have exchanged places ``last`` and the next, and where that would matter."""
    if last + 1 >= top.shape[1]:
        return np.zeros(len(top), np.bool_)
    one, two = top[:, last], top[:, last + 1]
    close = np.isfinite(two) & (one - np.where(np.isfinite(two), two, 0) < rules.near)
    mask: Mask = close & (seen[rows[:, last]] | seen[rows[:, last + 1]])
    return mask


def _means(routes: Routes, members: Integers) -> Reals:
    """Return the mean similarity (M, N) over the classes both have seen (B3)."""
    total = routes.similarity[:, members].sum(axis=0, dtype=np.float64)
    common = routes.common[members]
    return np.where(common > 0, total / np.maximum(common, 1), NOBODY)


def _given(routes: Routes, rows: list[tuple[int, int, bool]], sample: dict[int, Any]) -> Given:
    """Return the rows in the order in which clients pull."""
    client = np.array([i for i, _, _ in rows], np.int64)
    label = np.array([y for _, y, _ in rows], np.int64)
    when = np.array([sample[i] for i, _, _ in rows], np.int64)
    items = routes.external[client, label]
    return Given(client, label, when, items, np.array([doubt for _, _, doubt in rows], np.bool_))
