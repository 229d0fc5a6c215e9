"""What hostile clients send is well formed, is not what they learnt, and leaves honest clients' uploads alone."""

import numpy as np
import pytest

from latte import Latte
from latte.core.class_sums import ClassSums
from latte.methods.ristretto import Ristretto, RistrettoParams
from latte.simulation.engine.ristretto_engine import run_ristretto
from latte.simulation.hostile import ATTACKS, ATTACKS_ON_COUNTS, INFLATION, HostileExchange, choose_hostile
from latte.simulation.readable import set_up
from latte.simulation.schedule import Schedule
from latte.simulation.simulator import simulate
from simulation.engine_support import made_up


class Noting:
    """An exchange that notes what is pushed."""

    task, clients = "", ()

    def __init__(self):
        self.uploads = []

    def push(self, client, upload):
        self.uploads.append((client, upload))

    def pull_traced(self, clients):
        return [None for _ in clients], np.zeros((len(clients), 0))


def a_method(kind):
    federation = made_up([20], 5, 16)
    client = kind(federation.embeddings.zero_shot)
    for views in federation.stream(federation.clients[0]):
        client.predict(views)
    return client


@pytest.mark.parametrize("kind", [Latte, Ristretto])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_altered_upload_is_accepted_and_the_honest_one_unchanged(kind, attack):
    if kind is Latte and attack in ATTACKS_ON_COUNTS:
        pytest.skip("prototypes have no counts")
    client = a_method(kind)
    inner = kind.exchange_for(client.zero_shot)
    noting = Noting()
    for exchange in (inner, noting):
        wrapped = HostileExchange(exchange, {"bad"}, attack, np.random.default_rng(0))
        upload = client.summary()
        wrapped.push("good", upload)
        wrapped.push("bad", upload)
    assert set(inner.clients) == {"good", "bad"} and wrapped.task == ""
    (_, honest), (_, altered) = noting.uploads
    assert honest is upload
    names = ("counts", "means") if kind is Ristretto else ("vectors",)
    assert any(not np.array_equal(getattr(altered, name), getattr(upload, name)) for name in names)


def altered(attack, upload, times=1):
    exchange = HostileExchange(Noting(), {"bad"}, attack, np.random.default_rng(0))
    return [exchange.alter(upload) for _ in range(times)]


def test_what_each_attack_does():
    upload = a_method(Ristretto).summary()
    lengths = np.linalg.norm(upload.means, axis=1)
    (flipped,) = altered("flipped", upload)
    assert np.array_equal(flipped.means[1], upload.means[0]) and flipped.counts[1] == upload.counts[0]
    (inflated,) = altered("inflated", upload)
    assert np.allclose(inflated.counts, INFLATION * upload.counts) and np.array_equal(inflated.means, upload.means)
    first, second = altered("random", upload, 2)
    assert not np.allclose(first.means, second.means)
    assert np.allclose(np.linalg.norm(first.means, axis=1), lengths)
    first, second = altered("colluding", upload, 2)
    assert np.array_equal(first.means, second.means)
    (scatter,) = altered("scatter", upload)
    assert np.linalg.matrix_rank(scatter.means) == 1 and np.allclose(scatter.means[0], -scatter.means[1])
    (both,) = altered("flipped-inflated", upload)
    assert np.array_equal(both.means, flipped.means) and np.allclose(both.counts, INFLATION * flipped.counts)


@pytest.mark.parametrize("attack", ["flipped", "random", "colluding"])
def test_hostile_prototypes(attack):
    upload = a_method(Latte).summary()
    (lie,) = altered(attack, upload)
    assert lie.vectors.dtype == np.float32 and np.allclose(np.linalg.norm(lie.vectors[lie.seen], axis=1), 1)
    if attack == "flipped":
        assert np.array_equal(lie.seen, np.roll(upload.seen, 1))


def test_refusals():
    with pytest.raises(ValueError, match="attack"):
        HostileExchange(Noting(), (), "rude", np.random.default_rng(0))
    with pytest.raises(ValueError, match="prototypes have no counts"):
        altered("inflated", a_method(Latte).summary())
    with pytest.raises(ValueError, match="upload"):
        altered("random", object())
    with pytest.raises(ValueError, match="share"):
        choose_hostile(["a"], 1.0, np.random.default_rng(0))


def test_choose_hostile_depends_on_the_generator_alone():
    names = [str(i) for i in range(20)]
    one, other = (choose_hostile(names, 0.3, np.random.default_rng(3)) for _ in range(2))
    assert one == other and len(one) == 6 and one <= set(names)
    assert not choose_hostile(names, 0, np.random.default_rng(3))


def test_both_paths_agree_about_an_attack():
    federation = made_up([15] * 6, 4, 16)
    zero_shot, schedule = federation.embeddings.zero_shot, Schedule(sync="doubling")

    def hostile():
        inner = Ristretto.exchange_for(zero_shot)
        return HostileExchange(inner, {"client 0", "client 3"}, "random", np.random.default_rng(1))

    fast = run_ristretto(federation, RistrettoParams(), schedule, np.random.default_rng(0), hostile())
    clients, _ = set_up(federation, "ristretto")
    for step in simulate(clients, hostile(), schedule):
        assert step.prediction.label == fast.labels[step.client][step.sample]


def test_messages_stay_frozen_values():
    upload = a_method(Ristretto).summary()
    before = upload.counts.copy(), upload.means.copy()
    for attack in ATTACKS:
        (lie,) = altered(attack, upload)
        assert isinstance(lie, ClassSums) and lie.task == upload.task
    assert np.array_equal(before[0], upload.counts) and np.array_equal(before[1], upload.means)
