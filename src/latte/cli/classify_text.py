"""What ``latte classify`` prints for people: a header, a line per picture, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.types import MemoryFill
    from ..edge.classify import Answer
    from ..edge.tally import SessionCounts

_WIDEST = 40  # characters of a class name that the lines are aligned for
_PROBABILITY = "probability"


def label_width(classnames: Sequence[str]) -> int:
    """Return the width of the column of labels."""
    return max(len("label"), min(_WIDEST, max(map(len, classnames))))


def header_text(width: int) -> str:
    """Return the line above the answers."""
    return f"{'label':<{width}}  {_PROBABILITY}  file"


def answer_text(answer: Answer, width: int) -> str:
    """Return the line of a picture that has a label."""
    changed = "" if answer.label == answer.zero_shot else f"   (zero-shot: {answer.zero_shot})"
    share = f"{100 * (answer.probability or 0):.1f} %"
    return f"{answer.label:<{width}}  {share:>{len(_PROBABILITY)}}  {answer.file}{changed}"


def counts_text(counts: SessionCounts) -> str:
    """Return how many pictures there were, and what became of them."""
    parts = [counted(counts.pictures, "picture")]
    if counts.unreadable:
        parts.append(f"{counts.unreadable} unreadable")
    if counts.answered:
        parts.append(f"the memory changed {counted(counts.changed, 'label')} ({_percent(counts)} %)")
    if counts.near_copies:
        parts.append(f"{counted(counts.near_copies, 'near copy', 'near copies')} not learnt")
    return f"{', '.join(parts)}; {counts.milliseconds:.1f} ms per picture"


def _percent(counts: SessionCounts) -> str:
    return f"{100 * counts.changed / counts.answered:.1f}"


def memory_text(fill: MemoryFill | None, classes: int, file: str) -> str:
    """Return how full the memory is and where it was saved; empty if there is none."""
    if fill is None:
        return f"memory saved in {file}" if file else ""
    room = f"{fill.items} of {fill.slots} slots" if fill.slots is not None else counted(fill.items, "picture")
    place = f"saved in {file}" if file else "not saved (--memory FILE does)"
    return f"memory: {room}, {fill.classes} of {classes} classes; {place}"


def counted(count: int, word: str, many: str = "") -> str:
    """Return a number with its word.

    >>> counted(1, "picture"), counted(2, "near copy", "near copies")
    ('1 picture', '2 near copies')
    """
    return f"{count} {word if count == 1 else many or f'{word}s'}"
