"""Classes that join and leave a running fleet: states, stores and devices go on, and nothing is lost."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from devices import RowEncoder, rows
from latte import InputError, Latte, Privacy, ZeroShot, create
from latte.core.sync import sync
from latte.core.types import Prototypes
from latte.edge.classify.classify import answer_of
from latte.edge.clients.http import HttpExchange
from latte.edge.device.program import Device
from latte.edge.device.record import read_answers, task_of_record
from latte.edge.joining import (
    NEXT_FILE,
    TASK_FILE,
    Membership,
    begin_version,
    join,
    make_task,
    new_member,
    next_version,
    settle_version,
)
from latte.methods.base import BaseMethod
from latte.methods.classes import YOUNG
from latte.methods.ristretto.sums import ClassSums
from latte.server.http.running import ServerOptions, open_service
from latte.server.hub.check import check_store
from latte.server.hub.hub import served_exchange
from latte.server.store.backup import StorePlace
from latte.wire.task import parse_task, read_task, write_task
from serving import IMPATIENT, UNLIMITED, serving
from two_servers import forked_server
from waiting import wait_until

METHODS = ["latte", "ristretto"]
NAMES = ("cat", "dog", "horse", "owl")


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


TEXT = unit(np.random.default_rng(0).normal(size=(4, 8)))


def classifier(*names):
    return ZeroShot(TEXT[[NAMES.index(name) for name in names]], names, 20.0)


def versions(method, **params):
    """Return a task of three classes, then with the owl and without the dog, each another place for the others."""
    first = make_task(classifier("cat", "dog", "horse"), method, {"near_copy": 0.0, **params}, sync="every", period=4)
    second = next_version(first, classifier("owl", "cat", "dog", "horse"))
    return first, second, next_version(second, classifier("horse", "owl", "cat"))


def images(count, seed=0):
    rng = np.random.default_rng(seed)
    return unit(TEXT[rng.integers(4, size=count)] + 0.4 * rng.normal(size=(count, 8)) / np.sqrt(8) * 2)


def used(task, seed=0, labels=3, privacy=None):
    member = new_member(task, privacy)
    learnt = [(image, member.predict(image).learnt) for image in images(30, seed)]
    for number, (image, soft) in enumerate(learnt[:labels]):
        member.correct(image, number % 3, soft)
    return member


def test_a_task_knows_its_versions():
    first, second, third = versions("latte")
    assert second.joined == ("owl",) == third.joined
    assert (
        third.classes_of(first.fingerprint) == ("cat", "dog", "horse") and first.classes_of(first.fingerprint) is None
    )
    read = parse_task(third.to_bytes())
    assert (read.history, read.joined, read.fingerprint) == (third.history, third.joined, third.fingerprint)
    back = next_version(second, first.zero_shot)
    assert back.fingerprint == first.fingerprint and back.classes_of(second.fingerprint) == second.zero_shot.classnames
    assert not back.joined and back.classes_of(first.fingerprint) is None
    for same in (classifier("dog", "cat", "horse"), ZeroShot(TEXT, NAMES, 30.0)):
        with pytest.raises(InputError):
            next_version(first, same)
    rounded = unit(TEXT + 1e-3 * np.random.default_rng(1).normal(size=TEXT.shape))
    made = next_version(first, ZeroShot(rounded, NAMES, 20.0))
    np.testing.assert_array_equal(made.zero_shot.text[:3], first.zero_shot.text, "of another machine")
    assert next_version(made, classifier("cat", "dog", "horse")).fingerprint == first.fingerprint
    with pytest.raises(InputError, match="another one of 'cat'"):  # of an encoder with as many dimensions
        next_version(first, ZeroShot(TEXT[[2, 0, 1, 3]], NAMES, 20.0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("privacy", [None, Privacy(least_images=2)])
def test_a_client_goes_on_with_its_classes_by_name(method, privacy):
    first, second, third = versions(method)
    before = used(first, privacy=privacy)
    after = new_member(second, privacy)
    after.take_over(before)
    assert after.labels == 3
    old, new = before.summary(), after.summary()
    counts = "vectors" if method == "latte" else "counts"
    np.testing.assert_allclose(getattr(new, counts)[1:], getattr(old, counts), atol=1e-12 if method != "latte" else 2)
    assert not np.any(getattr(new, counts)[0]), "a class that joins has learnt nothing"
    for image in images(10, 7):
        after.predict(image)
    last = new_member(third, privacy)
    last.take_over(after)
    assert last.labels == 2, "the label of the class that left is not there"
    other = new_member(third, privacy)
    other.load(last.state())
    for image in images(20, 3):
        np.testing.assert_array_equal(last.predict(image).scores, other.predict(image).scores)
    with pytest.raises(InputError, match="classes"):
        create("tda", second.zero_shot).take_over(_used_tda(first))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("without", [(), ("horse",)])
def test_a_class_that_does_not_change_keeps_its_noise_when_others_join_and_leave(method, without):
    """Another draw for the same rows would be one more release."""
    first, _, third = versions(method)
    before = new_member(first, Privacy(noise=0.5), without)
    for image in images(30):
        before.predict(image)
    before.summary()
    after = new_member(third, Privacy(noise=0.5), without)
    after.take_over(before)
    assert after.unsaved_noise, "it is stored before it is sent"
    after.summary()
    old, new = (
        dict(zip(names, member.state()["private.noisy"], strict=True))
        for names, member in ((first.zero_shot.classnames, before), (third.zero_shot.classnames, after))
    )
    for name in ("cat", "horse"):
        np.testing.assert_array_equal(new[name], old[name])
    assert np.any(new["owl"]) and not np.any(np.isin(new["owl"], old["dog"])), "noise of its own"
    unused = new_member(third, Privacy(noise=0.5), without)
    unused.take_over(new_member(first, Privacy(noise=0.5), without))
    assert not unused.state()["private.noisy"].size, "nothing was ever sent"
    unused.summary()


def _used_tda(task):
    method = create("tda", task.zero_shot)
    method.predict(images(1)[0])
    return method


@pytest.mark.parametrize("method", METHODS)
def test_what_a_client_has_learnt_is_accepted_by_a_server_of_the_new_version(method):
    """Prototypes are held to the classes of the new version when they are uploaded."""
    first, second, third = versions(method)
    for seed in range(20):
        member = used(first, seed)
        for task in (second, third):
            after = new_member(task)
            after.take_over(member)
            served_exchange(task).prepare(after.summary(), 1e-3)
            member = after


def test_zero_shot_decides_on_a_young_class_until_there_is_evidence():
    _, task, _ = versions("ristretto", trust="fleet")
    exchange = served_exchange(task)
    exchange.watch_classes(task.joined)
    zero_shot, member = task.zero_shot, create("ristretto", task.zero_shot, task.params)
    owls = unit(TEXT[3] + 0.1 * np.random.default_rng(1).normal(size=(5, 8)))
    many = np.array([2.0, 60.0, 60.0, 60.0])
    for owl_count in (2.0, YOUNG + 1):
        exchange.push("me", ClassSums(np.array([owl_count, *many[1:]]), 0.9 * zero_shot.precise_text, exchange.task))
        exchange.push("other", ClassSums(many, -0.9 * zero_shot.precise_text, exchange.task))
        member.receive(exchange.pull("me"))
        young = owl_count < YOUNG
        assert (member.head.young is not None) == young
        for owl in owls:
            prediction = member.predict(owl)
            assert np.allclose(prediction.scores, zero_shot.logits(owl)) == young
            if young:
                np.testing.assert_allclose(prediction.probabilities, _softmax(zero_shot.logits(owl)), atol=1e-6)
                np.testing.assert_allclose(prediction.learnt, _softmax(zero_shot.logits(owl)), atol=1e-6)
        dog = member.predict(unit(TEXT[1] + 0.01))
        assert not np.allclose(dog.scores, zero_shot.logits(unit(TEXT[1] + 0.01))), "other images are adapted to"
        other = create("ristretto", task.zero_shot, task.params)
        other.load(member.state())
        np.testing.assert_array_equal(other.predict(owls[0]).scores, member.predict(owls[0]).scores)


def _softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def test_uploads_of_the_earlier_version_are_no_damage(tmp_path):
    """Some prototypes are nearer to the class that joined; whoever forgets what is damaged must not lose them."""
    first, second, _ = versions("latte")
    data, members = tmp_path / "data", [(f"device {seed}", used(first, seed)) for seed in range(6)]
    with serving(first, data) as server, HttpExchange(server.address) as http:
        sync(members, http)
    with serving(second, data) as server:
        assert len(server.service.hub.versions) == 6
    report = check_store(StorePlace(data, data), second)
    assert (report.clients, report.damages) == (6, ())


@pytest.fixture(params=["folder", "postgres"])
def place(request, tmp_path):
    """Return where a server has its data, and its store in a folder or in PostgreSQL."""
    url = request.getfixturevalue("postgres").new_schema() if request.param == "postgres" else None
    return {"folder": tmp_path / "data", "store": url}


@pytest.mark.parametrize("method", METHODS)
def test_a_store_goes_on_with_the_next_version(method, place):
    first, _, third = versions(method, **({"trust": "fleet"} if method == "ristretto" else {}))
    members = {name: used(first, seed, labels) for seed, (name, labels) in enumerate((("ann", 3), ("bob", 0)))}
    with serving(first, **place) as server, HttpExchange(server.address) as http:
        for _ in range(2):
            sync(list(members.items()), http)
        token_secret = server.service.hub.store.secret()
    with serving(third, **place) as server, HttpExchange(server.address) as http:
        hub = server.service.hub
        assert set(hub.versions) == {"ann", "bob"} and hub.labels == {"ann": 3} and hub.store.secret() == token_secret
        after = {}
        for name, member in members.items():
            after[name] = new_member(third)
            after[name].take_over(member)
        http.pull("bob")  # of what is stored
        sync(list(after.items()), http)
        assert hub.labels == {"ann": 2}
    other = make_task(classifier("cat", "owl"), method, dict(first.params), sync="every", period=4)
    with pytest.raises(InputError, match="another task"), serving(other, **place):
        pass


def test_a_crash_between_the_record_and_the_task_leaves_one_version(tmp_path):
    first, second, _ = versions("latte")
    with serving(first, tmp_path / "data") as server:
        with a_device(server, tmp_path / "state") as device:
            device.answer(rows(1)[0])
            begin_version(second, device.method, Membership(server.address), device.state)
        assert join(Membership(server.address), tmp_path / "state").task.fingerprint == first.fingerprint
    assert not (tmp_path / "state" / NEXT_FILE).exists(), "the record did not follow"
    assert task_of_record(tmp_path / "state") == first.fingerprint
    write_task(tmp_path / "state" / NEXT_FILE, first)
    write_task(tmp_path / "state" / TASK_FILE, second)
    settle_version(tmp_path / "state")
    assert read_task(tmp_path / "state" / TASK_FILE).fingerprint == first.fingerprint


def a_device(server, state, name="ann"):
    return Device(server.address, encoder=RowEncoder(8), name=name, state=state, sync_seconds=0.2)


def test_while_a_server_of_the_earlier_version_runs_the_next_is_refused(postgres, tmp_path):
    """Two servers on one store: nothing changes under the other, and once it has ended, both start."""
    first, second, _ = versions("ristretto")
    url, member = postgres.new_schema(), used(first)
    options = [ServerOptions(tmp_path / str(i), url, port=0, access=UNLIMITED) for i in (1, 2)]
    with serving(first, tmp_path / "0", store=url) as server, HttpExchange(server.address) as http:
        sync([("ann", member)], http)
        with pytest.raises(InputError, match=r"a process at work on it: latte from 127\.0\.0\.1 .* until it has ended"):
            open_service(second, options[0])
        http.pull("ann")
        sync([("ann", member), ("bob", used(first, 1))], http)
        assert set(server.service.hub.versions) == {"ann", "bob"}
    with ExitStack() as servers:
        for one in options:
            address = servers.enter_context(forked_server(second, one))
            with HttpExchange(address, connection=IMPATIENT) as http:
                assert {http.pull(name).task for name in ("ann", "bob")} == {second.zero_shot.fingerprint}
        with pytest.raises(InputError, match=r"the store of another task \(class names"):
            open_service(first, options[0])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("place", ["folder", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True)
def test_running_devices_follow_and_one_that_was_off_catches_up(method, place, tmp_path):
    """Labels are carried over, answers stay, and what comes later is answered with the new classes."""
    first, second, third = versions(method)
    one, two = tmp_path / "one", tmp_path / "two"
    with serving(first, **place) as server:
        port = int(server.address.rsplit(":", 1)[1])
        with a_device(server, two, "two") as device:
            for row in images(8, 5):
                device.answer(row)
        running = a_device(server, one)
        pictures = images(12, 4)
        answers = [running.answer(row) for row in pictures]
        running.correct("frame 1", "dog", pictures[0])
        running.correct("frame 2", "horse", pictures[1])
    try:
        for task in (second, third):
            with serving(task, **place, port=port):

                def follows(task=task):
                    running.answer(images(1, 6)[0])
                    return running.task.fingerprint == task.fingerprint

                wait_until(follows, "the next version")
                late = [running.answer(row) for row in images(20, 8)]
                assert "owl" in {answer.zero_shot for answer in late}
                wait_until(lambda: not running.status.sync_problem and running.status.synced, "a sync")
        assert running.method.labels == 1, "the dog has gone"
        assert len(list(read_answers(running._loop.record.database))) == running._loop.record.number
        kept = list(read_answers(running._loop.record.database))[: len(answers)]
        assert [each.answer.label for each in kept] == [answer.label for answer in answers]
    finally:
        running.close(0)
    with serving(third, **place, port=port) as server, a_device(server, two, "two") as device:  # two versions later
        assert device.task.fingerprint == first.fingerprint
        wait_until(
            lambda: device.answer(images(1, 9)[0]) and device.task.fingerprint == third.fingerprint, "it follows"
        )
        assert {answer.label for answer in map(device.answer, images(30, 10))} <= set(third.zero_shot.classnames)
        number, memory = device._loop.record.number, device.method.state()
    with serving(third, **place, port=port) as server, a_device(server, two, "two") as device:
        assert device._loop.record.number == number and device.task.fingerprint == third.fingerprint
        assert device.method.state().keys() >= memory.keys() - {"young"}


def test_a_task_of_other_classes_that_is_no_version_is_refused_as_before(tmp_path):
    first, _, _ = versions("latte")
    stranger = replace(first, zero_shot=classifier("cat", "owl"))
    with serving(first, tmp_path / "data") as server:
        port = int(server.address.rsplit(":", 1)[1])
        device = a_device(server, tmp_path / "one")
        device.answer(images(1)[0])
    with serving(stranger, tmp_path / "other", port=port):
        wait_until(lambda: device.answer(images(1)[0]) and "other_task" in device.status.sync_problem, "a refusal")
    device.close(0)
    assert device.task.fingerprint == first.fingerprint


@pytest.mark.parametrize("why", ["at least two", "take_over"])
def test_a_device_that_cannot_follow_goes_on_and_says_why(why, tmp_path, monkeypatch):
    first, *_ = versions("latte")
    later = next_version(first, classifier("cat", "horse"))
    with serving(first, tmp_path / "data") as server:
        port = int(server.address.rsplit(":", 1)[1])
        without = ("cat",) if why == "at least two" else ()
        chosen = Membership(server.address, name="ann", without=without)
        device = Device(chosen, encoder=RowEncoder(8), state=tmp_path / "state", sync_seconds=0.2)
        device.answer(images(1)[0])
    if not without:
        monkeypatch.delattr(Latte, "take_over")
        monkeypatch.delattr(BaseMethod, "take_over")
    with serving(later, tmp_path / "data", port=port):
        wait_until(lambda: device.answer(images(1)[0]) and why in device.status.sync_problem, "the reason")
        device._loop.link.complain("server: other_task")  # at the next try
        assert why in device.status.sync_problem
    device.close(0)
    assert device.task.fingerprint == first.fingerprint == read_task(tmp_path / "state" / TASK_FILE).fingerprint


# --- classes that a device cannot meet --------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("privacy", [None, Privacy(least_images=2)])
def test_a_masked_class_never_wins_and_is_not_learnt(method, privacy):
    task = make_task(classifier(*NAMES), method, {"near_copy": 0.0}, period=4)
    masked, plain = new_member(task, privacy, ["owl"]), new_member(task, privacy)
    exchange, zero_shot = served_exchange(task), task.zero_shot
    owls = 0
    for number, image in enumerate(images(60)):
        before = masked.state()
        prediction = masked.predict(image)
        assert prediction.classname != "owl" and prediction.probabilities[3] == 0
        answer = answer_of("x", image, zero_shot, prediction)
        assert answer.zero_shot != "owl" and 0 < answer.zero_shot_probability <= 1
        if zero_shot.logits(image).argmax() == 3:
            owls += 1
            assert prediction.learnt is None
            for name, array in masked.state().items():
                np.testing.assert_array_equal(array, before[name], err_msg=name)
        else:
            plain.predict(image)
        if number % 10 == 9:
            sync([("masked", masked), ("plain", plain)], exchange)
    assert owls > 3
    upload = masked.summary()
    assert not np.any((upload.vectors if method == "latte" else upload.counts)[3])
    masked.correct(images(1)[0], 3)  # a person may know better
    sync([("masked", masked)], exchange)
    other = new_member(task, privacy, ["owl"])
    other.load(masked.state())
    np.testing.assert_array_equal(other.predict(images(1, 5)[0]).scores, masked.predict(images(1, 5)[0]).scores)
    for without in (["eagle"], ["owl", "cat", "dog"]):
        with pytest.raises(InputError):
            new_member(task, privacy, without)


def test_a_masked_class_has_no_share_of_scores_that_are_shares():
    member, others = (new_member(make_task(classifier(*NAMES), "oga-fed"), None, without) for without in (["owl"], ()))
    for image in images(40):
        shares, whole = member.predict(image).probabilities, others.predict(image).probabilities
        assert shares[3] == 0 and abs(shares.sum() - 1) < 1e-6 and np.isfinite(whole).all()


def test_a_mask_stays_when_classes_join_and_leave(tmp_path):
    first, second, third = versions("ristretto")
    membership = Membership("http://127.0.0.1:1", without=("dog",))
    member = new_member(first, None, membership.without)
    for task in (second, third):
        for image in images(20):
            assert member.predict(image).classname != "dog"
        member = begin_version(task, member, membership, tmp_path)
    assert {member.predict(image).classname for image in images(30)} <= set(third.zero_shot.classnames)


def test_a_store_of_a_method_that_cannot_go_on_is_refused_and_stays(tmp_path, monkeypatch):
    first, second, _ = versions("latte")
    with serving(first, tmp_path / "data") as server, HttpExchange(server.address) as http:
        sync([("ann", used(first))], http)
    with monkeypatch.context() as patched:
        patched.delattr(Prototypes, "class_fields")
        with pytest.raises(InputError, match="class_fields"), serving(second, tmp_path / "data"):
            pass
    with serving(first, tmp_path / "data") as server:
        assert set(server.service.hub.versions) == {"ann"}
