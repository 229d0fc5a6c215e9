"""TPT against AdamW steps written by hand in numpy, with the gradient by finite differences."""

from __future__ import annotations

import copy
import math
import pickle
import sys

import numpy as np
import pytest

from latte import ZeroShot, create
from latte.methods.tpt import Tpt, TptParams

CLASSES, DIM, TOKEN, WORDS = 4, 8, 6, 3


class Weights:
    """A tiny text encoder: (mean of the context + the class token) through one hidden layer, normalised."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.context = rng.normal(size=(WORDS, TOKEN)).astype(np.float32)
        self.position = rng.normal(size=(WORDS, 1)).astype(np.float32)
        self.tokens = rng.normal(size=(CLASSES, TOKEN)).astype(np.float32)
        self.inner = rng.normal(size=(TOKEN, 10)).astype(np.float32) / 2
        self.outer = rng.normal(size=(10, DIM)).astype(np.float32)

    def texts(self, context):
        """The same in numpy, float64."""
        pooled = (context * self.position.astype(np.float64)).sum(axis=0)
        rows = np.tanh((pooled + self.tokens) @ self.inner.astype(np.float64)) @ self.outer.astype(np.float64)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class TorchTextEncoder:
    def __init__(self, torch, weights, scale, names):
        self.context_init = torch.tensor(weights.context)
        self.scale, self.classnames = scale, names
        self.parameters = [
            torch.tensor(w, requires_grad=True)
            for w in (weights.position, weights.tokens, weights.inner, weights.outer)
        ]

    def class_texts(self, context):
        position, tokens, inner, outer = self.parameters
        rows = ((context * position).sum(0) + tokens).matmul(inner).tanh().matmul(outer)
        return rows / rows.norm(dim=1, keepdim=True)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="TPT needs torch")


@pytest.fixture
def world(torch):
    weights = Weights(seed=5)
    rng = np.random.default_rng(1)
    names = tuple(f"class {y}" for y in range(CLASSES))
    zero_shot = ZeroShot(weights.texts(weights.context.astype(np.float64)), names, scale=8.0)
    views = rng.normal(size=(25, DIM))
    views = (views / np.linalg.norm(views, axis=1, keepdims=True)).astype(np.float32)
    return weights, zero_shot, TorchTextEncoder(torch, weights, 8.0, names), views


def probabilities(logits):
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def slow_tpt(weights, views, scale, p):
    views = views.astype(np.float64)
    context = weights.context.astype(np.float64)

    def each(c):
        return probabilities(scale * views @ weights.texts(c).T)

    entropy = [-sum(x * math.log(x) for x in row) for row in each(context)]
    kept = sorted(range(len(views)), key=entropy.__getitem__)[: max(1, int(p.share * len(views)))]

    def loss(c):
        mean = each(c)[kept].mean(axis=0)
        return -sum(x * math.log(x) for x in mean)

    m, v = np.zeros_like(context), np.zeros_like(context)
    for step in range(1, p.steps + 1):
        gradient = finite_differences(loss, context)
        context = context * (1 - p.lr * p.weight_decay)  # decoupled: before the step
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        unbiased_m, unbiased_v = m / (1 - 0.9**step), v / (1 - 0.999**step)
        context = context - p.lr * unbiased_m / (np.sqrt(unbiased_v) + 1e-8)
    return scale * weights.texts(context) @ views[0]


def finite_differences(function, at, h=1e-5):
    gradient = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        up, down = at.copy(), at.copy()
        up[index] += h
        down[index] -= h
        gradient[index] = (function(up) - function(down)) / (2 * h)
    return gradient


@pytest.mark.parametrize("views_used", [1, 7, 25])
@pytest.mark.parametrize(
    "params",
    [
        TptParams(),
        TptParams(lr=0.05),
        TptParams(lr=0.05, weight_decay=0.5),
        TptParams(lr=0.05, steps=3, share=0.3),
        TptParams(lr=0.5, steps=2, share=0.3),  # after the first step other views are the most confident
        TptParams(steps=0),
    ],
)
def test_equals_steps_written_by_hand(world, params, views_used):
    weights, zero_shot, encoder, views = world
    prediction = Tpt(zero_shot, params, text_encoder=encoder).predict(views[:views_used])
    want = slow_tpt(weights, views[:views_used], 8.0, params)
    np.testing.assert_allclose(prediction.scores, want, atol=1e-4)
    assert prediction.label == prediction.scores.argmax()


def test_the_step_matters(world):
    _, zero_shot, encoder, views = world
    still, moved = (Tpt(zero_shot, TptParams(steps=s), text_encoder=encoder).predict(views) for s in (0, 1))
    assert np.abs(still.scores - moved.scores).max() > 1e-2


def test_nothing_is_remembered_and_nothing_else_is_tuned(world):
    _, zero_shot, encoder, views = world
    before = encoder.context_init.clone()
    method = Tpt(zero_shot, TptParams(lr=0.1, steps=2), text_encoder=encoder)
    first = method.predict(views)
    method.predict(views[::-1])
    np.testing.assert_array_equal(method.predict(views).scores, first.scores)
    assert encoder.context_init.equal(before)
    assert all(weight.grad is None for weight in encoder.parameters)
    assert method.state() == {}


def test_it_tunes_also_where_the_caller_switched_gradients_off(torch, world):
    _, zero_shot, encoder, views = world
    method = Tpt(zero_shot, text_encoder=encoder)
    want = method.predict(views).scores
    with torch.no_grad():
        np.testing.assert_array_equal(method.predict(views).scores, want)
    with torch.inference_mode():
        np.testing.assert_array_equal(method.predict(views).scores, want)


def test_a_text_encoder_of_other_classes_or_another_dimension_is_refused(world):
    _, zero_shot, encoder, _ = world
    encoder.classnames = encoder.classnames[::-1]
    with pytest.raises(ValueError, match="in its order"):
        Tpt(zero_shot, text_encoder=encoder)
    encoder.classnames = zero_shot.classnames
    wide = ZeroShot(np.eye(CLASSES, DIM + 1), zero_shot.classnames)
    with pytest.raises(ValueError, match="class_texts: got shape"):
        Tpt(wide, text_encoder=encoder).predict(np.eye(1, DIM + 1))


def test_by_name(world):
    _, zero_shot, encoder, views = world
    method = create("tpt", zero_shot, {"lr": 0.05}, text_encoder=encoder)
    want = Tpt(zero_shot, TptParams(lr=0.05), text_encoder=encoder).predict(views)
    np.testing.assert_array_equal(method.predict(views).scores, want.scores)


def test_a_missing_text_encoder_is_refused_with_how_to_give_it():
    zero_shot = ZeroShot(np.eye(2), ("a", "b"))
    with pytest.raises(ValueError, match=r"create\('tpt', \.\.\., text_encoder=\.\.\.\)"):
        create("tpt", zero_shot)
    with pytest.raises(ValueError, match=r"text_encoder=\.\.\."):
        Tpt(zero_shot)


def test_a_missing_torch_is_named_with_its_pip_line(monkeypatch):
    class Encoder:
        context_init, scale, classnames = None, 100.0, ("a", "b")

        def class_texts(self, context):
            raise AssertionError("never reached")

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install .*"torch>=.*the extra torch'):
        Tpt(ZeroShot(np.eye(2), ("a", "b")), text_encoder=Encoder())


def test_it_keeps_the_contract_of_a_method(torch):
    from latte import check_method

    def make(zero_shot):
        encoder = TorchTextEncoder(torch, Weights(seed=5), zero_shot.scale, zero_shot.classnames)
        return Tpt(zero_shot, text_encoder=encoder)

    assert "predicts" in check_method(make)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_predicts_the_same_with_the_same_encoder(world, duplicate):
    _, zero_shot, encoder, views = world
    method = Tpt(zero_shot, TptParams(steps=2), text_encoder=encoder)
    second = duplicate(method)
    assert second is not method and second.text_encoder is encoder and second.params == method.params
    assert second.predict(views).scores.tobytes() == method.predict(views).scores.tobytes()


def test_it_can_be_pickled_if_its_encoder_can(world):
    _, zero_shot, encoder, views = world
    method = Tpt(zero_shot, text_encoder=encoder)
    second = pickle.loads(pickle.dumps(method))
    assert second.predict(views).scores.tobytes() == method.predict(views).scores.tobytes()
