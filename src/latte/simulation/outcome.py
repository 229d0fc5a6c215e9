"""What a run of one method on one federation gives, with the engine or the readable simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.types import Integers, Reals
from ..data.benchmark import Federation
from .calibration import expected_calibration_error
from .records import ClientScore, Result, quarter


@dataclass(frozen=True, eq=False)
class Outcome:
    """The predicted label of every sample, client by client in stream order, and the downloads between clients.

    ``downloads`` (N, N): entry (i, j) counts the prototypes of client j that client i received; None for a method
    that does not collaborate. ``confidences`` are the probabilities of the predicted labels, in the same order; None
    if they were not recorded. ``approximation`` says what an exchange answered approximately; empty if nothing.
    """

    labels: tuple[Integers, ...]
    downloads: Integers | Reals | None = None
    engine: str = "readable"
    confidences: tuple[Reals, ...] | None = None
    approximation: str = ""

    @classmethod
    def fast(
        cls,
        labels: Integers,
        confidences: Reals | None,
        offsets: Integers,
        downloads: Integers | Reals | None = None,
        engine: str = "fast",
    ) -> Outcome:
        """Return that of the engine: labels and confidences (n,), client after client from ``offsets`` (N + 1,)."""
        cuts = offsets[1:-1]
        split = None if confidences is None else tuple(np.split(confidences, cuts))
        return cls(tuple(np.split(labels, cuts)), downloads, engine, split)

    def correct(self, federation: Federation) -> list[Integers]:
        """Return per client which predictions are right, as 0 and 1."""
        pairs = zip(self.labels, federation.clients, strict=True)
        return [(labels == federation.labels(client)).astype(np.int64) for labels, client in pairs]

    def result(self, federation: Federation, method: str, params: dict[str, Any], setting: str, seed: int) -> Result:
        """Return the record of this outcome."""
        domains = federation.embeddings.domains
        scores = tuple(
            ClientScore(client.name, domains[client.domain], len(right), int(right.sum()), *count_quarters(right))
            for client, right in zip(federation.clients, self.correct(federation), strict=True)
        )
        name, error = federation.embeddings.name, self.calibration_error(federation)
        result = Result(name, method, params, setting, seed, scores, self.engine, calibration_error=error)
        return replace(result, approximation=self.approximation)

    def calibration_error(self, federation: Federation) -> float | None:
        """Return the expected calibration error over all samples; None without confidences."""
        if self.confidences is None:
            return None
        return expected_calibration_error(np.concatenate(self.confidences), np.concatenate(self.correct(federation)))

    def over_time(self, federation: Federation) -> Reals:
        """Return the accuracy in per cent over all samples up to each position of the streams (longest,)."""
        correct = self.correct(federation)
        longest = max(map(len, correct))
        right, there = np.zeros(longest), np.zeros(longest)
        for answers in correct:
            right[: len(answers)] += answers
            there[: len(answers)] += 1
        share: Reals = 100 * right.cumsum() / there.cumsum()
        return share


def count_quarters(right: Integers) -> tuple[int, int]:
    """Return the right answers in the first and in the last quarter of a stream."""
    count = quarter(len(right))
    return int(right[:count].sum()), int(right[-count:].sum())
