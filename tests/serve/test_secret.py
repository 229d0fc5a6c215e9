"""The secret of a store: Ristretto's random directions are the same for all servers of it, and nobody else's."""

from contextlib import closing

import httpx2
import numpy as np
import pytest

from latte import ZeroShot, create_exchange
from latte.checks.material import same_message
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.methods.ristretto.server import EXACT_ALONE
from latte.methods.ristretto.sums import ClassSums
from latte.server.http.app import SPECS
from latte.server.hub.hub import Hub
from latte.server.store.backup import Restoration, StorePlace, back_up, open_contents, restore
from latte.server.store.base import Record, StoreUnavailableError, open_store
from latte.server.store.postgres import PostgresStore
from serving import serving
from two_servers import two_servers

CROWD = EXACT_ALONE + 4  # clients
CLASSES, DIM = 3, 64  # more dimensions than directions


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Return the place of a new store."""
    return str(tmp_path / "store") if request.param == "sqlite" else request.getfixturevalue("postgres").new_schema()


def a_classifier():
    rows = np.random.default_rng(3).normal(size=(CLASSES, DIM))
    text = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return ZeroShot(text.astype(np.float32), tuple(f"class {y}" for y in range(CLASSES)))


def a_task(method="ristretto"):
    return make_task(a_classifier(), method)


def an_upload(number):
    """Return class sums of one of three kinds of clients."""
    zero_shot, rng = a_classifier(), np.random.default_rng(number)
    means = 0.6 * zero_shot.text + 0.05 * np.random.default_rng(number % 3).normal(size=(CLASSES, DIM))
    return ClassSums(rng.uniform(5, 30, CLASSES), means + 0.01 * rng.normal(size=means.shape), zero_shot.fingerprint)


def push_all(exchange):
    for number in range(CROWD):
        exchange.push(str(number), an_upload(number))


def secret_of_server(place, method="ristretto"):
    """Return from what a server that starts now draws its directions."""
    with closing(open_store(place)) as store:
        return Hub(a_task(method), store).exchange.freshness.secret


def stored_secret(place, folder):
    with open_contents(place) as contents:
        return contents.secret


def test_a_store_draws_its_secret_once(place, tmp_path):
    with closing(open_store(place)) as store:
        secret = store.secret()
        assert store.secret() == secret
    with closing(open_store(place)) as store, closing(open_store(tmp_path / "another")) as another:
        assert store.secret() == secret
        assert another.secret() != secret
    assert secret.bit_length() > 64  # all 64 upper bits are 0 once in 10^19 runs
    assert int(stored_secret(place, tmp_path), 16) == secret


def test_servers_of_a_store_draw_directions_from_its_secret(place):
    secret = secret_of_server(place)
    assert secret != 0
    assert secret_of_server(place) == secret  # after a restart


def test_a_store_of_an_earlier_version_gets_a_secret(place, tmp_path):
    with closing(open_store(place)) as store:  # as an earlier server left it
        store.claim(a_task("latte").fingerprint)
        store.write([Record("a", 1, b"", b"body", 0.0)])
    assert stored_secret(place, tmp_path) is None
    with closing(open_store(place)) as store:
        secret = store.secret()
        assert [record.client for record in store.changes()] == ["a"]
    assert int(stored_secret(place, tmp_path), 16) == secret


def test_in_a_process_there_is_no_secret():
    assert create_exchange("ristretto", a_classifier()).freshness.secret == 0


def test_a_secret_comes_before_the_first_upload():
    exchange = create_exchange("ristretto", a_classifier())
    exchange.use_secret(7)
    exchange.push("a", an_upload(1))
    with pytest.raises(ValueError, match=r"secret: got one for 1 clients that are stored, want it before the first"):
        exchange.use_secret(8)
    assert exchange.freshness.secret == 7


def test_two_servers_agree_on_a_crowd_and_others_cannot_know_the_directions(postgres, tmp_path):
    url, alone = postgres.new_schema(), create_exchange("ristretto", a_classifier())
    push_all(alone)
    with two_servers(a_task(), url, tmp_path) as servers:
        with HttpExchange(servers[0], precision="exact") as exchange:  # to one: both have them in the same order
            push_all(exchange)
        answers = []
        for server in servers:
            with HttpExchange(server, precision="exact") as exchange:
                answers.append(exchange.pull("0"))
    assert same_message(*answers)
    assert not same_message(answers[0], alone.pull("0"))
    known = create_exchange("ristretto", a_classifier())
    known.use_secret(int(stored_secret(url, tmp_path), 16), served=True)
    push_all(known)
    assert same_message(answers[0], known.pull("0"))


def test_a_restored_server_answers_as_before(tmp_path):
    with serving(a_task(), tmp_path / "one") as server, HttpExchange(server.address, precision="exact") as exchange:
        push_all(exchange)
        before = exchange.pull("0")
    back_up(StorePlace(tmp_path / "one", tmp_path / "one"), tmp_path / "backup")
    restore(tmp_path / "backup", StorePlace(tmp_path / "two", tmp_path / "two"), Restoration())
    with serving(a_task(), tmp_path / "two") as server, HttpExchange(server.address, precision="exact") as exchange:
        assert same_message(exchange.pull("0"), before)


def test_no_route_hands_the_secret_out(tmp_path):
    with serving(a_task(), tmp_path) as server, HttpExchange(server.address) as exchange:
        exchange.push("a", an_upload(1))
        secret = stored_secret(tmp_path, tmp_path)
        for spec in SPECS:
            if spec.method == "GET" and spec.name != "fleet_events":  # that has no end
                page = httpx2.get(server.address + spec.path)
                assert page.status_code == 200
                assert secret.encode() not in page.content
                assert str(int(secret, 16)).encode() not in page.content


def test_a_server_notices_that_its_store_has_another_secret(postgres):
    url = postgres.new_schema()
    with closing(PostgresStore(url)) as store:
        store.claim("task")
        store.secret()
        list(store.changes())
        postgres.execute("UPDATE latte_about SET value = repeat('0', 32) WHERE name = 'secret'", url)
        assert list(store.changes()) == []  # only a new connection may lead to another database
        store._link.close()
        with pytest.raises(StoreUnavailableError, match="another secret"):
            list(store.changes())
