"""What a bar shows."""

import time

import pytest

from latte.cli import output as progress
from latte.cli.output import bar


@pytest.mark.parametrize(("steps", "seconds", "most"), [(3, 0.2, 15.0), (1, 0.5, 2.0), (500, 0.05, 10_000.0)])
def test_the_speed_is_known_from_the_first_step_on(steps, seconds, most):
    """A run of one chunk has one step: rich knows no speed before the second."""
    with bar("embed", steps, "images") as advance:
        time.sleep(seconds)
        advance(steps)
        number, unit = progress._open[0].tasks[0].fields["speed"].split()
        assert 0 < float(number) <= most and unit == "images/s"
