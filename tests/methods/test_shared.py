"""The global form: a federation in round-robin order equals the method on the concatenated stream."""

from __future__ import annotations

import numpy as np
import pytest

from latte import Method, create, create_federation
from latte.methods import METHODS, describe
from latte.methods.registry import share

GLOBAL = sorted(name for name in METHODS if describe(name).shared)


def round_robin(clients, streams):
    """Every client's t-th image in round t; a client that has none left is passed over."""
    for t in range(max(map(len, streams))):
        for client, stream in zip(clients, streams, strict=True):
            if t < len(stream):
                yield client, stream[t]


SMALL = {name: {"k": 4} if hasattr(describe(name).params(), "k") else {} for name in GLOBAL}


@pytest.mark.parametrize("name", GLOBAL)
def test_a_federation_equals_the_centralised_method_on_the_concatenated_stream(make_stream, name):
    zero_shot, images = make_stream(seed=21, n=100, C=6)
    streams = [images[:40], images[40:50], images[50:]]  # of different lengths
    clients = create_federation(name, zero_shot, SMALL[name], clients=3)
    central = create(name.removesuffix("-global"), zero_shot, SMALL[name])
    turns = 0
    for client, image in round_robin(clients, streams):
        got, want = client.predict(image), central.predict(image)
        np.testing.assert_array_equal(got.scores, want.scores)
        assert (got.label, got.entropy) == (want.label, want.entropy)
        turns += 1
    assert turns == 100
    for client in clients:
        for key, array in central.state().items():
            np.testing.assert_array_equal(client.state()[key], array)


@pytest.mark.parametrize("name", GLOBAL)
def test_the_order_of_the_clients_matters(make_stream, name):
    """Otherwise the test above could not fail."""
    zero_shot, images = make_stream(seed=21, n=100, C=6)
    streams = [images[:50], images[50:]]
    first, second = (create_federation(name, zero_shot, SMALL[name], clients=2) for _ in range(2))
    taking_turns = [c.predict(i).scores for c, i in round_robin(first, streams)]
    one_by_one = [second[i >= 50].predict(image).scores for i, image in enumerate(images)]
    assert not np.array_equal(np.array(taking_turns)[::2], np.array(one_by_one)[:50])


@pytest.mark.parametrize("name", ["tda", "dmn"])
def test_the_local_form_is_independent_clients(make_stream, name):
    zero_shot, images = make_stream(seed=22, n=30)
    clients = create_federation(name, zero_shot, {"k": 2}, clients=3)
    alone = create(name, zero_shot, {"k": 2})
    for image in images:
        np.testing.assert_array_equal(clients[1].predict(image).scores, alone.predict(image).scores)
    for idle in (clients[0], clients[2]):
        assert not any(array.any() for key, array in idle.state().items() if key.endswith("valid"))


def test_state_and_reset_of_a_handle_are_those_of_all(make_stream):
    zero_shot, images = make_stream(seed=23, n=20)
    ann, bob = create_federation("tda-global", zero_shot, clients=2)
    for image in images:
        ann.predict(image)
    saved = bob.state()
    bob.reset()
    assert not ann.state()["positive.valid"].any()
    ann.load(saved)
    np.testing.assert_array_equal(bob.state()["positive.vectors"], saved["positive.vectors"])


def test_handles_are_methods_and_know_their_parameters(make_stream):
    zero_shot, _ = make_stream(seed=24, n=1)
    for client in create_federation("dmn-global", zero_shot, preset="dtd", clients=2):
        assert isinstance(client, Method)
        assert client.params.weight == 10.0


def test_a_single_global_method_is_an_ordinary_one(make_stream):
    zero_shot, _ = make_stream(seed=25, n=1)
    assert type(create("tda-global", zero_shot)) is type(create("tda", zero_shot))


def test_a_federation_needs_clients(make_stream):
    zero_shot, _ = make_stream(seed=26, n=1)
    for n in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="clients: got"):
            create_federation("tda", zero_shot, clients=n)
        with pytest.raises(ValueError, match="clients: got"):
            share(create("tda", zero_shot), n)


def test_an_unknown_method_is_refused_with_near_names(make_stream):
    zero_shot, _ = make_stream(seed=27, n=1)
    with pytest.raises(ValueError, match="tda"):
        create_federation("tad", zero_shot, clients=2)
