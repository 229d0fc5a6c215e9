"""Methods of the field against recordings of their official code (BCA: of a public port).

``LATTE_GOLDEN_MORE=<folder>`` runs the same tests on another folder of the same format.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from latte import ZeroShot, create
from latte.methods import METHODS, describe

SHARED = Path(__file__).parents[3] / "shared" / "golden" / "more"
CHOSEN = os.environ.get("LATTE_GOLDEN_MORE")
FOLDER = Path(CHOSEN or SHARED)
ELSEWHERE = ("metrics",)  # what tests/analysis/test_measures.py compares
CASES = [f"{path.parent.name}/{path.stem}" for path in sorted(FOLDER.glob("*/*.npz"))]
CASES = [case for case in CASES if case.partition("/")[0] not in ELSEWHERE]

if not CASES and not CHOSEN:
    pytest.skip("needs the recordings of the shared material (set LATTE_GOLDEN_MORE)", allow_module_level=True)

# recorded parameters by the names that ours have; others are called alike, or are fixed
NAMES = {
    "oga": {"capacity": "k"},
    "onzeta": {"c_r": "rate_labels", "c_w": "rate_proxies", "tau_i": "temperature", "n_total": "horizon"},
    "ecalp": {"k_image": "k"},
    "pta": {"T": "tau"},
    "bca": {"init_count1": "centre_images", "init_count2": "prior_images"}
    | {"threshold1": "centre_least", "threshold2": "prior_least"},
    "adapt": {"bank_size": "k"},
}
FIXED = {
    "onzeta": {"tau_t": 0.01},
    "ecalp": {"alpha": 1, "iterations": 3, "carry": 0.2, "sharpen": 10_000},
    "mta": {"max_iter": 5, "threshold": 1e-6},
}


class Recorded:
    """One case: what went in, what the recorded code answered, and what ours answers."""

    def __init__(self, case: str) -> None:
        self.method = case.partition("/")[0]
        self.arrays = dict(np.load(FOLDER / f"{case}.npz"))
        self.params = json.loads(str(self.arrays["params"]))
        if source := self.params.get("X_from"):  # "case" of this method, or "method/case"
            place = source.split()[0] if "/" in source else f"{self.method}/{source}"
            where = next(folder for folder in (FOLDER, SHARED) if (folder / f"{place}.npz").is_file())
            held = dict(np.load(where / f"{place}.npz"))
            self.arrays = {**{n: held[n] for n in ("X", "text", "views16", "y") if n in held}, **self.arrays}
        text, scale = self.arrays["text"], self.params.get("scale", self.params.get("logit_scale", 100))
        self.zero_shot = ZeroShot(text, [str(i) for i in range(len(text))], scale=scale)
        self.ours = create(self.method, self.zero_shot, **self.options())
        self.labels, self.scores, self.stored = [], [], []
        for image in self.images():
            before = self.entropies()
            prediction = self.ours.predict(image)
            self.labels.append(prediction.label)
            self.scores.append(prediction.scores)
            self.stored.append(not np.array_equal(before, self.entropies()))
        self.labels, self.scores = np.array(self.labels), np.array(self.scores)
        self.half = self.params.get("precision") in ("half", "f16", "float16")

    def options(self):
        """Return what to create ours with; a constant that ours has not to choose is refused."""
        params = self.params
        for name, value in FIXED.get(self.method, {}).items():
            assert params.get(name, value) == value, f"{self.method} has {name}={value}, this was recorded with another"
        known, names = {field.name for field in fields(describe(self.method).params)}, NAMES.get(self.method, {})
        chosen = {names.get(name, name): value for name, value in params.items()}
        chosen = {name: value for name, value in chosen.items() if name in known}
        if "views" in known:
            chosen["views"] = "confident" if "views16" in self.arrays else "first"
        if "mu_init" in chosen:
            chosen["mu_init"] = "small" if chosen["mu_init"] in (0.001, "small") else "text"
        return chosen

    def entropies(self):
        return getattr(self.ours, "memory", {}).get("entropy", np.zeros(0)).copy()

    def images(self):
        if "views16" in self.arrays:
            wide = self.arrays["views16"].astype(np.float64)
            wide = (wide / np.linalg.norm(wide, axis=2, keepdims=True)).astype(np.float32)
            return wide if self.ours.reads_views else wide[:, :1]
        return self.arrays["X"][:, None]

    def worst(self, name):
        return float(np.abs(self.scores - self.arrays[name]).max())

    def close(self, name, ours, atol, rtol=0.0):
        np.testing.assert_allclose(ours, self.arrays[name], atol=atol, rtol=rtol, err_msg=name)


LONG = {"dota/dtd"}  # a matrix of 512 dimensions for each of 47 classes: a minute of processor time


def test_the_folder_has_cases():
    assert CASES, f"LATTE_GOLDEN_MORE={CHOSEN} has no METHOD/CASE.npz"


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case in LONG)) for case in CASES])
def test_a_recorded_stream(case):
    method = case.partition("/")[0]
    if method not in METHODS:
        pytest.skip(f"{method} is not among the methods here")
    assert method in CHECKS, f"{method} is compared nowhere: a check_{method} is missing"
    recorded = Recorded(case)
    differ = int((recorded.labels != recorded.arrays["final"]).sum())
    CHECKS[method](recorded, differ, recorded.half)


def check_oga(case, differ, half):
    memory = case.ours.state()
    assert case.worst("probs") <= 1e-3 and not differ
    np.testing.assert_array_equal(case.stored, case.arrays["stored"])
    np.testing.assert_array_equal(memory["valid"].sum(axis=1), case.arrays["count"])
    np.testing.assert_array_equal(memory["entropy"], case.arrays["mem_entropy"].astype(np.float16))
    case.close("mu", case.ours.gaussians()[0], atol=2e-3)  # of embeddings in float16


def check_dota(case, differ, half):
    assert case.worst("logits") <= (0.05 if half else 1e-3) and differ <= half
    memory = case.ours.state()
    case.close("count_end", memory["counts"], atol=0.5 if half else 1e-3)
    case.close("mu_end", memory["means"], atol=1e-3 if half else 1e-5)
    case.close("sigma_bar_diag_end", memory["covariance"].diagonal(), atol=1e-5 if half else 1e-6)


def check_onzeta(case, differ, half):
    if "strict" in case.arrays:
        strict = case.arrays["strict"].astype(bool)
        assert np.abs(case.scores - case.arrays["probs"])[strict].max() <= 1e-6
        assert (case.labels == case.arrays["final"])[strict].all() and strict.any()
    else:
        double = "64" in str(case.params.get("dtype", case.params.get("precision", "")))
        assert case.worst("probs") <= (1e-9 if double else 5e-3 if case.params["alpha"] == 0 else 2e-4)
        assert not differ
        case.close("w_end", case.ours.state()["proxies"], atol=1e-6 if double else 1e-2)
        case.close("rho_end", case.ours.state()["multipliers"], atol=1e-9 if double else 1e-2)


def check_ecalp(case, differ, half):
    assert not differ
    scores = case.arrays["scores"]
    ours = np.log(np.maximum(case.scores, 1e-300)) / 10_000  # scores up to a constant per image
    highest = scores.argmax(axis=1)[:, None]
    ours += np.take_along_axis(scores - ours, highest, axis=1)
    free = ~case.arrays["tie"].astype(bool)[:, None] & (case.scores > 1e-290)
    relative = np.abs(ours - scores) / scores.max(axis=1, keepdims=True)
    assert relative[free].max() <= 5e-4 and free.any()
    memory, count = case.ours.state(), len(case.labels)
    if not case.arrays["tie"].any():
        np.testing.assert_array_equal(memory["labels"], case.arrays["carry_label_end"][:count])
        np.testing.assert_allclose(memory["values"], case.arrays["carry_value_end"][:count], rtol=1e-3)
        width = case.arrays["sim_end"].shape[1]
        np.testing.assert_allclose(memory["similarities"][:, :width], case.arrays["sim_end"][:count], atol=1e-5)


def check_mta(case, differ, half):
    assert case.worst("logits_f64") <= 1e-9 and case.worst("logits_f32") <= 1e-3 and not differ


def check_pta(case, differ, half):
    assert case.worst("logits") <= (1.0 if half else 1e-3) and differ <= (10 if half else 0)
    if not half:
        memory = case.ours.state()
        case.close("prototype_end", memory["prototype"], atol=1e-5)
        case.close("refined_end", memory["refined"], atol=1e-5)


def check_bca(case, differ, half):
    memory = case.ours.state()
    assert case.worst("probs") <= 1e-4 and not differ
    np.testing.assert_array_equal(memory["centre_images"], case.arrays["count1_end"])
    np.testing.assert_array_equal(memory["prior_images"], case.arrays["count2_end"])
    case.close("mu_end", memory["centres"], atol=1e-4)
    case.close("prior_end", memory["prior"], atol=1e-4)


def check_adapt(case, differ, half):
    memory = case.ours.state()
    assert case.worst("logits") <= 5e-3 and not differ
    np.testing.assert_array_equal(case.stored, case.arrays["stored"])
    np.testing.assert_array_equal(memory["valid"].sum(axis=1), case.arrays["count_end"])
    case.close("bank_entropy_end", np.where(memory["valid"], memory["entropy"], np.inf), atol=1e-4)
    case.close("mu_end", memory["means"], atol=1e-4)


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}
