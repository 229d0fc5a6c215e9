"""Vectors on the way: what comes back, in every precision."""

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.wire.rows import PRECISIONS, RowFormat, rotate, row_ids

ROUNDING = {"exact": 0.0, "fp32": 1e-7, "fp16": 1e-3, "int8": 0.09, "int4": 1.0}
SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 33))
NUMBERS = st.floats(-1, 1, width=32)


def rotate_back(rows):
    return rotate(rows, back=True)


@st.composite
def rows(draw):
    return draw(arrays.arrays(draw(st.sampled_from([np.float32, np.float64])), draw(SHAPES), elements=NUMBERS))


@pytest.mark.parametrize("precision", PRECISIONS)
@given(rows())
def test_rows_come_back(precision, given_rows):
    form = RowFormat.of(precision, given_rows.shape[1], given_rows.dtype)
    encoded = form.encode(given_rows)
    assert encoded.shape == (len(given_rows), form.stride) and encoded.dtype == np.uint8
    got = form.decode(encoded)
    lengths = np.linalg.norm(given_rows.astype(np.float64), axis=1)
    apart = np.linalg.norm(got.astype(np.float64) - given_rows, axis=1)
    assert got.dtype == given_rows.dtype and (apart <= ROUNDING[precision] * lengths * 1.01 + 1e-6).all()
    if precision != "fp16":  # half precision rounds small numbers to zero
        assert np.allclose(np.linalg.norm(got.astype(np.float64), axis=1), lengths, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_encoding_again_loses_nothing(precision):
    vectors = np.random.default_rng(0).normal(size=(50, 64)).astype(np.float32)
    form = RowFormat.of(precision, 64, vectors.dtype)
    once = form.decode(form.encode(vectors))
    assert np.allclose(form.decode(form.encode(once)), once, rtol=1e-6, atol=0)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dim", [1, 7, 64, 384, 512])
def test_encoding_again_gives_the_same_bytes(precision, dim):
    vectors = np.random.default_rng(dim).normal(size=(200, dim)).astype(np.float32)
    form = RowFormat.of(precision, dim, vectors.dtype)
    encoded = form.encode(vectors)
    assert np.array_equal(form.encode(form.decode(encoded)), encoded)


@given(rows())
def test_a_rotation_changes_no_angle_and_can_be_undone(given_rows):
    single = given_rows.astype(np.float32)
    turned = rotate(single)
    assert np.allclose(turned @ turned.T, single @ single.T, atol=1e-4)
    assert np.allclose(rotate_back(turned), single, atol=1e-5)


@pytest.mark.parametrize("dim", [384, 512, 768])
def test_a_dimension_that_stands_out_costs_the_others_nothing(dim):
    vectors = np.random.default_rng(0).normal(size=(100, dim)).astype(np.float32)
    vectors[:, [dim // 3, dim - 1]] *= 16  # as in CLIP's embeddings
    form = RowFormat.of("int4", dim, vectors.dtype)
    apart = np.linalg.norm(form.decode(form.encode(vectors)) - vectors, axis=1)
    assert (apart < 0.2 * np.linalg.norm(vectors, axis=1)).all()  # 0.3 and more without the rotation


@pytest.mark.parametrize("precision", ["int8", "int4", "fp16"])
def test_the_rounding_bounds_the_change_of_a_product(precision):
    rng = np.random.default_rng(1)
    vectors, others = (rng.normal(size=(2000, 256)).astype(np.float32) for _ in range(2))
    vectors, others = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (vectors, others))
    form = RowFormat.of(precision, 256, vectors.dtype)
    encoded = form.encode(vectors)
    change = np.abs(((form.decode(encoded) - vectors) * others).sum(axis=1))
    assert (change < form.roundings(encoded)).all() and form.roundings(encoded).max() < 0.2


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_rows_that_no_encoder_gives_are_refused(precision):
    form = RowFormat.of(precision, 8, np.dtype(np.float32))
    encoded = form.encode(np.eye(1, 8, dtype=np.float32)).copy()
    encoded[0, 4:] = 0x99 if precision == "int4" else 1  # ones: a large scale would buy slack in the checks
    with pytest.raises(ValueError, match="do not use their range"):
        form.decode(encoded)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_that_are_not_finite_stay_so(precision):
    vectors = np.array([[np.nan, 1.0], [0.6, 0.8]], np.float32)
    form = RowFormat.of(precision, 2, vectors.dtype)
    got = form.decode(form.encode(vectors))
    assert not np.isfinite(got[0]).all() and np.allclose(got[1], vectors[1], atol=0.1)


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 20), st.integers(1, 50))), st.integers(0, 2**63 - 1))
def test_ids_stand_for_rows(encoded, seed):
    ids = row_ids(encoded, seed)
    same = (encoded[:, None] == encoded[None]).all(axis=2)
    assert np.array_equal(ids[:, None] == ids[None], same)


def test_ids_depend_on_the_seed():
    encoded = np.arange(40, dtype=np.uint8).reshape(4, 10)
    assert not (row_ids(encoded, 1) == row_ids(encoded, 2)).any()


@pytest.mark.parametrize("dim", [64, 512])
def test_int4_cuts_what_is_largest_and_loses_nothing_the_second_time(dim):
    rng = np.random.default_rng(dim)
    rows = rng.normal(size=(200, dim))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    form = RowFormat.of("int4", dim, rows.dtype)
    encoded = form.encode(rows)
    back = form.decode(encoded)
    assert np.sqrt(((rows - back) ** 2).sum(axis=1).mean()) < 0.115, "0.13 without cuts"
    assert np.array_equal(form.encode(back), encoded)
    apart = [np.abs((one - two) @ rows.T).max() for one, two in zip(rows, back, strict=True)]
    assert (np.array(apart) < form.roundings(encoded)).all()
