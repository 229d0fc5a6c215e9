"""An e-process for help and harm: what labelled images on which two answers differ say, whenever one looks.

Where the adapted and the zero-shot answer are equal, a label says nothing about which is better. Where they differ, and
adapting neither helps nor harms, each is as likely to be the right one as the other. The e-process is the wealth of a
bet against that, averaged over all probabilities on one side of 1/2. It may be looked at after every label, for ever,
and reaches 20 by mistake in at most one fleet of 20 (Ville's inequality).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

ENOUGH = 20.0  # evidence to 1 that counts as a proof: wrong in at most one fleet of 20, however often one looks
MOST_EVIDENCE = 1e9
MOST_LABELS = 1_000_000  # that are counted: no fleet has more, and the sum below takes the root of it
_FORESEEN = 1_000  # labels: a prediction of more is no prediction
_PRIOR = (3, 1, 2)  # helped, harmed and neither among six labels of an ordinary fleet, for before any come

Verdict: TypeAlias = Literal["helps", "unknown", "hurts"]


def evidence(wins: int, losses: int) -> float:
    """Return the evidence to 1 that wins are more likely than losses: the average of ``(2p)^wins (2 - 2p)^losses``.

    The average is over p from 1/2 to 1: ``2^(n + 1) B(wins + 1, losses + 1) P(p > 1/2)`` with n = wins + losses, where
    the probability is that of a beta distribution, and so that of at most ``wins`` heads in n + 1 tosses.

    >>> evidence(0, 0), round(evidence(10, 0), 1), round(evidence(19, 5), 1)
    (1.0, 186.1, 31.5)
    """
    n = wins + losses
    if n > MOST_LABELS:  # in the same proportion, which is less evidence
        wins, losses, n = wins * MOST_LABELS // n, losses * MOST_LABELS // n, MOST_LABELS
    low = min(wins, losses)
    term = tail = 1.0  # of the sum over at most `low` heads, in units of its last and largest term
    for j in range(low, 0, -1):
        term *= j / (n + 2 - j)
        tail += term
        if term < 1e-17 * tail:
            break
    log_choose = math.lgamma(n + 2) - math.lgamma(low + 1) - math.lgamma(n + 2 - low)  # of n + 1 over low
    probability = math.exp(math.log(tail) + log_choose - (n + 1) * math.log(2))
    if wins > losses:
        probability = 1.0 - probability
    log_beta = math.lgamma(wins + 1) + math.lgamma(losses + 1) - math.lgamma(n + 2)
    if probability == 0.0:  # too small for a float, and then the evidence is as well
        return 0.0
    value = (n + 1) * math.log(2) + log_beta + math.log(probability)
    return min(math.exp(min(value, 700.0)), MOST_EVIDENCE)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Labelled images on which the two answers differ: only the adapted one is right, only zero-shot's, or neither."""

    helped: int = 0
    harmed: int = 0
    neither: int = 0

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.helped + other.helped, self.harmed + other.harmed, self.neither + other.neither)

    def __sub__(self, other: Pairs) -> Pairs:
        return Pairs(self.helped - other.helped, self.harmed - other.harmed, self.neither - other.neither)

    @property
    def differing(self) -> int:
        """How many there are."""
        return self.helped + self.harmed + self.neither

    @property
    def e_help(self) -> float:
        """The evidence to 1 that adapting helps."""
        return evidence(self.helped, self.harmed)

    @property
    def e_harm(self) -> float:
        """The evidence to 1 that adapting harms."""
        return evidence(self.harmed, self.helped)

    @property
    def verdict(self) -> Verdict:
        """What is proven."""
        return "helps" if self.e_help >= ENOUGH else "hurts" if self.e_harm >= ENOUGH else "unknown"

    def more(self) -> int | None:
        """Return how many more of these labels would prove one or the other if their shares stay what they are.

        Shares are taken with six labels of an ordinary fleet added. None: more than 1,000.

        >>> Pairs().more(), Pairs(10, 9, 0).more(), Pairs(30, 2, 4).more()
        (47, 676, 0)
        """
        counts = self.helped, self.harmed, self.neither
        shares = [(count + prior) / (self.differing + sum(_PRIOR)) for count, prior in zip(counts, _PRIOR, strict=True)]

        def proven(more: int) -> bool:
            later = Pairs(*(count + round(more * share) for count, share in zip(counts, shares, strict=True)))
            return later.verdict != "unknown"

        if not proven(_FORESEEN):
            return None
        low, high = -1, _FORESEEN
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if proven(middle) else (middle, high)
        return high
