"""Counters of a session, and what a device does with near copies by default."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.core.memory import NEAR_COPY
from latte.edge import Answer, create_alone, fill_of
from latte.edge.classify.evidence import LEAST_RECENT, SessionCounts, Tally, collapse_of
from latte.methods import LatteParams
from small_tasks import a_task

ANSWERS = st.builds(
    Answer,
    file=st.just("x.jpg"),
    label=st.sampled_from(["cat", "dog"]),
    zero_shot=st.sampled_from(["cat", "dog"]),
    near_copy=st.booleans(),
) | st.builds(Answer, file=st.just("x.jpg"), label=st.none(), problem=st.just("not an image"))


@given(st.lists(ANSWERS))
def test_every_answer_is_counted_once(answers):
    tally = Tally()
    for answer in answers:
        tally.count(answer)
    counts = tally.counts()
    good = [answer for answer in answers if answer.problem is None]
    assert (counts.pictures, counts.answered) == (len(answers), len(good))
    assert counts.changed == sum(answer.label != answer.zero_shot for answer in good)
    assert counts.near_copies == sum(answer.near_copy for answer in good)
    assert counts.seconds >= 0 and counts.milliseconds >= 0


def test_a_collapse_needs_many_images_that_differ_and_one_class():
    tally = Tally()
    for number in range(4 * LEAST_RECENT):
        tally.count(Answer("x.jpg", "cat", zero_shot="dog", near_copy=number % 4 > 0))
        assert (collapse_of(tally.zero_shot, 3) == ("dog", 1.0)) == (number // 4 + 1 >= LEAST_RECENT)
    assert collapse_of(["cat", "cat", "dog"] * LEAST_RECENT, 3) is None  # no more than half way to all


def test_the_mean_time():
    assert SessionCounts(pictures=4, seconds=0.2).milliseconds == pytest.approx(50)
    assert SessionCounts().milliseconds == 0


@pytest.mark.parametrize("name", ["latte", "ristretto", "tda", "dmn"])
def test_a_device_leaves_near_copies_out_unless_it_is_told_otherwise(name):
    task, image = a_task(3, 8), np.eye(8)[0]
    for params, near_copy, left_out in (
        (None, NEAR_COPY, True),
        ({"near_copy": 0}, NEAR_COPY, False),
        (None, 0.0, False),
        ({"near_copy": 0.9}, 0.0, True),
    ):
        device = create_alone(name, task, params, near_copy=near_copy)
        assert [device.predict(image).near_copy for _ in range(2)] == [False, left_out]
        assert fill_of(device).items == 1 if left_out else fill_of(device).items == 2


def test_whole_parameters_are_taken_as_they_are():
    assert create_alone("latte", a_task(3, 8), LatteParams()).params.near_copy == 0
    assert fill_of(create_alone("clip", a_task(3, 8))) is None
