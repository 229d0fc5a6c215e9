"""DMN against a transcription of its specification: one loop over classes and items, float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import ZeroShot
from latte.core import maths
from latte.methods.dmn import WEIGHT_GRID, Dmn, DmnParams


def softmax(z):
    weights = [math.exp(v - max(z)) for v in z]
    return [w / sum(weights) for w in weights]


class SlowDmn:
    def __init__(self, zero_shot, params):
        self.text = zero_shot.text.astype(np.float64)
        self.scale, self.p = zero_shot.scale, params
        self.items = [[] for _ in self.text]  # (vector, entropy) in the order of the slots

    def target(self, views):
        p = [softmax([self.scale * float(t @ f) for t in self.text]) for f in views]
        if self.p.views == "first" or len(views) == 1:
            return p[0]
        order = sorted(range(len(p)), key=lambda v: -sum(x * math.log(x) for x in p[v] if x > 0))
        kept = order[: max(1, int(0.1 * len(p)))]
        return [sum(p[v][y] for v in kept) / len(kept) for y in range(len(self.text))]

    def update(self, f, q):
        label = max(range(len(q)), key=q.__getitem__)
        h = -sum(x * math.log(x + 1e-8) for x in q)
        items = self.items[label]
        if len(items) < self.p.k:
            items.append((f, h))
            return
        worst = max(range(len(items)), key=lambda i: items[i][1])
        if h < items[worst][1]:
            items[worst] = (f, h)

    def predict(self, views):
        views = np.asarray(views, np.float64)
        f = views[0]
        self.update(f, self.target(views))
        memory = []
        for t, items in zip(self.text, self.items, strict=True):
            total = 0.0
            for a in [item[0] for item in items] + [t]:
                total = total + math.exp(-self.p.beta * (1 - float(f @ a))) * a
            memory.append(self.scale * float(total @ f) / math.sqrt(float(total @ total)))
        text = softmax([self.scale * float(t @ f) for t in self.text])
        return [a + self.p.weight * b for a, b in zip(text, softmax(memory), strict=True)]


def assert_same(zero_shot, images, params):
    fast, slow = Dmn(zero_shot, params), SlowDmn(zero_shot, params)
    for views in images:
        got, want = fast.predict(views), np.array(slow.predict(views))
        np.testing.assert_allclose(got.scores, want, atol=2e-5 * (1 + params.weight))
        assert got.label == got.scores.argmax()
    for y, items in enumerate(slow.items):
        assert fast.memory.valid[y].sum() == len(items)
        stored = np.array([item[0] for item in items]).reshape(-1, zero_shot.dim)
        np.testing.assert_allclose(fast.memory.vectors[y, : len(items)], stored, atol=1e-6)
    return fast


@pytest.mark.parametrize("views", ["first", "confident"])
@pytest.mark.parametrize(("C", "V", "k"), [(2, 1, 50), (2, 6, 3), (5, 1, 4), (5, 32, 4), (12, 1, 50)])
def test_equals_the_transcription(make_stream, C, V, k, views):
    zero_shot, images = make_stream(seed=C * 10 + V, n=80, C=C, V=V)
    method = assert_same(zero_shot, images, DmnParams(k=k, weight=0.7, views=views))
    assert method.memory.valid.all() == (k < 5), "a small memory must have been full"


@pytest.mark.parametrize("beta", [0.0, 5.5, 80.0])
def test_equals_the_transcription_at_the_scale_of_clip(make_stream, beta):
    zero_shot, images = make_stream(seed=9, n=60, C=6, D=32, scale=100.0)
    assert_same(zero_shot, images, DmnParams(k=5, beta=beta))


# the cosines to the two texts: within a class no two pairs have the same difference, so the same entropy
PARTS = st.tuples(st.sampled_from([0.0, 0.21, 0.43, 0.66]), st.sampled_from([0.05, 0.13, 0.3]))
SIGNS = st.tuples(st.sampled_from([-1.0, 1.0]), st.sampled_from([-1.0, 1.0]))


@settings(max_examples=60)
@given(st.lists(st.tuples(PARTS, SIGNS), min_size=1, max_size=25), st.integers(1, 3))
def test_among_equal_entropies_the_first_slot_is_replaced(items, k):
    zero_shot = ZeroShot(np.eye(2, 4), ("a", "b"), scale=5.0)
    images = []
    for (a, b), (s, t) in items:
        rest = math.sqrt((1 - a * a - b * b) / 2)
        images.append(np.array([[a, b, s * rest, t * rest]], np.float32))
    assert_same(zero_shot, images, DmnParams(k=k))


def test_only_one_class_is_ever_predicted():
    zero_shot = ZeroShot(np.eye(3), ("a", "b", "c"), scale=10.0)
    rng = np.random.default_rng(0)
    rows = np.array([0.0, 1.0, 0.0]) + 0.1 * rng.normal(size=(20, 3))
    images = [(r / np.linalg.norm(r)).astype(np.float32)[None] for r in rows]
    method = assert_same(zero_shot, images, DmnParams(k=4))
    assert method.memory.valid.any(axis=1).tolist() == [False, True, False]


def probabilities(method, views):
    rows = method.check(views)
    method.predict(rows)
    logits = method.zero_shot.logits(rows[0])
    return maths.softmax(logits), method.memory_probabilities(rows[0], logits)


def test_a_class_without_images_is_answered_by_its_text():
    zero_shot = ZeroShot(np.eye(2), ("a", "b"), scale=4.0)
    _, memory = probabilities(Dmn(zero_shot), [[0.8, 0.6]])
    # class b holds its text only (cosine 0.6); class a its text and the image itself
    v = np.array([1.0, 0.0]) * math.exp(-5.5 * 0.2) + np.array([0.8, 0.6])
    own = float(v @ [0.8, 0.6]) / np.linalg.norm(v)
    np.testing.assert_allclose(memory, softmax([4 * own, 4 * 0.6]), atol=1e-6)


def test_a_sum_that_cancels_has_no_direction():
    """The image can be the opposite of its class's text only where it is that of every text."""
    zero_shot = ZeroShot([[-0.8, -0.6], [-0.8, -0.6]], ("a", "b"), scale=2.0)
    _, memory = probabilities(Dmn(zero_shot, beta=0.0), [[0.8, 0.6]])
    np.testing.assert_allclose(memory, softmax([0.0, -2.0]), atol=1e-6)  # a: text and image; b: the text


def test_a_certain_image_has_an_entropy_just_below_zero_and_still_survives_a_restart():
    zero_shot = ZeroShot(np.eye(2), ("a", "b"))
    method = Dmn(zero_shot, DmnParams(k=1))
    method.predict([[1.0, 0.0]])
    saved = method.state()
    assert -1e-7 < saved["entropy"][0, 0] < 0
    method.load(saved)
    np.testing.assert_array_equal(method.state()["entropy"], saved["entropy"])


def test_the_mix_needs_one_pass_for_all_weights(make_stream):
    zero_shot, images = make_stream(seed=4, n=30)
    once = Dmn(zero_shot)
    parts = [probabilities(once, views) for views in images]
    for weight in WEIGHT_GRID:
        method = Dmn(zero_shot, DmnParams(weight=weight))
        for views, (text, memory) in zip(images, parts, strict=True):
            np.testing.assert_array_equal(method.predict(views).scores, text + weight * memory)


def test_the_published_presets_and_the_grid():
    assert DmnParams() == Dmn.presets["imagenet"] == DmnParams(k=50, beta=5.5, weight=1.0)
    assert {preset.weight for preset in Dmn.presets.values()} <= set(WEIGHT_GRID)
    assert len(WEIGHT_GRID) == 13
