"""What whoever runs devices gets to know: on stderr, from a health check, on the dashboard, from systemd."""

import os
import signal
import socket
import time
from contextlib import closing

import httpx2
import pytest
from click.testing import CliRunner

import devices
from devices import edge_command, end, recorded, said, start_device, status, write_pictures
from latte.cli.edge import edge
from latte.edge.device import report as device_summary
from serving import server_process
from waiting import latte, run, running, wait_until

pytest.importorskip("onnxruntime")


def fleet(server):
    return httpx2.get(f"{server}/v1/fleet").json()["fleet"]


@pytest.mark.slow
def test_labels_of_a_running_device_reach_the_dashboard_and_problems_reach_stderr(tmp_path):
    pictures, task = write_pictures(tmp_path / "in", 6), devices.make_task_file(tmp_path)
    state, classname = tmp_path / "a", "cat"
    with server_process(task, tmp_path / "data") as (server, first):
        port = server.rpartition(":")[2]
        with start_device(server, state, "a", "--watch", tmp_path / "in") as device:
            wait_until(lambda: recorded(state) == 6 and fleet(server)["sums"]["images"], "the first report", device)
            wait_until(lambda: status(state)["well"], "a device that is well", device)
            latte("edge", "label", pictures[0], classname, "--state", state, check=True)
            wait_until(lambda: fleet(server)["sums"]["labelled"] == 1, "the label on the dashboard", device)
            assert recorded(state) == 6, "without a new picture"
            first.process.terminate()
            first.finish()
            latte("edge", "label", pictures[1], classname, "--state", state, check=True)
            wait_until(lambda: said(state).sync_problem, "the problem in the status", device)
            away = latte("edge", "status", "--state", state)
            assert away.returncode == 3 and "connection refused" in away.stdout
            wait_until(lambda: "latte: sync: http" in device.so_far().stderr, "the problem on stderr", device)
            with server_process(task, tmp_path / "data", "--port", port) as (again, _):
                assert fleet(again)["sums"]["labelled"] >= 1, "reports survive the restart"
                wait_until(lambda: fleet(again)["sums"]["labelled"] == 2, "the next sync", device)
                wait_until(lambda: latte("edge", "status", "--state", state).returncode == 0, "all to be well", device)
                end(device)
                assert device.so_far().stderr.count("latte: sync: http") == 1, "rate-limited"
    ended = latte("edge", "status", "--state", state)
    assert ended.returncode == 3 and "not running" in ended.stdout


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux shows other processes a file in memory")
def test_a_device_that_hangs_is_not_well(tmp_path, monkeypatch):
    monkeypatch.setattr(device_summary, "HUNG_SECONDS", 1.0)
    write_pictures(tmp_path / "in", 2)
    task, state = devices.make_task_file(tmp_path), tmp_path / "a"

    def health():
        return CliRunner().invoke(edge, ["status", "--state", str(state)])

    with (
        server_process(task, tmp_path / "data") as (server, _),
        start_device(server, state, "a", "--watch", tmp_path / "in") as device,
    ):
        wait_until(lambda: recorded(state) == 2 and health().exit_code == 0, "a device that is well", device)
        assert status(state)["silent"] < 60
        device.process.send_signal(signal.SIGSTOP)
        hung = wait_until(lambda: (now := health()).exit_code == 3 and now.output, "the health check", device)
        assert "hung, pid" in hung and "problem: it has done nothing for " in hung
        assert not status(state)["problem"] and recorded(state) == 2
        device.process.send_signal(signal.SIGCONT)
        wait_until(lambda: health().exit_code == 0, "its next sign of life", device)
        end(device)
    assert status(state)["silent"] is None


@pytest.mark.slow
def test_a_second_device_is_refused_even_if_the_lock_file_was_removed(tmp_path):
    pictures, task, state = write_pictures(tmp_path / "in", 3), devices.make_task_file(tmp_path), tmp_path / "a"
    with server_process(task, tmp_path / "data") as (server, _):
        with start_device(server, state, "a", "--watch", tmp_path / "in") as device:
            wait_until(lambda: recorded(state) == 3, "the pictures", device)
            (state / "device.db.lock").unlink()
            second = run(*edge_command(server, state, "a", *write_pictures(tmp_path / "more", 2, first=7)))
            assert second.returncode == 2 and "another process at work" in second.stderr, second.stderr
            assert status(state)["running"]
            write_pictures(tmp_path / "in", 1, first=3)
            wait_until(lambda: recorded(state) == 4, "the next picture", device)
            end(device)
        assert not status(state)["running"] and len(pictures) == 3
        devices.run_device(server, state, "a", *pictures)


def test_a_label_of_a_file_that_does_not_exist(tmp_path):
    pictures, task = write_pictures(tmp_path / "in", 2), devices.make_task_file(tmp_path)
    state = tmp_path / "a"
    with server_process(task, tmp_path / "data") as (server, _):
        devices.run_device(server, state, "a", *pictures)
    bad = latte("edge", "label", tmp_path / "in" / "typo.png", "cat", "--state", state)
    assert bad.returncode == 2 and "typo.png: no such file, and no image of this name was classified" in bad.stderr
    pictures[0].unlink()  # it was classified: its label still says something
    latte("edge", "label", pictures[0], "cat", "--state", state, check=True)
    table = tmp_path / "labels.csv"
    table.write_text("file,label\nin/00001.png,dog\nin/typo.png,cat\nin/other.png,cat\n")
    several = latte("edge", "label", "--labels", table, "--state", state, check=True)
    assert "do not exist and were not classified" in several.stderr and "typo.png, and 1 more" in several.stderr
    assert status(state)["labels"]["labelled"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_that_the_device_is_ready_works_and_stops(tmp_path, abstract):
    task = devices.make_task_file(tmp_path)
    (tmp_path / "in").mkdir()
    name = f"\0latte-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(name)
        manager.settimeout(60)
        told = []

        def hear():
            told.append(manager.recv(4096).decode())
            return told[-1]

        with server_process(task, tmp_path / "data") as (server, _):
            command = edge_command(server, tmp_path / "a", "a", "--watch", tmp_path / "in")
            shown = {"NOTIFY_SOCKET": name.replace("\0", "@"), "WATCHDOG_USEC": "1000000"}
            with running(*command, **shown) as device:
                assert hear() == "READY=1"
                began = time.monotonic()
                while told.count("WATCHDOG=1") < 5:
                    assert hear().startswith(("WATCHDOG=1", "STATUS="))
                assert 1.0 < time.monotonic() - began < 30, "twice as often as it has to be"
                assert any(text.startswith("STATUS=0 images") for text in told)
                end(device)
        while hear() != "STOPPING=1":
            pass


def test_a_token_in_plain_text_is_warned_about(tmp_path):
    (tmp_path / "token").write_text("latte_x\n")
    for server, warned in (("http://latte.invalid:8420", True), ("http://127.0.0.1:1", False)):
        command = edge_command(server, tmp_path / "a", "a", "--token-file", tmp_path / "token", "--from", "-")
        done = run(*command)
        assert done.returncode == 1 and ("warning: the token goes to http" in done.stderr) == warned, done.stderr
        assert "latte_x" not in done.stderr
