"""A device from one import: watched folder, files, frames; its status, its record, and a server that is away."""

import logging
import os
import time
from pathlib import Path

import numpy as np
import pytest

import devices
from colours import NAMES, colours, frames
from devices import ENCODER, write_pictures
from latte import Device, InputError, LatestFrames, Membership, Privacy, ZeroShot, load_encoder
from latte.edge.joining import identify, make_task
from latte.encoders import zero_shot
from serving import serving
from waiting import wait_until


@pytest.fixture
def server(tmp_path):
    encoder = load_encoder(ENCODER)
    task = make_task(zero_shot(encoder, ["cat", "dog", "horse"]), period=4, encoder=identify(encoder))
    with serving(task, tmp_path / "data") as running:
        yield running


def open_device(server, tmp_path, name="cam", **more):
    return Device(server.address, **{"encoder": ENCODER, "name": name, "state": tmp_path / name, **more})


def test_files_are_answered_once_and_recorded(server, tmp_path):
    pictures = write_pictures(tmp_path / "in", 6)
    with open_device(server, tmp_path) as device:
        answers = list(device.classify(tmp_path / "in"))
        assert [answer.file for answer in answers] == [str(path) for path in pictures]
        assert (device.status.name, device.status.server, device.name) == ("cam", server.address, "cam")
        assert device.task.zero_shot.classnames == ("cat", "dog", "horse") and "name='cam'" in repr(device)
        wait_until(lambda: device.status.synced, "a sync")
    with open_device(server, tmp_path) as device:  # the name is that of the record, the task too
        assert list(device.classify(*pictures)) == []
        assert device.answer(pictures[0]).file == str(pictures[0])
    with pytest.raises(InputError, match="cam, which was closed"):
        device.answer(pictures[0])
    assert len(devices.results(tmp_path / "cam")) == 7
    assert server.service.hub.exchange.clients == ("cam",)


def test_a_folder_is_watched_until_the_caller_ends(server, tmp_path):
    write_pictures(tmp_path / "in", 3)
    with open_device(server, tmp_path) as device:
        watched = device.watch(tmp_path / "in")
        first = [next(watched).file for _ in range(3)]
        write_pictures(tmp_path / "in", 1, first=3)
        assert [Path(name).name for name in (*first, next(watched).file)] == [f"{i:05}.png" for i in range(4)]
        with pytest.raises(InputError, match="which is not there"):
            device.watch(tmp_path / "none")
    assert devices.recorded(tmp_path / "cam") == 4


def test_frames_and_a_function_for_an_encoder(tmp_path):
    task = make_task(ZeroShot(np.eye(3), NAMES, 10.0), period=4)
    with serving(task, tmp_path / "data") as server:
        with open_device(server, tmp_path, encoder=colours) as device:
            answers = list(device.frames(LatestFrames(frames(20), room=20)))
            assert [answer.file for answer in answers] == [f"frame {i + 1}" for i in range(20)]
            assert all(answer.label in NAMES for answer in answers)
            assert device.answer(frames(1)[0]).file == "frame 21"
            wrong = next(name for name in NAMES if name != answers[3].label)
            before = device.method.state()
            device.correct(answers[3].file, wrong, frames(20)[3])
            assert devices.status(tmp_path / "cam")["labels"]["labelled"] == 1
            assert device.method.state().keys() > before.keys()  # the label was learnt
            device.withdraw(answers[3].file)
            assert devices.status(tmp_path / "cam")["labels"]["labelled"] == 0
            assert device.method.state().keys() == before.keys()
            with pytest.raises(InputError, match="file: got frame 99"):
                device.correct("frame 99", wrong, frames(1)[0])
            with pytest.raises(InputError, match="picture: got none"):
                device.correct(answers[4].file, wrong)
            with pytest.raises(InputError, match="label: got 'cat'"):
                device.correct(answers[3].file, "cat", frames(20)[3])
        one = devices.results(tmp_path / "cam", "time")
        assert len(one) == 21


def test_a_server_that_is_away_is_one_line_and_no_wait(server, tmp_path, caplog):
    pictures = write_pictures(tmp_path / "in", 12)
    open_device(server, tmp_path).close()
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    with Device("http://127.0.0.1:9", encoder=ENCODER, state=tmp_path / "cam") as device:  # nobody serves there
        assert len(list(device.classify(*pictures))) == 12
        wait_until(lambda: device.status.sync_problem, "the failure")
        assert next(device.frames([pictures[0]])).label  # it goes on
    said = [record.name for record in caplog.records if not record.name.startswith(("asyncio", "PIL"))]
    assert said == ["latte.sync"] and "connection refused" in caplog.text


def test_what_is_wrong_with_pictures_is_logged(server, tmp_path, caplog):
    folder = tmp_path / "in"
    write_pictures(folder, 1)
    with open_device(server, tmp_path) as device:
        watched = device.watch(folder)
        next(watched)
        (folder / "a.heic").write_bytes(b"")
        os.utime(folder / "a.heic", (1_700_000_000,) * 2)
        devices.write_pictures(folder, 1, first=1)
        next(watched)
        wait_until(lambda: "HEIC" in caplog.text or devices.write_pictures(folder, 1, first=2), "the notice")
    assert time.time() - device.status.updated < 60


def test_noise_is_drawn_once(server, tmp_path):
    private = Membership(server.address, name="cam", privacy=Privacy(noise=0.1))
    with Device(private, encoder=ENCODER, state=tmp_path / "cam") as device:
        list(device.classify(write_pictures(tmp_path / "in", 5)[0].parent))
        assert type(device.method).__name__ == "PrivateClient"
    before = devices.memory(tmp_path / "cam")
    with Device(private, encoder=ENCODER, state=tmp_path / "cam"):
        pass
    assert devices.memory(tmp_path / "cam") == before
