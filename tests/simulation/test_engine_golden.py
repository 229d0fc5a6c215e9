"""The engine on the inputs of the golden set: what the readable method predicts, and what was recorded."""

import json
from pathlib import Path

import numpy as np
import pytest

from latte.data.federation import ClientStream, Embeddings, Federation
from latte.engine import run_fast
from latte.simulation.simulator import Schedule
from parity.golden_case import Case
from simulation.engine_support import compare

pytest.importorskip("numba")

FOLDER = Path(__file__).parent.parent / "parity" / "golden"
NAMES = [case["name"] for case in json.loads((FOLDER / "index.json").read_text())]


def federation_of(case: Case) -> Federation:
    rows = case.arrays["X"]
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    nothing = np.zeros(len(rows), np.int64)
    embeddings = Embeddings(case.info["name"], case.zero_shot, unit[:, None], nothing, nothing, ("all",))
    cuts = case.arrays["client_offsets"]
    streams = zip(case.info["client_ids"], cuts[:-1], cuts[1:], strict=True)
    return Federation(embeddings, tuple(ClientStream(str(n), 0, np.arange(a, b)) for n, a, b in streams))


@pytest.mark.parametrize("name", NAMES)
def test_against_the_readable_simulator(name):
    case = Case.read(FOLDER, name)
    schedule = Schedule(int(case.info["sync_freq"]), float(case.info["part_rate"]))
    outcome = compare(federation_of(case), "latte", case.params, schedule)
    assert outcome.ties == 0
    assert outcome.downloads_equal


@pytest.mark.parametrize("name", NAMES)
def test_against_the_recording(name):
    case = Case.read(FOLDER, name)
    if case.info["part_rate"] != 1:
        pytest.skip("the recorded cohorts cannot be drawn again")
    fast = run_fast(federation_of(case), "latte", case.params, Schedule(int(case.info["sync_freq"])))
    strict = case.strict
    np.testing.assert_array_equal(np.concatenate(fast.labels)[strict], case.arrays["final"][strict])
