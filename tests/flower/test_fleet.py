"""A fleet without a network: the loop of the server and the app of the nodes, message by message."""

import logging
import time

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")

from devices import small_task
from flower_nodes import METHODS, Node, nodes_of, steps, two_that_synced
from latte.edge.clients.calls import UnreachableError
from latte.edge.clients.folder import ANSWER_FILE, OFFER_FILE, FolderExchange
from latte.wire.messages import DeviceReport


@pytest.mark.parametrize("method", METHODS)
def test_a_node_gets_the_task_and_what_others_learnt(method, tmp_path, fleet_of):
    task = small_task(method)
    nodes = nodes_of(task, tmp_path, 3)
    fleet = fleet_of(task, tmp_path, nodes)
    fleet.step()
    assert all(node.folder.task().fingerprint == task.fingerprint for node in nodes)
    for seed, node in enumerate(nodes):
        node.see(6, seed).offer()
    steps(fleet)
    assert set(fleet.hub.versions) == {"100", "101", "102"}
    for node, expected in zip(nodes, fleet.hub.exchange.pull_many(["100", "101", "102"]), strict=True):
        got = node.download()
        for name in got.__dataclass_fields__:
            assert np.array_equal(getattr(got, name), getattr(expected, name)), name
        node.method.receive(got)


@pytest.mark.parametrize("report", [DeviceReport(images=5, agreement=0.5), DeviceReport(labelled=4, gained=2, lost=1)])
def test_a_report_comes_as_it_was_sent(report):
    from latte.flower.records import NodeReply, read_reply, reply_content

    assert read_reply(reply_content(NodeReply("task", report=report))).report == report


def test_an_upload_that_comes_twice_counts_once(task, tmp_path, fleet_of):
    (node,) = nodes = nodes_of(task, tmp_path, 1)
    fleet = fleet_of(task, tmp_path, nodes)
    node.see(4, 0).offer()
    steps(fleet)
    (node.folder.path / ANSWER_FILE).unlink()  # the answer is lost
    steps(fleet)
    assert node.folder.answer().version == 1 and fleet.hub.versions == {"100": 1}


def test_a_lost_query_is_asked_again(task, tmp_path, monkeypatch, fleet_of):
    nodes = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, nodes)
    fleet.step()
    fleet.grid.dead.add(100)
    fleet.step()
    nodes[0].see(4, 0).offer()
    nodes[1].see(4, 1).offer()
    steps(fleet)
    assert set(fleet.hub.versions) == {"101"}
    fleet.grid.dead.clear()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
    steps(fleet)
    assert set(fleet.hub.versions) == {"100", "101"}


def test_a_run_begins_with_what_an_earlier_one_stored(task, tmp_path, fleet_of):
    nodes, fleet = two_that_synced(task, tmp_path, fleet_of)
    fleet.hub.store.close()
    again = fleet_of(task, tmp_path, nodes)
    assert again.hub.versions == {"100": 1, "101": 1}
    nodes[0].see(4, 7).offer()
    steps(again)
    assert again.hub.versions == {"100": 2, "101": 1}
    assert nodes[0].download().valid.any()


def test_a_server_that_lost_everything_gets_it_again(task, tmp_path, fleet_of):
    nodes, fleet = two_that_synced(task, tmp_path, fleet_of)
    fleet.hub.store.close()
    (tmp_path / "exchange" / "clients.db").write_bytes(b"no database" * 1000)
    for ending in ("-wal", "-shm"):
        (tmp_path / "exchange" / f"clients.db{ending}").unlink(missing_ok=True)
    again = fleet_of(task, tmp_path, nodes)
    assert not again.hub.versions
    steps(again)
    assert again.hub.versions == {"100": 1, "101": 1}


def test_a_node_that_left_long_ago_is_forgotten_and_may_come_back(task, tmp_path, fleet_of, caplog):
    caplog.set_level(logging.INFO, "flwr.latte")
    _, fleet = two_that_synced(task, tmp_path, fleet_of, stale_hours=1.0)
    fleet.grid.away.add(100)
    steps(fleet)
    assert set(fleet.hub.versions) == {"100", "101"}  # it has just left
    assert "node 100 has left; version 1 of its uploads is stored, 0.0 hours old" in caplog.messages
    for client in fleet.hub.updated:
        fleet.hub.updated[client] -= 2 * 3600
    steps(fleet)
    assert set(fleet.hub.versions) == {"101"}  # which is old, and there
    fleet.grid.away.clear()
    steps(fleet)
    assert fleet.hub.versions == {"100": 1, "101": 1}


def test_a_device_without_a_node_says_so(task, tmp_path):
    node = Node(1, task, tmp_path / "alone").see(2, 0)
    with pytest.raises(UnreachableError, match="is the SuperNode running"):
        node.exchange.push_pull(node.method.summary())


def test_versions_go_on_after_a_restart_and_after_a_lost_folder(task, tmp_path, fleet_of):
    (node,) = nodes = nodes_of(task, tmp_path, 1)
    fleet = fleet_of(task, tmp_path, nodes)
    for turn in range(3):
        assert node.see(2, turn).offer() == turn + 1
        steps(fleet)
    assert FolderExchange(node.folder, task).offer(node.method.summary()) == 4
    steps(fleet)
    for name in (OFFER_FILE, ANSWER_FILE):
        (node.folder.path / name).unlink()
    lost = FolderExchange(node.folder, task, patience=30.0)
    assert fleet.hub.versions == {"100": 4}
    assert lost.offer(node.method.summary()) == 1
    steps(fleet)
    # the server says in its query which version it has, so that nothing older is sent
    assert fleet.hub.versions == {"100": 4}
