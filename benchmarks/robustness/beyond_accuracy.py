"""What accuracy does not tell, for every method: orders, label shift, mixed domains, unknown classes, time and memory.

LATTE_DATA=FOLDER python benchmarks/robustness/beyond_accuracy.py clip_dtd pacs --methods clip,pta --out FILE.jsonl

One line of JSON per benchmark and method; what FILE has is not measured again. With --table, FILE is printed as
Markdown, and nothing is measured. Ten clients per domain, syncs
after 1, 2, 4, 8, 16 images, then every 16; seed 0.

- orders: the same clients with the same images in three orders
- label shift: the images of a domain dealt anew to its clients by class, in shares from a Dirichlet of 0.1
- mixed domains: as many clients, each with images of all domains; files of one domain have none
- unknown classes: the second half of the classes is unknown to the classifier, its images stay in the streams
- time and memory: one client's stream, one process, without syncs; what `state()` holds at its end
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from label_skew import skew_labels
from measures import auroc, fpr95, over_orders, regret

from latte.core.zero_shot import ZeroShot
from latte.data.catalogue import list_benchmarks, read_benchmark
from latte.data.federation import Embeddings, Federation, federate
from latte.engine import run_fast
from latte.experiment.config import MethodConfig, configure
from latte.simulation.results import Outcome
from latte.simulation.simulator import Schedule, run_readable, set_up

CLIENTS, SEED, ORDERS, CONCENTRATION = 10, 0, 3, 0.1
SCHEDULE = Schedule(sync="doubling")


def run(federation: Federation, method: MethodConfig) -> Outcome:
    arguments = federation, method.name, dict(method.params), SCHEDULE
    return run_fast(*arguments) or run_readable(*arguments)


def gain(federation: Federation, method: MethodConfig) -> float:
    """Return the accuracy above that of zero-shot in the same federation, in points."""
    ours, plain = (np.concatenate(run(federation, one).correct(federation)) for one in (method, MethodConfig("clip")))
    return float(100 * (ours.mean() - plain.mean()))


def reordered(federation: Federation, number: int) -> Federation:
    rng = np.random.default_rng(number)
    return replace(
        federation, clients=tuple(replace(one, samples=rng.permutation(one.samples)) for one in federation.clients)
    )


def mixed(embeddings: Embeddings) -> Embeddings:
    return replace(embeddings, domain=np.zeros(len(embeddings), np.int64), domains=("mixed",), index=None)


def halved(embeddings: Embeddings) -> tuple[Embeddings, np.ndarray[Any, Any]]:
    """Return embeddings whose classifier knows the first half of the classes, and which images are of these."""
    old = embeddings.zero_shot
    count = math.ceil(old.classes / 2)
    known = embeddings.labels < count
    zero_shot = ZeroShot(old.text[:count], old.classnames[:count], scale=old.scale)
    return replace(embeddings, zero_shot=zero_shot, labels=np.where(known, embeddings.labels, 0)), known


def unknown_classes(embeddings: Embeddings, method: MethodConfig) -> dict[str, float]:
    half, known = halved(embeddings)
    federation = federate(half, CLIENTS, SEED)
    outcome = run(federation, method)
    samples = np.concatenate([client.samples for client in federation.clients])
    right, scores = np.concatenate(outcome.correct(federation)), np.concatenate(outcome.confidences or ())
    inside = known[samples]
    alone = tuple(replace(one, samples=one.samples[known[one.samples]]) for one in federation.clients)
    clean = replace(federation, clients=tuple(one for one in alone if len(one)))
    undisturbed = np.concatenate(run(clean, method).correct(clean))
    return {
        "auroc": auroc(scores[inside], scores[~inside]),
        "fpr95": fpr95(scores[inside], scores[~inside]),
        "contamination": float(100 * (right[inside].mean() - undisturbed.mean())),
    }


def orders(federation: Federation, method: MethodConfig) -> dict[str, float]:
    samples = np.sort(np.concatenate([client.samples for client in federation.clients]))
    answers, worst = [], 0
    for number in range(ORDERS):
        one = reordered(federation, number)
        outcome, plain = run(one, method), run(one, MethodConfig("clip"))
        place = np.argsort(np.concatenate([client.samples for client in one.clients]))
        answers.append(np.concatenate(outcome.labels)[place])
        worst = max([worst, *map(regret, outcome.correct(one), plain.correct(one))])
    found = over_orders(answers, federation.embeddings.labels[samples])
    return {"order_sd": found.sd, "order_range": found.range, "order_tail": found.tail, "flips": found.flips} | {
        "regret": worst
    }


def cost(federation: Federation, method: MethodConfig) -> dict[str, float]:
    """Return milliseconds per image and megabytes of state of the client with the longest stream."""
    longest = max(federation.clients, key=len)
    (client,), _ = set_up(replace(federation, clients=(longest,)), method.name, dict(method.params))
    started = time.process_time()
    for views in client.stream:
        client.method.predict(views[:1])
    seconds = time.process_time() - started
    held = sum(array.nbytes for array in client.method.state().values())
    return {"images": len(longest), "ms": 1000 * seconds / len(longest), "mb": held / 1e6}


def measure(embeddings: Embeddings, method: MethodConfig) -> dict[str, float]:
    federation = federate(embeddings, CLIENTS, SEED)
    row = orders(federation, method)
    row["shift"] = gain(skew_labels(federation, CONCENTRATION, np.random.default_rng(SEED)), method)
    if len(embeddings.domains) > 1:
        row["mixed"] = gain(federate(mixed(embeddings), CLIENTS * len(embeddings.domains), SEED), method)
    return row | unknown_classes(embeddings, method) | cost(federation, method)


COLUMNS = (  # of the table: title, key, format
    *(("sd", "order_sd", ".2f"), ("range", "order_range", ".2f"), ("flips", "flips", ".1f"), ("regret", "regret", "d")),
    *(
        ("label shift", "shift", "+.2f"),
        ("mixed", "mixed", "+.2f"),
        ("AUROC", "auroc", ".3f"),
        ("FPR95", "fpr95", ".2f"),
    ),
    *(("contamination", "contamination", "+.2f"), ("ms", "ms", ".3f"), ("MB", "mb", ".2f")),
)


def table(rows: list[dict[str, Any]]) -> None:
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        print(f"| {benchmark} | " + " | ".join(title for title, _, _ in COLUMNS) + " |")
        print("|---" * (1 + len(COLUMNS)) + "|")
        for row in rows:
            if row["benchmark"] == benchmark:
                cells = [format(row[key], form) if key in row else "" for _, key, form in COLUMNS]
                print(f"| {row['method']} | " + " | ".join(cells) + " |")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*")
    parser.add_argument("--methods", default="clip")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.is_file() else []
    if options.table:
        return table([json.loads(line) for line in lines])
    done = {(row["benchmark"], row["method"]) for row in map(json.loads, lines)}
    for name in options.benchmarks:
        embeddings = read_benchmark(list_benchmarks()[name])
        for method in configure({"benchmark": name, "methods": options.methods.split(",")}).methods:
            if (name, method.label) in done:
                continue
            row = {"benchmark": name, "method": method.label, **measure(embeddings, method)}
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    return None


if __name__ == "__main__":
    main()
