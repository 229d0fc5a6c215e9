"""Rows for tuning that a report does not show."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte.core.zero_shot import ZeroShot
from latte.data.catalogue import exclude_reported, select_unseen
from latte.data.federation import Embeddings, federate, is_crossed

CLASSES = 3


def embeddings(images, domains, seed=0, which=None):
    """``images`` in every domain, or each in the domain that ``which`` says, the rows in random order."""
    rng = np.random.default_rng(seed)
    pairs = [(i, d) for i in range(images) for d in (range(domains) if which is None else [which[i]])]
    index, domain = rng.permutation(pairs).T
    views = rng.normal(size=(len(index), 1, 4)).astype(np.float32)
    views /= np.linalg.norm(views, axis=2, keepdims=True)
    zero_shot = ZeroShot(np.eye(CLASSES, 4), ("a", "b", "c"))
    names = tuple(f"d{i}" for i in range(domains))
    return Embeddings("made", zero_shot, views, index % CLASSES, domain, names, {}, index)


def pairs(data, rows=slice(None)):
    names = np.array(data.domains)[data.domain]
    return set(zip(data.index[rows].tolist(), names[rows].tolist(), strict=True))


def reported_pairs(data, clients, seeds):
    shown = [client.samples for seed in seeds for client in federate(data, clients, seed).clients]
    return pairs(data, np.concatenate(shown))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(1, 2), st.integers(1, 4), st.integers(0, 100))
def test_every_image_once_where_no_reported_seed_shows_it(domains, clients, count, first):
    whole = embeddings(12 * domains, domains, seed=first)
    seeds = tuple(range(first, first + count))
    shown = reported_pairs(whole, clients, seeds)
    if len(shown) == len(whole):
        with pytest.raises(ValueError, match="fewer"):
            select_unseen(whole, clients, seeds, 1000)
        return
    selected = select_unseen(whole, clients, seeds, 1000)
    assert not pairs(selected) & shown
    assert sorted(selected.index) == sorted({i for i, d in pairs(whole) - shown})  # each once
    rows = {pair: row for row, pair in enumerate(zip(whole.index.tolist(), whole.domain.tolist(), strict=True))}
    source = [rows[pair] for pair in zip(selected.index.tolist(), selected.domain.tolist(), strict=True)]
    np.testing.assert_array_equal(selected.views, whole.views[source])
    np.testing.assert_array_equal(selected.labels, whole.labels[source])


def test_another_seed_alone_would_show_some_pairs_again():
    whole = embeddings(190, 19)
    assert is_crossed(whole)
    assert reported_pairs(whole, 1, [0]) & reported_pairs(whole, 1, [100])


def test_classes_are_dealt_evenly():
    selected = select_unseen(embeddings(19 * 30, 19), 2, range(5), 100)
    counts = np.zeros((CLASSES, 19), int)
    np.add.at(counts, (selected.labels, selected.domain), 1)
    assert counts.sum() == 19 * 30
    assert counts.min() >= 9 and counts.max() <= 11  # ten each, but for what the reported seeds leave free


def test_rows_of_another_file_are_other_rows():
    rng = np.random.default_rng(3)
    reported = embeddings(50, 4, which=rng.integers(4, size=50))
    pool = embeddings(60, 4, seed=1, which=rng.integers(4, size=60))
    turned = replace(pool, domain=3 - pool.domain, domains=pool.domains[::-1])  # names count, not their order
    for one in (pool, turned):
        remaining = exclude_reported(one, reported)
        assert pairs(remaining) == pairs(pool) - pairs(reported)
        assert len(remaining) == len(pairs(remaining)) < len(pool)
    with pytest.raises(ValueError, match="tuning file: got the rows that are reported"):
        exclude_reported(reported, reported)
    with pytest.raises(ValueError, match="index"):
        exclude_reported(replace(pool, index=None), reported)


def test_fixed_clients_are_not_fixed_in_a_part():
    reported, pool = embeddings(8, 2, which=[0] * 8), embeddings(8, 2, which=[0, 1] * 4)
    assert exclude_reported(replace(pool, client=pool.domain), reported).client is None
