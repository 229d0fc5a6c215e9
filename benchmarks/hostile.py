"""Hostile clients and poor networks: what is left of the gain over zero-shot, for Latte and Ristretto.

python benchmarks/hostile.py pacs.npz --out pacs.jsonl                        # every condition, seeds 0 to 4
python benchmarks/hostile.py pacs.npz --conditions flipped --shares 0.1,0.3   # one attack
python benchmarks/hostile.py pacs.npz --conditions missing,late,int8,skew     # poor networks
python benchmarks/hostile.py pacs.npz --methods ristretto,ristretto+count_cap=4

All methods sync after 1, 2, 4, 8, 16 images of a client, then after every 16. Accuracies are those of the clients that
are not hostile, and gains are over zero-shot on the same clients. "none, 30%" is the gain of the clients that are not
among the 30 % where those behave: what an attack costs is the difference from it. Writes JSON lines, and a table at the
end. With --out, the lines go to a file; the same command again continues where it stopped.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from measurements import Gain, make_parser, measure_missing, read_measurements

from latte.analysis.stats import estimate, t_quantile
from latte.data.benchmark import Federation
from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.label_skew import skew_labels
from latte.data.partition import federate, generators
from latte.experiment.config import parse_method, parse_seeds
from latte.methods import create_exchange, describe, resolve
from latte.simulation.engine import run_fast
from latte.simulation.engine.ristretto_engine import run_ristretto
from latte.simulation.hostile import ATTACKS, ATTACKS_ON_COUNTS, HostileExchange, choose_hostile
from latte.simulation.outcome import Outcome
from latte.simulation.poor_network import LossyExchange, QuantisedExchange
from latte.simulation.readable import set_up
from latte.simulation.schedule import Schedule
from latte.simulation.simulator import simulate
from latte.simulation.wrapped_exchange import TracedExchange

NETWORKS = ("missing", "late", "int8", "skew")
CONDITIONS = ("none", *ATTACKS, *NETWORKS)
RISTRETTO_ONLY = (*ATTACKS_ON_COUNTS, "scatter")
MISSING, CONCENTRATION = 0.5, 0.1
Wrap = Callable[[TracedExchange], TracedExchange]


@dataclass(frozen=True)
class Measurement(Gain):
    benchmark: str
    method: str
    condition: str
    share: float
    seed: int
    clients: int
    accuracy: float
    zero_shot: float
    seconds: float


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


@dataclass(frozen=True)
class Case:
    """One line: a method under a condition."""

    method: MethodSpec
    condition: str
    share: float
    seed: int

    @property
    def wraps(self) -> bool:
        """Whether messages are altered on the way: Latte's engine has no messages."""
        return self.condition in (*ATTACKS, "missing", "int8")


def run(federation: Federation, case: Case, schedule: Schedule, wrap: Wrap) -> Outcome:
    name, params, rng = case.method.name, case.method.params, generators(case.seed).cohort
    if not case.wraps and name != "ristretto":
        outcome = run_fast(federation, name, params, schedule, rng)
        assert outcome is not None, "numba is needed"
        return outcome
    names = tuple(client.name for client in federation.clients)
    exchange = wrap(create_exchange(name, federation.embeddings.zero_shot, params, clients=names))
    if name == "ristretto":
        return run_ristretto(federation, params, schedule, rng, exchange)
    clients, _ = set_up(federation, name, params)
    labels = [np.full(len(client), -1, np.int64) for client in federation.clients]
    for step in simulate(clients, exchange, schedule, rng):
        labels[step.client][step.sample] = step.prediction.label
    return Outcome(tuple(labels))


def disturb(federation: Federation, case: Case, hostile: frozenset[str]) -> Wrap:
    """Return what is put around the exchange."""
    rng, condition = np.random.default_rng([case.seed, 1]), case.condition
    if condition in ATTACKS:
        return lambda exchange: HostileExchange(exchange, hostile, condition, rng)
    if condition == "int8":
        return QuantisedExchange
    if condition == "missing":
        empty = describe(case.method.name).kind.Download.empty
        zero_shot = federation.embeddings.zero_shot
        return lambda exchange: LossyExchange(exchange, MISSING, lambda: empty(zero_shot), rng)
    return lambda exchange: exchange


def late_starts(federation: Federation, rng: np.random.Generator) -> tuple[int, ...]:
    """Return first rounds: half of the clients are there from the start, the others join while those work."""
    longest = max(len(client) for client in federation.clients)
    late = rng.permutation(len(federation)) % 2 == 1
    return tuple(np.where(late, rng.integers(2, longest + 1, len(federation)), 1).tolist())


def score(federation: Federation, outcome: Outcome, hostile: frozenset[str]) -> tuple[float, float]:
    """Return the accuracy of the honest clients, and that of zero-shot on the same images."""
    embeddings = federation.embeddings
    honest = [i for i, client in enumerate(federation.clients) if client.name not in hostile]
    rows = np.concatenate([federation.clients[i].samples for i in honest])
    zero_shot = embeddings.zero_shot.logits(np.asarray(embeddings.views[rows, 0], np.float32)).argmax(axis=1)
    answers = np.concatenate([outcome.labels[i] for i in honest])
    labels = embeddings.labels[rows]
    return 100 * float((answers == labels).mean()), 100 * float((zero_shot == labels).mean())


def measure(federation: Federation, case: Case) -> Measurement:
    rng = np.random.default_rng([case.seed, 0])
    if case.condition == "skew":
        federation = skew_labels(federation, CONCENTRATION, rng)
    hostile = choose_hostile([client.name for client in federation.clients], case.share, rng)
    starts = late_starts(federation, rng) if case.condition == "late" else None
    started = time.process_time()
    outcome = run(federation, case, Schedule(sync="doubling", starts=starts), disturb(federation, case, hostile))
    seconds = time.process_time() - started
    scores = score(federation, outcome, hostile)
    name, clients = federation.embeddings.name, len(federation)
    return Measurement(
        name, case.method.text, case.condition, case.share, case.seed, clients, *scores, round(seconds, 2)
    )


def interval(values: list[float]) -> str:
    """Return the mean and half of its 95 % interval over seeds."""
    e = estimate(values)
    if e.sd is None:
        return f"{e.mean:+.2f}"
    return f"{e.mean:+.2f} ± {t_quantile(0.975, e.seeds - 1) * e.sd / e.seeds**0.5:.2f}"


def table(measurements: list[Measurement]) -> str:
    """Return gains over zero-shot and what is lost, a row per condition, two columns per benchmark and method."""
    columns = list(dict.fromkeys((m.benchmark, m.method) for m in measurements))
    order = {name: number for number, name in enumerate(CONDITIONS)}
    rows = sorted({(m.condition, m.share) for m in measurements}, key=lambda row: (order[row[0]], row[1]))
    heads = [f"{benchmark}, {method} | change" for benchmark, method in columns]
    lines = ["| | " + " | ".join(heads) + " |", "|:--" + "|--:|--:" * len(columns) + "|"]
    for condition, share in rows:
        cells = []
        for column in columns:
            same = {(m.condition, m.share, m.seed): m.gain for m in measurements if (m.benchmark, m.method) == column}
            cells += cells_of(same, condition, share)
        lines.append(f"| {condition}{f', {share:.0%}' if share else ''} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cells_of(gains: dict[tuple[str, float, int], float], condition: str, share: float) -> tuple[str, str]:
    """Return the mean gain, and its paired change from the same seeds and clients without the condition."""
    own = {seed: gain for (name, part, seed), gain in gains.items() if (name, part) == (condition, share)}
    if not own or condition == "none":
        return interval(list(own.values())) if own else "", ""
    change = [gain - gains["none", share, seed] for seed, gain in own.items() if ("none", share, seed) in gains]
    return f"{estimate(list(own.values())).mean:+.2f}", interval(change) if change else ""


def conditions_of(text: str, shares: list[float]) -> list[tuple[str, float]]:
    names = CONDITIONS if text == "all" else text.split(",")
    for name in names:
        if name not in CONDITIONS:
            sys.exit(f"hostile: --conditions: got {name!r}, want some of {', '.join(CONDITIONS)}")
    use = {"none": [0.0, *shares]} | dict.fromkeys(ATTACKS, shares)
    return [(name, share) for name in names for share in use.get(name, [0.0])]


def cases_of(a: argparse.Namespace, seed: int) -> Iterator[Case]:
    """Yield what is to be measured with one seed."""
    for condition, share in conditions_of(a.conditions, [float(s) for s in a.shares.split(",")]):
        for method in map(MethodSpec, a.methods.split(",")):
            if describe(method.name).family == "ristretto" or condition not in RISTRETTO_ONLY:
                yield Case(method, condition, share, seed)


def measure_all(a: argparse.Namespace, done: list[Measurement]) -> Iterator[Measurement]:
    """Yield what is not among those that are done."""
    known = {(m.benchmark, m.method, m.condition, m.share, m.seed) for m in done}
    for file in a.files:
        embeddings = read_benchmark(BenchmarkFile(file.stem, file))
        for seed in parse_seeds(a.seeds):
            federation = first_clients(federate(embeddings, default_clients(embeddings, file.stem), seed), a)
            for case in cases_of(a, seed):
                if (embeddings.name, case.method.text, case.condition, case.share, seed) not in known:
                    yield measure(federation, case)


def hostile_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of what the benchmarks with hostile clients take."""
    parser = make_parser(description)
    parser.add_argument("--shares", default="0.1,0.3", help="of the clients that are hostile")
    parser.add_argument("--read", action="store_true", help="FILES are JSON lines from before: print their table")
    return parser


def main() -> None:
    parser = hostile_parser(__doc__)
    parser.add_argument("--conditions", default="all", help=f"all, or some of {', '.join(CONDITIONS)}")
    a = parser.parse_args()
    if a.read:
        print(table([measurement for file in a.files for measurement in read_measurements(file, Measurement)]))
    else:
        print(table(measure_missing(a.out, Measurement, lambda done: measure_all(a, done))))


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


if __name__ == "__main__":
    main()
