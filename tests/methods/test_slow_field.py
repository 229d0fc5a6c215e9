"""The methods of the field, with the options that no recording has, equal a second, slow implementation."""

import numpy as np
import pytest

import slow_field
from latte import ZeroShot, create

OPTIONS = [
    ("oga", {}),
    ("oga", {"mean": "count", "k": 3, "tau": 0.2}),
    ("dota", {}),
    ("dota", {"mu_init": "text", "epsilon": 1e-4, "sigma": 1e-4, "eta": 0.1}),
    ("dota", {"views": "confident"}),
    ("onzeta", {"horizon": 60, "alpha": 0.0}),
    ("onzeta", {"horizon": 200, "beta": 0.8, "rate_labels": 1.0, "rate_proxies": 0.2, "temperature": 0.1}),
    ("ecalp", {}),
    ("ecalp", {"k": 3, "k_text": 50, "gamma": 4}),
    ("mta", {"lambda_y": 0.5, "lambda_q": 1.0}),
    ("pta", {"tau": 50.0, "floor": 0.3}),
    ("pta", {"alpha": 0.0}),
    ("pta", {"alpha": 1.0, "views": "confident"}),
    ("pta", {"gate": True}),
    ("pta", {"gate": True, "kappa": 0.0}),
    ("bca", {"centre_images": 500, "prior_images": 3, "prior_least": 0.5}),
    ("bca", {"views": "confident"}),
    ("adapt", {"k": 3, "s": 20.0}),
    ("adapt", {"similarity": "own"}),
    ("adapt", {"views": "confident"}),
]
SHAPES = [(40, 5, 16, 24), (60, 2, 8, 9), (70, 24, 20, 1), (60, 12, 6, 4)]  # images, classes, dimensions, views


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_the_answers_are_those_of_the_formulas(name, options):
    for seed, shape in enumerate(SHAPES):
        text, images = slow_field.stream(seed, *shape)
        method = create(name, ZeroShot(text, [f"class {y}" for y in range(len(text))]), **options)
        ours = np.array([prediction.scores for prediction in method.predict_many(images)])
        slow, memory = getattr(slow_field, name)(text.astype(np.float64), images.astype(np.float64), **options)
        if name == "ecalp":
            slow = [slow_field.softmax(10_000 * scores) for scores in slow]
        np.testing.assert_allclose(ours, slow, atol=1e-3 if name == "dota" else 1e-5, err_msg=f"{shape}")
        held = method.state()
        for key in memory.keys() & held.keys() - {"similarities"} if name != "adapt" else ["means"]:
            np.testing.assert_allclose(held[key], memory[key], atol=1e-5, err_msg=key)


def test_who_gives_a_method_what_it_is_bad_at_is_told(monkeypatch):
    text, images = slow_field.stream(0, 20, 5, 8, 1)
    zero_shot = ZeroShot(text, [f"class {y}" for y in range(5)])
    create("onzeta", zero_shot).expect(50)
    create("onzeta", zero_shot, horizon=1000).expect(49)
    with pytest.warns(UserWarning, match="fewer than 10 images per class"):
        create("onzeta", zero_shot).expect(49)
    monkeypatch.setattr("latte.methods.ecalp.MANY", 15)
    create("ecalp", zero_shot, window=14).predict_many(images)
    create("ecalp", zero_shot).predict_many(images[:15])
    with pytest.warns(UserWarning, match="choose a window"):
        create("ecalp", zero_shot).predict_many(images)
