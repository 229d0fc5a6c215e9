"""What the diagnosis says, counted again the slow way from the states of the clients."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from latte import Latte
from latte.analysis.diagnose import (
    Diagnosis,
    HeadDiagnosis,
    diagnose,
    diagnose_heads,
    open_replay,
)
from latte.analysis.diagnose import replay_run as replay
from latte.analysis.stats import ZeroShotAnswers, zero_shot_answers
from latte.cli import cli
from latte.data.bundled import bundled
from latte.experiment.config import MethodConfig, RunConfig
from latte.experiment.plan import make_plan
from latte.experiment.runner import Options, run
from latte.methods import LatteParams
from latte.methods.ristretto.client import Ristretto, RistrettoParams
from latte.report.page.sections import diagnosis_sections, render_page
from latte.simulation.simulator import Client, Schedule, simulate


def small():
    whole = bundled()
    cut = tuple(replace(client, samples=client.samples[:12]) for client in whole.clients[:6])
    return replace(whole, clients=cut)


def merged_by_hand(state, label, params):
    """Return (entropy, is external, vector) of what is read for a class."""
    items = []
    for place, part in enumerate(("local", "external")):
        for e, v, ok in zip(*(state[f"{part}.{n}"][label] for n in ("entropy", "vectors", "valid")), strict=True):
            items += [(e, place, v)] if ok else []
    if params.memory == "external":
        return [item for item in items if item[1]]
    if params.memory == "local":
        return [item for item in items if not item[1]]
    return sorted(items, key=lambda item: item[0])[: params.k_l]


def counted_by_hand(federation, params, schedule):
    """Walk the federation and count, from states only."""
    zero_shot = federation.embeddings.zero_shot
    c = zero_shot.classes
    clients = [Client(s.name, Latte(zero_shot, params), federation.stream(s)) for s in federation.clients]
    exchange = Latte.exchange_for(zero_shot, params, [client.name for client in clients])
    counts = {name: np.zeros(c) for name in ("readable", "silenced", "items", "external", "empty")}
    syncs = 0
    push = exchange.push

    def counting(name, prototypes):
        nonlocal syncs
        syncs += 1
        counts["empty"] += [not seen for seen in prototypes.seen]
        push(name, prototypes)

    exchange.push = counting
    steps = 0
    for step in simulate(clients, exchange, schedule):
        client = clients[step.client]
        steps += 1
        state, f = client.method.state(), client.stream[step.sample][0]
        for y in range(c):
            items = merged_by_hand(state, y, params)
            counts["readable"][y] += bool(items)
            counts["items"][y] += len(items)
            counts["external"][y] += sum(item[1] for item in items)
            total = sum(np.exp(params.beta * (f @ v - 1) - params.gamma * e) * v for e, _, v in items)
            counts["silenced"][y] += bool(items) and np.linalg.norm(total) <= 1e-3
    return counts, syncs, steps, [client.method.state() for client in clients]


@pytest.mark.parametrize("memory", ["both", "local", "external"])
def test_counts_are_those_of_a_slow_recount(memory):
    federation, schedule = small(), Schedule(period=3)
    params = LatteParams(k_l=2, k_e=3, beta=60.0, gamma=1.5, memory=memory)
    found = diagnose(federation, params, schedule)
    counts, syncs, steps, states = counted_by_hand(federation, params, schedule)
    for y, report in enumerate(found.classes):
        filled = np.mean([state["local.valid"][y].mean() for state in states])
        assert report.full == pytest.approx(100 * filled)
        assert report.without == pytest.approx(100 * np.mean([not s["local.valid"][y].any() for s in states]))
        assert report.empty_queries == pytest.approx(100 * counts["empty"][y] / syncs)
        assert report.unreadable == pytest.approx(100 * (1 - counts["readable"][y] / steps))
        if counts["items"][y]:
            assert report.external == pytest.approx(100 * counts["external"][y] / counts["items"][y])
            assert report.silenced == pytest.approx(100 * counts["silenced"][y] / counts["readable"][y])
        local = np.concatenate([s["local.entropy"][y][s["local.valid"][y]] for s in states])
        if len(local):
            assert report.local_entropy == pytest.approx(tuple(np.quantile(local, (0.1, 0.5, 0.9))))
    assert found.total.images == steps == sum(report.images for report in found.classes)
    assert found.total.external == pytest.approx(100 * counts["external"].sum() / counts["items"].sum())
    assert 0 < found.total.silenced < 100


def test_without_an_exchange_there_are_no_queries():
    found = diagnose(small(), LatteParams(k_l=2), Schedule(period=1000))
    assert found.total.empty_queries is None
    assert found.total.external == 0
    assert found.total.external_entropy is None


def test_distribution_rises_to_everything():
    below = diagnose(small(), LatteParams(k_l=2)).below
    for values in below.values():
        assert list(values) == sorted(values)
        assert values[-1] == 100


def test_json_and_back():
    found = diagnose(small(), LatteParams(k_l=2))
    assert Diagnosis.from_json(found.to_json()) == found
    with pytest.raises(ValueError, match="another kind"):
        Diagnosis.from_json("{}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A real run folder on a file with few clients."""
    from latte.data.embeddings import save_embeddings

    where = tmp_path_factory.mktemp("runs")
    federation = small()
    rows = np.concatenate([client.samples for client in federation.clients])
    data = federation.embeddings
    cut = replace(
        data, name="few", views=np.asarray(data.views[rows]), labels=data.labels[rows], domain=data.domain[rows],
        domains=data.domains[:3],
        index=None, client=np.repeat(np.arange(6), 12),
    )  # fmt: skip
    save_embeddings(where / "few.safetensors", cut)
    methods = (
        MethodConfig("clip"),
        MethodConfig("latte", preset="cifar10c"),
        MethodConfig("latte", label="mine"),
        MethodConfig("ristretto", params={"nu": 5.0}),
    )
    plan = make_plan(RunConfig(str(where / "few.safetensors"), methods, (0, 1)))
    run(plan, where, Options(jobs=1))
    return where / plan.name


def test_replay_gives_the_recorded_accuracy_and_is_kept(folder):
    asked = open_replay(folder, label="mine", seed=1)
    found = replay(asked)
    recorded = next(r for r in asked.run.results if (r.method, r.seed) == ("mine", 1))
    assert found.accuracy == pytest.approx(recorded.micro)
    assert (found.method, found.seed, found.benchmark) == ("mine", 1, "few")
    found.save(folder)
    assert Diagnosis.load(folder) == found


def test_wrong_questions_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="seed"):
        open_replay(folder, seed=7)
    with pytest.raises(ValueError, match="mine"):
        open_replay(folder, label="clip")
    assert Diagnosis.load(tmp_path) is None


def test_command_prints_keeps_and_the_report_shows_it(folder, tmp_path):
    page = tmp_path / "diagnosis.html"
    done = CliRunner().invoke(cli, ["diagnose", str(folder), "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "one seed, replayed" in done.output
    assert "airplane" in done.output
    told = CliRunner().invoke(cli, ["diagnose", str(folder), "--json"])
    assert json.loads(told.stdout)["clients"] == 6
    assert "Memories, class by class: latte on few" in page.read_text(encoding="utf-8")

    from latte.experiment.collection import read_run
    from latte.report.contents import Report
    from latte.report.page.sections import report_page

    assert "Memories, class by class" in report_page(Report((), (read_run(folder),)))


def test_sections_hold_every_class():
    found = diagnose(small(), LatteParams(k_l=2))
    text = render_page("x", diagnosis_sections(found))
    assert all(f">{report.name}</th>" in text for report in found.classes)


# --- Ristretto ------------------------------------------------------------------------------------------------------


def test_heads_are_those_of_the_exchange():
    federation, schedule = small(), Schedule(sync="doubling")
    seen = diagnose_heads(federation, {"nu": 5.0}, schedule)
    zero_shot, params = federation.embeddings.zero_shot, RistrettoParams(nu=5.0)
    clients = [Client(s.name, Ristretto(zero_shot, params), federation.stream(s)) for s in federation.clients]
    exchange = Ristretto.exchange_for(zero_shot, params)
    labels = [step.prediction.label for step in simulate(clients, exchange, schedule)]
    assert seen.samples == len(labels) == 72
    for client in clients:
        exchange.push(client.name, client.method.summary())
    names = [client.name for client in clients]
    heads, routes = exchange.pull_traced(names)
    order = [exchange.clients.index(name) for name in names]
    used = routes[:, order] * np.array([len(client.stream) for client in clients])
    assert seen.total.trust == pytest.approx(np.mean([head.trust for head in heads]))
    assert seen.total.evidence == pytest.approx(used.sum(axis=1).mean())
    assert seen.total.own == pytest.approx(100 * (used.diagonal() / used.sum(axis=1)).mean())
    np.fill_diagonal(used, 0)
    domain = np.array([client.domain for client in federation.clients])
    inside = used[domain[:, None] == domain].sum() / used.sum()
    assert seen.total.inside == pytest.approx(100 * inside)
    assert seen.chance == pytest.approx(20.0), "one other client of five"
    assert [report.clients for report in seen.domains] == [2, 2, 2]
    assert list(seen.trust_after) == ["1", "2", "4", "8"] and 0 < seen.trust_after["1"] < seen.trust_after["8"] < 1
    assert list(seen.spectrum) == sorted(seen.spectrum, reverse=True) and 1 <= seen.directions <= zero_shot.dim


def test_heads_as_json_and_back():
    seen = diagnose_heads(small())
    assert HeadDiagnosis.from_json(seen.to_json()) == seen
    with pytest.raises(ValueError, match="another kind"):
        HeadDiagnosis.from_json("{}")


def test_one_client_has_only_its_own_evidence():
    whole = small()
    seen = diagnose_heads(replace(whole, clients=whole.clients[:1]))
    assert seen.total.inside is None and seen.total.own == pytest.approx(100)


def test_the_command_looks_into_heads_and_the_report_shows_them(folder, tmp_path):
    page = tmp_path / "heads.html"
    done = CliRunner().invoke(cli, ["diagnose", str(folder), "--method", "ristretto", "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "\ntrust of a head" in done.output and "largest eigenvalues" in done.output and "zero-shot:" in done.output
    text = page.read_text(encoding="utf-8")
    assert "Heads, domain by domain" in text and "Covariance" in text

    from latte.experiment.collection import read_run
    from latte.report.contents import Report
    from latte.report.page.sections import report_page

    assert "Heads, domain by domain" in report_page(Report((), (read_run(folder),)))


# --- a zero-shot model that has collapsed ---------------------------------------------------------------------------


def test_zero_shot_answers_are_counted():
    federation = small()
    answers = zero_shot_answers(federation)
    zero_shot, labels = federation.embeddings.zero_shot, []
    for client in federation.clients:
        labels += [int(zero_shot.logits(views[0]).argmax()) for views in federation.stream(client)]
    top = max(set(labels), key=labels.count)
    assert answers.most_frequent == zero_shot.classnames[top]
    assert answers.share == pytest.approx(100 * labels.count(top) / len(labels))
    truth = np.concatenate([federation.labels(client) for client in federation.clients])
    assert answers.accuracy == pytest.approx(100 * (np.array(labels) == truth).mean())
    assert not answers.collapsed and answers.warning() is None


@pytest.mark.parametrize(
    ("classes", "share", "collapsed"), [(10, 61.0, True), (7, 47.6, False), (2, 60.0, False), (2, 80.0, True)]
)
def test_most_answers_in_one_class_are_a_collapse(classes, share, collapsed):
    answers = ZeroShotAnswers(classes, 15.0, "empty", share)
    assert answers.collapsed == collapsed == ("collapsed" in (answers.warning() or ""))


@pytest.mark.parametrize("method", ["mine", "ristretto"])
def test_the_command_warns_of_a_collapse(folder, monkeypatch, method):
    monkeypatch.setattr("latte.analysis.stats.zero_shot_answers", lambda f: ZeroShotAnswers(10, 15.0, "empty", 61.0))
    done = CliRunner().invoke(cli, ["diagnose", str(folder), "--method", method])
    assert done.exit_code == 0 and "warning: the zero-shot model has collapsed" in done.output
