"""Windows without a loop over the rounds are those that the rounds give one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latte.engine import streams
from latte.simulation.simulator import Schedule


@settings(max_examples=200)
@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=6),
    late=st.lists(st.integers(1, 30), min_size=6, max_size=6) | st.none(),
    period=st.integers(1, 20),
    sync=st.sampled_from(["every", "doubling", "powers"]),
    size=st.integers(1, 40),
)
def test_windows_are_those_of_the_rounds(lengths, late, period, sync, size):
    starts = None if late is None else tuple(late[: len(lengths)])
    schedule = Schedule(period, sync=sync, starts=starts)
    windows = list(streams.windows(lengths, schedule, np.random.default_rng(0), size))
    expected = list(streams._round_by_round(lengths, schedule, np.random.default_rng(0), size))
    assert len(windows) == len(expected)
    for window, other in zip(windows, expected, strict=True):
        for mine, theirs in zip(window, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
