"""Methods of the field against recordings of their official code (BCA: of a public port).

``LATTE_GOLDEN_MORE=<folder>`` runs the same tests on another folder of the same format.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from latte import ZeroShot, create

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("LATTE_GOLDEN_MORE", ROOT.parent / "shared" / "golden" / "more"))
METHODS = ("oga", "dota", "onzeta", "ecalp", "mta", "pta", "bca", "adapt")
CASES = [f"{name}/{path.stem}" for name in METHODS for path in sorted((FOLDER / name).glob("*.npz"))]

if not CASES:
    pytest.skip("needs the recordings of the shared material (set LATTE_GOLDEN_MORE)", allow_module_level=True)

# recorded parameters by the names that ours have
NAMES = {
    "oga": {"capacity": "k", "tau": "tau"},
    "dota": {name: name for name in ("epsilon", "sigma", "eta", "rho")},
    "onzeta": {"beta": "beta", "alpha": "alpha", "c_r": "rate_labels", "c_w": "rate_proxies", "tau_i": "temperature"}
    | {"n_total": "horizon"},
    "ecalp": {"k_image": "k", "k_text": "k_text", "gamma": "gamma"},
    "mta": {"lambda_y": "lambda_y", "lambda_q": "lambda_q"},
    "pta": {"alpha": "alpha", "T": "tau", "floor": "floor"},
    "bca": {"init_count1": "centre_images", "init_count2": "prior_images"}
    | {"threshold1": "centre_least", "threshold2": "prior_least"},
    "adapt": {"bank_size": "k", "alpha": "alpha", "s": "s"},
}


class Recorded:
    """One case: what went in, what the recorded code answered, and what ours answers."""

    def __init__(self, case: str) -> None:
        self.method = case.partition("/")[0]
        self.arrays = dict(np.load(FOLDER / f"{case}.npz"))
        self.params = json.loads(str(self.arrays["params"]))
        if source := self.params.get("X_from"):  # "case" of this method, or "method/case"
            place = source.split()[0] if "/" in source else f"{self.method}/{source}"
            held = dict(np.load(FOLDER / f"{place}.npz"))
            self.arrays = {**{n: held[n] for n in ("X", "text", "views16", "y") if n in held}, **self.arrays}
        text = self.arrays["text"]
        self.zero_shot = ZeroShot(text, [str(i) for i in range(len(text))])
        known = NAMES[self.method]
        chosen = {known[key]: value for key, value in self.params.items() if key in known}
        if "views16" in self.arrays and self.method != "mta":
            chosen["views"] = "confident"
        if self.params.get("mu_init", 0.001) != 0.001:
            chosen["mu_init"] = "text"
        self.ours = create(self.method, self.zero_shot, **chosen)
        predictions = [self.ours.predict(image) for image in self.images()]
        self.labels = np.array([prediction.label for prediction in predictions])
        self.scores = np.array([prediction.scores for prediction in predictions])

    def images(self):
        if "views16" in self.arrays:
            wide = self.arrays["views16"].astype(np.float64)
            return (wide / np.linalg.norm(wide, axis=2, keepdims=True)).astype(np.float32)
        return self.arrays["X"][:, None]

    def worst(self, name, scores=None):
        return float(np.abs((self.scores if scores is None else scores) - self.arrays[name]).max())


LONG = {"dota/dtd"}  # a matrix of 512 dimensions for each of 47 classes: a minute of processor time


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case in LONG)) for case in CASES])
def test_a_recorded_stream(case):
    recorded = Recorded(case)
    differ = int((recorded.labels != recorded.arrays["final"]).sum())
    CHECKS[recorded.method](recorded, differ, "half" in case)


def check_oga(case, differ, half):
    memory = case.ours.state()
    assert case.worst("probs") <= 1e-3 and not differ
    np.testing.assert_array_equal(memory["valid"].sum(axis=1), case.arrays["count"])
    np.testing.assert_array_equal(memory["entropy"], case.arrays["mem_entropy"].astype(np.float16))


def check_dota(case, differ, half):
    assert case.worst("logits") <= (0.05 if half else 1e-3) and differ <= half


def check_onzeta(case, differ, half):
    if "strict" in case.arrays:
        strict = case.arrays["strict"].astype(bool)
        assert np.abs(case.scores - case.arrays["probs"])[strict].max() <= 1e-6
        assert (case.labels == case.arrays["final"])[strict].all() and strict.any()
    else:
        dtype = str(case.params.get("dtype", case.params.get("precision", "")))
        assert case.worst("probs") <= (1e-9 if "64" in dtype else 5e-3 if case.params["alpha"] == 0 else 2e-4), dtype
        assert not differ


def check_ecalp(case, differ, half):
    assert not differ
    scores = case.arrays["scores"]
    ours = np.log(np.maximum(case.scores, 1e-300)) / 10_000  # scores up to a constant per image
    highest = scores.argmax(axis=1)[:, None]
    ours += np.take_along_axis(scores - ours, highest, axis=1)
    free = ~case.arrays["tie"].astype(bool)[:, None] & (case.scores > 1e-290)
    relative = np.abs(ours - scores) / scores.max(axis=1, keepdims=True)
    assert relative[free].max() <= 5e-4 and free.any()
    count = len(case.labels)
    tied = case.arrays["tie"].any()
    if not tied:
        np.testing.assert_array_equal(case.ours.state()["labels"], case.arrays["carry_label_end"][:count])
        np.testing.assert_allclose(case.ours.state()["values"], case.arrays["carry_value_end"][:count], rtol=1e-3)


def check_mta(case, differ, half):
    assert case.worst("logits_f64") <= 1e-9 and case.worst("logits_f32") <= 1e-3 and not differ


def check_pta(case, differ, half):
    assert case.worst("logits") <= (1.0 if half else 1e-3) and differ <= (10 if half else 0)
    if not half:
        memory = case.ours.state()
        np.testing.assert_allclose(memory["prototype"], case.arrays["prototype_end"], atol=1e-5)
        np.testing.assert_allclose(memory["refined"], case.arrays["refined_end"], atol=1e-5)


def check_bca(case, differ, half):
    memory = case.ours.state()
    assert case.worst("probs") <= 1e-4 and not differ
    np.testing.assert_array_equal(memory["centre_images"], case.arrays["count1_end"])
    np.testing.assert_array_equal(memory["prior_images"], case.arrays["count2_end"])


def check_adapt(case, differ, half):
    memory = case.ours.state()
    assert case.worst("logits") <= 5e-3 and not differ
    np.testing.assert_array_equal(memory["valid"].sum(axis=1), case.arrays["count_end"])
    entropies = np.where(memory["valid"], memory["entropy"], np.inf)
    np.testing.assert_allclose(entropies, case.arrays["bank_entropy_end"], atol=1e-4)


CHECKS = {name: globals()[f"check_{name}"] for name in METHODS}
