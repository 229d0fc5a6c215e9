"""Labels in an experiment: who gets them, what is scored, and that a run without labels is as it was."""

import json
from dataclasses import replace

import numpy as np
import pytest

from latte import InputError
from latte.data.bundled import bundled
from latte.data.federation import Federation, generators
from latte.experiment.config import MethodConfig, RunConfig, apply_settings, configure
from latte.experiment.item import make_result, run_item
from latte.simulation.labelling import Labelling


def a_federation(clients=12):
    whole = bundled()
    return Federation(whole.embeddings, whole.clients[:clients])


def test_labels_are_among_the_first_images():
    federation = a_federation()
    for plan, count in ((Labelling(per_class=2), None), (Labelling(random=30), 30), (Labelling(margin=30), 30)):
        told = plan.told(federation, generators(0).labels)
        again = plan.told(federation, generators(0).labels)
        assert all(np.array_equal(one, other) for one, other in zip(told, again, strict=True))
        named = np.concatenate(told)
        assert count is None or (named >= 0).sum() == count
        for client, mine in zip(federation.clients, told, strict=True):
            assert (mine[32:] == -1).all() and (mine[mine >= 0] == federation.labels(client)[mine >= 0]).all()
        if plan.per_class:
            assert set(np.bincount(named[named >= 0])) == {2}
    wrong = np.concatenate(Labelling(random=30, wrong=1.0).told(federation, generators(0).labels))
    truth = np.concatenate([federation.labels(client) for client in federation.clients])
    assert (wrong >= 0).sum() == 30 and not (wrong == truth).any()


def test_the_smallest_margins_are_asked_for():
    federation = a_federation()
    zero_shot, told = federation.embeddings.zero_shot, Labelling(margin=20).told(federation, generators(0).labels)
    margins = []
    for client in federation.clients:
        best = np.sort(zero_shot.logits(federation.stream(client)[:32, 0]), axis=1)
        margins.append(best[:, -1] - best[:, -2])
    asked = np.concatenate([margin[mine[:32] >= 0] for margin, mine in zip(margins, told, strict=True)])
    rest = np.concatenate([margin[mine[:32] < 0] for margin, mine in zip(margins, told, strict=True)])
    assert asked.max() <= rest.min()


@pytest.mark.parametrize("method", ["latte", "ristretto", "clip"])
def test_only_what_nobody_labelled_is_scored(method):
    federation = a_federation()
    plain = RunConfig(bundled().embeddings.name, (MethodConfig(method, setting="default"),))
    taught = apply_settings(plain, ["labels.random=100"])
    results = [make_result(federation, config, run_item(federation, config, 0)) for config in (plain, taught)]
    assert [result.labels for result in results] == [0, 100]
    assert results[0].samples - results[1].samples == 100
    if method != "clip":  # zero-shot is right about a third of these images
        assert results[1].engine == "readable" and results[1].micro > results[0].micro + 1
    assert "labels" not in json.loads(results[0].to_json())


def test_a_configuration_with_labels():
    raw = {"benchmark": "x", "methods": ["clip"], "labels": {"margin": 50, "within": 10}}
    assert configure(raw).labels == Labelling(margin=50, within=10)
    with pytest.raises(InputError, match="one of them"):
        configure({**raw, "labels": {"margin": 50, "random": 10}})
    with pytest.raises(InputError, match=r"labels\.per_class"):
        apply_settings(configure(raw), ["labels.per_clas=2"])


def test_a_run_without_labels_keeps_its_name(tmp_path):
    from latte.experiment.plan import make_plan

    plan = make_plan(RunConfig("cifar10c-mini", (MethodConfig("clip"),)))
    assert "labels" not in json.loads(plan.canonical())["config"]
    other = make_plan(replace(plan.config, labels=Labelling(random=5)))
    assert other.name != plan.name and json.loads(other.canonical())["config"]["labels"]["random"] == 5
