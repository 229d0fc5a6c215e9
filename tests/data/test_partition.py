"""The laws of a partition: nobody is lost, classes are even, the sources of chance are separate."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte.core.zero_shot import ZeroShot
from latte.data.bundled import bundled
from latte.data.federation import Embeddings, federate, generators, is_crossed, stratified_folds

SEEDS = st.integers(0, 2**32)


def make(labels, domain, classes=3, domains=2, index=None) -> Embeddings:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(len(labels), 1, 4))
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    zero_shot = ZeroShot(np.eye(4)[:classes], tuple("abcd"[:classes]))
    names = tuple(f"d{i}" for i in range(domains))
    return Embeddings("t", zero_shot, rows.astype(np.float32), np.array(labels), np.array(domain), names, {}, index)


@settings(max_examples=150)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(1, 12), SEEDS)
def test_folds_hold_everyone_once_and_every_class_evenly(labels, folds, seed):
    labels = np.array(labels)
    if folds > len(labels):
        with pytest.raises(ValueError, match="at most"):
            stratified_folds(labels, folds, np.random.default_rng(seed))
        return
    dealt = stratified_folds(labels, folds, np.random.default_rng(seed))
    assert sorted(np.concatenate(dealt)) == list(range(len(labels)))
    counts = np.array([np.bincount(labels[fold], minlength=6) for fold in dealt])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
    sizes = counts.sum(axis=1)
    assert sizes.max() - sizes.min() <= 1 and sizes.min() >= 1


@settings(max_examples=80)
@given(st.lists(st.integers(0, 4), min_size=4, max_size=50), st.integers(2, 8), SEEDS)
def test_folds_count_as_scikit_learn_counts(labels, folds, seed):
    model_selection = pytest.importorskip("sklearn.model_selection")
    labels = np.array(labels)
    if folds > np.bincount(labels).max():
        return  # scikit-learn refuses what we deal
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        theirs = model_selection.StratifiedKFold(folds, shuffle=True, random_state=0).split(labels, labels)
        want = [np.bincount(labels[fold], minlength=5).tolist() for _, fold in theirs]
    ours = stratified_folds(labels, folds, np.random.default_rng(seed))
    assert [np.bincount(labels[fold], minlength=5).tolist() for fold in ours] == want


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=50),
    st.integers(1, 4),
    st.integers(0, 1000),
    st.sampled_from(["shuffled", "correlated"]),
)
def test_a_federation_holds_every_sample_once_in_its_domain(pairs, m, seed, order):
    embeddings = make([a for a, _ in pairs] + [0] * 8, [b for _, b in pairs] + [0] * 4 + [1] * 4)
    federation = federate(embeddings, m, seed, order)
    assert len(federation) == 2 * m
    assert sorted(np.concatenate([c.samples for c in federation.clients])) == list(range(len(embeddings)))
    for client in federation.clients:
        assert (embeddings.domain[client.samples] == client.domain).all()
    if order == "correlated":
        for client in federation.clients:
            labels = federation.labels(client)
            assert (np.diff(labels) != 0).sum() == len(np.unique(labels)) - 1


def sets(federation):
    return [frozenset(c.samples.tolist()) for c in federation.clients]


def streams(federation):
    return [c.samples.tolist() for c in federation.clients]


def test_the_order_does_not_change_the_partition_and_seeds_change_both():
    embeddings = bundled().embeddings
    shuffled, correlated = federate(embeddings, 3, 5), federate(embeddings, 3, 5, "correlated")
    assert sets(shuffled) == sets(correlated)
    assert streams(shuffled) != streams(correlated)
    assert streams(federate(embeddings, 3, 5)) == streams(shuffled)
    assert sets(federate(embeddings, 3, 6)) != sets(shuffled)


def test_the_three_generators_differ_and_repeat():
    first, again, other = generators(3), generators(3), generators(4)
    draws = [g.integers(0, 2**62) for g in (first.partition, first.order, first.cohort)]
    assert len(set(draws)) == 3
    assert draws == [g.integers(0, 2**62) for g in (again.partition, again.order, again.cohort)]
    assert draws[0] != other.partition.integers(0, 2**62)


def test_fixed_clients_keep_their_images_and_may_keep_their_order():
    fixed = bundled()
    in_file_order = federate(fixed.embeddings, None, 0, "file")
    assert streams(in_file_order) == streams(fixed)
    shuffled = federate(fixed.embeddings, None, 0)
    assert sets(shuffled) == sets(fixed) and streams(shuffled) != streams(fixed)
    assert [c.name for c in shuffled.clients] == [c.name for c in fixed.clients]
    with pytest.raises(ValueError, match="order"):
        federate(fixed.embeddings, 2, 0, "file")


def test_no_fixed_clients_in_the_file_is_refused():
    with pytest.raises(ValueError, match="client"):
        federate(make([0, 1], [0, 1]), None, 0)


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(0, 1000), st.integers(8, 40))
def test_the_corruption_partition_shows_every_image_under_one_corruption(m, seed, images):
    rng = np.random.default_rng(images)
    label = rng.integers(0, 3, images)
    index, domain = np.tile(np.arange(images) + 7, 2), np.repeat([0, 1], images)
    shuffle = rng.permutation(2 * images)
    embeddings = make(np.tile(label, 2)[shuffle], domain[shuffle], index=index[shuffle])
    assert is_crossed(embeddings)
    federation = federate(embeddings, m, seed)
    rows = np.concatenate([c.samples for c in federation.clients])
    assert sorted(embeddings.index[rows]) == list(range(7, images + 7))
    for client in federation.clients:
        assert (embeddings.domain[client.samples] == client.domain).all()
    counts = np.array([np.bincount(federation.labels(c), minlength=3) for c in federation.clients])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()


def test_another_seed_pairs_images_with_other_corruptions():
    index, domain = np.tile(np.arange(40), 2), np.repeat([0, 1], 40)
    embeddings = make(np.tile(np.arange(40) % 3, 2), domain, index=index)
    under_first = [
        frozenset(embeddings.index[np.concatenate([c.samples for c in f.clients if c.domain == 0])].tolist())
        for f in (federate(embeddings, 2, 0), federate(embeddings, 2, 1))
    ]
    assert under_first[0] != under_first[1]


@pytest.mark.parametrize("break_it", ["label", "twice", "none", "one image short"])
def test_only_a_full_cross_is_a_corruption_benchmark(break_it):
    index, domain, label = np.tile(np.arange(6), 2), np.repeat([0, 1], 6), np.tile(np.arange(6) % 3, 2)
    if break_it == "label":
        label[0] = (label[0] + 1) % 3
    if break_it == "twice":
        index[0] = 1
    if break_it == "one image short":
        index, domain, label = index[:-1], domain[:-1], label[:-1]
    assert not is_crossed(make(label, domain, index=None if break_it == "none" else index))


def test_more_clients_than_images_are_refused_by_domain():
    with pytest.raises(ValueError, match="3 for 2 images of d1"):
        federate(make([0, 1, 2, 0, 1], [0, 0, 0, 1, 1]), 3, 0)


def test_many_small_classes(shared):
    from latte.data.embeddings import convert_npz

    embeddings = convert_npz(shared / "data" / "embeddings" / "clip_sun397.npz")
    federation = federate(embeddings, 20, 0)  # 397 classes of 10 images: no class reaches every client
    assert len(federation) == 20 and federation.samples == 3970
    assert max(len(c) for c in federation.clients) - min(len(c) for c in federation.clients) <= 1
