"""What the server of a fleet refuses, or finds damaged: one line in the log for each, and the others go on."""

import sqlite3
import time
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")

from devices import small_task
from flower_nodes import Node, complaints, nodes_of, steps, two_that_synced
from latte.edge.clients.calls import RefusedError
from latte.edge.clients.folder import ANSWER_FILE, OFFER_FILE


def test_a_node_of_another_task_is_refused_with_one_line_and_the_others_go_on(task, tmp_path, caplog, fleet_of):
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


def test_nan_is_refused_with_one_line_and_the_others_go_on(task, tmp_path, caplog, fleet_of):
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


def test_prototypes_of_another_class_are_refused_as_by_the_service(task, tmp_path, caplog, fleet_of):
    (node,) = nodes_of(task, tmp_path, 1)
    fleet = fleet_of(task, tmp_path, [node])
    upload = node.see(8, 1).method.summary()
    node.exchange.offer(replace(upload, vectors=-upload.vectors))
    steps(fleet)
    assert not fleet.hub.versions and len(complaints(caplog, "node 100", "bad_upload")) == 1


@pytest.mark.parametrize("file", [OFFER_FILE, ANSWER_FILE, "task.safetensors"])
def test_a_damaged_file_of_a_node_is_one_line_and_the_others_go_on(file, task, tmp_path, caplog, fleet_of):
    (good, bad), fleet = two_that_synced(task, tmp_path, fleet_of)
    path = bad.folder.path / file
    path.write_bytes(path.read_bytes()[:-7] + b"damaged")
    caplog.clear()
    good.see(4, 5).offer()
    steps(fleet, 6)
    assert fleet.hub.versions == {"100": 2, "101": 1}
    if file == ANSWER_FILE:  # the node says so, and gets the answer again
        assert len(complaints(caplog, file)) == 1 and not complaints(caplog, "node 101")
    else:
        assert len(complaints(caplog, file, "node 101")) == len(complaints(caplog, "node 101")) == 1
    if file != "task.safetensors":  # the next one replaces it
        bad.see(4, 6).offer()
        steps(fleet)
        assert fleet.hub.versions["101"] >= 2 or bad.folder.answer().code == "stale_version"


def test_a_damaged_upload_in_the_store_is_one_line_and_comes_again(task, tmp_path, caplog, fleet_of):
    nodes, fleet = two_that_synced(task, tmp_path, fleet_of)
    fleet.hub.store.close()
    with sqlite3.connect(tmp_path / "exchange" / "clients.db") as database:
        database.execute("UPDATE clients SET body = x'00' WHERE name = ?", [b"101"])
    again = fleet_of(task, tmp_path, nodes)
    assert set(again.hub.versions) == {"100"} and len(complaints(caplog, "'101'")) == 1
    steps(again)
    assert again.hub.versions == {"100": 1, "101": 1}


def test_garbage_instead_of_a_reply_is_one_line(task, tmp_path, caplog, fleet_of):
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


def test_a_node_with_a_problem_is_not_asked_all_the_time(task, tmp_path, monkeypatch, fleet_of):
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
