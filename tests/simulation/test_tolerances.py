"""The tolerances of the engine: no rounding exceeds them, and they are what the code compares with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte.core.maths import entropy_of_one
from latte.core.validate import lengths_of, unit_rows
from latte.core.zero_shot import ZeroShot
from latte.engine import has_loops
from latte.engine.loops import arrays as tolerances
from latte.engine.loops.arrays import ZeroShotResults
from latte.engine.streams import find_near_ties, lay_out, plain_classify, plain_squares
from latte.methods.latte.donors import exact_products
from simulation.engine_support import made_up, unit

if not has_loops():
    pytest.skip("the compiled loops need numba", allow_module_level=True)

from latte.engine import server
from latte.engine.cache import kernel
from latte.engine.loops.classify import classify, compare_with_all, squares
from latte.engine.loops.route import dot_exactly
from latte.engine.queues import near_limits


@kernel
def similarities(vectors, rows, out):
    compare_with_all(vectors, rows, out)


@kernel
def exact_similarities(vectors, own, out):
    for j in range(len(vectors)):
        out[j] = dot_exactly(vectors[own], vectors[j])


def same_sign(rng, n, D):
    return unit(rng.random((n, D)) + 0.1)  # every partial sum grows, and every addition rounds


def cone(rng, n, D):
    return unit(rng.normal(size=D) + 0.3 * rng.normal(size=(n, D)))  # as CLIP's embeddings: cosines near 1


def steep(rng, n, D):
    return unit(rng.normal(size=(n, D)) * np.logspace(0, -6, D))  # terms of very different size


def alternating(rng, n, D):
    return unit((-1.0) ** np.arange(D) + 1e-3 * rng.normal(size=(n, D)))


def scattered(rng, n, D):
    return unit(rng.normal(size=(n, D)))


KINDS = [same_sign, cone, steep, alternating, scattered]
cases = {
    "kind": st.sampled_from(KINDS),
    "seed": st.integers(0, 10_000),
    "D": st.sampled_from([3, 16, 255, 512, 768, 1024, 2048]),
}


@settings(max_examples=80)
@given(**cases)
def test_similarities(kind, seed, D):
    """A choice between two donors compares two similarities: the error of both counts, beside what is exact."""
    vectors = kind(np.random.default_rng(seed), 9, D)
    fast = np.zeros((9, 9), np.float32)
    similarities(vectors, np.arange(9), fast)
    exact = np.stack([exact_products(vectors[None], 0, np.arange(9), i) for i in range(9)])
    gap, exact_gap = (values[:, :, None].astype(float) - values[:, None, :] for values in (fast, exact))
    assert np.abs(gap - exact_gap).max() < tolerances.NEAR_SIMILARITY


@settings(max_examples=80)
@given(**cases)
def test_exact_similarities(kind, seed, D):
    """Beside those that the definition of the donors compares: again the error of two differences counts."""
    vectors = kind(np.random.default_rng(seed), 9, D)
    loop = np.zeros(9)
    exact_similarities(vectors, 0, loop)
    defined = exact_products(vectors[None], 0, np.arange(9), 0)
    gap = (loop[:, None] - loop) - (defined[:, None] - defined)
    assert np.abs(gap).max() < tolerances.NEAR_EXACT


@settings(max_examples=60)
@given(**cases, stretch=st.sampled_from([0.0, 4e-7, 9e-4]))
@pytest.mark.parametrize("classifier", [(squares, classify), (plain_squares, plain_classify)])
def test_logits_and_entropies(classifier, kind, seed, D, stretch):
    rng = np.random.default_rng(seed)
    zero_shot = ZeroShot(cone(rng, 6, D), tuple("abcdef"))
    rows = kind(rng, 12, D)
    rows *= rng.uniform(1 - stretch, 1 + stretch, (12, 1)).astype(np.float32)
    rows.flags.writeable = False
    text = zero_shot.scaled.view()
    text.flags.writeable = False
    square, room, index = np.empty(12, np.float32), np.empty((2, D)), np.arange(12)
    classifier[0](rows, index, square)
    logits, pseudo, uncertainty, close = results = ZeroShotResults.empty(12, 6)
    near = tolerances.NEAR_LOGIT * zero_shot.scale
    classifier[1](rows, index, lengths_of(square), text, near, room, results)
    for k in range(12):
        readable = zero_shot.logits(unit_rows("views", rows[k : k + 1])[0])
        gap = np.abs(np.subtract.outer(logits[k], logits[k]) - np.subtract.outer(readable, readable)).max()
        assert gap < tolerances.NEAR_LOGIT * zero_shot.scale
        exact = entropy_of_one(readable)
        assert abs(uncertainty[k] - exact) < (tolerances.NEAR_ENTROPY * exact + tolerances.ENTROPY_NOISE) / 2
        assert close[k] or pseudo[k] == readable.argmax()


def test_the_tolerances_are_what_the_code_compares_with():
    from latte.methods.latte.client import LatteParams

    assert server.route_rules(LatteParams(), 5).near == tolerances.NEAR_SIMILARITY
    near = 0.5 * (1 + np.array([0.0, 0.9, 2.1]) * tolerances.NEAR_ENTROPY)
    assert find_near_ties(np.zeros(3, np.int64), near).tolist() == [True, True, False]
    assert find_near_ties(np.zeros(2, np.int64), np.array([0.0, 0.5 * tolerances.ENTROPY_NOISE])).all()
    assert not find_near_ties(np.zeros(2, np.int64), np.array([0.0, 2 * tolerances.ENTROPY_NOISE])).any()


def test_what_is_beside_a_limit_of_tda_is_computed_again():
    from latte.methods.tda import TdaParams

    streams = lay_out(made_up((5,), 3, 8))
    limit = TdaParams().entropy_above / np.log(2)
    streams.entropy[:] = limit * (1 + np.array([0.0, 0.9, -0.9, 1.5, -1.5]) * tolerances.NEAR_LIMIT)
    assert near_limits(streams, TdaParams()).tolist()[:3] == [True] * 3
