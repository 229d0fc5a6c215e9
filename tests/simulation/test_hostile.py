"""What attackers send passes every check and misleads a fleet, an open task less; honest uploads stay as they are."""

import functools
import importlib.util
import itertools
import json
import sys

import numpy as np
import pytest

from latte.core.maths import softmax
from latte.data.catalogue import find_benchmark, read_benchmark
from latte.data.federation import federate
from latte.engine.ristretto import run_ristretto
from latte.errors import InputError
from latte.methods import create_exchange, resolve
from latte.simulation.simulator import Schedule, set_up, simulate
from simulation.engine_support import made_up
from waiting import ROOT

pytest.importorskip("hostile_clients", reason="benchmarks are not part of this distribution")
from hostile_clients import LIES, Attack, AttackedExchange, Knowledge

PROGRAM, RESULTS = ROOT / "benchmarks" / "robustness" / "hostile.py", ROOT / "benchmarks" / "results" / "hostile"
in_checkout = pytest.mark.skipif(not PROGRAM.is_file(), reason="benchmarks are not part of this distribution")
SCHEDULE = Schedule(sync="doubling")


def known(federation):
    """What attackers know of each domain that have seen all images, and their labels."""
    embeddings = federation.embeddings
    zero_shot, knowledge = embeddings.zero_shot, []
    for domain in range(len(embeddings.domains)):
        own = embeddings.domain == domain
        images, labels = np.asarray(embeddings.views[own, 0], np.float64), embeddings.labels[own]
        truth = np.array([images[labels == y].mean(axis=0) for y in range(zero_shot.classes)])
        soft = softmax(images @ zero_shot.precise_scaled.T)
        counts = soft.sum(axis=0)
        knowledge.append(Knowledge(truth, counts, soft.T @ images / counts[:, None]))
    return knowledge


def attacked(federation, method, attack, attackers=3, **params):
    zero_shot, number = federation.embeddings.zero_shot, len(federation.embeddings.domains)
    domains = {client.name: client.domain for client in federation.clients}
    exchange = create_exchange(method, zero_shot, **params)
    posing = [i % number for i in range(attackers)]
    return AttackedExchange(exchange, attack, zero_shot, domains, posing, known(federation))


@pytest.mark.parametrize("method", ["latte", "ristretto"])
@pytest.mark.parametrize("lie", LIES)
def test_lies_pass_the_checks_of_a_server_and_honest_uploads_stay_as_they_are(method, lie):
    federation = made_up([20] * 4, 5, 16)
    exchange = attacked(federation, method, Attack(lie))
    clients, _ = set_up(federation, method)
    honest = []
    for client, stream in zip(clients, federation.clients, strict=True):
        for views in federation.stream(stream):
            client.method.predict(views)
        honest.append(client.method.summary())
        exchange.push(client.name, honest[-1])
    downloads, routes = exchange.pull_traced([client.name for client in clients])
    assert len(downloads) == 4 and routes.shape == (4, 4)
    assert exchange.clients == tuple(client.name for client in clients)
    assert len(exchange.exchange.clients) == 7  # three attackers were accepted
    if method == "ristretto":
        upload = exchange.alter(honest[0], honest, known(federation)[0])
        assert upload.counts.sum() == pytest.approx(20)  # an honest pace
        assert (np.linalg.norm(upload.means, axis=1) <= 1 + 1e-9).all()


def test_attackers_claim_what_they_are_told_to_and_come_when_they_are_told_to():
    federation = made_up([20] * 3, 5, 16)
    upload = set_up(federation, "ristretto")[0][0].method
    upload.predict_many(federation.stream(federation.clients[0]))
    exchange = attacked(federation, "ristretto", Attack("anti-1", images=9e11, live=False, first=2))
    exchange.push(federation.clients[0].name, upload.summary())
    for syncs, there in ((1, 1), (2, 4)):
        exchange.pull_traced([federation.clients[0].name])
        assert len(exchange.exchange.clients) == there, syncs
    assert exchange.alter(upload.summary(), [], known(federation)[0]).counts.sum() == pytest.approx(9e11)


@pytest.mark.parametrize("attack", [Attack("anti-1", 250.0, live=False), Attack("anti-1", 9e11, live=False)])
def test_an_attack_that_ruins_a_fleet_costs_an_open_task_little(attack):
    federation = federate(read_benchmark(find_benchmark("pacs-demo")), 10, 0)
    labels = [federation.labels(client) for client in federation.clients]

    def accuracy(trust, exchange=None):
        params = resolve("ristretto", {"trust": trust})
        outcome = run_ristretto(federation, params, SCHEDULE, np.random.default_rng(0), exchange)
        return float(np.mean(np.concatenate(outcome.labels) == np.concatenate(labels)))

    lost = {
        trust: accuracy(trust) - accuracy(trust, attacked(federation, "ristretto", attack, 4, trust=trust))
        for trust in ("fleet", "open")
    }
    assert lost["fleet"] > 0.1 > 0.03 > lost["open"], lost


@pytest.mark.parametrize("trust", ["fleet", "open"])
def test_both_paths_agree_about_an_attack(trust):
    federation, params = made_up([15] * 6, 4, 16), resolve("ristretto", {"trust": trust})
    attack = Attack("push-0.5")
    exchanges = [attacked(federation, "ristretto", attack, trust=trust) for _ in range(2)]
    fast = run_ristretto(federation, params, SCHEDULE, np.random.default_rng(0), exchanges[0])
    clients, _ = set_up(federation, "ristretto", params)
    for step in simulate(clients, exchanges[1], SCHEDULE):
        assert step.prediction.label == fast.labels[step.client][step.sample]


@pytest.mark.parametrize(
    ("change", "match"), [({"lie": "rude"}, "lie"), ({"images": 0.0}, "images"), ({"first": 0}, "first")]
)
def test_refusals(change, match):
    with pytest.raises(InputError, match=match):
        Attack(**{"lie": "anti-1", **change})
    exchange = attacked(made_up([20] * 4, 5, 16), "ristretto", Attack("anti-1"))
    with pytest.raises(InputError, match="upload"):
        exchange.alter(object(), [], None)


def recorded(name):
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@functools.cache
def program():
    described = importlib.util.spec_from_file_location("hostile_program", PROGRAM)
    module = sys.modules["hostile_program"] = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def table_of(file):
    """Return what --read prints."""
    return program().table(program().read_measurements(file, program().Measurement)).splitlines()


@in_checkout
@pytest.mark.parametrize("name", sorted(file.stem for file in RESULTS.glob("*.jsonl")))
def test_the_page_has_the_tables_of_the_results(name):
    page = (RESULTS.parent / "hostile.md").read_text(encoding="utf-8").splitlines()
    lines = table_of(RESULTS / f"{name}.jsonl")
    assert len(lines) > 4
    assert [line for line in lines if line not in page] == [], "put in what hostile.py --read prints"


@in_checkout
def test_the_page_has_the_worst_of_the_attacks():
    """The summary of docs/robustness.md is the least gain over all conditions and lies, share by share."""
    gains: dict[tuple[str, str, float], dict[tuple[str, ...], list[float]]] = {}
    for name in ("attacks", "every-domain"):
        for m in recorded(name):
            if m["lie"]:
                cell = gains.setdefault((m["method"], m["benchmark"], m["share"]), {})
                cell.setdefault((name, m["condition"], m["lie"]), []).append(m["accuracy"] - m["zero_shot"])
    worst = {cell: min(np.mean(values) for values in lies.values()) for cell, lies in gains.items()}
    page = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8").replace("−", "-")
    titles = {
        "latte": "Latte",
        "ristretto+trust=open": "Ristretto, `trust=open`",
        "ristretto": "Ristretto, `trust=fleet`",
    }
    for method, title in titles.items():
        sets = ("pacs", "cifar10c", "clip_dtd", "clip_pets")
        cells = [" / ".join(f"{worst[method, name, share]:+.1f}" for share in (0.1, 0.3, 0.5)) for name in sets]
        assert f"| {title} | {' | '.join(cells)} |" in page


@in_checkout
def test_the_page_has_the_poor_networks():
    titles = {
        "none": "nothing is wrong",
        "missing": "half of the syncs are missed",
        "joins": "half of the clients join late",
        "int8": "vectors travel as int8",
        "skew": "clients see different classes",
    }
    gains: dict[tuple[str, ...], list[float]] = {}
    for m in recorded("networks"):
        gains.setdefault((m["condition"], m["benchmark"], m["method"]), []).append(m["accuracy"] - m["zero_shot"])
    page = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8").replace("−", "-")
    for condition, title in titles.items():
        columns = itertools.product(("pacs", "cifar10c"), ("latte", "ristretto+trust=open"))
        cells = " | ".join(f"{np.mean(gains[condition, *column]):+.1f}" for column in columns)
        assert f"| {title} | {cells} |" in page


@in_checkout
def test_every_method_was_told_every_lie_with_every_seed(tmp_path):
    measured = recorded("attacks")
    for benchmark in {m["benchmark"] for m in measured}:
        column = [m for m in measured if m["benchmark"] == benchmark]
        told = {(m["method"], m["condition"], m["share"], m["lie"], m["seed"]) for m in column if m["lie"]}
        cells = {key[:3] for key in told}
        seeds = {m["seed"] for m in column}
        assert told == {(*cell, lie, seed) for cell in cells for lie in LIES for seed in seeds}
    # the table marks a cell that lacks a lie
    short = tmp_path / "short.jsonl"
    left_out = next(m for m in measured if m["condition"] == "pace" and m["method"] == "latte")
    short.write_text("".join(json.dumps(m) + "\n" for m in measured if m is not left_out), encoding="utf-8")
    starred = [line for line in table_of(short) if "*" in line]
    assert len(starred) == 1 and starred[0].startswith("| pace | Latte |")
