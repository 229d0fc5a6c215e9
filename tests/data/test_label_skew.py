"""Label skew deals every image once, inside its domain."""

import numpy as np
import pytest

from latte.data.bundled import bundled
from latte.data.federation import federate

pytest.importorskip("label_skew", reason="benchmarks are not part of this distribution")
from label_skew import skew_labels


@pytest.mark.parametrize("concentration", [0.05, 1.0, 100.0])
def test_every_image_is_dealt_once_inside_its_domain(concentration):
    federation = bundled()
    skewed = skew_labels(federation, concentration, np.random.default_rng(0))
    both = [np.sort(np.concatenate([c.samples for c in one.clients])) for one in (federation, skewed)]
    assert np.array_equal(*both)
    for client in skewed.clients:
        assert len(client) and (skewed.embeddings.domain[client.samples] == client.domain).all()


def test_a_small_concentration_leaves_a_client_few_classes():
    federation = federate(bundled().embeddings, 3, 0)

    def largest_share(concentration):
        skewed = skew_labels(federation, concentration, np.random.default_rng(0))
        counts = [np.bincount(skewed.labels(client)) for client in skewed.clients]
        return np.mean([count.max() / count.sum() for count in counts])

    assert largest_share(0.1) > largest_share(100.0) + 0.1


def test_refusals():
    with pytest.raises(ValueError, match="concentration"):
        skew_labels(bundled(), 0.0, np.random.default_rng(0))
