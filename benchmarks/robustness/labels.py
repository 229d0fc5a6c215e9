"""Labels that teach: the gain on images that nobody labelled, against the number of labels, beside central training.

python benchmarks/robustness/labels.py run DATA OUT.jsonl [--sets pacs,clip_dtd] [--methods ristretto,latte]
python benchmarks/robustness/labels.py hostile DATA OUT.jsonl    # one client that lies, with and without the right
python benchmarks/robustness/labels.py table OUT.jsonl           # the tables of benchmarks/results/labels.md
python benchmarks/robustness/labels.py figure OUT.jsonl GAIN.svg

DATA is a folder of embeddings. Called again, ``run`` goes on where it stopped. The central baselines have all labels
from the start: Tip-Adapter (no training, its authors' alpha 1 and beta 5.5), and a probe, logistic regression of what
zero-shot does not explain.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from latte.core.maths import softmax
from latte.core.types import Integers, Reals, TeachingRights
from latte.data.catalogue import find_benchmark, read_benchmark
from latte.data.federation import Federation, federate, generators
from latte.files.atomic import append_line
from latte.simulation.labelling import Labelling
from latte.simulation.simulator import Schedule, set_up, simulate

SETS = ("pacs", "clip_dtd", "clip_pets", "clip_cars", "cifar10c")
SEEDS = (102, 103)
PLANS = (
    Labelling(),
    *(Labelling(per_class=n) for n in (1, 2, 5, 10)),
    *(Labelling(random=n) for n in (30, 100, 300)),
    *(Labelling(margin=n) for n in (30, 100, 300)),
)
CENTRAL = ("tip-adapter", "probe")
MOST_CLIENTS = {"cifar10c": 60}  # drawn at random, of its 190


@dataclass(frozen=True)
class Measured:
    """The accuracy of a method on what nobody labelled, and of zero-shot on the same images, in per cent."""

    data: str
    method: str
    plan: str
    seed: int
    labels: int
    accuracy: float
    zero_shot: float
    seconds: float

    @property
    def gain(self) -> float:
        return self.accuracy - self.zero_shot


def name_of(plan: Labelling) -> str:
    for name in ("per_class", "random", "margin"):
        if number := getattr(plan, name):
            return f"{name}={number}"
    return "none"


def federation_of(data: Path, name: str, seed: int) -> Federation:
    embeddings = read_benchmark(find_benchmark(name, data))
    federation = federate(embeddings, 10, seed)
    order = generators(seed).cohort.permutation(len(federation))
    return Federation(embeddings, tuple(federation.clients[i] for i in sorted(order[: MOST_CLIENTS.get(name)])))


# --- the fleet ------------------------------------------------------------------------------------------------


def right_of(federation: Federation, method: str, told: tuple[Integers, ...] | None, rights: TeachingRights) -> Reals:
    """Return which answers are right, client after client, as 0 and 1. ``method`` may be "ristretto+trust=open"."""
    name, _, trust = method.partition("+trust=")
    clients, exchange = set_up(federation, name, {"trust": trust} if trust else None, None, generators(0).cohort)
    if told is not None:
        clients = [replace(client, told=mine) for client, mine in zip(clients, told, strict=True)]
    if exchange is not None:
        exchange.exchange.grant(rights)  # type: ignore[attr-defined]
    right = [np.zeros(len(client)) for client in federation.clients]
    truth = [federation.labels(client) for client in federation.clients]
    for step in simulate(clients, exchange, Schedule(sync="doubling")):
        right[step.client][step.sample] = step.prediction.label == truth[step.client][step.sample]
    return np.concatenate(right)


# --- central training -----------------------------------------------------------------------------------------


def central_logits(kind: str, logits: Reals, rows: Reals, given: Integers, classes: Integers) -> Reals:
    """Return the logits of all images (n, C) after training on those at ``given`` (l,), of these ``classes``."""
    labels = np.eye(logits.shape[1])[classes]
    images = rows[given]
    if kind == "tip-adapter":
        return logits + np.exp(-5.5 * (1 - rows @ images.T)) @ labels
    weights, bias = np.zeros((logits.shape[1], rows.shape[1])), np.zeros(logits.shape[1])
    centre = rows.mean(axis=0)
    images = images - centre
    ridge, step = 1e-3, 4.0
    for _ in range(500):
        error = labels - softmax(logits[given] + images @ weights.T + bias)
        weights += step * (error.T @ images / len(given) - ridge * weights)
        bias += 0.1 * step * error.mean(axis=0)
    trained: Reals = logits + (rows - centre) @ weights.T + bias
    return trained


# --- runs -----------------------------------------------------------------------------------------------------


def measure(
    data: Path, sets: list[str], methods: list[str], plans: str, seeds: list[int], done: set[tuple[str, str, str, int]]
) -> Iterator[Measured]:
    for seed in seeds:
        for name in sets:
            federation = federation_of(data, name, seed)
            samples = np.concatenate([client.samples for client in federation.clients])
            rows = federation.embeddings.views[samples, 0].astype(np.float64)
            zero_shot = federation.embeddings.zero_shot
            logits, truth = zero_shot.logits(rows.astype(np.float32)), federation.embeddings.labels[samples]
            plain = (logits.argmax(axis=1) == truth).astype(float)
            for plan in PLANS:
                if plans and name_of(plan) not in plans.split(","):
                    continue
                told = plan.told(federation, generators(seed).labels)
                named = np.concatenate(told) if told is not None else np.full(len(samples), -1)
                left, given = named < 0, np.flatnonzero(named >= 0)
                for method in methods:
                    if (name, method, name_of(plan), seed) in done or (method in CENTRAL and not len(given)):
                        continue
                    start = time.time()
                    if method in CENTRAL:
                        trained = central_logits(method, logits, rows, given, named[given])
                        right = (trained.argmax(axis=1) == truth).astype(float)
                    else:
                        right = right_of(federation, method, told, TeachingRights())
                    found = (float(100 * values[left].mean()) for values in (right, plain))
                    yield Measured(name, method, name_of(plan), seed, len(given), *found, time.time() - start)


def hostile(data: Path, methods: list[str], done: set[tuple[str, str, str, int]]) -> Iterator[Measured]:
    """One client of PACS names the next class for each of its first 32 images; five labels per class are honest.

    The images of the one that lies are not counted, nor any with a label.
    """
    for seed in range(5):
        federation = federation_of(data, "pacs", seed)
        classes = federation.embeddings.zero_shot.classes
        samples = np.concatenate([client.samples for client in federation.clients])
        rows, truth = federation.embeddings.views[samples, 0], federation.embeddings.labels[samples]
        plain = (federation.embeddings.zero_shot.logits(np.asarray(rows)).argmax(axis=1) == truth).astype(float)
        honest = Labelling(per_class=5).told(federation, generators(seed).labels)
        assert honest is not None
        liar, names = federation.clients[0], frozenset(client.name for client in federation.clients)
        honest[0][:] = -1
        lies = (np.where(np.arange(len(liar)) < 32, (federation.labels(liar) + 1) % classes, -1), *honest[1:])
        left = (np.concatenate(honest) < 0) & (np.arange(len(samples)) >= len(liar))
        cases = {
            "no labels": (None, TeachingRights()),
            "honest labels": (honest, TeachingRights()),
            "and one that lies, with the right": (lies, TeachingRights()),
            "and one that lies, without": (lies, TeachingRights(names - {liar.name})),
            "and one that lies, nobody has the right": (lies, TeachingRights(frozenset())),
        }
        for method, (case, (told, rights)) in itertools.product(methods, cases.items()):
            if ("pacs", method, case, seed) in done:
                continue
            start = time.time()
            right = right_of(federation, method, told, rights)
            found = (float(100 * values[left].mean()) for values in (right, plain))
            labels = 0 if told is None else int((np.concatenate(told) >= 0).sum())
            yield Measured("pacs", method, case, seed, labels, *found, time.time() - start)


# --- tables and the figure ------------------------------------------------------------------------------------


def read(path: Path) -> list[Measured]:
    return [Measured(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def mean_gains(measured: list[Measured]) -> dict[tuple[str, str, str], list[float]]:
    gains: dict[tuple[str, str, str], list[float]] = {}
    for one in measured:
        gains.setdefault((one.method, one.plan, one.data), []).append(one.gain)
    return gains


def print_tables(measured: list[Measured]) -> None:
    gains = mean_gains(measured)
    sets = [name for name in SETS if any(key[2] == name for key in gains)]
    plans = list(dict.fromkeys([*map(name_of, PLANS), *(one.plan for one in measured)]))
    for method in dict.fromkeys(one.method for one in measured):
        print(f"\n| {method} | " + " | ".join(sets) + " |\n|" + "---|" * (len(sets) + 1))
        for plan in plans:
            cells = [gains.get((method, plan, name)) for name in sets]
            if any(cells):
                print(f"| {plan} | " + " | ".join(shown(cell) for cell in cells) + " |")


def shown(cell: list[float] | None) -> str:
    """Return the mean; in brackets if it is that of one partition, and beside the extremes if it is of many."""
    if not cell:
        return ""
    text = f"{np.mean(cell):+.1f}"
    if len(cell) < len(SEEDS):
        return f"({text})"
    return text if len(cell) == len(SEEDS) else f"{text} [{min(cell):.1f}, {max(cell):.1f}]"


def draw(measured: list[Measured], out: Path) -> None:
    """Draw the mean gain over the sets against the number of labels drawn at random."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    sets = [name for name in SETS if any(one.data == name for one in measured)]
    figure, axes = plt.subplots(1, len(sets), figsize=(3 * len(sets), 3), sharex=True)
    for axis, name in zip(np.atleast_1d(axes), sets, strict=True):
        for method, style in (("ristretto", "-o"), ("latte", "-s"), ("probe", ":^"), ("tip-adapter", ":v")):
            points: dict[int, list[float]] = {}
            for one in measured:
                if one.data == name and one.method == method and one.plan.startswith(("random", "none")):
                    points.setdefault(one.labels, []).append(one.gain)
            if points:
                xs = sorted(points)
                axis.plot(xs, [np.mean(points[x]) for x in xs], style, label=method, markersize=4)
        axis.axhline(0, color="0.7", linewidth=0.8)
        axis.set_title(name)
        axis.set_xlabel("labels in the whole fleet")
        lowest, highest = axis.get_ylim()
        axis.set_ylim(max(lowest, -10), highest)
    np.atleast_1d(axes)[0].set_ylabel("gain over zero-shot (points)")
    np.atleast_1d(axes)[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "hostile", "table", "figure"])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default="ristretto,latte,tip-adapter,probe")
    parser.add_argument("--plans", default="", help="such as none,per_class=2; all without it")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="of the partitions")
    a = parser.parse_args()
    if a.what in ("table", "figure"):
        measured = read(a.paths[0])
        print_tables(measured) if a.what == "table" else draw(measured, a.paths[1])
        return
    data, out = a.paths
    done = {(one.data, one.method, one.plan, one.seed) for one in read(out)}
    methods = a.methods.split(",")
    if a.what == "hostile":
        runs = hostile(data, [method for method in methods if method not in CENTRAL], done)
    else:
        runs = measure(data, a.sets.split(","), methods, a.plans, [int(seed) for seed in a.seeds.split(",")], done)
    for one in runs:
        append_line(out, json.dumps(asdict(one)))
        print(f"{one.data} {one.method} {one.plan} {one.seed}: {one.gain:+.2f} ({one.seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
