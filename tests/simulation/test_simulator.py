"""The readable simulator: who handles what when, and who syncs."""

from dataclasses import replace

import numpy as np
import pytest

from latte import Clip, External, Latte, ZeroShot
from latte.methods import LatteParams
from latte.simulation.simulator import Client, Schedule, count_syncs, rounds, simulate

TEXT = np.eye(3, 4, dtype=np.float32)
ZERO_SHOT = ZeroShot(TEXT, ("cat", "dog", "owl"), 10.0)


class Log:
    """An exchange that writes down who called it when."""

    def __init__(self):
        self.calls, self.task = [], ZERO_SHOT.fingerprint

    def push(self, client, upload):
        self.calls.append(("push", client))

    def pull(self, client):
        self.calls.append(("pull", client))
        return External.empty(ZERO_SHOT)

    def pull_many(self, clients):
        return [self.pull(client) for client in clients]


def clients(*lengths, method=Latte):
    rng = np.random.default_rng(0)
    made = []
    for i, n in enumerate(lengths):
        rows = rng.normal(size=(n, 1, 4))
        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
        made.append(Client(f"c{i}", method(ZERO_SHOT), rows.astype(np.float32)))
    return made


def order(steps):
    return [(s.round, s.client, s.sample) for s in steps]


def test_round_robin_over_ragged_streams():
    steps = order(simulate(clients(1, 3, 2)))
    assert steps == [(1, 0, 0), (1, 1, 0), (1, 2, 0), (2, 1, 1), (2, 2, 1), (3, 1, 2)]


def test_barrier_pushes_all_then_pulls_all_and_not_after_the_last_round():
    log = Log()
    list(simulate(clients(4, 4), log, Schedule(period=2)))
    assert log.calls == [("push", "c0"), ("push", "c1"), ("pull", "c0"), ("pull", "c1")]


def test_finished_clients_still_sync():
    log = Log()
    list(simulate(clients(1, 3), log))
    assert [who for call, who in log.calls if call == "push"] == ["c0", "c1"] * 2


def test_client_initiated_with_periods_of_their_own():
    log = Log()
    list(simulate(clients(4, 4), log, Schedule(barrier=False, periods=(1, 3))))
    assert [who for call, who in log.calls if call == "push"] == ["c0", "c0", "c0", "c1", "c0"]
    assert [call for call, _ in log.calls] == ["push", "pull"] * 5


def test_methods_that_do_not_collaborate_never_sync():
    log = Log()
    assert len(list(simulate(clients(2, 2, method=Clip), log))) == 4
    assert log.calls == []


def test_participation_draws_one_cohort_per_round():
    log = Log()
    steps = list(simulate(clients(*[3] * 8), log, Schedule(participation=0.25), np.random.default_rng(1)))
    assert sorted((s.client, s.sample) for s in steps) == [(i, j) for i in range(8) for j in range(3)]
    by_round = {}
    for step in steps:
        by_round.setdefault(step.round, []).append(step.client)
    assert all(len(who) <= 2 for who in by_round.values())
    pushed = [who for call, who in log.calls if call == "push"]
    cohorts = [set(pushed[k : k + 2]) for k in range(0, len(pushed), 2)]
    for number, who in by_round.items():
        if number <= len(cohorts):
            assert {f"c{i}" for i in who} <= cohorts[number - 1]


def test_a_small_share_still_makes_progress():
    turns = list(rounds([2] * 10, Schedule(participation=0.01), np.random.default_rng(0)))
    assert all(len(turn.cohort) == 1 for turn in turns) and sum(len(turn.active) for turn in turns) == 20


def test_clients_may_join_later():
    steps = order(simulate(clients(2, 2), Log(), Schedule(starts=(1, 3))))
    assert steps == [(1, 0, 0), (2, 0, 1), (3, 1, 0), (4, 1, 1)]


def test_the_same_generator_gives_the_same_run():
    def labels():
        made = clients(5, 5, 5, 5)
        p = LatteParams()
        run = simulate(made, Latte.exchange_for(ZERO_SHOT, p), Schedule(participation=0.5), np.random.default_rng(7))
        return [(s.round, s.client, s.prediction.label) for s in run]

    assert labels() == labels()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"period": 0}, "period"), ({"participation": 0.0}, "participation"), ({"participation": 1.5}, "participation"),
        ({"periods": (1, 2)}, "barrier=False"), ({"starts": (0, 1)}, "starts"),
    ],
)  # fmt: skip
def test_schedules_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**change)


def test_simulations_that_cannot_be():
    made = clients(2, 2)
    for arguments, message in [
        (([],), "clients"),
        (([made[0], made[0]],), "same name"),
        ((made, None, Schedule(participation=0.5)), "rng"),
        ((made, None, Schedule(starts=(1,))), "starts"),
    ]:
        with pytest.raises(ValueError, match=message):
            list(simulate(*arguments))


@pytest.mark.parametrize(
    ("schedule", "want"),
    [
        (Schedule(sync="doubling"), [1, 2, 4, 8, 16, 32, 48, 64]),
        (Schedule(20, sync="doubling"), [1, 2, 4, 8, 16, 36, 56]),
        (Schedule(sync="powers"), [1, 2, 4, 8, 16, 32, 64]),
        (Schedule(25), [25, 50]),
    ],
)
def test_when_a_client_syncs(schedule, want):
    """Counted per client: one that starts later syncs after the same numbers of its own images."""
    starts = (1, 1) if schedule.sync == "every" or schedule.sync == "method" else (1, 4)
    counts, synced = [0, 0], [[], []]
    for turn in rounds([70, 70], replace(schedule, starts=starts), np.random.default_rng(0)):
        for i in turn.active:
            counts[i] += 1
        for i in turn.members:
            synced[i].append(counts[i])
    assert synced[0] == want and synced[1] == want


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(), Schedule(3), Schedule(sync="doubling"), Schedule(sync="powers", starts=(1, 4, 2)),
        Schedule(2, barrier=False), Schedule(barrier=False, periods=(1, 2, 5)), Schedule(2, participation=0.5),
    ],
)  # fmt: skip
def test_counting_syncs_is_as_simulating_them(schedule):
    log, lengths = Log(), (20, 7, 13)
    list(simulate(clients(*lengths), log, schedule, np.random.default_rng(5)))
    pushes = [log.calls.count(("push", f"c{i}")) for i in range(3)]
    assert count_syncs(lengths, schedule.for_method("every"), np.random.default_rng(5)) == pushes


def test_a_method_has_a_schedule_of_its_own():
    assert Schedule().for_method("doubling").sync == "doubling"
    assert Schedule(sync="every").for_method("doubling").sync == "every"
    assert Schedule(barrier=False).for_method("doubling").sync == "every"
    with pytest.raises(ValueError, match="barrier"):
        Schedule(sync="powers", barrier=False)
    with pytest.raises(ValueError, match="doubling"):
        Schedule(sync="sometimes")
