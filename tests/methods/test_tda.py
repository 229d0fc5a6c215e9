"""TDA against a transcription of its specification: dictionaries, sorted lists, loops, float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import ZeroShot
from latte.methods.tda import Tda, TdaParams


def softmax(z):
    weights = [math.exp(v - max(z)) for v in z]
    return [w / sum(weights) for w in weights]


def nats(p):
    return -sum(v * math.log(v) for v in p if v > 0)


class SlowTda:
    def __init__(self, zero_shot, params):
        self.text = zero_shot.text.astype(np.float64)
        self.scale, self.p = zero_shot.scale, params
        self.positive, self.negative = {}, {}

    def look(self, views):
        z = [[self.scale * float(t @ f) for t in self.text] for f in views]
        if self.p.views == "first":
            return views[0], z[0], softmax(z[0])
        order = sorted(range(len(z)), key=lambda v: nats(softmax(z[v])))
        kept = order[: max(1, int(0.1 * len(z)))]
        mean = sum(views[v] for v in kept) / len(kept)
        logits = [sum(z[v][y] for v in kept) / len(kept) for y in range(len(self.text))]
        return mean, logits, [sum(softmax(z[v])[y] for v in kept) / len(kept) for y in range(len(self.text))]

    @staticmethod
    def insert(cache, label, item, size):
        items = cache.setdefault(label, [])
        if len(items) < size:
            items.append(item)
        elif item[1] < items[-1][1]:
            items[-1] = item
        items.sort(key=lambda entry: entry[1])  # stable, as the official code's sorted()

    def predict(self, views):
        f, z, p = self.look(np.asarray(views, np.float64))
        label, h, q = max(range(len(z)), key=z.__getitem__), nats(p), self.p
        self.insert(self.positive, label, (f, h), q.k)
        if q.entropy_above < h / math.log2(len(z)) < q.entropy_below:
            self.insert(self.negative, label, (f, h, p), q.k_negative)
        final = list(z)
        for y, items in self.positive.items():
            for g, _ in items:
                final[y] += q.alpha * math.exp(-q.beta * (1 - float(f @ g)))
        for items in self.negative.values():
            for g, _, stored in items:
                for y in range(len(z)):
                    if q.probability_above < stored[y] < q.probability_below:
                        final[y] -= q.alpha_negative * math.exp(-q.beta_negative * (1 - float(f @ g)))
        return final


def assert_same(zero_shot, images, params):
    fast, slow = Tda(zero_shot, params), SlowTda(zero_shot, params)
    for views in images:
        got, want = fast.predict(views), np.array(slow.predict(views))
        np.testing.assert_allclose(got.scores, want, atol=2e-4)
        assert got.label == got.scores.argmax()
    for cache, lists in ((fast.positive, slow.positive), (fast.negative, slow.negative)):
        sizes = [len(lists.get(y, [])) for y in range(zero_shot.classes)]
        assert cache.valid.sum(axis=1).tolist() == sizes
        for y, items in lists.items():
            stored = np.array([entry[0] for entry in items])
            np.testing.assert_allclose(cache.vectors[y, : len(items)], stored, atol=1e-6)
    return fast


@pytest.mark.parametrize("views", ["first", "confident"])
@pytest.mark.parametrize(("C", "V"), [(2, 1), (2, 7), (5, 1), (5, 20), (12, 33)])
def test_equals_the_transcription(make_stream, C, V, views):
    zero_shot, images = make_stream(seed=C * 100 + V, n=80, C=C, V=V)
    params = TdaParams(alpha=3.0, alpha_negative=1.5, views=views)
    method = assert_same(zero_shot, images, params)
    assert method.negative.valid.any(), "the stream must reach the negative cache"


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_transcription_with_the_published_defaults(make_stream, seed):
    zero_shot, images = make_stream(seed=seed, n=120, C=7)
    assert_same(zero_shot, images, TdaParams())


# the cosines to the two texts: within a class no two pairs have the same difference, so the same entropy
PARTS = st.tuples(st.sampled_from([0.0, 0.21, 0.43, 0.66]), st.sampled_from([0.05, 0.13, 0.3]))
SIGNS = st.tuples(st.sampled_from([-1.0, 1.0]), st.sampled_from([-1.0, 1.0]))


@settings(max_examples=60)
@given(st.lists(st.tuples(PARTS, SIGNS), min_size=1, max_size=25), st.integers(1, 3))
def test_equal_entropies_leave_in_the_order_of_the_official_lists(items, k):
    """Images that differ only outside the span of the texts have equal entropies and different keys."""
    zero_shot = ZeroShot(np.eye(2, 4), ("a", "b"), scale=5.0)
    images = []
    for (a, b), (s, t) in items:
        rest = math.sqrt((1 - a * a - b * b) / 2)
        images.append(np.array([[a, b, s * rest, t * rest]], np.float32))
    assert_same(zero_shot, images, TdaParams(k=k, k_negative=k, entropy_below=0.69, alpha_negative=1.0))


def test_only_one_class_is_ever_predicted(make_stream):
    zero_shot, _ = make_stream(seed=1, C=3)
    towards = zero_shot.text[1]
    rng = np.random.default_rng(0)
    rows = towards + 0.02 * rng.normal(size=(30, len(towards)))
    images = [(r / np.linalg.norm(r)).astype(np.float32)[None] for r in rows]
    method = assert_same(zero_shot, images, TdaParams())
    assert method.positive.valid.any(axis=1).tolist() == [False, True, False]


def test_the_first_image_is_its_own_neighbour_and_the_empty_negative_cache_adds_nothing():
    zero_shot = ZeroShot(np.eye(3), ("a", "b", "c"))
    prediction = Tda(zero_shot, TdaParams(alpha=2.0)).predict(np.eye(3)[:1])
    np.testing.assert_array_equal(prediction.scores, [102.0, 0.0, 0.0])


@pytest.mark.parametrize("edge", ["entropy_above", "entropy_below"])
def test_the_entropy_window_is_open(make_stream, edge):
    zero_shot, images = make_stream(seed=3, n=1, C=4)
    plain = Tda(zero_shot).predict(images[0])
    exactly = plain.entropy * math.log(2)  # H / log2 C
    other = {"entropy_above": "entropy_below", "entropy_below": "entropy_above"}[edge]
    away = {"entropy_above": -math.inf, "entropy_below": math.inf}[edge]
    for value, enters in ((exactly, False), (float(np.nextafter(exactly, away)), True)):
        window = {edge: value, other: 0.0 if other == "entropy_above" else 1.0}
        method = Tda(zero_shot, TdaParams(**window))
        method.predict(images[0])
        assert method.negative.valid.any() == enters


def test_the_sum_grows_with_the_number_of_items():
    zero_shot = ZeroShot(np.eye(2), ("a", "b"))
    method = Tda(zero_shot, TdaParams(k=3, alpha=1.0))
    assert [method.predict([[1.0, 0.0]]).scores[0] for _ in range(5)] == [101.0, 102.0, 103.0, 103.0, 103.0]


def test_the_published_presets():
    assert Tda.presets["imagenet-s"] == TdaParams(alpha=2.363, beta=7.45)
    assert len(Tda.presets) == 15
    assert TdaParams() == Tda.presets["imagenet"]
