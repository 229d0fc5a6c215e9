"""Hostile clients and poor networks: what is left of the gain over zero-shot, for Latte and Ristretto.

python benchmarks/robustness/hostile.py pacs.npz clip_dtd.npz clip_pets.npz --out hostile.jsonl  # every attack
python benchmarks/robustness/hostile.py cifar10c.npz --clients-per-domain 2 --out hostile.jsonl  # some of the clients
python benchmarks/robustness/hostile.py pacs.npz --conditions none,inflated --lies anti-1 --shares 0.1,0.5  # some
python benchmarks/robustness/hostile.py pacs.npz --images 120 --in-turn  # short streams, attackers in every domain
python benchmarks/robustness/hostile.py pacs.npz --conditions networks --seeds 0-4  # poor networks
python benchmarks/robustness/hostile.py hostile.jsonl --read  # the table again

Attackers come in addition to the honest clients: a share of 0.1 is a tenth of all clients, one of 0.5 as many attackers
as honest clients. Nobody else has the ten images per class and domain whose labels they know (or half of them, where
there are fewer than twenty). Every upload passes the checks of a server. Gains are those of the honest clients over
zero-shot on the same images. All methods sync after 1, 2, 4, 8, 16 images of a client, then after every 16.

pace            as many images as honest clients; what is altered is the mean of the honest uploads of a domain
head start      250 images from the first sync on; what is altered are soft class means of the attackers' own images
inflated        the same with 9e11 images, the most that a server accepts
late            as pace, but from the middle of the streams on
new devices     as head start; half of the honest clients join in the middle of the others' streams: gains are theirs
pace, labels    as pace, with the true labels of all images, also of those of honest clients
start, labels   as head start, with the true labels of all images
inflated, labels  as inflated, with the true labels of all images; only where --conditions names it

Every method is told the same lies. Uploads of Latte have no counts: nobody can have a head start or inflate there.

The poor networks: half of the syncs are missed (missing), half of the clients join at a random time (joins), matrices
have eight bits per number (int8), clients of a domain see different classes (skew). With --out, the same command again
continues where it stopped.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # measurements

from hostile_clients import LIES, Attack, AttackedExchange, Knowledge
from label_skew import skew_labels
from measurements import (
    Gain,
    MethodSpec,
    first_clients,
    interval,
    make_parser,
    measure_missing,
    read_measurements,
)
from poor_network import LossyExchange, QuantisedExchange

from latte.core.maths import softmax
from latte.core.sync import is_due
from latte.core.types import Integers
from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.federation import Embeddings, Federation, federate, generators
from latte.engine.ristretto import run_ristretto
from latte.experiment.config import parse_seeds
from latte.methods import create_exchange, describe
from latte.simulation.results import Outcome
from latte.simulation.simulator import Schedule, set_up, simulate

ATTACKS = ("pace", "head start", "inflated", "late", "new devices", "pace, labels", "start, labels", "inflated, labels")
NETWORKS = ("missing", "joins", "int8", "skew")
WITHOUT_COUNTS = ("pace", "late", "new devices", "pace, labels")  # what attackers of a method without counts can do
NAMES = {"latte": "Latte", "ristretto": "Ristretto, fleet", "ristretto+trust=open": "Ristretto, open"}
LABELLED, HEAD_START, MOST = 10, 250.0, 9e11
MISSING, CONCENTRATION = 0.5, 0.1


@dataclass(frozen=True)
class Measurement(Gain):
    benchmark: str
    method: str
    condition: str
    lie: str
    share: float
    seed: int
    honest: int
    attackers: int
    accuracy: float
    zero_shot: float
    seconds: float


@dataclass(frozen=True)
class Case:
    method: MethodSpec
    condition: str
    lie: str
    share: float
    seed: int


# --- what attackers know --------------------------------------------------------------------------------------


def hold_back(embeddings: Embeddings, rng: np.random.Generator) -> tuple[Embeddings, Integers]:
    """Return the embeddings that honest clients share, and the rows of the others, whose labels attackers know."""
    taken: list[int] = []
    for domain in range(len(embeddings.domains)):
        for label in range(embeddings.zero_shot.classes):
            rows = np.flatnonzero((embeddings.domain == domain) & (embeddings.labels == label))
            taken += rng.permutation(rows)[: min(LABELLED, len(rows) // 2)].tolist()
    kept = np.setdiff1d(np.arange(len(embeddings)), taken)
    index = None if embeddings.index is None else embeddings.index[kept]
    rest = replace(
        embeddings,
        views=embeddings.views[kept],
        labels=embeddings.labels[kept],
        domain=embeddings.domain[kept],
        index=index,
        client=None if embeddings.client is None else embeddings.client[kept],
    )
    return rest, np.array(sorted(taken), np.int64)


def knowledge(embeddings: Embeddings, rows: Integers, labelled: Integers) -> list[Knowledge]:
    """Return what follows for each domain from images (``rows``) and from those whose labels are known, too."""
    zero_shot, known = embeddings.zero_shot, []
    for domain in range(len(embeddings.domains)):
        own, named = (part[embeddings.domain[part] == domain] for part in (rows, labelled))
        truth = zero_shot.precise_text.copy()  # of a class that has no image in the domain
        vectors = np.asarray(embeddings.views[named, 0], np.float64)
        for label in np.unique(embeddings.labels[named]):
            truth[label] = vectors[embeddings.labels[named] == label].mean(axis=0)
        images = np.asarray(embeddings.views[own, 0], np.float64)
        soft = softmax(images @ zero_shot.precise_scaled.T)
        counts = soft.sum(axis=0)
        known.append(Knowledge(truth, counts, soft.T @ images / np.maximum(counts, 1e-9)[:, None]))
    return known


@dataclass(frozen=True)
class Scene:
    """A federation of honest clients, and what attackers may know: from few labelled images, or from all labels.

    Attackers pose as clients of the domains of honest clients drawn at random, or of every domain ``in_turn``.
    """

    federation: Federation
    few: Sequence[Knowledge]
    all: Sequence[Knowledge]
    in_turn: bool

    @classmethod
    def of(cls, embeddings: Embeddings, seed: int, a: argparse.Namespace, name: str) -> Scene:
        rest, rows = hold_back(embeddings, np.random.default_rng([seed, 0]))
        federation = first_clients(federate(rest, default_clients(embeddings, name), seed), a)
        clients = tuple(replace(client, samples=client.samples[: a.images]) for client in federation.clients)
        everything = np.arange(len(embeddings))
        few, known = (knowledge(embeddings, rows, labelled) for labelled in (rows, everything))
        return cls(Federation(rest, clients), few, known, a.in_turn)

    def posing(self, attackers: int, rng: np.random.Generator) -> list[int]:
        """Return the domain of every attacker."""
        if self.in_turn:
            return [i % len(self.federation.embeddings.domains) for i in range(attackers)]
        order = rng.permutation(len(self.federation))
        return [self.federation.clients[order[i % len(order)]].domain for i in range(attackers)]


# --- runs -----------------------------------------------------------------------------------------------------


def measure(scene: Scene, case: Case) -> Measurement:
    rng, federation = np.random.default_rng([case.seed, 1]), scene.federation
    if case.condition == "skew":
        federation = skew_labels(federation, CONCENTRATION, rng)
    longest = max(len(client) for client in federation.clients)
    starts = None
    if case.condition in ("new devices", "joins"):
        late = rng.permutation(len(federation)) % 2 == 1
        when = rng.integers(2, longest + 1, len(federation)) if case.condition == "joins" else longest // 2 + 1
        starts = tuple(np.where(late, when, 1).tolist())
    schedule = Schedule(sync="doubling", starts=starts)
    names = tuple(client.name for client in federation.clients)
    zero_shot, method = federation.embeddings.zero_shot, case.method
    exchange: Any = create_exchange(method.name, zero_shot, method.params, clients=names)
    attackers = round(case.share / (1 - case.share) * len(federation)) if case.lie else 0
    if attackers:
        domains = {client.name: client.domain for client in federation.clients}
        known = scene.all if case.condition.endswith("labels") else scene.few
        posing = scene.posing(attackers, rng)
        exchange = AttackedExchange(exchange, attack_of(case, longest), zero_shot, domains, posing, known)
    elif case.condition == "int8":
        exchange = QuantisedExchange(exchange)
    elif case.condition == "missing":
        empty = describe(method.name).kind.Download.empty
        exchange = LossyExchange(exchange, MISSING, lambda: empty(zero_shot), rng)
    started = time.process_time()
    outcome = run(federation, case, schedule, exchange)
    seconds = round(time.process_time() - started, 2)
    judged = [i for i in range(len(federation)) if case.condition != "new devices" or (starts and starts[i] > 1)]
    accuracy, plain = score(federation, outcome, judged)
    return Measurement(
        federation.embeddings.name, method.text, case.condition, case.lie, case.share, case.seed,
        len(federation), attackers, accuracy, plain, seconds,
    )  # fmt: skip


def attack_of(case: Case, longest: int) -> Attack:
    if case.condition in ("pace", "pace, labels"):
        return Attack(case.lie)
    if case.condition == "late":
        return Attack(case.lie, first=1 + sum(is_due("doubling", image) for image in range(1, longest // 2)))
    return Attack(case.lie, MOST if case.condition.startswith("inflated") else HEAD_START, live=False)


def run(federation: Federation, case: Case, schedule: Schedule, exchange: Any) -> Outcome:
    name, params, rng = case.method.name, case.method.params, generators(case.seed).cohort
    if name == "ristretto":
        return run_ristretto(federation, params, schedule, rng, exchange)
    clients, _ = set_up(federation, name, params)
    labels = [np.full(len(client), -1, np.int64) for client in federation.clients]
    for step in simulate(clients, exchange, schedule, rng):
        labels[step.client][step.sample] = step.prediction.label
    return Outcome(tuple(labels))


def score(federation: Federation, outcome: Outcome, judged: Sequence[int]) -> tuple[float, float]:
    """Return the accuracy of some clients, and that of zero-shot on the same images."""
    embeddings = federation.embeddings
    rows = np.concatenate([federation.clients[i].samples for i in judged])
    zero_shot = embeddings.zero_shot.logits(np.asarray(embeddings.views[rows, 0], np.float32)).argmax(axis=1)
    answers, labels = np.concatenate([outcome.labels[i] for i in judged]), embeddings.labels[rows]
    return 100 * float((answers == labels).mean()), 100 * float((zero_shot == labels).mean())


def cases_of(a: argparse.Namespace, seed: int) -> Iterator[Case]:
    """Yield what is to be measured with one seed: without attackers first."""
    for method in map(MethodSpec, a.methods.split(",")):
        for condition in a.conditions:
            if condition not in ATTACKS:
                yield Case(method, condition, "", 0.0, seed)
                continue
            if method.name != "ristretto" and condition not in WITHOUT_COUNTS:
                continue
            if condition == "new devices":
                yield Case(method, condition, "", 0.0, seed)
            for share in a.shares:
                for lie in a.lies:
                    yield Case(method, condition, lie, share, seed)


def measure_all(a: argparse.Namespace, done: Sequence[Measurement]) -> Iterator[Measurement]:
    """Yield what is not among those that are done."""
    known = {(m.benchmark, m.method, m.condition, m.lie, m.share, m.seed) for m in done}
    for file in a.files:
        embeddings = read_benchmark(BenchmarkFile(file.stem, file))
        for seed in parse_seeds(a.seeds):
            scene: Scene | None = None
            for case in cases_of(a, seed):
                if (embeddings.name, case.method.text, case.condition, case.lie, case.share, seed) not in known:
                    scene = scene or Scene.of(embeddings, seed, a, file.stem)
                    yield measure(scene, case)


# --- the table ------------------------------------------------------------------------------------------------


def table(measurements: Sequence[Measurement]) -> str:
    """Return the mean gain over seeds under the worst lie, for every share, a row per condition and method.

    The worst lie is the one with the lowest mean. A star is at cells that lack a lie or a seed that others have.
    """
    benchmarks = list(dict.fromkeys(m.benchmark for m in measurements))
    rows = dict.fromkeys((m.condition, m.method) for m in measurements)
    order = ("none", *ATTACKS, *NETWORKS)
    columns = [[m for m in measurements if m.benchmark == name] for name in benchmarks]
    heads = [f"{name}, {seeds_of(column)}" for name, column in zip(benchmarks, columns, strict=True)]
    lines = ["| | | " + " | ".join(heads) + " |", "|:--|:--" + "|--:" * len(benchmarks) + "|"]
    for condition, method in sorted(rows, key=lambda row: order.index(row[0])):
        cells = [cell(column, condition, method) for column in columns]
        lines.append(f"| {condition} | {NAMES.get(method, method)} | " + " | ".join(cells) + " |")
    return "\n".join(lines).replace(" -", " −").replace("(-", "(−")


def seeds_of(column: Sequence[Measurement]) -> str:
    seeds = sorted({m.seed for m in column})
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    whole = seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]} to {seeds[-1]}" if whole else f"seeds {', '.join(map(str, seeds))}"


def cell(column: Sequence[Measurement], condition: str, method: str) -> str:
    """Return the gains under attack for all shares; in brackets, without attackers where that is another number."""
    gains: dict[float, dict[str, list[float]]] = {}
    for m in column:
        if (m.condition, m.method) == (condition, method):
            gains.setdefault(m.share, {}).setdefault(m.lie, []).append(m.gain)
    clean = gains.pop(0.0, {}).get("", [])
    seeds, lies = len({m.seed for m in column}), len({m.lie for m in column if m.lie})
    if not gains:
        if not clean:
            return ""
        mean = interval(clean) if len(clean) > 2 else f"{np.mean(clean):+.2f}"  # an interval of two says nothing
        return mean + "*" * (len(clean) < seeds)
    worst = [min(float(np.mean(values)) for values in gains[share].values()) for share in sorted(gains)]
    told = [sum(map(len, by_lie.values())) for by_lie in gains.values()]
    text = " / ".join(f"{gain:+.1f}" for gain in worst) + "*" * (set(told) != {lies * seeds})
    return f"{text} ({np.mean(clean):+.1f})" if clean else text


def main() -> None:
    parser = make_parser(__doc__, methods="latte,ristretto,ristretto+trust=open", seeds="0-2")
    parser.add_argument("--conditions", default="attacks", help="attacks, networks, or some, comma-separated")
    parser.add_argument("--shares", default="0.1,0.3,0.5", help="of all clients that are attackers")
    parser.add_argument("--lies", default=",".join(LIES), help="that are told, the same to every method")
    parser.add_argument("--images", type=int, help="use this many images of each client, its first")
    parser.add_argument("--in-turn", action="store_true", help="attackers of every domain in turn, not of drawn ones")
    parser.add_argument("--read", action="store_true", help="FILES are JSON lines from before: print their table")
    a = parser.parse_args()
    groups = {"attacks": ("none", *ATTACKS[:-1]), "networks": ("none", *NETWORKS)}
    a.conditions = groups.get(a.conditions) or merged(a.conditions.split(","))
    a.shares, a.lies = [float(s) for s in a.shares.split(",")], a.lies.split(",")
    for name in a.conditions:
        if name not in ("none", *ATTACKS, *NETWORKS):
            sys.exit(f"hostile: --conditions: got {name!r}, want some of none, {', '.join((*ATTACKS, *NETWORKS))}")
    if a.read:
        print(table([measurement for file in a.files for measurement in read_measurements(file, Measurement)]))
    else:
        print(table(measure_missing(a.out, Measurement, lambda done: measure_all(a, done))))


def merged(parts: Sequence[str]) -> list[str]:
    """Return conditions of which some have a comma in their name.

    >>> merged(["none", "pace", " labels"])
    ['none', 'pace, labels']
    """
    names: list[str] = []
    for part in parts:
        if part.strip() == "labels" and names:
            names[-1] += ", labels"
        else:
            names.append(part.strip())
    return names


if __name__ == "__main__":
    main()
