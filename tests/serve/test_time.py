"""Nothing but what people read depends on a clock: a client that comes back after a year goes on as it left."""

import time

import pytest

from latte import create_exchange
from latte.checks.material import a_zero_shot, an_upload, same_message
from latte.edge.clients.calls import Calls
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.server.http.running import ServerOptions
from latte.server.http.service import Access, RequestRate
from latte.server.store.tokens import TokenFile, new_token
from serving import IMPATIENT
from two_servers import forked_server

YEAR = 365 * 86_400.0
TASK = make_task(a_zero_shot(), "latte", {"k_e": 3})


@pytest.mark.parametrize(
    ("years", "forgotten"),
    [
        (1, False),
        *(pytest.param(years, gone, marks=pytest.mark.slow) for years, gone in ((1, True), (-1, False), (-1, True))),
    ],
)
def test_a_client_that_comes_back_after_a_year(years, forgotten, tmp_path):
    """Its token is valid, what it left out is sent, what it holds is not believed; also if the clock was set back."""
    tokens, texts = TokenFile(tmp_path), {}
    for name in "abcd":
        texts[name], token = new_token(name)
        tokens.add(token)
    options = ServerOptions(tmp_path, port=0, access=Access(required=True, rate=RequestRate(0)))
    with forked_server(TASK, options) as server:
        traveller = HttpExchange(server, tokens=texts, precision="fp32", connection=IMPATIENT)
        for name in "bca":
            traveller.push_pull(name, an_upload(ord(name)))
    uploads = {"a": an_upload(ord("a"))}
    with (
        forked_server(TASK, options, ahead=years * YEAR) as server,
        HttpExchange(server, tokens=texts, precision="fp32", connection=IMPATIENT) as others,
    ):
        for name in "bcd":  # everything else has changed, and somebody is new
            uploads[name] = an_upload(1000 + ord(name))
            others.push(name, uploads[name])
        if forgotten:
            others.leave("a")
        traveller._calls.close()
        traveller._calls = Calls(server, texts, IMPATIENT)
        wanted = create_exchange("latte", a_zero_shot(), {"k_e": 3})
        for name, upload in uploads.items():
            wanted.push(name, upload)
        assert same_message(traveller.push_pull("a", uploads["a"]), wanted.pull("a"))
        assert same_message(others.pull("b"), wanted.pull("b"))
    traveller.close()
    tokens.close()


def test_two_clients_with_clocks_hours_apart(tmp_path, monkeypatch):
    """One is five hours fast, one nine hours slow: both get what the others sent last, whoever sent it first."""
    clock, hours = time.time, {"a": 5, "b": -9, "c": 0}
    wanted = create_exchange("latte", a_zero_shot(), {"k_e": 3})
    options = ServerOptions(tmp_path, port=0, access=Access(rate=RequestRate(0)))
    with forked_server(TASK, options) as server:
        exchanges = {name: HttpExchange(server, precision="fp32", connection=IMPATIENT) for name in hours}
        for seed in range(4):
            for name in ("a", "b", "c") if seed % 2 else ("c", "b", "a"):
                monkeypatch.setattr(time, "time", lambda name=name: clock() + 3600 * hours[name])
                upload = an_upload(10 * seed + ord(name))
                wanted.push(name, upload)
                assert same_message(exchanges[name].push_pull(name, upload), wanted.pull(name))
        for exchange in exchanges.values():
            exchange.close()
