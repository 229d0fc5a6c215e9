"""The short programs in examples/: what they print, with a small model and a real server."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import devices
from colours import NAMES
from latte import ZeroShot, load_encoder
from latte.edge.joining import identify, make_task
from latte.encoders import zero_shot
from serving import serving

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, changes, **names):
    code = (EXAMPLES / name).read_text()
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, str(new))
    exec(compile(code, name, "exec"), names)


def test_pictures_to_labels_in_three_lines(tmp_path, capsys):
    picture = devices.write_pictures(tmp_path, 1)[0]
    run("classify.py", {"onnx:clip-b16": devices.ENCODER, "photo.jpg": picture})
    assert capsys.readouterr().out in ("cat\n", "dog\n")


def test_a_device_in_five_lines(tmp_path, monkeypatch):
    monkeypatch.setenv("LATTE_STATE", str(tmp_path / "state"))
    pictures, printed = devices.write_pictures(tmp_path / "photos", 5), []

    def show(file, label):
        printed.append(file)
        if len(printed) == 5:
            raise KeyboardInterrupt  # as Ctrl-C

    encoder = load_encoder(devices.ENCODER)
    task = make_task(zero_shot(encoder, ["cat", "dog"]), encoder=identify(encoder))
    with serving(task, tmp_path / "data") as server, pytest.raises(KeyboardInterrupt):
        changes = {"http://127.0.0.1:8420": server.address, '"photos"': repr(str(tmp_path / "photos"))}
        run("device.py", {**changes, "onnx:clip-b16": devices.ENCODER}, print=show)
    assert printed == [str(path) for path in pictures]
    said = devices.said(tmp_path / "state")
    assert (said.name, said.sync_images, said.sync_problem) == ("camera-7", 5, "")  # shared at the end


def test_a_program_with_an_encoder_of_its_own(tmp_path, capsys, monkeypatch):
    paths = []
    for i, colour in enumerate([(250, 10, 20), (10, 240, 30), (0, 20, 200), (200, 30, 90), (90, 180, 40)]):
        paths.append(str(tmp_path / f"{i}.png"))
        Image.new("RGB", (8, 8), colour).save(paths[-1])
    task = make_task(ZeroShot(np.eye(3), NAMES, 10.0), "ristretto", period=2)
    with serving(task, tmp_path / "data") as server:
        monkeypatch.setattr(sys, "argv", ["own_client.py", server.address, "camera-8", *paths])
        runpy.run_path(str(EXAMPLES / "own_client.py"))
        assert server.service.hub.exchange.clients == ("camera-8",)
    shown = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["red", "green", "blue", "red", "green"]
    assert len((EXAMPLES / "own_client.py").read_text().splitlines()) <= 25
