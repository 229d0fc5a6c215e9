"""Labels behind a server: the right to teach comes with a token, and the owner can withdraw the labels of a client."""

from dataclasses import asdict

import numpy as np
import pytest

from latte import Privacy, PrivateClient, ZeroShot, create, create_exchange, sync
from latte.core.types import TeachingRights
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.methods import describe
from latte.wire.blocks import encode
from serving import serving
from waiting import latte

METHODS = ["latte", "ristretto"]


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def a_member(name, seed, labels=0, rounds=1):
    """Return a client that has seen 40 images, some of which have (wrong) labels."""
    rng = np.random.default_rng(seed)
    text = unit(np.random.default_rng(0).normal(size=(4, 16)))
    method = create(name, ZeroShot(text, ("a", "b", "c", "d"), 20.0))
    for k, image in enumerate(unit(text[rng.integers(4, size=40)] + 0.2 * rng.normal(size=(40, 16)))):
        learnt = method.predict(image).learnt
        if k < labels:
            method.correct(image, k % 4, learnt)
    return method


def heads(exchange, names):
    return [exchange.pull(name).weights for name in names]


@pytest.mark.parametrize("precision", ["exact", "fp16"])
@pytest.mark.parametrize("name", METHODS)
def test_over_http_it_is_as_in_one_process(name, precision, tmp_path):
    members = {"ann": a_member(name, 1, labels=30), "bob": a_member(name, 2)}
    task, inside = make_task(members["ann"].zero_shot, name), create_exchange(name, members["ann"].zero_shot)
    states = {who: member.state() for who, member in members.items()}
    with serving(task, tmp_path / "data") as server, HttpExchange(server.address, precision=precision) as http:
        for _ in range(3):
            sync(list(members.items()), http)
        served = heads(http, members)
        assert server.service.hub.labels == {"ann": 30}
        assert "30 labels, their weight is capped" in (tmp_path / "data" / "audit.jsonl").read_text()
        members["ann"].load(states["ann"])  # as if it had never synced, and its labels had been withdrawn
        for image in members["ann"].state()["labels.vectors"]:
            members["ann"].withdraw(image)
        sync(list(members.items()), http)
        assert server.service.hub.labels == {}
    with serving(task, tmp_path / "data") as server, HttpExchange(server.address, precision=precision) as http:
        assert server.service.hub.labels == {}
    inside.grant(TeachingRights(frozenset()))
    for who, member in members.items():
        member.load(states[who])
    for _ in range(3):
        sync(list(members.items()), inside)
    for got, want in zip(served, heads(inside, members), strict=True):
        close = 1e-9 if precision == "exact" else 0.02
        assert np.linalg.norm(got - want) <= close * np.linalg.norm(want)


def test_the_right_to_teach_and_its_end(tmp_path):
    """A token with --teach counts in full, one without is capped, and the owner can withdraw all labels of a client."""
    data, members = tmp_path / "data", {"ann": a_member("ristretto", 1, labels=30), "bob": a_member("ristretto", 2)}
    for who, teach in (("ann", ["--teach"]), ("bob", [])):
        latte("token", "create", who, *teach, "--folder", data, "--out", tmp_path / who, check=True)
    where = ("--folder", data)
    listed = latte("token", "list", *where, check=True).stdout
    assert "teacher" in listed and "client" in listed
    task = make_task(members["ann"].zero_shot, "ristretto")

    def head_of_bob(rights=None):
        exchange = create_exchange("ristretto", members["ann"].zero_shot)
        exchange.grant(rights or TeachingRights())
        for who, member in members.items():
            exchange.push(who, member.summary())
        return exchange.pull("bob").weights

    full, capped = head_of_bob(), head_of_bob(TeachingRights(frozenset()))
    silent = head_of_bob(TeachingRights(None, frozenset({"ann"})))
    with serving(task, data) as server:

        def over_http():
            tokens = {who: (tmp_path / who).read_text().strip() for who in members}
            with HttpExchange(server.address, tokens=tokens, precision="exact") as http:
                for who, member in members.items():
                    http.push(who, member.summary())
                return http.pull("bob").weights

        np.testing.assert_allclose(over_http(), full, atol=1e-9)
        assert "each counts" in (data / "audit.jsonl").read_text()
        latte("client", "mute", "ann", *where, check=True)
        np.testing.assert_allclose(over_http(), silent, atol=1e-9)
        assert latte("client", "mute", "ann", *where).returncode == 2
        latte("client", "mute", "ann", "--undo", *where, check=True)
        np.testing.assert_allclose(over_http(), full, atol=1e-9)
        latte("token", "rotate", "ann", *where, "--out", tmp_path / "ann", check=True)
        np.testing.assert_allclose(over_http(), full, atol=1e-9)
        latte("token", "revoke", "ann", *where, check=True)
        latte("token", "create", "ann", *where, "--out", tmp_path / "ann", check=True)
        np.testing.assert_allclose(over_http(), capped, atol=1e-9)
        assert "labels withdrawn" in (data / "audit.jsonl").read_text()


@pytest.mark.parametrize("name", METHODS)
def test_without_labels_no_block_is_new(name):
    """A fleet without labels sends the arrays that it always sent."""
    plain = {"latte": {"vectors", "seen"}, "ristretto": {"counts", "means"}}[name]
    member, exchange = a_member(name, 1), None
    exchange = create_exchange(name, member.zero_shot)
    assert {block.name for block in encode(member.summary(), "fp16", 16)} == plain
    sync([("ann", member), ("bob", PrivateClient(a_member(name, 2, labels=3), Privacy(least_images=4)))], exchange)
    down = {"latte": {"vectors", "entropy", "valid"}, "ristretto": {"weights", "bias", "trust"}}[name]
    assert {block.name for block in encode(exchange.pull("ann"), "fp16", 16)} == down
    assert describe(name).teachable and not describe("tda").teachable and asdict(Privacy())["labels"] is False
