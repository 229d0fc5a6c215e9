"""VTE and Zero against transcriptions of their specifications, and Zero's tie break case by case."""

from __future__ import annotations

import math

import numpy as np
import pytest

from latte import ZeroShot
from latte.methods.views import Vte, VteParams, Zero, ZeroParams, most_confident


def softmax(z):
    weights = [math.exp(v - max(z)) for v in z]
    return [w / sum(weights) for w in weights]


def nats(p):
    return -sum(v * math.log(v) for v in p if v > 0)


def ranked(zero_shot, views):
    """Return cosines and the views from the most to the least confident."""
    cosines = [[float(t @ f) for t in zero_shot.text.astype(np.float64)] for f in views.astype(np.float64)]
    entropy = [nats(softmax([zero_shot.scale * c for c in row])) for row in cosines]
    return cosines, sorted(range(len(views)), key=entropy.__getitem__)


def slow_vte(zero_shot, views, share):
    _, order = ranked(zero_shot, views)
    kept = order[: max(1, int(share * len(views)))]
    mean = sum(views[v].astype(np.float64) for v in kept) / len(kept)
    return [zero_shot.scale * float(t @ mean) for t in zero_shot.text.astype(np.float64)]


def slow_zero(zero_shot, views, gamma, epsilon=np.float32):
    cosines, order = ranked(zero_shot, views)
    k = max(1, int(gamma * len(views)))
    votes = [0.0] * zero_shot.classes
    for v in order[:k]:
        for y, p in enumerate(softmax([c / float(np.finfo(epsilon).eps) for c in cosines[v]])):
            votes[y] += p
    tied = [y for y, count in enumerate(votes) if abs(count - max(votes)) < 1e-6]
    if len(tied) == 1:
        return tied[0], votes
    for v in order[k:]:
        first = max(range(zero_shot.classes), key=cosines[v].__getitem__)
        if first in tied:
            return first, votes
    judge = order[k] if k < len(order) else order[0]
    return max(tied, key=cosines[judge].__getitem__), votes


@pytest.mark.parametrize(("C", "V"), [(2, 1), (2, 9), (5, 10), (5, 64), (12, 25)])
@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_both_equal_their_transcriptions(make_stream, C, V, share):
    zero_shot, images = make_stream(seed=C + V, n=40, C=C, V=V)
    vte, zero = Vte(zero_shot, VteParams(share)), Zero(zero_shot, ZeroParams(share))
    for views in images:
        np.testing.assert_allclose(vte.predict(views).scores, slow_vte(zero_shot, views, share), atol=1e-4)
        label, votes = slow_zero(zero_shot, views, share)
        prediction = zero.predict(views)
        assert prediction.label == label == prediction.scores.argmax()
        others = np.arange(C) != label
        np.testing.assert_allclose(prediction.scores[others], np.array(votes)[others], atol=1e-6)


@pytest.mark.parametrize("epsilon", ["float32", "float16"])
def test_zero_votes_at_either_epsilon(make_stream, epsilon):
    zero_shot, images = make_stream(seed=3, n=40, C=5, V=64)
    zero = Zero(zero_shot, ZeroParams(0.3, epsilon))
    for views in images:
        label, votes = slow_zero(zero_shot, views, 0.3, np.dtype(epsilon))
        prediction = zero.predict(views)
        assert prediction.label == label
        np.testing.assert_allclose(np.delete(prediction.scores, label), np.delete(votes, label), atol=1e-3)


def test_near_classes_share_a_vote_under_autocast_only():
    """A difference of one epsilon of float16 is e to 1 in its votes, and nothing in those of float32."""
    apart = float(np.finfo(np.float16).eps)
    views = views_of((0.5, 0.5 - apart, 0.0))
    np.testing.assert_allclose(Zero(AXES, ZeroParams(1.0)).predict(views).scores, [1, 0, 0], atol=1e-9)
    shares = Zero(AXES, ZeroParams(1.0, "float16")).predict(views).scores
    np.testing.assert_allclose(shares, [math.e / (math.e + 1), 1 / (math.e + 1), 0], atol=1e-3)
    assert Zero.presets["official-autocast"] == ZeroParams(epsilon="float16")
    with pytest.raises(ValueError, match="epsilon: got 'float64', want one of 'float32', 'float16'"):
        ZeroParams(epsilon="float64")


def test_ties_in_votes_are_common_enough_to_be_tested(make_stream):
    zero_shot, images = make_stream(seed=8, n=60, C=5, V=20)
    zero = Zero(zero_shot, ZeroParams(0.2))
    halves = [p for p in map(zero.predict, images) if p.scores[p.label] % 1 == 0.5]
    assert len(halves) >= 3


def test_the_number_of_views_kept_is_that_of_the_official_codes():
    logits = np.random.default_rng(0).normal(size=(64, 5))
    assert len(most_confident(logits, 0.1).confident) == 6
    assert len(most_confident(logits, 0.3).confident) == 19
    assert [len(most_confident(logits[:v], 0.1).confident) for v in (1, 5, 9, 10, 19, 20)] == [1, 1, 1, 1, 1, 2]


def test_equal_views_are_taken_in_their_order():
    logits = np.tile([3.0, 1.0, 0.0], (20, 1))
    split = most_confident(logits, 0.1)
    assert split.confident.tolist() == [0, 1]
    assert split.discarded.tolist() == list(range(2, 20))


def test_one_view_is_plain_clip(make_stream):
    zero_shot, images = make_stream(seed=2, n=20)
    for views in images:
        plain = zero_shot.logits(views[0])
        np.testing.assert_allclose(Vte(zero_shot).predict(views).scores, plain, rtol=1e-5, atol=1e-5)
        assert Zero(zero_shot).predict(views).label == plain.argmax()


def views_of(*rows):
    """Rows of cosines to three axes, completed to unit length on a fourth."""
    return [[*row, math.sqrt(1 - sum(c * c for c in row))] for row in rows]


AXES = ZeroShot(np.eye(3, 4), ("a", "b", "c"), scale=10.0)


def test_a_vote_is_shared_by_classes_that_are_equal():
    views = views_of((0.5, 0.5, 0.0), (0.0, 0.5, 0.1), (0.1, 0.0, 0.4))
    prediction = Zero(AXES, ZeroParams(1.0)).predict(views)
    np.testing.assert_array_equal(prediction.scores, [0.5, 1.5, 1.0])


def test_a_tie_goes_to_the_first_discarded_view_with_a_tied_class():
    kept = [(0.9, 0.0, 0.0), (0.0, 0.9, 0.0)]
    discarded = [(0.0, 0.0, 0.6), (0.1, 0.5, 0.0), (0.45, 0.1, 0.0)]  # c is not tied; b comes before a
    prediction = Zero(AXES, ZeroParams(0.4)).predict(views_of(*kept, *discarded))
    assert prediction.label == 1
    np.testing.assert_array_equal(prediction.scores, [1.0, 1.5, 0.0])


def test_a_tie_that_no_discarded_view_decides_goes_by_the_most_confident_discarded_one():
    kept = [(0.9, 0.0, 0.0), (0.0, 0.9, 0.0)]
    discarded = [(0.1, 0.2, 0.6), (0.3, 0.1, 0.5), (0.3, 0.1, 0.5)]  # all prefer c, which is not tied
    assert Zero(AXES, ZeroParams(0.4)).predict(views_of(*kept, *discarded)).label == 1


def test_a_tie_without_discarded_views_goes_by_the_most_confident_kept_one():
    assert Zero(AXES, ZeroParams(1.0)).predict(views_of((0.8, 0.0, 0.1), (0.0, 0.9, 0.0))).label == 1
    assert Zero(AXES, ZeroParams(1.0)).predict(views_of((0.9, 0.0, 0.1), (0.0, 0.8, 0.0))).label == 0


def test_a_view_that_is_equal_for_all_classes_goes_to_the_lowest_index():
    views = views_of((0.4, 0.4, 0.4))
    assert Zero(AXES).predict(views).label == 0
    np.testing.assert_allclose(Zero(AXES).predict(views).scores, [1 / 3 + 0.5, 1 / 3, 1 / 3])
