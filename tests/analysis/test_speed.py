"""The speed benchmark on shapes that take no time; the figures themselves are not tested."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from latte.analysis import speed
from latte.cli.bench_command import bench
from latte.methods.latte import LatteParams
from latte.simulation.schedule import Schedule
from simulation.engine_support import readable

BASELINE = Path(__file__).parents[2] / "benchmarks" / "torch_baseline.py"
TINY = speed.BenchShape(clients=5, classes=4, samples=60, rounds=6)


def test_the_roofline_is_what_its_docstring_says():
    machine = speed.Machine(bandwidth=1e30, products=512.0)  # one row per second
    shape = speed.BenchShape(clients=2, classes=5, samples=20, rounds=1)  # two samples per class and client: all enter
    assert speed._roofline(shape, LatteParams(k_l=3), machine) == 5 + 15 + 3 + 5 + 2
    machine = speed.Machine(bandwidth=4 * 512.0, products=1e30)  # one row per second, once per window of 32 samples
    assert speed._roofline(shape, LatteParams(k_l=3), machine) == 1 + 15 / 32 + 3


def test_first_rounds():
    federation = speed.clip_like(TINY)
    head = speed.first_rounds(federation, 6)
    assert [len(client) for client in head.clients] == [6] * 5
    np.testing.assert_array_equal(head.clients[2].samples, federation.clients[2].samples[:6])


def test_made_up_embeddings_are_neither_trivial_nor_noise():
    federation = speed.clip_like(speed.SHAPES["vlcs"])
    rows, zero_shot = federation.embeddings.views[:, 0], federation.embeddings.zero_shot
    right = (zero_shot.logits(rows).argmax(axis=1) == federation.embeddings.labels).mean()
    assert 0.4 < right < 0.99


def test_the_command(monkeypatch):
    monkeypatch.setitem(speed.SHAPES, "vlcs", TINY)
    monkeypatch.setattr(speed, "peak_memory", lambda name: speed.high_water())
    arguments = ["speed", "--shape", "vlcs", "--repeat", "1", "--baseline", "nothing"]
    shown = CliRunner().invoke(bench, arguments)
    assert shown.exit_code == 0, shown.output
    assert "vlcs" in shown.output
    told = json.loads(CliRunner().invoke(bench, [*arguments, "--json"]).stdout)
    row = told["shapes"][0]
    assert row["different"] == [0, None]
    assert row["engine"] > 0 and row["readable"] > 0 and row["baseline"] is None


def test_peak_memory_is_that_of_a_process_of_its_own():
    assert 20 < speed.high_water() < 1e5


@pytest.mark.parametrize("shape", [TINY, speed.BenchShape(clients=9, classes=3, samples=200, rounds=30)], ids=str)
def test_the_baseline_is_the_released_variant(shape):
    pytest.importorskip("torch")
    federation = speed.clip_like(shape)
    params = LatteParams(variant="released", k_l=3, k_e=4)
    baseline = speed.load_baseline(BASELINE)
    streams = [federation.stream(client)[:, 0] for client in federation.clients]
    labels = baseline.run(streams, np.array(federation.embeddings.zero_shot.text), params)
    logits, _ = readable(federation, "latte", params, Schedule(), np.random.default_rng(0))
    for got, want in zip(labels, logits, strict=True):
        np.testing.assert_array_equal(got, want.argmax(axis=1))
