"""Metrics beside accuracy, against recorded values where there are any (``LATTE_GOLDEN_MORE``)."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from latte.core.maths import softmax
from latte.errors import InputError
from latte.simulation.results import expected_calibration_error

pytest.importorskip("label_skew", reason="benchmarks are not part of this distribution")
from measures import auroc, fpr95, over_orders, regret

SHARED = Path(__file__).parents[3] / "shared" / "golden" / "more"
FOLDER = Path(os.environ.get("LATTE_GOLDEN_MORE", SHARED)) / "metrics"
DETECTION = sorted(FOLDER.glob("ood_*.npz"))
CALIBRATION = sorted(set(FOLDER.glob("*.npz")) - set(DETECTION))
recorded = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the recordings of the shared material")


@recorded
@pytest.mark.parametrize("path", CALIBRATION, ids=lambda path: path.stem)
def test_recorded_calibration(path):
    case = np.load(path)
    want, labels = json.loads(str(case["values"])), case["y"].astype(np.int64)
    right = case["q"].argmax(axis=1) == labels
    assert 100 * right.mean() == pytest.approx(want["accuracy"], abs=1e-9)
    for bins in (15, 20):
        ours = 100 * expected_calibration_error(case["q"].max(axis=1), right, bins)
        assert ours == pytest.approx(want[f"ece{bins}"], abs=1e-9)


@recorded
@pytest.mark.parametrize("path", DETECTION, ids=lambda path: path.stem)
def test_recorded_detection(path):
    case = np.load(path)
    logits, known = case["logits"], case["is_id"]
    msp = softmax(logits).max(axis=1)
    scores = {"msp": msp, "max_logit": logits.max(axis=1), "mcm_tau1": softmax(logits / 100).max(axis=1)}
    highest = logits.max(axis=1)
    scores["logsumexp"] = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
    scores["msp_rounded2"] = msp.round(2)  # many ties
    for name, want in json.loads(str(case["values"])).items():
        got = auroc(scores[name][known], scores[name][~known]), fpr95(scores[name][known], scores[name][~known])
        assert got == pytest.approx((want["auroc"], want["fpr95"]), abs=1e-12), name


def test_nothing_to_detect_is_not_chance():
    assert math.isnan(auroc(np.ones(3), np.zeros(0))) and math.isnan(fpr95(np.zeros(0), np.ones(3)))
    assert auroc(np.ones(3), np.ones(2)) == 0.5


def test_orders_that_change_nothing():
    labels = np.array([0, 1, 2, 1])
    stability = over_orders([labels] * 3, labels)
    assert (stability.sd, stability.range, stability.flips, stability.tail) == (0, 0, 0, 100)


def test_regret_ends_at_nothing():
    assert regret(np.array([1, 1]), np.array([0, 1])) == 0


def test_two_orders_are_too_few():
    with pytest.raises(InputError, match="orders"):
        over_orders([np.zeros(2, np.int64)], np.zeros(2, np.int64))
