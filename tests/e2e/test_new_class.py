"""A class joins while three device processes run: they follow, one that was off catches up, nothing is done twice."""

import re
from contextlib import ExitStack

import pytest

import devices
from devices import end, recorded, start_device, write_pictures
from latte.edge.joining import TASK_FILE
from latte.wire.task import read_task
from serving import server_process
from waiting import latte, wait_until

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow


def test_a_class_joins_while_devices_run(tmp_path):
    before, after, left = devices.make_task_file(tmp_path), tmp_path / "after.task", tmp_path / "left.task"
    said = latte("task", "add-class", before, after, "bird", "fish", "--encoder", devices.ENCODER, check=True).stdout
    assert "bird" in said and read_task(after).joined == ("bird", "fish")
    assert latte("task", "remove-class", after, left, "unicorn").returncode == 2
    latte("task", "remove-class", after, left, "fish", check=True)
    assert read_task(left).zero_shot.classnames == ("cat", "dog", "horse", "bird")

    names = ("one", "two", "three")
    states = {name: tmp_path / name for name in names}
    photos = {name: tmp_path / f"photos-{name}" for name in names}
    pictures = {name: write_pictures(photos[name], 9, first=100 * place) for place, name in enumerate(names)}

    def run(stack, name, server):
        folder, state = photos[name], states[name]
        return stack.enter_context(start_device(server, state, name, "--watch", folder, "--sync-seconds", 0.2))

    def has(name, count):
        wait_until(lambda: recorded(states[name]) >= count, f"{count} images of {name}")

    def follows(name, file):
        want = read_task(file).fingerprint
        wait_until(lambda: read_task(states[name] / TASK_FILE).fingerprint == want, f"the next version at {name}")

    with ExitStack() as stack:
        with server_process(before, tmp_path / "data") as (server, process):
            running = {name: run(stack, name, server) for name in names}
            for name in names:
                has(name, 9)
                wait_until(lambda name=name: devices.status(states[name])["synced"], f"a sync of {name}")
            end(running["three"])
            end(process)
        port = re.search(r":(\d+)", server.removeprefix("http://"))[1]
        with server_process(after, tmp_path / "data", "--port", port) as (server, process):
            for place, name in enumerate(names):
                pictures[name] += write_pictures(photos[name], 12, first=100 * place + 20)
            for name in ("one", "two"):
                has(name, 21)
                follows(name, after)
            end(process)
        with server_process(left, tmp_path / "data", "--port", port) as (server, process):
            run(stack, "three", server)  # two versions later
            for name in names:
                pictures[name] += write_pictures(photos[name], 3, first=100 * names.index(name) + 40)
                has(name, 24)
                follows(name, left)
    for name in names:
        answered = devices.results(states[name])
        assert sorted(line["file"] for line in answered) == sorted(map(str, pictures[name])), "each once"
        assert {line["label"] for line in answered[:9]} <= {"cat", "dog", "horse"}
