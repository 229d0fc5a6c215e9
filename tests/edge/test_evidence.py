"""What can be said of answers: courses lose nothing, and intervals cover what they should."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.edge.classify.classify import Answer
from latte.edge.classify.evidence import (
    MOST_STRETCHES,
    Course,
    Stretch,
    compare_answers,
    difference_interval,
    read_labels,
    share_interval,
    stretch_of,
)


@given(st.lists(st.booleans(), max_size=300))
def test_a_course_counts_everything_in_equal_stretches(differing):
    course = Course()
    for differs in differing:
        course.add(Stretch(1, int(differs), 0.25))
    parts = course.stretches()
    assert sum(parts, Stretch()) == Stretch(len(differing), sum(differing), 0.25 * len(differing))
    assert len(parts) <= MOST_STRETCHES and len({part.images for part in parts[:-1]}) <= 1
    assert not parts[1:] or 0.5 <= parts[-1].images / parts[0].images < 1.5
    at = 0
    for part in parts:
        assert part.differing == sum(differing[at : at + part.images])
        at += part.images


def test_an_unreadable_picture_is_no_evidence():
    assert stretch_of(Answer("a", None, problem="bad")) == Stretch()
    assert stretch_of(Answer("a", "cat", certainty=0.75, zero_shot="dog")) == Stretch(1, 1, 0.25)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.97])
@pytest.mark.parametrize("total", [10, 50, 400])
def test_an_interval_covers_the_true_share_in_95_of_100_cases(share, total):
    drawn = np.random.default_rng(0).binomial(total, share, 4000)
    covered = [low <= share <= high for low, high in (share_interval(int(k), total) for k in drawn)]
    assert np.mean(covered) > 0.92


def test_the_interval_of_a_difference_covers_it():
    rng = np.random.default_rng(1)
    gained, lost, total = 0.12, 0.05, 100
    draws = rng.multinomial(total, [gained, lost, 1 - gained - lost], 4000)
    intervals = [difference_interval(int(b), int(c), total) for b, c, _ in draws]
    assert np.mean([low <= gained - lost <= high for low, high in intervals]) > 0.92
    assert difference_interval(0, 0, 0) == (-1.0, 1.0) and share_interval(0, 0) == (0.0, 1.0)
    assert difference_interval(0, 0, 20)[0] < 0 < difference_interval(0, 0, 20)[1]


def test_labels_are_compared_with_both_answers():
    answers = [
        Answer("a", "cat", zero_shot="dog"), Answer("b", "dog", zero_shot="cat"), Answer("c", "cat", zero_shot="cat"),
        Answer("d", None, problem="bad"), Answer("e", "cat", zero_shot="cat"),
    ]  # fmt: skip
    found = compare_answers(answers, {"a": "cat", "b": "cat", "c": "cat", "d": "cat", "z": "dog"})
    assert (found.labelled, found.correct, found.correct_zero_shot, found.gained, found.lost) == (3, 2, 2, 1, 1)


def test_a_table_of_labels(tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text('file,label\nx/a.png,cat\n"b, c.png",dog,and more\n\n/abs/d.png, cat \n')
    assert read_labels(table) == {
        str(tmp_path / "x/a.png"): "cat", str(tmp_path / "b, c.png"): "dog", "/abs/d.png": "cat"
    }  # fmt: skip
    for content, message in (
        ("", "no labels"),
        ("file,label\n", "no labels"),
        ("a.png\n", "line 1"),
        ("a,\n", "FILE,CLASS"),
    ):
        table.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_labels(table)
