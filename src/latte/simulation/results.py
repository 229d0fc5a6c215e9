"""Results: what a run of one method on one federation gives, and its record, a line of JSON per (method, seed)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..core.types import Integers, Mask, Reals
from ..core.validate import at_least, choice, real
from ..data.federation import Federation
from ..errors import refuse
from ..files.documents import parse_json

SETTINGS = ("preset", "default", "tuned", "oracle", "custom")
BINS = 20


def quarter(samples: int) -> int:
    """Return the samples in the first and in the last quarter of a stream: a fourth, rounded up.

    >>> [quarter(samples) for samples in (1, 4, 5, 250)]
    [1, 1, 2, 63]
    """
    return -(-samples // 4)


def count_quarters(right: Integers) -> tuple[int, int]:
    """Return the right answers in the first and in the last quarter of a stream."""
    count = quarter(len(right))
    return int(right[:count].sum()), int(right[-count:].sum())


@dataclass(frozen=True, slots=True)
class ClientScore:
    """How one client did.

    ``first_correct`` and ``last_correct`` count the right answers in the first and in the last quarter of its stream,
    of :func:`quarter` samples each; None in records that are older than these numbers.
    """

    name: str
    domain: str
    samples: int
    correct: int
    first_correct: int | None = None
    last_correct: int | None = None

    def __post_init__(self) -> None:
        at_least("samples", self.samples, 1)
        if at_least("correct", self.correct, 0) > self.samples:
            raise refuse("correct", self.correct, f"at most {self.samples}, the samples")
        for name, right in (("first_correct", self.first_correct), ("last_correct", self.last_correct)):
            if right is not None and at_least(name, right, 0) > quarter(self.samples):
                raise refuse(name, right, f"at most {quarter(self.samples)}, a quarter of the samples")


@dataclass(frozen=True, slots=True)
class Result:
    """How one method did on one federation.

    benchmark: the name of the data
    method: its name
    params: its hyper-parameters
    setting: where they come from: a published preset, the defaults, tuned on other data, an oracle that saw the labels
        it is scored on, or custom: set by hand
    seed: fixed the partition and the orders
    clients: one score each
    engine: what computed it
    sent: the bytes that a client sent and received, the mean over the clients in half precision; None if the method
        sends nothing
    calibration_error: the expected calibration error over samples, if it was measured
    approximation: what was calculated approximately because of many clients; empty if nothing was
    labels: how many images somebody labelled; scores are of the others
    """

    benchmark: str
    method: str
    params: Mapping[str, Any]
    setting: str
    seed: int
    clients: tuple[ClientScore, ...]
    engine: str = "readable"
    sent: float | None = None
    calibration_error: float | None = None
    approximation: str = ""
    labels: int = 0

    def __post_init__(self) -> None:
        choice("setting", self.setting, SETTINGS)
        at_least("seed", self.seed, 0)
        if self.sent is not None:
            real("sent", self.sent, 0)
        if not self.clients:
            raise refuse("clients", "none", "at least one")
        if self.calibration_error is not None:
            real("calibration_error", self.calibration_error, 0.0, 1.0)

    @property
    def samples(self) -> int:
        """All samples of all clients."""
        return sum(client.samples for client in self.clients)

    @property
    def micro(self) -> float:
        """Accuracy over samples in per cent: the paper's total."""
        return 100 * sum(client.correct for client in self.clients) / self.samples

    @property
    def macro(self) -> float:
        """Mean accuracy over clients in per cent: the paper's objective."""
        return sum(100 * client.correct / client.samples for client in self.clients) / len(self.clients)

    @property
    def worst_client(self) -> float:
        """The lowest accuracy of a client in per cent."""
        return min(100 * client.correct / client.samples for client in self.clients)

    @property
    def worst_domain(self) -> float:
        """The lowest accuracy of a domain in per cent."""
        return min(self.by_domain().values())

    @property
    def first_quarter(self) -> float | None:
        """Accuracy in per cent over the first quarters of all streams together; None if it was not recorded."""
        return self._share_of_quarters([client.first_correct for client in self.clients])

    @property
    def last_quarter(self) -> float | None:
        """Accuracy in per cent over the last quarters of all streams together; None if it was not recorded."""
        return self._share_of_quarters([client.last_correct for client in self.clients])

    def _share_of_quarters(self, right: list[int | None]) -> float | None:
        known = [count for count in right if count is not None]
        total = sum(quarter(client.samples) for client in self.clients)
        return 100 * sum(known) / total if len(known) == len(right) else None

    def by_domain(self) -> dict[str, float]:
        """Accuracy per domain in per cent, in the order in which the domains appear."""
        totals: dict[str, list[int]] = {}
        for client in self.clients:
            total = totals.setdefault(client.domain, [0, 0])
            total[0] += client.correct
            total[1] += client.samples
        return {domain: 100 * correct / samples for domain, (correct, samples) in totals.items()}

    def to_json(self) -> str:
        """Return one line of JSON; it says nothing of what was not measured, not approximated, and not labelled."""
        values = asdict(self)
        values["clients"] = [{key: n for key, n in client.items() if n is not None} for client in values["clients"]]
        absent = {"calibration_error": None, "approximation": "", "labels": 0}
        known = {key: value for key, value in values.items() if key not in absent or value != absent[key]}
        return json.dumps(known, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Result:
        """Read what :meth:`to_json` wrote."""
        return read_result(line, "result")


def read_result(line: str | bytes, name: str) -> Result:
    """Read a line of results; ``name`` says in a refusal where it is. What another version adds is left out."""
    result: Result = parse_json(line, name, Result)
    return result


def same_scores(first: Result, second: Result) -> bool:
    """Say whether two records are of the same run, whichever engine made them.

    The quarters of streams and the calibration are not compared: older records do not have them.
    """

    def common(result: Result) -> Result:
        clients = tuple(replace(client, first_correct=None, last_correct=None) for client in result.clients)
        return replace(result, clients=clients, engine="", calibration_error=None)

    return common(first) == common(second)


def confidences_of(scores: Reals, temperature: Reals | float = 1.0) -> Reals:
    """Return the largest probability (...) in the softmax of ``scores`` (..., C) / ``temperature``.

    >>> confidences_of(np.log([[3.0, 1.0]]))
    array([0.75])
    """
    exponents = scores - scores.max(axis=-1, keepdims=True)
    exponents /= temperature
    confidences: Reals = 1.0 / np.exp(exponents, out=exponents).sum(axis=-1)
    return confidences


def expected_calibration_error(confidences: Reals, correct: Integers | Mask, bins: int = BINS) -> float:
    """Return the expected calibration error of answers (n,): 0 is best, 1 worst.

    Answers go into ``bins`` of equal width by their confidence, the probability of the predicted class. The error is
    the mean over answers of the distance between the accuracy and the mean confidence in their bin.

    >>> error = expected_calibration_error(np.array([0.9, 0.9, 0.6]), np.array([1, 0, 1]))
    >>> round(error, 3)  # (2 * 0.4 + 1 * 0.4) / 3
    0.4
    """
    if len(confidences) != len(correct) or not len(correct):
        raise refuse("confidences", f"{len(confidences)} for {len(correct)} answers", "one for each of at least one")
    if not ((confidences >= 0) & (confidences <= 1 + 1e-9)).all():
        raise refuse("confidences", "a value outside [0, 1]", "probabilities")
    number = np.minimum((confidences * at_least("bins", bins, 1)).astype(np.int64), bins - 1)
    gaps = np.bincount(number, confidences - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(correct))


@dataclass(frozen=True, eq=False)
class Outcome:
    """The predictions of a run, client by client in stream order.

    labels: of every sample
    downloads: (N, N) entry (i, j) counts the prototypes of client j that client i received; None for a method that does
        not collaborate
    engine: what computed it
    confidences: the probabilities of the predicted labels, in the same order; None if they were not recorded
    approximation: what an exchange answered approximately; empty if nothing
    told: the class that somebody named after each sample, -1 where nobody did: such samples are not scored
    """

    labels: tuple[Integers, ...]
    downloads: Integers | Reals | None = None
    engine: str = "readable"
    confidences: tuple[Reals, ...] | None = None
    approximation: str = ""
    told: tuple[Integers, ...] | None = None

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
        domains, correct, error = federation.embeddings.domains, self.correct(federation), None
        told = self.told or tuple(np.full(len(client), -1) for client in federation.clients)
        scored = [one[named < 0] for one, named in zip(correct, told, strict=True)]
        scores = tuple(
            ClientScore(client.name, domains[client.domain], len(right), int(right.sum()), *count_quarters(right))
            for client, right in zip(federation.clients, scored, strict=True)
            if len(right)
        )
        if self.confidences is not None:
            sure = [one[named < 0] for one, named in zip(self.confidences, told, strict=True)]
            error = expected_calibration_error(np.concatenate(sure), np.concatenate(scored))
        name, engine, labels = federation.embeddings.name, self.engine, sum(int((named >= 0).sum()) for named in told)
        return Result(name, method, params, setting, seed, scores, engine, None, error, self.approximation, labels)
