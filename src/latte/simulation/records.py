"""What an experiment leaves behind: one Result per (method, seed), as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..core.validate import at_least, choice, real
from ..errors import refuse
from ..files.documents import parse_json
from ..files.schema import structure

SETTINGS = ("preset", "default", "tuned", "oracle", "custom")


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


def quarter(samples: int) -> int:
    """Return the samples in the first and in the last quarter of a stream: a fourth, rounded up.

    >>> [quarter(samples) for samples in (1, 4, 5, 250)]
    [1, 1, 2, 63]
    """
    return -(-samples // 4)


@dataclass(frozen=True, slots=True)
class Result:
    """How one method did on one federation.

    ``setting`` says where the hyper-parameters come from: a published preset, the defaults, tuned on
    other data, an oracle that saw the labels it is scored on, or custom: set by hand. ``seed`` fixed the partition and
    the orders. ``sent``: the bytes that a client sent and received, the mean over the clients in half precision; None
    if the method sends nothing. ``calibration_error`` is the expected calibration error over samples, if it was
    measured. ``approximation`` says what was calculated approximately because of many clients; empty if nothing was.
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
        return _share([client.first_correct for client in self.clients], self.clients)

    @property
    def last_quarter(self) -> float | None:
        """Accuracy in per cent over the last quarters of all streams together; None if it was not recorded."""
        return _share([client.last_correct for client in self.clients], self.clients)

    def by_domain(self) -> dict[str, float]:
        """Accuracy per domain in per cent, in the order in which the domains appear."""
        totals: dict[str, list[int]] = {}
        for client in self.clients:
            total = totals.setdefault(client.domain, [0, 0])
            total[0] += client.correct
            total[1] += client.samples
        return {domain: 100 * correct / samples for domain, (correct, samples) in totals.items()}

    def to_json(self) -> str:
        """Return one line of JSON; it says nothing of what was not measured, or not approximated."""
        values = asdict(self)
        values["clients"] = [_known(client) for client in values["clients"]]
        if self.calibration_error is None:
            del values["calibration_error"]
        if not self.approximation:
            del values["approximation"]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Result:
        """Read what :meth:`to_json` wrote."""
        return read_result(line, "result")


def same_scores(first: Result, second: Result) -> bool:
    """Say whether two records are of the same run, whichever engine made them.

    The quarters of streams and the calibration are not compared: older records do not have them.
    """
    return _common(first) == _common(second)


def _common(result: Result) -> Result:
    clients = tuple(replace(client, first_correct=None, last_correct=None) for client in result.clients)
    return replace(result, clients=clients, engine="", calibration_error=None)


def _share(right: Sequence[int | None], clients: Sequence[ClientScore]) -> float | None:
    """Return ``right`` in per cent of the clients' quarters; None if one of them is not known."""
    known = [count for count in right if count is not None]
    if len(known) < len(clients):
        return None
    return 100 * sum(known) / sum(quarter(client.samples) for client in clients)


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def read_result(line: str | bytes, name: str, extra: bool = False) -> Result:
    """Read a line of results; ``name`` says in a refusal where it is, ``extra`` allows what another version adds."""
    return structure(parse_json(line, name), Result, name, extra)
