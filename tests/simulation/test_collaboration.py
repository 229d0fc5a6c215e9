"""How much stays inside a domain: never more than the ceiling, and by chance what an even draw gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.simulation.wrapped import inside_share, share_inside


@given(st.integers(0, 2**32), st.integers(2, 12), st.integers(1, 4), st.sampled_from([None, 1, 2, 5, 50]))
def test_laws(seed, n, domains, slots):
    rng = np.random.default_rng(seed)
    downloads = rng.integers(0, 20, (n, n)) * (1 - np.eye(n, dtype=int))
    groups = rng.integers(0, domains, n)
    share = inside_share(downloads, groups, slots)
    if not downloads.any():
        assert np.isnan([share.inside, share.chance, share.best]).all()
        return
    assert share.inside == share_inside(downloads, groups)
    assert 0 <= share.inside <= share.best + 1e-9 <= 100 + 2e-9
    assert share.chance <= share.best + 1e-9
    even = 1 - np.eye(n)
    assert inside_share(even, groups, slots).inside == pytest.approx(inside_share(even, groups, slots).chance)
    if len(set(groups.tolist())) == 1:
        assert share.inside == pytest.approx(share.best) == pytest.approx(100)


def test_what_the_slots_leave_for_strangers():
    """Two clients per domain, nine slots: one is a peer, eight are strangers, at best."""
    groups = np.repeat(np.arange(19), 2)
    rng = np.random.default_rng(0)
    downloads = np.zeros((38, 38), int)
    for i in range(38):  # ten times nine others, the peer always among them
        others = [j for j in range(38) if j != i and groups[j] != groups[i]]
        for _ in range(10):
            downloads[i, [i ^ 1, *rng.choice(others, 8, replace=False)]] += 1
    share = inside_share(downloads, groups, 9)
    assert share.inside == pytest.approx(share.best) == pytest.approx(100 / 9)
    assert share.chance == pytest.approx(100 / 37)
    assert inside_share(downloads, groups).best == 100.0, "without a limit on strangers, nothing has to leave"


def test_a_client_that_is_alone_in_its_domain_can_only_ask_strangers():
    groups = np.array([0, 0, 1])
    downloads = np.array([[0, 5, 0], [5, 0, 0], [5, 5, 0]])
    share = inside_share(downloads, groups)
    assert (share.inside, share.best) == (50.0, 50.0)
