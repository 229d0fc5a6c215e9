"""What an experiment leaves behind: one Result per (method, seed), as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..core.validate import at_least, choice, real, refuse
from ..files.documents import parse_json
from ..files.schema import structure

SETTINGS = ("preset", "default", "tuned", "oracle", "custom")


@dataclass(frozen=True, slots=True)
class ClientScore:
    """How one client did."""

    name: str
    domain: str
    samples: int
    correct: int

    def __post_init__(self) -> None:
        at_least("samples", self.samples, 1)
        if at_least("correct", self.correct, 0) > self.samples:
            raise refuse("correct", self.correct, f"at most {self.samples}, the samples")


@dataclass(frozen=True, slots=True)
class Result:
    """How one method did on one federation.

    ``setting`` says where the hyper-parameters come from: a published preset, the dataset-free defaults, tuned on
    other data, an oracle that saw the labels it is scored on, or custom: set by hand. ``seed`` fixed the partition and
    the orders. ``sent``: the bytes that a client sent and received, the mean over the clients in half precision; None
    where the method sends nothing. ``calibration_error`` is the expected calibration error over samples, where it was
    measured.
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

    def by_domain(self) -> dict[str, float]:
        """Accuracy per domain in per cent, in the order in which the domains appear."""
        totals: dict[str, list[int]] = {}
        for client in self.clients:
            total = totals.setdefault(client.domain, [0, 0])
            total[0] += client.correct
            total[1] += client.samples
        return {domain: 100 * correct / samples for domain, (correct, samples) in totals.items()}

    def to_json(self) -> str:
        """Return one line of JSON; it says nothing of a calibration that was not measured."""
        values = asdict(self)
        if self.calibration_error is None:
            del values["calibration_error"]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Result:
        """Read what :meth:`to_json` wrote."""
        return read_result(line, "result")


def read_result(line: str | bytes, name: str, extra: bool = False) -> Result:
    """Read a line of results; ``name`` says in a refusal where it is, ``extra`` allows what another version adds."""
    return structure(parse_json(line, name), Result, name, extra)
