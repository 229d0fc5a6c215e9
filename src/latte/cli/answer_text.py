"""Lines of ``latte classify`` and ``latte edge status`` for people: a row per image, a summary, did it help?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.types import MemoryFill
    from ..edge.classify.classify import Answer
    from ..edge.classify.evidence import Labelled, SessionCounts, Stretch
    from ..edge.device.report import DeviceSummary

_WIDEST = 40  # characters of a class name that the lines are aligned for
_PROBABILITY = "probability"
UNLIKE = "unlike the known classes"
_BEST = 5  # classes of which the line below a prediction tells
_LEAST = 5  # images of a stretch that is shown on its own


def label_width(classnames: Sequence[str]) -> int:
    """Return the width of the column of predictions."""
    return max(len("prediction"), min(_WIDEST, max(map(len, classnames))))


def header_text(width: int) -> str:
    """Return the line above the predictions."""
    return f"{'prediction':<{width}}  {_PROBABILITY}  file"


def answer_text(answer: Answer, width: int) -> str:
    """Return the line of an image that has a label."""
    changed = "" if answer.label == answer.zero_shot else f"   (zero-shot: {answer.zero_shot})"
    if answer.adapted not in (None, answer.zero_shot):
        changed = f"   (adapted: {answer.adapted})"
    if answer.unlike:
        changed += f"   {UNLIKE}"
    share = f"{100 * (answer.probability or 0):.1f} %"
    return f"{answer.label:<{width}}  {share:>{len(_PROBABILITY)}}  {answer.file}{changed}"


def fits_text(fits: Mapping[str, float]) -> str:
    """Return the line below an answer: the classes that fit best, each by itself.

    >>> fits_text({"cat": 0.02, "dog": 0.9})
    '  by itself: dog 90.0 %, cat 2.0 %'
    """
    best = sorted(fits.items(), key=lambda item: -item[1])[:_BEST]
    return f"  by itself: {', '.join(f'{name} {100 * share:.1f} %' for name, share in best)}"


def counts_text(counts: SessionCounts) -> str:
    """Return how many images there were, and what became of them."""
    parts = [counted(counts.pictures, "image")]
    if counts.unreadable:
        parts.append(f"{counts.unreadable} unreadable")
    if counts.answered:
        parts.append(_changed(counts))
    if counts.near_copies:
        parts.append(f"{counted(counts.near_copies, 'near copy', 'near copies')} not learnt")
    return f"{', '.join(parts)}; {counts.milliseconds:.1f} ms per image"


def _changed(counts: SessionCounts) -> str:
    return (
        f"the memory changed {counted(counts.changed, 'prediction')} ({100 * counts.changed / counts.answered:.1f} %)"
    )


def memory_text(fill: MemoryFill | None, classes: int, file: str) -> str:
    """Return how full the memory is and where it was saved; empty if there is none."""
    if fill is None:
        return f"memory saved in {file}" if file else ""
    room = f"{fill.items} of {fill.slots} slots" if fill.slots is not None else counted(fill.items, "image")
    place = f"saved in {file}" if file else "not saved (--memory FILE does)"
    return f"memory: {room}, {fill.classes} of {classes} classes; {place}"


def collapse_line(collapse: tuple[str, float] | None) -> str:
    """Return the warning about a zero-shot model that has collapsed, and what to do; empty where it has not."""
    if collapse is None:
        return ""
    name, share = collapse
    return (
        f"warning: {100 * share:.0f} % of the latest zero-shot predictions are {name!r}. If most images do not show "
        "that, the encoder does not tell these classes apart, and adapting may lose accuracy: try other class names, "
        "--templates or another encoder, and compare with --zero-shot on labelled images"
    )


def counted(count: int, word: str, many: str = "") -> str:
    """Return a number with its word.

    >>> counted(1, "image"), counted(2, "near copy", "near copies")
    ('1 image', '2 near copies')
    """
    return f"{count} {word if count == 1 else many or f'{word}s'}"


def summary_lines(summary: DeviceSummary) -> Iterator[str]:
    """Yield the lines of a device."""
    status, counts = summary.status, summary.counts
    state = f"{'hung' if summary.hung else 'running'}, pid {status.pid}" if summary.alive else "not running"
    yield f"device {status.name!r}: {state}; server {status.server}"
    if summary.hung and summary.silent is not None:
        yield f"problem: it has done nothing for {_ago(summary.silent)}: it hangs, or waits for room or for a reader"
    shown = f"{counted(counts.answered, 'image')} classified, {counts.unreadable} unreadable"
    yield f"{shown}, {status.waiting} waiting, {status.dropped} dropped"
    text = "never synced"
    if status.synced:
        text = f"last sync {_ago(time.time() - status.synced)} ago, after {counted(status.sync_images, 'image')}"
    yield f"{text}; problem: {status.sync_problem}" if status.sync_problem else text
    if counts.answered:
        yield _changed(counts)
        yield from course_lines(summary.course)
    yield from labelled_lines(summary.labelled)
    if summary.collapse:
        yield collapse_line(summary.collapse)
    if summary.taught or summary.due:
        yield f"{counted(summary.taught, 'label')} learnt{f', {summary.due} not learnt' if summary.due else ''}"
    if counts.answered:
        from ..edge.classify.evidence import help_lines

        whole = sum(summary.fleet.pairs) > summary.pairs.differing
        yield from help_lines(summary.help, " of the fleet" if whole else "", summary.falls_back)
    if summary.fleet.share:
        where = " of the fleet, counted from the first sync of each device,"
        yield flag_text(summary.fleet.share, summary.fleet.threshold, summary.unlike, where)
    if status.problem:
        yield f"problem: {status.problem}"


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def course_lines(course: Sequence[Stretch]) -> Iterator[str]:
    """Yield what the memory changed and the zero-shot entropy over time, the oldest first.

    Where there are few images, one number each: shares of two or three would look like a trend.
    """
    if not course:
        return
    length = course[0].images
    parts = course if length >= _LEAST else [sum(course[1:], course[0])]
    changed = " ".join(f"{100 * (1 - part.agreement):.0f}" for part in parts)
    entropy = " ".join(f"{100 * part.entropy:.0f}" for part in parts)
    per = f" per {length} images" if len(parts) > 1 else ""
    if len(parts) > 1:
        yield f"predictions the memory changed{per}: {changed} %"
    yield f"zero-shot uncertainty{per} (0: certain, 100: no idea): {entropy} %"


def labelled_lines(labelled: Labelled) -> Iterator[str]:
    """Yield the accuracies with and without the memory, with 95 % intervals."""
    from ..edge.classify.evidence import accuracies_of

    found = accuracies_of(labelled)
    if found is None or found.gain_interval is None:
        return
    adapted, plain = _share(found.accuracy, found.accuracy_interval), _share(found.zero_shot, found.zero_shot_interval)
    yield f"{counted(found.labelled, 'labelled image')}: accuracy {adapted}, zero-shot {plain}"
    low, high = found.gain_interval
    yield f"gain {100 * found.gain:+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f})"


def flag_text(share: float, threshold: float, unlike: int, where: str = "") -> str:
    """Return how images are flagged, and how many were."""
    if not threshold:
        return f"unlike the known classes: nothing is flagged before 50 images{where} show what is usual"
    return f"unlike the known classes: {counted(unlike, 'image')} flagged, {100 * share:g} % of all were asked for"


def _share(value: float, interval: tuple[float, float]) -> str:
    return f"{100 * value:.1f} % ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
