"""Measurements as lines of JSON: a benchmark that is called again continues where it stopped."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from latte.analysis.stats import estimate, t_quantile
from latte.data.federation import Federation
from latte.experiment.config import parse_method
from latte.methods import resolve

M = TypeVar("M")


@dataclass(frozen=True)
class MethodSpec:
    """A method with parameters: ``text`` is how the command line names it."""

    text: str

    @property
    def name(self) -> str:
        return str(parse_method(self.text)["name"])

    @property
    def params(self) -> Any:
        return resolve(self.name, parse_method(self.text)["params"])


def interval(values: list[float]) -> str:
    """Return the mean and half of its 95 % interval over seeds."""
    e = estimate(values)
    if e.sd is None:
        return f"{e.mean:+.2f}"
    return f"{e.mean:+.2f} ± {t_quantile(0.975, e.seeds - 1) * e.sd / e.seeds**0.5:.2f}"


def first_clients(federation: Federation, a: argparse.Namespace) -> Federation:
    """Return the federation with the first clients of every domain only, where that is asked for."""
    if a.clients_per_domain is None:
        return federation
    taken: dict[int, int] = {}
    clients = []
    for client in federation.clients:
        taken[client.domain] = taken.get(client.domain, 0) + 1
        if taken[client.domain] <= a.clients_per_domain:
            clients.append(client)
    return Federation(federation.embeddings, tuple(clients))


class Gain:
    """What a measurement of an accuracy has where that of zero-shot on the same images is known."""

    accuracy: float
    zero_shot: float

    @property
    def gain(self) -> float:
        return self.accuracy - self.zero_shot


def make_parser(
    description: str | None, methods: str = "latte,ristretto", seeds: str = "0-4", part: bool = True
) -> argparse.ArgumentParser:
    """Return a parser of what every benchmark of accuracies takes; with ``part``, it may take a part of the clients."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--methods", default=methods, help="such as latte,ristretto+count_cap=4")
    parser.add_argument("--seeds", default=seeds, help="the partitions")
    if part:
        parser.add_argument("--clients-per-domain", type=int, help="use this many clients of each domain")
    parser.add_argument("--out", type=Path, help="JSON lines; what the file has already is not measured again")
    return parser


def read_measurements(file: Path | None, kind: Callable[..., M]) -> list[M]:
    """Return the measurements in a file, if there is one; the last line may have been cut off."""
    lines = file.read_text().splitlines(keepends=True) if file is not None and file.is_file() else []
    return [kind(**json.loads(line)) for line in lines if line[:1] == "{" and line[-1:] == "\n"]


def measure_missing(out: Path | None, kind: Callable[..., M], measure: Callable[[list[M]], Iterable[M]]) -> list[M]:
    """Return what ``out`` has, and what ``measure`` adds, which gets the former; new ones are written on the way."""
    measurements: list[Any] = read_measurements(out, kind)
    target = out.open("a") if out else sys.stdout
    for measurement in measure(list(measurements)):
        measurements.append(measurement)
        print(json.dumps(asdict(measurements[-1])), file=target, flush=True)
    return measurements
