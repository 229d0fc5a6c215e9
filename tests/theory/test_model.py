"""The sphere model: sampling, entropy, the memory, the readout, the ways to share."""

from __future__ import annotations

import numpy as np
import pytest

from latte.core.memory import LocalMemory
from latte.paper.theory.model import Classifier, Domain, Sharing, SphereClient, World, class_means, merge, nearest_label
from latte.paper.theory.study import Crowd, merged_memory, share_lost

WORLD = World.make(3, 0.8, 1.0, 0.3)


def seen_by(world: World, n: int, k: int, seed: int) -> SphereClient:
    client = SphereClient(world.domain, world.classifier, k)
    client.observe(n, np.random.default_rng(seed))
    return client


def rows(memory: LocalMemory, label: int) -> list[tuple[float, ...]]:
    return sorted(map(tuple, memory.vectors[label][memory.valid[label]].tolist()))


def test_samples_lie_in_their_balls_and_classes_are_balanced() -> None:
    points, y = WORLD.domain.sample(50_000, np.random.default_rng(0))
    assert np.linalg.norm(points - WORLD.domain.centres[y], axis=1).max() <= 1
    assert y.mean() == pytest.approx(0.5, abs=0.01)
    np.testing.assert_allclose(points[y == 1].mean(axis=0), WORLD.domain.centres[1], atol=0.02)


def test_entropy_falls_strictly_with_the_margin() -> None:
    margins = np.linspace(1e-3, 30, 1_000_000)  # far beyond what the model can reach
    for sign in (1, -1):
        assert (np.diff(WORLD.classifier.entropies(sign * margins)) < 0).all()


def test_entropy_is_lost_when_the_scale_is_too_large() -> None:
    steep = Classifier(WORLD.classifier.w, t=1000.0)
    assert steep.entropies(np.array([0.8, 1.2])).tolist() == [0, 0]


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("n", [5, 50, 3000])
def test_the_memory_is_as_if_every_sample_had_been_offered(k: int, n: int) -> None:
    points, _ = WORLD.domain.sample(n, np.random.default_rng(n + k))
    margins = WORLD.classifier.margins(points)
    plain = LocalMemory(2, k, 3)
    for point, margin, entropy in zip(points, margins, WORLD.classifier.entropies(margins), strict=True):
        plain.put(int(margin > 0), point.astype(np.float32), float(entropy))
    client = SphereClient(WORLD.domain, WORLD.classifier, k)
    for part in np.array_split(points, 3):
        client.remember(part)
    for label in (0, 1):
        assert rows(client.memory, label) == rows(plain, label)
        side = points[(margins > 0) == label]
        certain = side[np.argsort(-np.abs(WORLD.classifier.margins(side)))[:k]].astype(np.float32)
        assert rows(client.memory, label) == sorted(map(tuple, certain.tolist()))


def test_nearest_label_equals_a_slow_search() -> None:
    rng = np.random.default_rng(5)
    vectors, queries = rng.standard_normal((2, 4, 3)).astype(np.float32), rng.standard_normal((200, 3))
    valid = np.array([[True, True, False, True], [True, False, True, True]])
    slow = []
    for query in queries:
        gaps = [(np.linalg.norm(query - vectors[y, i]), y) for y in (0, 1) for i in range(4) if valid[y, i]]
        slow.append(min(gaps)[1])
    assert nearest_label(vectors, valid, queries).tolist() == slow


def test_an_empty_class_is_never_nearest() -> None:
    valid = np.array([[False], [True]])
    assert nearest_label(np.zeros((2, 1, 3), np.float32), valid, np.ones((4, 3))).tolist() == [1] * 4


def test_clients_that_share_samples_hold_the_most_certain_of_all() -> None:
    """The appendix: k samples out of n_ID · N."""
    clients = [seen_by(WORLD, 200, 4, seed) for seed in range(5)]
    together = SphereClient(WORLD.domain, WORLD.classifier, 4)
    for seed in range(5):
        together.observe(200, np.random.default_rng(seed))
    merged = merge(clients[0], clients[1:], Sharing())
    for label in (0, 1):
        assert sorted(map(tuple, merged.vectors[label].tolist())) == rows(together.memory, label)


def test_a_prototype_is_the_mean_with_its_own_entropy() -> None:
    own, other = seen_by(WORLD, 3, 2, 0), seen_by(WORLD, 500, 2, 1)
    merged = merge(own, [other], Sharing(content="prototype"))
    means, seen = class_means(other)
    assert seen.all()
    for label in (0, 1):
        assert any(np.allclose(vector, means[label], atol=1e-6) for vector in merged.vectors[label])


def test_only_the_nearest_are_asked() -> None:
    rng = np.random.default_rng(2)
    for certain in (-0.5, 0.0, 0.5):
        crowd = Crowd(100, 3, n_id=3, n_ood=6, more_certain=certain)
        assert share_lost(WORLD, merged_memory(WORLD, crowd, Sharing("nearest", donors=2), rng)) == 0


def test_nobody_asked_is_ones_own_memory() -> None:
    own, other = seen_by(WORLD, 50, 3, 0), seen_by(WORLD, 50, 3, 1)
    merged = merge(own, [other], Sharing("nearest", donors=0))
    assert (np.sort(merged.entropy, axis=1) == np.sort(own.memory.entropy, axis=1)).all()
    assert (merge(own, [], Sharing("nearest")).valid == own.memory.valid).all()


def least_distance(one: Domain, other: Domain) -> float:
    """Between two centres."""
    return float(np.linalg.norm(one.centres[:, None] - other.centres, axis=-1).min())


@pytest.mark.parametrize("d", [3, 4, 10])
def test_other_domains_are_as_far_as_the_paper_wants(d: int) -> None:
    world, rng = World.make(d, 0.8, 1.0), np.random.default_rng(d)
    for certain in (-0.5, 0.0, 0.5):
        other = world.elsewhere(rng, certain)
        assert least_distance(other, world.domain) > 4  # the paper's: out of distribution
        heights = (other.centres - world.domain.centres) @ world.classifier.w
        np.testing.assert_allclose(heights, [-certain, certain], atol=1e-12)


def test_what_the_theory_excludes_is_refused() -> None:
    with pytest.raises(ValueError, match="alignment: got"):
        World.make(3, 0.8, 2.0)
    with pytest.raises(ValueError, match="bias: got"):
        World.make(3, 0.8, 1.0, 1.9)
    with pytest.raises(ValueError, match="d: got 2, want d >= 3"):
        World.make(2, 0.8, 1.0).elsewhere(np.random.default_rng(0))
    with pytest.raises(ValueError, match="selection: got"):
        Sharing(selection="nobody")
