"""A fleet without a network: the loop of the server and the app of the nodes, message by message."""

import logging
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")

from devices import rows, small_task
from latte.coordination.upload_check import mended_hub
from latte.core.privacy import Privacy
from latte.data.bundled import bundled
from latte.edge.exchange_folder import ANSWER_FILE, OFFER_FILE, ExchangeFolder, Hidden
from latte.edge.folder_exchange import FolderExchange
from latte.edge.http_calls import RefusedError, UnreachableError
from latte.edge.joining import new_member
from latte.flower.barrier import Barrier
from latte.flower.client_app import make_client_app
from latte.flower.direct_grid import DirectGrid
from latte.flower.fleet import Fleet
from latte.flower.mods import precision_mod, privacy_mod
from latte.flower.settings import BenchmarkSettings, FleetSettings
from latte.simulation.readable import run_readable
from latte.simulation.schedule import Schedule

METHODS = ("latte", "ristretto")


class Node:
    """A node with a device: a method, and the folder in which it meets the app."""

    def __init__(self, number, task, folder, **options):
        self.number, self.folder, self.task = number, ExchangeFolder(folder).make(), task
        self.method = new_member(task)
        self.exchange = FolderExchange(self.folder, task, patience=0.0, **options)

    def see(self, count, seed):
        for row in rows(count, self.task.zero_shot.dim, seed):
            self.method.predict(row[None])
        return self

    def offer(self):
        return self.exchange.offer(self.method.summary())

    def download(self):
        return self.exchange.download_of(self.folder.answer())


@pytest.fixture
def task():
    return small_task()


def fleet_of(task, tmp_path, nodes, mods=(), **settings):
    options = FleetSettings(tmp_path / "task", tmp_path / "exchange", **{"park_seconds": 0.0, **settings})
    grid = DirectGrid(make_client_app(mods), {node.number: {"state-dir": str(node.folder.path)} for node in nodes})
    return Fleet(grid, mended_hub(task, tmp_path / "exchange"), options)


def nodes_of(task, tmp_path, count, **options):
    return [Node(100 + i, task, tmp_path / f"node{i}", **options) for i in range(count)]


def steps(fleet, count=3):
    for _ in range(count):
        fleet.step()


@pytest.mark.parametrize("method", METHODS)
def test_a_node_gets_the_task_and_what_others_learnt(method, tmp_path):
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


def test_an_upload_that_comes_twice_counts_once(task, tmp_path):
    (node,) = nodes = nodes_of(task, tmp_path, 1)
    fleet = fleet_of(task, tmp_path, nodes)
    node.see(4, 0).offer()
    steps(fleet)
    (node.folder.path / ANSWER_FILE).unlink()  # the answer is lost
    steps(fleet)
    assert node.folder.answer().version == 1 and fleet.hub.versions == {"100": 1}


def test_a_lost_query_is_asked_again(task, tmp_path, monkeypatch):
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


def test_a_run_begins_with_what_an_earlier_one_stored(task, tmp_path):
    nodes = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, nodes)
    for seed, node in enumerate(nodes):
        node.see(4, seed).offer()
    steps(fleet)
    fleet.hub.store.close()
    again = fleet_of(task, tmp_path, nodes)
    assert again.hub.versions == {"100": 1, "101": 1}
    nodes[0].see(4, 7).offer()
    steps(again)
    assert again.hub.versions == {"100": 2, "101": 1}
    assert nodes[0].download().valid.any()


def test_a_server_that_lost_everything_gets_it_again(task, tmp_path):
    nodes = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, nodes)
    for seed, node in enumerate(nodes):
        node.see(4, seed).offer()
    steps(fleet)
    fleet.hub.store.close()
    (tmp_path / "exchange" / "clients.db").write_bytes(b"no database" * 1000)
    for ending in ("-wal", "-shm"):
        (tmp_path / "exchange" / f"clients.db{ending}").unlink(missing_ok=True)
    again = fleet_of(task, tmp_path, nodes)
    assert not again.hub.versions
    steps(again)
    assert again.hub.versions == {"100": 1, "101": 1}


def test_a_node_that_left_long_ago_is_forgotten_and_may_come_back(task, tmp_path):
    nodes = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, nodes, stale_hours=1.0)
    for seed, node in enumerate(nodes):
        node.see(4, seed).offer()
    steps(fleet)
    fleet.grid.away.add(100)
    steps(fleet)
    assert set(fleet.hub.versions) == {"100", "101"}  # it has just left
    for client in fleet.hub.updated:
        fleet.hub.updated[client] -= 2 * 3600
    steps(fleet)
    assert set(fleet.hub.versions) == {"101"}  # which is old, and there
    fleet.grid.away.clear()
    steps(fleet)
    assert fleet.hub.versions == {"100": 1, "101": 1}


# --- what is refused --------------------------------------------------------------------------------------------------


def complaints(caplog, *words):
    return [
        r.getMessage()
        for r in caplog.records
        if r.levelno >= logging.WARNING and all(w in r.getMessage() for w in words)
    ]


def test_a_node_of_another_task_is_refused_with_one_line_and_the_others_go_on(task, tmp_path, caplog):
    good, bad = nodes_of(task, tmp_path, 1)[0], Node(666, small_task(classes=4), tmp_path / "other")
    bad.folder.put_task(bad.task)
    fleet = fleet_of(task, tmp_path, [good, bad])
    good.see(4, 0).offer()
    bad.see(4, 1).offer()
    steps(fleet, 6)
    (line,) = complaints(caplog, "node 666")
    assert "other_task" in line and "class names" in line
    assert set(fleet.hub.versions) == {"100"}
    with pytest.raises(RefusedError, match="class names"):
        bad.download()


def test_nan_is_refused_with_one_line_and_the_others_go_on(task, tmp_path, caplog):
    good, bad = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, [good, bad])
    good.see(4, 0).offer()
    upload = bad.see(4, 1).method.summary()
    bad.exchange.offer(replace(upload, vectors=np.full_like(upload.vectors, np.nan)))
    steps(fleet, 6)
    (line,) = complaints(caplog, "node 101")
    assert "bad_upload" in line and "upload.vectors" in line
    assert set(fleet.hub.versions) == {"100"}
    with pytest.raises(RefusedError, match="bad_upload"):
        bad.download()
    bad.offer()  # a good one
    steps(fleet)
    assert set(fleet.hub.versions) == {"100", "101"}


def test_prototypes_of_another_class_are_refused_as_by_the_service(task, tmp_path, caplog):
    (node,) = nodes_of(task, tmp_path, 1)
    fleet = fleet_of(task, tmp_path, [node])
    upload = node.see(8, 1).method.summary()
    node.exchange.offer(replace(upload, vectors=-upload.vectors))
    steps(fleet)
    assert not fleet.hub.versions and len(complaints(caplog, "node 100", "bad_upload")) == 1


@pytest.mark.parametrize("file", [OFFER_FILE, ANSWER_FILE, "task.safetensors"])
def test_a_damaged_file_of_a_node_is_one_line_and_the_others_go_on(file, task, tmp_path, caplog):
    good, bad = nodes = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, nodes)
    for seed, node in enumerate(nodes):
        node.see(4, seed).offer()
    steps(fleet)
    path = bad.folder.path / file
    path.write_bytes(path.read_bytes()[:-7] + b"damaged")
    caplog.clear()
    good.see(4, 5).offer()
    steps(fleet, 6)
    assert fleet.hub.versions == {"100": 2, "101": 1}
    said = complaints(caplog, file)
    assert said and len(complaints(caplog, "node 101")) == (0 if file == ANSWER_FILE else 1)
    if file != "task.safetensors":  # the next one replaces it
        bad.see(4, 6).offer()
        steps(fleet)
        assert fleet.hub.versions["101"] >= 2 or bad.folder.answer().code == "stale_version"


def test_a_damaged_upload_in_the_store_is_one_line_and_comes_again(task, tmp_path, caplog):
    import sqlite3

    nodes = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, nodes)
    for seed, node in enumerate(nodes):
        node.see(4, seed).offer()
    steps(fleet)
    fleet.hub.store.close()
    with sqlite3.connect(tmp_path / "exchange" / "clients.db") as database:
        database.execute("UPDATE clients SET body = x'00' WHERE name = ?", [b"101"])
    again = fleet_of(task, tmp_path, nodes)
    assert set(again.hub.versions) == {"100"} and len(complaints(caplog, "'101'")) == 1
    steps(again)
    assert again.hub.versions == {"100": 1, "101": 1}


def test_garbage_instead_of_a_reply_is_one_line(task, tmp_path, caplog):
    from flwr.app import ConfigRecord

    def garbage(message, context, call_next):
        reply = call_next(message, context)
        if context.node_id == 101:
            reply.content.clear()
            reply.content["latte"] = ConfigRecord({"task": 7})
        return reply

    nodes = nodes_of(task, tmp_path, 2)
    fleet = fleet_of(task, tmp_path, nodes, mods=[garbage])
    nodes[0].see(4, 0).offer()
    steps(fleet, 5)
    (line,) = complaints(caplog, "node 101")
    assert "bad_message" in line and set(fleet.hub.versions) == {"100"}


# --- mods --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_int8_is_smaller_and_accepted(method, tmp_path):
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


def test_an_upload_that_hides_too_little_does_not_leave_the_node(task, tmp_path, caplog):
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


# --- the device's side --------------------------------------------------------------------------------------


def test_a_device_without_a_node_says_so(task, tmp_path):
    node = Node(1, task, tmp_path / "alone").see(2, 0)
    with pytest.raises(UnreachableError, match="is the SuperNode running"):
        node.exchange.push_pull(node.method.summary())


def test_versions_go_on_after_a_restart_and_after_a_lost_folder(task, tmp_path):
    (node,) = nodes = nodes_of(task, tmp_path, 1)
    fleet = fleet_of(task, tmp_path, nodes)
    for turn in range(3):
        assert node.see(2, turn).offer() == turn + 1
        steps(fleet)
    assert FolderExchange(node.folder, task).offer(node.method.summary()) == 4
    steps(fleet)
    for name in (OFFER_FILE, ANSWER_FILE):
        Path(node.folder.path / name).unlink()
    lost = FolderExchange(node.folder, task, patience=30.0)
    assert fleet.hub.versions == {"100": 4}
    assert lost.offer(node.method.summary()) == 1
    steps(fleet)
    # the server says in its query which version it has, so that nothing older is sent
    assert fleet.hub.versions == {"100": 4}


# --- a benchmark in step ------------------------------------------------------------------------------------


def walked(method, mods, clients=38):
    settings = BenchmarkSettings(method=method, sync="doubling", parameters='{"k_e": 2}' if method == "latte" else "")
    grid = DirectGrid(make_client_app(mods), {node: {"partition-id": node - 1} for node in range(1, clients + 1)})
    return Barrier(grid, settings).run(), grid.sent


@pytest.mark.parametrize("method", METHODS)
def test_a_benchmark_gives_the_labels_of_the_simulator_and_almost_with_int8(method):
    params = {"k_e": 2} if method == "latte" else None
    expected = run_readable(bundled(), method, params, Schedule(sync="doubling"))
    exact, sent = walked(method, ())
    rounded, less = walked(method, [precision_mod("int8")])
    assert all(np.array_equal(a, b) for a, b in zip(exact.labels, expected.labels, strict=True))
    same = np.concatenate(exact.labels) == np.concatenate(rounded.labels)
    assert same.mean() > 0.99 and less < 0.5 * sent


def test_private_clients_share_less():
    exact, _ = walked("latte", ())
    private, _ = walked("latte", [privacy_mod(least_images=4, noise=0.3)])
    assert any(not np.array_equal(a, b) for a, b in zip(exact.labels, private.labels, strict=True))


def test_a_node_with_a_problem_is_not_asked_all_the_time(task, tmp_path, monkeypatch):
    (bad,) = nodes = nodes_of(task, tmp_path, 1)
    fleet = fleet_of(task, tmp_path, nodes, park_seconds=20.0)
    (bad.folder.path / OFFER_FILE).write_bytes(b"damaged")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    steps(fleet, 6)
    assert fleet.grid.replies == 1
    monkeypatch.setattr(time, "monotonic", lambda: now + 21)
    steps(fleet, 1)
    assert fleet.grid.replies == 2
