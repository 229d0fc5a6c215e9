"""Evidence of whether adapting helped: what a device can say about its answers without labels, and with a few.

Without labels: how often an answer differs from the zero-shot one, and how certain the zero-shot predictions are, over
time. With labels: the accuracy of both with an interval, and whether it is proven that adapting helps or hurts.
"""

from __future__ import annotations

import csv
import math
import operator
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from ...core.evidence import Pairs, Verdict
from ...errors import refuse
from ...files.documents import read_lines
from .classify import Answer, absolute_name

MOST_STRETCHES = 8  # of a course: enough to see a trend, few enough for one line
RECENT_ANSWERS = 100  # answers over which the latest agreement and entropy are averaged
LEAST_RECENT = 30  # of them, before anything is said about a collapse
_NORMAL = 1.959964  # standard deviations of a 95 % interval


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some answers in a row: how many differ from zero-shot's, and the sum of their zero-shot entropies."""

    images: int = 0
    differing: int = 0
    entropies: float = 0.0

    def __add__(self, other: Stretch) -> Stretch:
        return Stretch(self.images + other.images, self.differing + other.differing, self.entropies + other.entropies)

    @property
    def agreement(self) -> float:
        """The share of answers that are zero-shot's, too."""
        return 1.0 - self.differing / self.images if self.images else 1.0

    @property
    def entropy(self) -> float:
        """The mean zero-shot entropy, in [0, 1]."""
        return self.entropies / self.images if self.images else 0.0


def stretch_of(answer: Answer) -> Stretch:
    """Return the stretch of one answer; an unreadable picture is none."""
    if answer.problem is not None:
        return Stretch()
    certainty = 1.0 if answer.certainty is None else answer.certainty
    return Stretch(1, int(answer.opinion != answer.zero_shot), 1.0 - certainty)


class Course:
    """Agreement and entropy over time, in a few stretches of equal length, however many answers there are.

    >>> course = Course()
    >>> for number in range(20):
    ...     course.add(Stretch(1, int(number < 4), 0.5))
    >>> [(part.images, part.agreement) for part in course.stretches()]
    [(4, 0.0), (4, 1.0), (4, 1.0), (4, 1.0), (4, 1.0)]
    """

    def __init__(self) -> None:
        self._length, self._parts = 1, [Stretch()]

    def add(self, answer: Stretch) -> None:
        """Add the stretch of one answer."""
        if self._parts[-1].images == self._length:
            if len(self._parts) == MOST_STRETCHES:  # neighbours are joined
                pairs = zip(self._parts[::2], self._parts[1::2], strict=True)
                self._parts, self._length = [first + second for first, second in pairs], 2 * self._length
            self._parts.append(Stretch())
        self._parts[-1] += answer

    def stretches(self) -> list[Stretch]:
        """Return the stretches in order; a last stretch of less than half the length is joined to the one before."""
        *parts, last = self._parts
        if parts and 2 * last.images < self._length:
            return [*parts[:-1], parts[-1] + last]
        return [part for part in self._parts if part.images]


def collapse_limit(classes: int) -> float:
    """Return the share of one class among zero-shot predictions above which the zero-shot model counts as collapsed.

    It is the mean of an even share and 1.

    >>> collapse_limit(10)
    0.55
    """
    return 0.5 + 0.5 / classes


def collapse_of(zero_shot: Iterable[str | None], classes: int) -> tuple[str, float] | None:
    """Return the class that most of the latest zero-shot predictions are, and its share; None without a collapse."""
    counts = Counter(zero_shot)
    if counts.total() < LEAST_RECENT:
        return None
    name, most = counts.most_common(1)[0]
    share = most / counts.total()
    return (str(name), share) if share > collapse_limit(classes) else None


@dataclass(frozen=True, slots=True)
class Labelled:
    """Of the pictures that somebody labelled: how many answers are correct, with the memory and without it.

    ``gained`` are correct only with the memory, ``lost`` only without it.
    """

    labelled: int = 0
    correct: int = 0
    correct_zero_shot: int = 0
    gained: int = 0
    lost: int = 0

    def __add__(self, other: Labelled) -> Labelled:
        return Labelled(*map(operator.add, astuple(self), astuple(other)))


def read_labels(path: Path, names: Sequence[str] = ()) -> dict[str, str]:
    """Return the classes of files by absolute name; a relative name starts at the folder of the CSV file.

    A first line ``file,label`` is a header. Columns after the second do not matter. With ``names``, a class that is not
    among them is refused, as are two classes for one file.
    """
    labels: dict[str, str] = {}
    for number, row in enumerate(csv.reader(read_lines(path, "labels")), 1):
        if not row or (number == 1 and [cell.strip().lower() for cell in row[:2]] == ["file", "label"]):
            continue
        if len(row) < 2 or not row[0].strip() or not row[1].strip():
            raise refuse(f"{path}, line {number}", ",".join(row), "FILE,CLASS")
        name, label = absolute_name(path.absolute().parent / row[0].strip()), row[1].strip()
        if labels.setdefault(name, label) != label:
            raise refuse(f"{path}, line {number}", f"{label!r} after {labels[name]!r} for the same file", "one class")
        if names and label not in names:
            raise refuse(f"{path}, line {number}", repr(label), "one of " + ", ".join(map(repr, names)))
    if not labels:
        raise refuse(str(path), "no labels", "lines FILE,CLASS")
    return labels


def pair_of(answer: Answer, label: str) -> Pairs:
    """Return what the label of one picture says of adapting; ``""`` is none of the classes.

    >>> pair_of(Answer("a.jpg", "cat", zero_shot="dog"), "cat"), pair_of(Answer("a.jpg", "cat", zero_shot="cat"), "dog")
    (Pairs(helped=1, harmed=0, neither=0), Pairs(helped=0, harmed=0, neither=0))
    """
    if answer.problem is not None or answer.opinion == answer.zero_shot:
        return Pairs()
    helped, harmed = answer.opinion == label, answer.zero_shot == label
    return Pairs(int(helped), int(harmed), int(not helped and not harmed))


@dataclass(frozen=True, slots=True)
class Help:
    """Whether adapting helps, as far as ``pairs`` of labelled images on which the two predictions differ can say.

    ``evidence`` is to 1, for the side that has more of it; ``more`` is how many more such labels would prove something,
    None for more than 1,000. ``gain`` is an estimate: the share of images on which the predictions differ, times how
    much more often the adapted one is right there. It is None where that is not known.
    """

    verdict: Verdict
    helped: int
    harmed: int
    neither: int
    evidence: float
    more: int | None
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None


def help_of(pairs: Pairs, differing: float | None) -> Help:
    """Return what ``pairs`` say; the two predictions differ on the share ``differing`` of all images, if that is known.

    >>> found = help_of(Pairs(19, 5, 33), 0.2)
    >>> found.verdict, round(found.evidence, 1), round(found.gain, 3)
    ('helps', 31.5, 0.049)
    """
    counts = pairs.helped, pairs.harmed, pairs.neither
    best, one_right = max(pairs.e_help, pairs.e_harm), pairs.helped + pairs.harmed
    if not one_right or differing is None:
        return Help(pairs.verdict, *counts, best, pairs.more())
    scale = differing * one_right / pairs.differing  # the share of images on which one of the two is right
    low, high = share_interval(pairs.helped, one_right)
    gain, interval = scale * (2 * pairs.helped / one_right - 1), (scale * (2 * low - 1), scale * (2 * high - 1))
    return Help(pairs.verdict, *counts, best, pairs.more(), gain, interval)


def help_lines(found: Help, where: str = "", falls_back: bool = True) -> Iterator[str]:
    """Yield for people whether adapting helps; ``where`` says whose labels these are.

    >>> print(*help_lines(help_of(Pairs(3, 1, 1), 0.2)), sep=chr(10))
    on 5 labelled images the two predictions differ: adapted right 3, zero-shot right 1, neither 1
    adapting: not known yet: about 38 more labels of images on which the predictions differ
    """
    differing = found.helped + found.harmed + found.neither
    if differing:
        each = f"adapted right {found.helped}, zero-shot right {found.harmed}, neither {found.neither}"
        yield f"on {differing:,} labelled image{'s' * (differing != 1)}{where} the two predictions differ: {each}"
    proof = f"evidence {found.evidence:,.0f} to 1"
    if found.verdict == "unknown":
        more = "more than 1,000" if found.more is None else f"about {found.more:,}"
        yield f"adapting: not known yet: {more} more labels of images on which the predictions differ"
        return
    outcome = "proven to help" if found.verdict == "helps" else "hurts"
    way = "" if found.verdict == "helps" else ": predictions fall back to zero-shot" if falls_back else ", no fallback"
    yield f"adapting: {outcome}{way} ({proof})"
    if found.gain is not None and found.gain_interval is not None:
        low, high = found.gain_interval
        yield f"estimated gain {100 * found.gain:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"


def compare_answers(answers: Iterable[Answer], labels: Mapping[str, str]) -> Labelled:
    """Return how answers compare with the true ``labels`` of their files; an answer without a label does not count.

    Where adapting hurts and zero-shot answers, this compares what the method would have said.

    >>> compare_answers([Answer("a.jpg", "cat", zero_shot="dog")], {"a.jpg": "cat"})
    Labelled(labelled=1, correct=1, correct_zero_shot=0, gained=1, lost=0)
    """
    compared = Labelled()
    for answer in answers:
        if answer.problem is None and answer.file in labels:
            right, plain = answer.opinion == labels[answer.file], answer.zero_shot == labels[answer.file]
            compared += Labelled(1, right, plain, right and not plain, plain and not right)
    return compared


def share_interval(successes: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson's formula, which is good for few samples, too.

    >>> low, high = share_interval(8, 10)
    >>> round(low, 2), round(high, 2)
    (0.49, 0.94)
    """
    if not total:
        return 0.0, 1.0
    p, z = successes / total, _NORMAL
    centre = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def difference_interval(gained: int, lost: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two accuracies on the same pictures.

    Only pictures on which the two disagree count. Half a picture is added to each side (Agresti and Min), so that the
    interval does not vanish if they never disagree.

    >>> low, high = difference_interval(9, 1, 50)
    >>> round(low, 2), round(high, 2)
    (0.04, 0.27)
    """
    if not total:
        return -1.0, 1.0
    b, c, n = gained + 0.5, lost + 0.5, total + 2.0
    difference = (b - c) / n
    half = _NORMAL * math.sqrt(max(b + c - (b - c) ** 2 / n, 0.0)) / n
    return max(-1.0, difference - half), min(1.0, difference + half)


@dataclass(frozen=True, slots=True)
class Accuracies:
    """The accuracies on ``labelled`` pictures, with the memory and without it, and the gain, with 95 % intervals.

    ``gain_interval`` is None where nobody knows on how many pictures the two disagree.
    """

    labelled: int
    accuracy: float
    accuracy_interval: tuple[float, float]
    zero_shot: float
    zero_shot_interval: tuple[float, float]
    gain: float
    gain_interval: tuple[float, float] | None


def accuracies_of(labelled: Labelled, paired: bool = True) -> Accuracies | None:
    """Return the accuracies; None without labels. Unless ``paired``, ``gained`` and ``lost`` are not known.

    >>> helped = accuracies_of(Labelled(50, 40, 32, gained=9, lost=1))
    >>> round(helped.gain, 2), [round(end, 2) for end in helped.gain_interval]
    (0.16, [0.04, 0.27])
    """
    total = labelled.labelled
    if not total:
        return None
    return Accuracies(
        total,
        labelled.correct / total,
        share_interval(labelled.correct, total),
        labelled.correct_zero_shot / total,
        share_interval(labelled.correct_zero_shot, total),
        (labelled.correct - labelled.correct_zero_shot) / total,
        difference_interval(labelled.gained, labelled.lost, total) if paired else None,
    )


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Pictures that were answered or ``unreadable``, and the seconds that all of them took.

    ``changed`` are answers that differ from the zero-shot label, ``near_copies`` pictures that were answered but not
    learnt from, because the memory has almost the same already.
    """

    pictures: int = 0
    unreadable: int = 0
    changed: int = 0
    near_copies: int = 0
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        """The pictures that have a label."""
        return self.pictures - self.unreadable

    @property
    def milliseconds(self) -> float:
        """The mean time that a picture took, reading and encoding included; 0 without pictures."""
        return 1e3 * self.seconds / self.pictures if self.pictures else 0.0


class Tally:
    """Counts answers as they come; the clock starts with it.

    ``before`` and ``recent`` are the counts and the latest answers of an earlier session that goes on. ``zero_shot``
    has the latest zero-shot predictions of this session, without those of near copies.

    >>> tally = Tally()
    >>> tally.count(Answer("a.jpg", "cat", zero_shot="dog"))
    >>> tally.counts().changed
    1
    """

    def __init__(self, before: SessionCounts | None = None, recent: Iterable[Stretch] = ()) -> None:
        self._counts, self._recent = before or SessionCounts(), deque(recent, RECENT_ANSWERS)
        self.zero_shot: deque[str | None] = deque(maxlen=RECENT_ANSWERS)
        self._start = time.perf_counter() - self._counts.seconds

    def count(self, answer: Answer) -> None:
        """Count one answer."""
        stretch, counts, bad = stretch_of(answer), self._counts, answer.problem is not None
        self._counts = SessionCounts(
            counts.pictures + 1,
            counts.unreadable + bad,
            counts.changed + stretch.differing,
            counts.near_copies + answer.near_copy,
        )
        if not bad:
            self._recent.append(stretch)
            if not answer.near_copy:  # a camera that shows the same for hours is no collapse
                self.zero_shot.append(answer.zero_shot)

    @property
    def answered(self) -> int:
        """The pictures that have a label, up to now."""
        return self._counts.answered

    def recent(self) -> Stretch:
        """Return the latest answers."""
        return sum(self._recent, Stretch())

    def counts(self) -> SessionCounts:
        """Return the counts up to now."""
        return replace(self._counts, seconds=time.perf_counter() - self._start)
