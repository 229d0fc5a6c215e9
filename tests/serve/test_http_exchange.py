"""An exchange over HTTP keeps the contract of exchanges, and gives the predictions of one process."""

from dataclasses import replace

import numpy as np
import pytest

from latte import Client, Schedule, create, create_exchange, simulate
from latte.checks import exchange_checks, uploads_of
from latte.data.catalogue import find_benchmark, read_benchmark
from latte.data.federation import federate, fixed_federation
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.methods.ristretto.client import Ristretto
from latte.simulation.wrapped import WrappedExchange
from serving import Servers, serving

ADDING = ("pta-fed", "oga-fed", "dota-fed")
PRECISIONS = {"latte": ("fp32", "exact"), "ristretto": ("exact",)}


@pytest.mark.parametrize("check", exchange_checks())
def test_latte_over_http_keeps_the_contract(check, tmp_path):
    with Servers(tmp_path, "latte", k_e=2) as servers:
        exchange_checks()[check](servers.make)


@pytest.mark.parametrize("check", exchange_checks(uploads_of(Ristretto)))
def test_ristretto_over_http_keeps_the_contract(check, tmp_path):
    with Servers(tmp_path, "ristretto") as servers:
        exchange_checks(uploads_of(Ristretto))[check](servers.make)


@pytest.mark.parametrize("method", ADDING)
def test_sums_over_http_are_those_of_one_process(method, tmp_path):
    """Rounded on the way, they are accepted, too, and a scatter is still a covariance."""
    federation = fixed_federation(read_benchmark(find_benchmark("cifar10c-mini")))
    streams = [federation.stream(client)[:20] for client in federation.clients[:3]]
    task = make_task(federation.embeddings.zero_shot, method)
    expected = _run(task, create_exchange(method, task.zero_shot, task.params), streams, Schedule(period=5))
    for precision, most in (("exact", 0.0), ("int8", 5.0)):
        with serving(task, tmp_path / precision) as server, HttpExchange(server.address, precision=precision) as http:
            assert np.abs(_run(task, http, streams, Schedule(period=5)) - expected).max() <= most


@pytest.mark.parametrize("schedule", [Schedule(period=10), Schedule(period=7, barrier=False)], ids=["barrier", "alone"])
@pytest.mark.parametrize(
    ("method", "params"),
    [("latte", {}), ("ristretto", {}), ("ristretto", {"trust": "open"})],
    ids=["latte", "fleet", "open"],
)
def test_the_predictions_are_those_of_one_process(method, params, schedule, tmp_path):
    federation = fixed_federation(read_benchmark(find_benchmark("cifar10c-mini")))
    streams = [federation.stream(client)[:30] for client in federation.clients[:8]]
    task = make_task(federation.embeddings.zero_shot, method, params)
    expected = _run(task, create_exchange(method, task.zero_shot, task.params), streams, schedule)
    for number, precision in enumerate(PRECISIONS[method]):
        with serving(task, tmp_path / str(number)) as server, HttpExchange(server.address, precision=precision) as http:
            assert np.array_equal(_run(task, http, streams, schedule), expected)


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["pacs-demo", "cifar10c-mini"])
@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_a_whole_benchmark_in_fp32_gives_the_predictions_of_one_process(method, benchmark, tmp_path):
    """All of PACS: forty clients, 9,991 images; and all of the benchmark that the package brings.

    Labels are those of one process. So is every score, to the last bit, of a process whose messages are in fp32, too:
    Latte's are as they are, Ristretto's are in double precision there.
    """
    embeddings = read_benchmark(find_benchmark(benchmark))
    federation = federate(embeddings, 10, seed=0) if benchmark == "pacs-demo" else fixed_federation(embeddings)
    streams = [federation.stream(client) for client in federation.clients]
    task, schedule = make_task(federation.embeddings.zero_shot, method), Schedule(period=16, sync="doubling")
    expected = _run(task, create_exchange(method, task.zero_shot, task.params), streams, schedule)
    with serving(task, tmp_path) as server, HttpExchange(server.address, precision="fp32") as http:
        scores = _run(task, http, streams, schedule)
    assert np.array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    if method != "latte":
        single = SinglePrecision(create_exchange(method, task.zero_shot, task.params))
        expected = _run(task, single, streams, schedule)
    assert np.array_equal(scores, expected)


class SinglePrecision(WrappedExchange):
    """An exchange in one process whose messages have their vectors in fp32, in both directions."""

    def push(self, client, upload):
        super().push(client, in_single_precision(upload))

    def pull_traced(self, clients):
        downloads, sources = super().pull_traced(clients)
        return [in_single_precision(download) for download in downloads], sources


def in_single_precision(message):
    return replace(message, **{name: np.float32(getattr(message, name)) for name in type(message).vector_fields})


def _run(task, exchange, streams, schedule):
    """Return the scores of every sample."""
    clients = [
        Client(f"client {i}", create(task.method, task.zero_shot, task.params), stream)
        for i, stream in enumerate(streams)
    ]
    return np.array([step.prediction.scores for step in simulate(clients, exchange, schedule)])
