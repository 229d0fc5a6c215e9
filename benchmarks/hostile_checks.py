"""What the checks of a server are worth: honest clients among hostile ones, with the checks and without.

python benchmarks/hostile_checks.py pacs.npz --seeds 0-4 --out pacs.jsonl
python benchmarks/hostile_checks.py cifar10c.npz --clients-per-domain 5 --seeds 0-2 --out cifar10c.jsonl
python benchmarks/hostile_checks.py pacs.jsonl cifar10c.jsonl --read

With the checks, an upload goes through what the server calls before it stores one (``prepare`` of the exchange); one
that is refused changes nothing. Without them, everything is stored as it comes, entropies included. Schedule and scores
are those of benchmarks/hostile.py: accuracies of the clients that are not hostile, and of zero-shot on the same ones.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from checking_servers import CERTAIN, LIES, Case, CheckingServer, Liars, Serving, TrustingServer
from measurements import Gain, measure_missing, read_measurements

from hostile import MethodSpec, first_clients, hostile_parser, interval, score
from latte.data.benchmark import Federation
from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.partition import federate, generators
from latte.experiment.config import parse_seeds
from latte.methods import create_exchange, describe
from latte.simulation.engine.ristretto_engine import run_ristretto
from latte.simulation.hostile import choose_hostile
from latte.simulation.outcome import Outcome
from latte.simulation.readable import set_up
from latte.simulation.schedule import Schedule
from latte.simulation.simulator import simulate

ATTACKS = {
    "latte": ("none", *LIES, *(lie + CERTAIN for lie in LIES), "careful"),
    "ristretto": ("none", *LIES, "long"),
}


@dataclass(frozen=True)
class Measurement(Gain):
    benchmark: str
    method: str
    attack: str
    checks: bool
    share: float
    seed: int
    accuracy: float
    zero_shot: float
    stored: float  # the share of the hostile uploads that were stored
    seconds: float


# --- runs -----------------------------------------------------------------------------------------------------


def server_of(federation: Federation, case: Case, hostile: frozenset[str]) -> Serving:
    zero_shot, names = federation.embeddings.zero_shot, [client.name for client in federation.clients]
    exchange = create_exchange(case.method.name, zero_shot, case.method.params, clients=names)
    nothing = describe(case.method.name).kind.Download.empty(zero_shot)
    if case.checks:
        return CheckingServer(exchange, hostile, nothing)
    return TrustingServer(exchange, hostile, nothing, case.attack.endswith(CERTAIN))


def run(federation: Federation, case: Case, exchange: Any) -> Outcome:
    schedule = Schedule(sync="doubling")
    if case.method.name == "ristretto":
        return run_ristretto(federation, case.method.params, schedule, generators(case.seed).cohort, exchange)
    clients, _ = set_up(federation, case.method.name, case.method.params)
    labels = [np.full(len(client), -1, np.int64) for client in federation.clients]
    for step in simulate(clients, exchange, schedule):
        labels[step.client][step.sample] = step.prediction.label
    return Outcome(tuple(labels))


def measure(federation: Federation, case: Case) -> Measurement:
    started = time.process_time()
    names = [client.name for client in federation.clients]
    hostile = choose_hostile(names, case.share, np.random.default_rng([case.seed, 0]))
    server = server_of(federation, case, hostile)
    liars: Any = server
    if case.attack != "none":
        liars = Liars(server, hostile, case, federation.embeddings.zero_shot)
    accuracy, zero_shot = score(federation, run(federation, case, liars), hostile)
    stored = server.stored / max(server.offered, 1)
    seconds = round(time.process_time() - started, 1)
    name = federation.embeddings.name
    return Measurement(
        name, case.method.text, case.attack, case.checks, case.share, case.seed, accuracy, zero_shot, stored, seconds
    )


def cases_of(a: argparse.Namespace, seed: int) -> Iterator[Case]:
    """Yield what is to be measured, once where the checks cannot matter.

    With them no claim of an entropy reaches the exchange; without a lie that they see, they change nothing.
    """
    for share in map(float, a.shares.split(",")):
        for method in map(MethodSpec, a.methods.split(",")):
            for attack in ATTACKS[method.name]:
                for checks in checks_of(method.name, attack):
                    yield Case(method, attack, checks, share, seed)


def checks_of(method: str, attack: str) -> tuple[bool, ...]:
    if attack.endswith(CERTAIN):
        return (False,)
    return (True,) if attack in ("none", "careful") or (method == "ristretto" and attack in LIES) else (True, False)


def measure_all(a: argparse.Namespace, done: Sequence[Measurement]) -> Iterator[Measurement]:
    known = {(m.benchmark, m.method, m.attack, m.checks, m.share, m.seed) for m in done}
    for file in a.files:
        embeddings = read_benchmark(BenchmarkFile(file.stem, file))
        for seed in parse_seeds(a.seeds):
            federation = first_clients(federate(embeddings, default_clients(embeddings, file.stem), seed), a)
            for case in cases_of(a, seed):
                key = (embeddings.name, case.method.text, case.attack, case.checks, case.share, seed)
                if key not in known:
                    yield measure(federation, case)


# --- the table ------------------------------------------------------------------------------------------------


def table(measurements: Sequence[Measurement]) -> str:
    """Return the gains of the honest clients over zero-shot, and what the checks change: paired, over seeds."""
    lines = [
        "| benchmark | method | attack | hostile | gain without checks | with checks | change | uploads that pass |",
        "|:--|:--|:--|--:|--:|--:|--:|--:|",
    ]
    gains: dict[tuple[str, str, float, str, bool], dict[int, Measurement]] = {}
    for m in measurements:
        gains.setdefault((m.benchmark, m.method, m.share, m.attack, m.checks), {})[m.seed] = m
    rows = dict.fromkeys(key[:4] for key in gains)
    for benchmark, method, share, attack in sorted(rows, key=lambda row: row[:3]):
        case = (benchmark, method, share)
        checked = gains.get((*case, attack.removesuffix(CERTAIN), True), {})
        trusted = gains.get((*case, attack, False), checked)
        cells = [benchmark, method, attack, f"{share:.0%}", *compared(trusted, checked)]
        cells.append("" if attack == "none" else f"{np.mean([m.stored for m in checked.values()]):.0%}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def compared(trusted: dict[int, Measurement], checked: dict[int, Measurement]) -> tuple[str, str, str]:
    """Return both mean gains over the seeds that both have, and their paired difference."""
    seeds = sorted(trusted.keys() & checked.keys())
    without, with_checks = ([runs[s].gain for s in seeds] for runs in (trusted, checked))
    change = [b - a for a, b in zip(without, with_checks, strict=True)]
    if not seeds:
        return "", "", ""
    return f"{np.mean(without):+.2f}", f"{np.mean(with_checks):+.2f}", interval(change) if any(change) else ""


def main() -> None:
    a = hostile_parser(__doc__).parse_args()
    if a.read:
        print(table([measurement for file in a.files for measurement in read_measurements(file, Measurement)]))
    else:
        print(table(measure_missing(a.out, Measurement, lambda done: measure_all(a, done))))


if __name__ == "__main__":
    main()
