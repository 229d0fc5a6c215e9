"""Two server processes on one PostgreSQL are one exchange."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx2
import numpy as np
import pytest

from latte import Client, InputError, Schedule, ZeroShot, create, create_exchange, simulate
from latte.checks import exchange_checks, uploads_of
from latte.checks.material import a_zero_shot, an_upload, same_message
from latte.data.catalogue import find_benchmark, read_benchmark
from latte.data.federation import fixed_federation
from latte.edge.clients.calls import RefusedError
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task, next_version
from latte.methods.ristretto.client import Ristretto
from latte.server.http.running import ServerOptions
from latte.server.store.postgres import PostgresTokens
from latte.server.store.tokens import new_token
from serving import IMPATIENT, UNLIMITED, serving, task_file
from two_servers import BalancedExchange, Pairs, forked_server, two_servers
from waiting import run, wait_until


@pytest.mark.parametrize("check", exchange_checks())
def test_latte_over_two_servers_keeps_the_contract(check, postgres, tmp_path):
    with Pairs(postgres, tmp_path, "latte", k_e=2) as pairs:
        exchange_checks()[check](pairs.make)


@pytest.mark.slow  # the contract over two servers is checked with Latte, that of Ristretto over one
@pytest.mark.parametrize("check", exchange_checks(uploads_of(Ristretto)))
def test_ristretto_over_two_servers_keeps_the_contract(check, postgres, tmp_path):
    with Pairs(postgres, tmp_path, "ristretto") as pairs:
        exchange_checks(uploads_of(Ristretto))[check](pairs.make)


@pytest.fixture
def pair(postgres, tmp_path):
    """Return the address of a store, and those of two servers on it."""
    url = postgres.new_schema()
    with two_servers(make_task(a_zero_shot(), "latte", {"k_e": 3}), url, tmp_path) as servers:
        yield url, servers


def expected(uploads):
    """Return the exchange in this process that has the same uploads."""
    exchange = create_exchange("latte", a_zero_shot(), {"k_e": 3})
    for client, upload in uploads.items():
        exchange.push(client, upload)
    return exchange


@pytest.mark.parametrize(("method", "precision"), [("latte", "fp32"), ("ristretto", "exact")])
def test_the_predictions_are_those_of_one_process_with_clocks_hours_apart(method, precision, postgres, tmp_path):
    federation = fixed_federation(read_benchmark(find_benchmark("cifar10c-mini")))
    streams = [federation.stream(client)[:24] for client in federation.clients[:6]]
    task = make_task(federation.embeddings.zero_shot, method)
    wanted = scores(task, create_exchange(method, task.zero_shot, task.params), streams)
    with (
        two_servers(task, postgres.new_schema(), tmp_path, apart=5 * 3600.0) as servers,
        BalancedExchange(servers, precision) as exchange,
    ):
        assert np.array_equal(scores(task, exchange, streams), wanted)


def scores(task, exchange, streams):
    clients = [
        Client(f"client {i}", create(task.method, task.zero_shot, task.params), stream)
        for i, stream in enumerate(streams)
    ]
    steps = simulate(clients, exchange, Schedule(period=6, barrier=False))
    return np.array([step.prediction.scores for step in steps])


def test_what_one_server_has_acknowledged_the_other_has_at_once(pair):
    uploads = {}
    with HttpExchange(pair[1][0], connection=IMPATIENT) as one, HttpExchange(pair[1][1], connection=IMPATIENT) as other:
        for seed in range(20):
            name = f"client {seed % 7}"
            uploads[name] = an_upload(seed)
            writer, reader = (one, other) if seed % 2 else (other, one)
            writer.push(name, uploads[name])
            assert same_message(reader.pull(name), expected(uploads).pull(name))


def test_rows_that_one_server_has_need_not_be_sent_to_the_other(pair):
    upload = an_upload(1)
    with BalancedExchange(pair[1], "fp32") as exchange:
        for _ in range(4):  # one request each: the base is known wherever it goes
            exchange.push("a", upload)
        assert exchange._conversations["a"].acknowledged == exchange._conversations["a"].version == 4


def test_who_leaves_here_has_left_there_and_may_come_back(pair):
    uploads = {name: an_upload(ord(name)) for name in "abc"}
    with HttpExchange(pair[1][0], connection=IMPATIENT) as one, HttpExchange(pair[1][1], connection=IMPATIENT) as other:
        for name, upload in uploads.items():
            one.push(name, upload)
        assert other.leave("a")
        assert not one.leave("a")
        with pytest.raises(RefusedError, match="unknown_client"):
            one.pull("a")
        rest = {name: uploads[name] for name in "bc"}
        assert same_message(one.pull("b"), expected(rest).pull("b"))
        other.push("a", uploads["a"])  # its version begins again
        assert same_message(one.pull("b"), expected({**rest, "a": uploads["a"]}).pull("b"))


def test_a_server_that_nobody_asks_follows_the_others(pair):
    with HttpExchange(pair[1][0], connection=IMPATIENT) as one:
        for name in "abc":
            one.push(name, an_upload(ord(name)))
    wait_until(lambda: httpx2.get(f"{pair[1][1]}/v1/clients").json()["total"] == 3, "the idle server to follow")
    with HttpExchange(pair[1][0], connection=IMPATIENT) as one:
        one.leave("b")
    wait_until(lambda: httpx2.get(f"{pair[1][1]}/v1/clients").json()["total"] == 2, "the idle server to follow")


def test_two_programs_with_one_name_at_two_servers(pair):
    """Each falls back to sending everything as a later version; the last upload counts."""
    with HttpExchange(pair[1][0], connection=IMPATIENT) as one, HttpExchange(pair[1][1], connection=IMPATIENT) as other:
        other.push("b", an_upload(0))
        for seed in range(6):
            (one if seed % 2 else other).push("a", an_upload(seed))
            assert same_message(one.pull("b"), expected({"a": an_upload(seed), "b": an_upload(0)}).pull("b"))


def test_a_revoked_token_is_refused_by_every_server(pair):
    (text, token), (_, admin) = new_token("a"), new_token(None)
    with (
        closing(PostgresTokens(pair[0])) as tokens,
        HttpExchange(pair[1][0], tokens=text, connection=IMPATIENT) as one,
        HttpExchange(pair[1][1], tokens=text, connection=IMPATIENT) as other,
    ):
        one.push("a", an_upload(1))  # open: nobody has made a token
        tokens.add(admin)
        for exchange in (one, other):
            wait_until(lambda exchange=exchange: refusal(exchange) == "unauthorized", "a server that asks for tokens")
        tokens.add(token)
        for exchange in (one, other):
            wait_until(lambda exchange=exchange: refusal(exchange) is None, "the new token to be known")
        tokens.revoke([token.id])
        for exchange in (one, other):
            wait_until(lambda exchange=exchange: refusal(exchange) == "unauthorized", "the token to be refused")


def refusal(exchange) -> str | None:
    """Return why the server refuses to answer client "a"; None: it answers."""
    try:
        exchange.pull("a")
    except RefusedError as error:
        return error.code
    return None


# --- starting -----------------------------------------------------------------------------------------------


def test_servers_that_start_at_once_on_a_new_database(postgres, tmp_path):
    url, task = postgres.new_database(), make_task(a_zero_shot(), "latte", {"k_e": 3})
    with ExitStack() as servers, ThreadPoolExecutor(4) as pool:
        options = [ServerOptions(tmp_path / str(i), url, port=0, access=UNLIMITED) for i in range(4)]
        starting = [forked_server(task, one) for one in options]
        addresses = tuple(pool.map(servers.enter_context, starting))
        with BalancedExchange(addresses) as exchange:
            for name in "abcdefgh":
                exchange.push(name, an_upload(ord(name)))
            wanted = expected({name: an_upload(ord(name)) for name in "abcdefgh"})
            for name in "abcdefgh":
                assert same_message(exchange.pull(name), wanted.pull(name))
    assert postgres.execute("SELECT value FROM latte_about WHERE name = 'schema'", url) == [("1",)]


def test_a_server_of_another_task_is_refused(pair, tmp_path):
    path = task_file(tmp_path, a_zero_shot(scale=30.0))
    where = ("--folder", tmp_path / "x", "--store", pair[0])
    done = run(sys.executable, "-m", "latte", "serve", path, *where, "--port", 0)
    assert done.returncode == 2
    assert "the store of another task (logit scale, parameters of the method differ)" in done.stderr


def test_a_server_without_its_database_says_so(tmp_path):
    path = task_file(tmp_path, a_zero_shot())
    url = "postgresql://latte:secret@127.0.0.1:9/none"
    done = run(sys.executable, "-m", "latte", "serve", path, "--folder", tmp_path / "x", "--store", url, "--port", 0)
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_servers_of_two_versions_do_not_share_a_database(postgres, tmp_path):
    """The earlier one would go on storing uploads that have other classes, and the later could not start again."""
    zero_shot, url = a_zero_shot(), postgres.new_schema()
    task = make_task(zero_shot, "latte", {"k_e": 3})
    left = ZeroShot(zero_shot.text[1:], zero_shot.classnames[1:], zero_shot.scale)
    later = next_version(task, left)
    with serving(task, tmp_path / "one", store=url) as server, HttpExchange(server.address) as http:
        http.push("a", an_upload(1))
        with pytest.raises(InputError, match="process at work"), serving(later, tmp_path / "two", store=url):
            pass
        http.push("a", an_upload(2))
        http.push("b", an_upload(3))
    for _ in range(2):
        with serving(later, tmp_path / "one", store=url) as one, serving(later, tmp_path / "two", store=url) as two:
            assert set(one.service.hub.versions) == {"a", "b"} == set(two.service.hub.versions)
