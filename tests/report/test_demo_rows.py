"""The rows of the demo, from records."""

import json

import numpy as np
import pytest

from latte.data.bundled import DEMO_FILE, demo_embeddings
from latte.demo.pacs import BENCHMARK, SEEDS, best_baseline, demo_lines, demo_plan, demo_rows
from latte.experiment.runner import TrialRun
from latte.simulation.results import ClientScore, Result

CORRECT = {"clip": (40, 40), "tda": (44, 46), "dmn-global": (50, 52), "latte": (55, 57), "ristretto": (60, 68)}
SENT = {"dmn-global": 2_000_000.0, "latte": 681_000.0, "ristretto": 137_000.0}


def results() -> list[Result]:
    return [
        Result(BENCHMARK, method, {}, "default", seed, scores(right), sent=SENT.get(method))
        for method, by_seed in CORRECT.items()
        for seed, right in enumerate(by_seed)
    ]


def trials() -> list[TrialRun]:
    return [TrialRun(result, np.zeros(1), None) for result in results()]


def scores(right: int) -> tuple[ClientScore, ...]:
    return ClientScore("photo-0", "photo", 50, right // 2), ClientScore("sketch-1", "sketch", 50, right - right // 2)


def test_gains_are_paired_with_zero_shot():
    rows = {row.name: row for row in demo_rows(trials())}
    latte = rows["latte"]
    assert latte.accuracy == 56 and latte.gain.mean == 16
    assert latte.gain.low == pytest.approx(16 - 12.706, abs=1e-3)  # t with one degree of freedom, half width 12.706 · 1
    assert rows["clip"].label == "zero-shot" and rows["clip"].gain is None and rows["clip"].format_bytes() == "0"
    assert latte.domains == {"photo": 55.0, "sketch": 57.0}


def test_the_best_baseline_is_shown_and_counted():
    rows = demo_rows(trials())
    assert best_baseline(rows).name == "dmn-global"
    lines = demo_lines(rows)
    assert any(line.startswith("DMN-ZS (global), best of 2 ") and line.endswith("2,000") for line in lines)
    assert not any("TDA" in line for line in lines)


def test_json_has_every_method():
    rows = json.loads(json.dumps([row.as_json() for row in demo_rows(trials())]))
    assert [row["method"] for row in rows] == list(CORRECT)
    assert (
        rows[0]["gain"] is None
        and rows[-1]["kB_per_client"] == 137.0
        and len(rows[-1]["interval"]) == len(rows[-1]["interval_over_splits"]) == 2
    )


def test_what_is_run_is_the_whole_set_with_defaults():
    plan = demo_plan()
    assert plan.config.clients_per_domain == 10 and plan.config.seeds == SEEDS == tuple(range(10))
    assert {method.setting for method in plan.config.methods} == {"default"}
    assert plan.entry.path == DEMO_FILE and len(demo_embeddings()) == 9991
