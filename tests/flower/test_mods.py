"""Mods of a node, in a fleet and in a benchmark in step: coarser numbers, and less of single images."""

from functools import lru_cache
from textwrap import dedent

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict

from devices import small_task
from direct_grid import DirectGrid
from flower_nodes import METHODS, Node, complaints, nodes_of, steps
from latte.core.privacy import Privacy
from latte.data.bundled import bundled
from latte.edge.clients.folder import Hidden
from latte.errors import InputError
from latte.flower.benchmark import Barrier
from latte.flower.node import make_client_app, precision_mod, privacy_mod
from latte.flower.records import record_state
from latte.flower.settings import BenchmarkSettings
from latte.methods import registry
from latte.simulation.simulator import Schedule, run_readable


@pytest.mark.parametrize("method", METHODS)
def test_int8_is_smaller_and_accepted(method, tmp_path, fleet_of):
    task, sizes = small_task(method, dim=64), {}
    for mods in ((), (precision_mod("int8"),)):
        folder = tmp_path / str(len(mods))
        nodes = nodes_of(task, folder, 2)
        fleet = fleet_of(task, folder, nodes, mods)
        for seed, node in enumerate(nodes):
            node.see(20, seed).offer()
        steps(fleet)
        assert set(fleet.hub.versions) == {"100", "101"}
        nodes[0].method.receive(nodes[0].download())
        sizes[len(mods)] = fleet.grid.sent
    assert sizes[1] < 0.6 * sizes[0]


def test_an_upload_that_hides_too_little_does_not_leave_the_node(task, tmp_path, caplog, fleet_of):
    open_one, private = Node(100, task, tmp_path / "a"), Node(101, task, tmp_path / "b", hidden=Hidden(3, 0.0))
    fleet = fleet_of(task, tmp_path, [open_one, private], mods=[privacy_mod(least_images=3)])
    for seed, node in enumerate((open_one, private)):
        node.see(12, seed).offer()
    steps(fleet, 5)
    assert set(fleet.hub.versions) == {"101"}
    (line,) = complaints(caplog, "node 100")
    assert "--least-images 3" in line


def test_mods_refuse_bad_options():
    with pytest.raises(ValueError, match="precision"):
        precision_mod("int7")
    with pytest.raises(ValueError, match="least_images"):
        privacy_mod(least_images=-1)
    assert Privacy(2).hides


@lru_cache
def walked(method, *mods, nodes=38):
    """Return what all clients of the bundled benchmark answer with some mods, and the bytes of their replies."""
    settings = BenchmarkSettings(method=method, sync="doubling", parameters='{"k_e": 2}' if method == "latte" else "")
    grid = DirectGrid(make_client_app(mods), {node: {} for node in range(1, nodes + 1)})
    return Barrier(grid, settings).run(), grid.sent


@pytest.mark.parametrize("method", METHODS)
def test_a_benchmark_gives_the_labels_of_the_simulator_and_almost_with_int8(method):
    params = {"k_e": 2} if method == "latte" else None
    expected = run_readable(bundled(), method, params, Schedule(sync="doubling"))
    exact, sent = walked(method)
    rounded, less = walked(method, precision_mod("int8"))
    assert all(np.array_equal(a, b) for a, b in zip(exact.labels, expected.labels, strict=True))
    same = np.concatenate(exact.labels) == np.concatenate(rounded.labels)
    assert same.mean() > 0.99 and less < 0.5 * sent


@pytest.mark.parametrize("nodes", [5, *(pytest.param(nodes, marks=pytest.mark.slow) for nodes in (1, 2, 40))])
def test_any_number_of_nodes_gives_the_same_labels(nodes):
    """Fewer nodes than clients, and more: clients are shared out."""
    for mods in ((), (precision_mod("int8"),)):
        expected, bytes_sent = walked("latte", *mods)
        labels, sent = walked("latte", *mods, nodes=nodes)
        assert all(np.array_equal(a, b) for a, b in zip(labels.labels, expected.labels, strict=True))
        assert sent == bytes_sent


def test_a_benchmark_without_nodes_ends_with_one_line(monkeypatch):
    monkeypatch.setattr("latte.flower.benchmark._NODES_SECONDS", 0.1)
    with pytest.raises(InputError, match=r"^nodes: got none in 0\.1 seconds, want a node or more"):
        Barrier(DirectGrid(make_client_app(), {}), BenchmarkSettings())


def test_nodes_that_are_registered_during_the_start_are_used():
    grid = DirectGrid(make_client_app(), {node: {} for node in range(1, 8)})
    counts = iter([0, 2, 5, 5, 7])
    grid.get_node_ids = lambda: list(range(1, 1 + next(counts, 7)))
    assert {member.node for member in Barrier(grid, BenchmarkSettings()).members} == set(range(1, 8))


@pytest.mark.parametrize("config", [{"precision": "int7"}, {"least-images": -1}, {"noise": "much"}])
def test_what_a_node_refuses_is_one_line(config):
    """Not the traceback of every process between the node and the server."""
    grid = DirectGrid(make_client_app([precision_mod(), privacy_mod()]), {1: {}}, config)
    with pytest.raises(RuntimeError, match=r"^node 1: .*: got .*, want [^\n]*$"):
        Barrier(grid, BenchmarkSettings()).run()


def test_a_node_that_lost_its_memory_says_so():
    facts = ConfigRecord({**BenchmarkSettings().facts(), "clients": [3], "starts": [2], "ends": [4]})
    grid = DirectGrid(make_client_app(), {1: {}})
    grid.push_messages([Message(RecordDict({"latte": facts}), 1, "query.walk")])
    (reply,) = grid.pull_messages(["1"])
    assert reply.has_error() and "memory of client 3: got none" in reply.error.reason


def test_a_method_of_a_plugin_is_known_to_a_node(tmp_path, monkeypatch):
    text = """
        from latte import register
        from latte.methods.ristretto.client import Ristretto
        class Mine(Ristretto): ...
        register("mine", "method_of_a_plugin:Mine")
    """
    (tmp_path / "method_of_a_plugin.py").write_text(dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "METHODS", dict(registry.METHODS))
    facts = ConfigRecord({**BenchmarkSettings(method="mine").facts(), "clients": [0], "starts": [0], "ends": [4]})
    grid = DirectGrid(make_client_app(plugins=["method_of_a_plugin"]), {1: {}})
    grid.push_messages([Message(RecordDict({"latte": facts}), 1, "query.walk")])
    (reply,) = grid.pull_messages(["1"])
    assert len(record_state(reply.content["latte.labels.0"])["labels"]) == 4


def test_private_clients_share_less():
    exact, _ = walked("latte")
    private, _ = walked("latte", privacy_mod(least_images=4, noise=0.3))
    assert any(not np.array_equal(a, b) for a, b in zip(exact.labels, private.labels, strict=True))
