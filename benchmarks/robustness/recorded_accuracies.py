"""Accuracies of the methods of the field beside recorded ones, which a second implementation of each measured.

LATTE_DATA=FOLDER python benchmarks/robustness/recorded_accuracies.py run RECORDED.csv FILE.jsonl
python benchmarks/robustness/recorded_accuracies.py table RECORDED.csv FILE.jsonl

`run` adds a line of JSON to FILE for every row of RECORDED.csv that FILE lacks; a row is met where the mean of the
same seeds is within three standard deviations of the recorded one, or half a point. `table` prints them as Markdown.
--settings, --datasets and --methods choose among the rows.

- central: one client, its stream `default_rng(seed).permutation(n)`, of PACS and CIFAR-10-C the first 5,000 images
- local: 10 clients per domain, each by itself; of CIFAR-10-C the first client of each domain
- fed_*: the same clients, all of them, with syncs after 1, 2, 4, 8, 16 images and then every 16
- views_*: 500 images with 64 views each
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import json
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from latte.data.catalogue import list_benchmarks, read_benchmark
from latte.data.federation import ClientStream, Embeddings, Federation, federate
from latte.engine import run_fast
from latte.simulation.simulator import Schedule, run_readable

SHORT, SHORT_STREAM = ("pacs", "cifar10c"), 5000
LEAST, DEVIATIONS = 0.5, 3  # points, and recorded standard deviations
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("oga", "dota", "onzeta", "ecalp", "pta", "bca", "mta", "adapt")},
    "oga_count": ("oga", {"mean": "count"}),
    "onzeta_alpha0": ("onzeta", {"alpha": 0.0}),
    "adapt_fresh": ("adapt", {"similarity": "own"}),
    "pta_alpha0": ("pta", {"alpha": 0.0}),
    "pta_gate": ("pta", {"gate": True}),
}
FEDERATED = {
    "fed_local": ("pta", {}),
    "fed_sum": ("pta-fed", {"weights": "sum"}),
    "fed_cap5": ("pta-fed", {"weights": "sum", "cap": 5.0}),
    "fed_near": ("pta-fed", {"weights": "near"}),
    "fed_global": ("pta-global", {}),
}
read: Callable[[str], Embeddings] = cache(lambda name: read_benchmark(list_benchmarks()[name]))


def key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["setting"], row["dataset"], row["method"]


def chosen(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the method and the parameters of a recorded row."""
    name, params = VARIANTS[row["method"]]
    if name == "adapt":  # its constant is published per dataset
        params = {**params, "s": float(re.findall(r"s=(\d+)", row["parameters"])[0])}
    if row["method"] == "onzeta" and row["dataset"] == "clip_caltech":
        params = {"alpha": 0.0}
    form, more = FEDERATED.get(row["setting"], (name, {}))
    return form, {**params, **more}


def dealt(setting: str, dataset: str, seed: int) -> Federation:
    if dataset.startswith("views_"):
        embeddings = read(dataset)
        return Federation(embeddings, (ClientStream("all", 0, np.arange(len(embeddings))),))
    embeddings = read(dataset)
    if setting == "central":
        order = np.random.default_rng(seed).permutation(len(embeddings))
        order = order[:SHORT_STREAM] if dataset in SHORT else order
        return Federation(embeddings, (ClientStream("all", 0, order),))
    federation = federate(embeddings, 10, seed)
    if setting == "local" and dataset == "cifar10c":
        first = {client.domain: client for client in reversed(federation.clients)}
        return Federation(embeddings, tuple(first[domain] for domain in sorted(first)))
    return federation


def measure(row: dict[str, Any]) -> dict[str, Any]:
    name, params = chosen(row)
    accuracies, started, images = [], time.process_time(), 0
    for seed in range(int(row["runs"])):
        federation = dealt(row["setting"], row["dataset"], seed)
        arguments = federation, name, params, Schedule(sync="doubling")
        outcome = run_fast(*arguments) or run_readable(*arguments, calibration=False)
        right = np.concatenate(outcome.correct(federation))
        accuracies.append(100 * float(right.mean()))
        images += len(right)
    milliseconds = 1000 * (time.process_time() - started) / images
    found = {name: row[name] for name in ("setting", "dataset", "method")}
    return found | {"accuracies": [round(one, 3) for one in accuracies], "ms": round(milliseconds, 3)}


def slack(row: dict[str, Any]) -> float:
    return max(LEAST, DEVIATIONS * float(row["accuracy_std"] or 0))


def table(rows: list[dict[str, Any]], measured: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    met = [abs(np.mean(measured[key(row)]["accuracies"]) - float(row["accuracy_mean"])) <= slack(row)
           for row in rows if key(row) in measured]  # fmt: skip
    print(f"{len(rows)} rows, {len(met)} measured, {sum(met)} of them met.\n")
    print("| setting | dataset | method | recorded | here | difference | allowed | ms per image |\n" + "|---" * 8 + "|")
    for row in rows:
        if (found := measured.get(key(row))) is None:
            print(f"| {' | '.join(key(row))} | {float(row['accuracy_mean']):.2f} | not run | | | |")
            continue
        here, recorded = float(np.mean(found["accuracies"])), float(row["accuracy_mean"])
        late = "" if abs(here - recorded) <= slack(row) else " **not met**"
        cost = format(found["ms"], ".2f") if "ms" in found else found["source"]
        numbers = f"{recorded:.2f} | {here:.2f} | {here - recorded:+.2f}{late} | {slack(row):.2f} | {cost}"
        print(f"| {' | '.join(key(row))} | {numbers} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("recorded", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--settings", default="")
    parser.add_argument("--datasets", default="")
    parser.add_argument("--methods", default="")
    options = parser.parse_args()
    with options.recorded.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] in VARIANTS]
    lines = options.file.read_text(encoding="utf-8").splitlines() if options.file.is_file() else []
    measured = {key(row): row for row in map(json.loads, lines)}
    if options.command == "table":
        return table(rows, measured)
    wanted = [(options.settings, "setting"), (options.datasets, "dataset"), (options.methods, "method")]
    for row in rows:
        if key(row) not in measured and all(not only or row[name] in only.split(",") for only, name in wanted):
            found = measure(row)
            with options.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(json.dumps(found), "recorded", row["accuracy_mean"], row["accuracy_std"], flush=True)
    return None


if __name__ == "__main__":
    main()
