"""Flower's simulation engine: the contract of an exchange holds, and the labels are those of one process."""

import json
import sys

import pytest

from flower_simulation import BENCHMARKS, METHODS, checks_of
from latte.data.bundled import bundled
from latte.methods import METHODS as REGISTERED
from latte.methods import describe
from latte.simulation.simulator import Schedule, run_readable
from made_once import made_once
from waiting import SUPPORT, run

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")
pytest.importorskip("ray", reason="needs the extra flower: pip install '.[flower]'")

pytestmark = pytest.mark.slow
CHECKS = [f"{method}: {name}" for method in METHODS for name in checks_of(method)]


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    """One simulation for all tests of this file: starting the engine takes longest."""

    def simulate(folder):
        script = SUPPORT / "flower_simulation.py"
        run(sys.executable, script, folder, check=True, FLWR_HOME=str(folder / "flwr"))

    return made_once(tmp_path_factory, "simulation", simulate)


def test_every_method_that_collaborates_is_run():
    infos = [describe(name) for name in REGISTERED]
    assert {info.name for info in infos if info.built_in and info.collaborative} == set(METHODS) == set(BENCHMARKS)


@pytest.mark.parametrize("method", BENCHMARKS)
def test_the_labels_are_those_of_the_simulator(method, simulation):
    config, federation = BENCHMARKS[method], bundled()
    schedule = Schedule(period=config.get("period", 1), sync=config["sync"])
    expected = run_readable(federation, method, schedule=schedule).labels
    labels = json.loads((simulation / f"{method}.json").read_text())
    assert list(labels) == [client.name for client in federation.clients]
    for client, want in zip(federation.clients, expected, strict=True):
        assert labels[client.name] == want.tolist(), client.name


@pytest.mark.parametrize("check", CHECKS)
def test_the_contract_of_an_exchange_holds(check, simulation):
    document = json.loads((simulation / "contract.json").read_text())
    assert document["messages"] > 500  # each of them a message of Flower, there and back
    assert document["outcomes"][check] == ""
