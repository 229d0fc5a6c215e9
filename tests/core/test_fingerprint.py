"""A classifier that was stored and read back is the same classifier."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latte.core.zero_shot import ZeroShot


@given(st.integers(0, 10_000), st.sampled_from([2, 8, 256, 1024]), st.sampled_from([np.float16, np.float32]))
def test_making_a_classifier_of_its_own_text_changes_nothing(seed, dim, kind):
    rows = np.random.default_rng(seed).normal(size=(12, dim))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(kind)
    first = ZeroShot(rows, tuple("abcdefghijkl"))
    again = ZeroShot(first.text, first.classnames)
    assert again.fingerprint == first.fingerprint
    np.testing.assert_allclose(np.linalg.norm(first.text.astype(np.float64), axis=1), 1, atol=1e-6)
