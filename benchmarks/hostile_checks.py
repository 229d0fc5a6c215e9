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
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from checking_servers import CERTAIN, LIES, Case, CheckingServer, Liars, Serving, TrustingServer

from hostile import MethodSpec, first_clients, interval, score
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
class Measurement:
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
    without, with_checks = ([runs[s].accuracy - runs[s].zero_shot for s in seeds] for runs in (trusted, checked))
    change = [b - a for a, b in zip(without, with_checks, strict=True)]
    if not seeds:
        return "", "", ""
    return f"{np.mean(without):+.2f}", f"{np.mean(with_checks):+.2f}", interval(change) if any(change) else ""


def read(file: Path) -> list[Measurement]:
    return [Measurement(**json.loads(line)) for line in file.read_text().splitlines()] if file.is_file() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--shares", default="0.1,0.3", help="of the clients that are hostile")
    parser.add_argument("--methods", default="latte,ristretto")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--clients-per-domain", type=int, help="use this many clients of each domain")
    parser.add_argument("--out", type=Path, help="the file for the lines; what it has already is not measured again")
    parser.add_argument("--read", action="store_true", help="FILES are JSON lines from before: print their table")
    a = parser.parse_args()
    if a.read:
        print(table([measurement for file in a.files for measurement in read(file)]))
        return
    measurements = read(a.out) if a.out else []
    out = a.out.open("a") if a.out else sys.stdout
    for measurement in measure_all(a, list(measurements)):
        measurements.append(measurement)
        print(json.dumps(asdict(measurement)), file=out, flush=True)
    print(table(measurements))


if __name__ == "__main__":
    main()
