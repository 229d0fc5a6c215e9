"""What ``latte edge status`` and the end of ``latte classify`` print for people: did it help?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .classify_text import counted

if TYPE_CHECKING:
    from ..edge.device_summary import DeviceSummary
    from ..edge.evidence import Labelled, Stretch

_LEAST = 5  # pictures of a stretch that is shown on its own


def summary_lines(summary: DeviceSummary) -> Iterator[str]:
    """Yield the lines of a device."""
    status, counts = summary.status, summary.counts
    state = f"running, pid {status.pid}" if summary.running else "not running"
    yield f"device {status.name!r}: {state}; server {status.server}"
    shown = f"{counted(counts.answered, 'picture')} answered, {counts.unreadable} unreadable"
    yield f"{shown}, {status.waiting} waiting, {status.dropped} dropped"
    yield _sync_text(summary)
    if counts.answered:
        share = 100 * counts.changed / counts.answered
        yield f"the memory changed {counted(counts.changed, 'label')} ({share:.1f} %)"
        yield from course_lines(summary.course)
    yield from labelled_lines(summary.labelled)
    if status.problem:
        yield f"problem: {status.problem}"


def _sync_text(summary: DeviceSummary) -> str:
    status = summary.status
    text = "never synced"
    if status.synced:
        text = f"last sync {_ago(time.time() - status.synced)} ago, after {counted(status.sync_images, 'picture')}"
    return f"{text}; problem: {status.sync_problem}" if status.sync_problem else text


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def course_lines(course: Sequence[Stretch]) -> Iterator[str]:
    """Yield agreement with zero-shot and zero-shot entropy over time, the oldest first.

    Where there are few pictures, one number each: shares of two or three would look like a trend.
    """
    if not course:
        return
    length = course[0].images
    parts = course if length >= _LEAST else [sum(course[1:], course[0])]
    agreement, entropy = _shares([part.agreement for part in parts]), _shares([part.entropy for part in parts])
    per = f" per {length} pictures" if len(parts) > 1 else ""
    yield f"agreement with zero-shot{per}: {agreement} %"
    yield f"entropy of zero-shot (0 is certain): {entropy} %"


def _shares(values: Sequence[float]) -> str:
    return " ".join(f"{100 * value:.0f}" for value in values)


def labelled_lines(labelled: Labelled) -> Iterator[str]:
    """Yield the accuracies with and without the memory, with 95 % intervals."""
    from ..edge.evidence import difference_interval, share_interval

    total = labelled.labelled
    if not total:
        return
    with_memory = _accuracy(labelled.correct, total, share_interval(labelled.correct, total))
    plain = _accuracy(labelled.correct_zero_shot, total, share_interval(labelled.correct_zero_shot, total))
    yield f"{counted(total, 'labelled picture')}: accuracy {with_memory}, zero-shot {plain}"
    low, high = difference_interval(labelled.gained, labelled.lost, total)
    gain = 100 * (labelled.correct - labelled.correct_zero_shot) / total
    yield f"gain {gain:+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f})"


def _accuracy(correct: int, total: int, interval: tuple[float, float]) -> str:
    return f"{100 * correct / total:.1f} % ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
