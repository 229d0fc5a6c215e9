"""The worst client and domain, and the first against the last images of every stream."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.data.bundled import bundled
from latte.simulation.results import ClientScore, Result, count_quarters, quarter, same_scores
from latte.simulation.simulator import run_readable

STREAM = st.lists(st.booleans(), min_size=1, max_size=40)


def record(streams, domains):
    scores = (
        ClientScore(f"c{i}", f"d{domain}", len(right), sum(right), *count_quarters(np.array(right, np.int64)))
        for i, (right, domain) in enumerate(zip(streams, domains, strict=True))
    )
    return Result("b", "clip", {}, "default", 0, tuple(scores))


@given(st.lists(st.tuples(STREAM, st.integers(0, 2)), min_size=1, max_size=6))
def test_the_definition(clients):
    streams, domains = zip(*clients, strict=True)
    result = record(streams, domains)
    firsts = [right[: int(np.ceil(len(right) / 4))] for right in streams]
    lasts = [right[::-1][: int(np.ceil(len(right) / 4))] for right in streams]
    assert result.first_quarter == pytest.approx(100 * np.concatenate(firsts).mean())
    assert result.last_quarter == pytest.approx(100 * np.concatenate(lasts).mean())
    assert result.worst_client == pytest.approx(min(100 * np.mean(right) for right in streams))
    pooled = [np.concatenate([s for s, d in clients if d == domain]).mean() for domain in set(domains)]
    assert result.worst_domain == pytest.approx(100 * min(pooled))
    assert result.worst_client <= result.worst_domain + 1e-9 <= result.micro + 2e-9
    assert Result.from_json(result.to_json()) == result


@given(st.integers(1, 10_000))
def test_a_quarter_is_never_empty_and_two_overlap_in_a_stream_of_one_only(samples):
    assert 1 <= quarter(samples) <= samples and samples / 4 <= quarter(samples) < samples / 4 + 1
    assert 2 * quarter(samples) <= samples or samples == 1


def test_a_run_counts_its_own_streams():
    federation = bundled()
    outcome = run_readable(federation, "clip")
    result = outcome.result(federation, "clip", {}, "default", 0)
    right = outcome.correct(federation)
    assert result.first_quarter == pytest.approx(100 * np.mean([one[:15] for one in right]))  # 60 images each
    assert result.last_quarter == pytest.approx(100 * np.mean([one[45:] for one in right]))


def test_an_older_record_is_written_and_read_as_before():
    line = json.dumps(
        {
            "benchmark": "b", "clients": [{"correct": 4, "domain": "d", "name": "c", "samples": 9}], "method": "clip",
            "engine": "readable", "params": {}, "seed": 0, "sent": None, "setting": "default",
        },
        sort_keys=True,
    )  # fmt: skip
    result = Result.from_json(line)
    assert result.to_json() == line
    assert result.first_quarter is None and result.last_quarter is None
    assert result.worst_client == result.worst_domain == pytest.approx(100 * 4 / 9)
    newer = replace(result, clients=(replace(result.clients[0], first_correct=1, last_correct=2),))
    assert same_scores(result, newer) and not same_scores(result, replace(newer, seed=1))
    mixed = replace(newer, clients=(*newer.clients, result.clients[0]))
    assert mixed.first_quarter is None, "half a number is none"


@pytest.mark.parametrize("change", [{"first_correct": 4}, {"last_correct": -1}])
def test_more_right_answers_than_a_quarter_has_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        ClientScore("c", "d", 9, 9, **change)
