"""Devices for tests: with an encoder that takes embeddings as pictures, or as processes of ``latte edge``."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np

import tiny_onnx
from latte.edge.device.record import DEVICE_FILE, DeviceStatus, open_record, read_status
from latte.edge.joining import make_task
from latte.encoders import BadImageError
from latte.files.tensors import parse_safetensors
from latte.wire.task import Task
from small_tasks import a_task
from waiting import DEADLINE, Running, latte, running

CLASSES = "cat,dog,horse"
ENCODER = f"onnx:{tiny_onnx.FOLDER}"


class RowEncoder:
    """An encoder whose pictures are embeddings already; anything else is unreadable."""

    name, scale, fingerprint, preprocess = "rows", 10.0, "rows", None

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def images(self, images, batch_size=32, progress=None):
        if not all(isinstance(image, np.ndarray) for image in images):
            raise BadImageError("not a row")
        return np.stack(images).astype(np.float32)


def small_task(method: str = "latte", classes: int = 3, dim: int = 8, **params: object) -> Task:
    return make_task(a_task(classes, dim), method, params, period=2)


def rows(count: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    """Return unit rows (count, dim)."""
    made = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


# --- processes -------------------------------------------------------------------------------------------------


def make_task_file(folder: Path) -> Path:
    """Write a task of the small encoder; a device syncs after every four pictures."""
    path = folder / "federation.task"
    latte("task", "create", path, "--encoder", ENCODER, "--classes", CLASSES, "--period", 4, check=True)
    return path


def write_pictures(folder: Path, count: int, side: int = 40, first: int = 0) -> list[Path]:
    """Write noise around colours: all different, the oldest first, last changed long ago."""
    from PIL import Image

    folder.mkdir(exist_ok=True)
    paths = []
    for number in range(first, first + count):
        rng = np.random.default_rng(number)
        pixels = rng.normal(rng.integers(20, 230, 3), 40, (side, side, 3)).clip(0, 255).astype(np.uint8)
        path = folder / f"{number:05}.png"
        Image.fromarray(pixels).save(path, compress_level=1)
        os.utime(path, (1_700_000_000 + number,) * 2)
        paths.append(path)
    return paths


def edge_command(server: str, state: Path, name: str, *more: object) -> tuple[object, ...]:
    common = ("--server", server, "--state", state, "--name", name, "--encoder", ENCODER)
    return (sys.executable, "-m", "latte", "edge", *common, *more)


def start_device(server: str, state: Path, name: str, *more: object):
    """Run ``latte edge`` as a process while the block runs."""
    return running(*edge_command(server, state, name, *more))


def run_device(server: str, state: Path, name: str, *more: object, code: int = 0):
    """Run ``latte edge`` to its end, which must be a good one."""
    with start_device(server, state, name, *more) as process:
        done = process.finish()
        assert done.returncode == code and "Traceback" not in done.stderr, str(process)
        return done


def recorded(state: Path) -> int:
    """Return how many pictures a device has recorded."""
    path = state / DEVICE_FILE
    if not path.is_file():
        return 0
    try:
        with closing(sqlite3.connect(path, timeout=DEADLINE)) as database:
            return database.execute("SELECT count(*) FROM pictures").fetchone()[0]
    except sqlite3.OperationalError:  # the tables are not there yet
        return 0


def results(state: Path, *leave_out: str) -> list[dict[str, object]]:
    """Return the answers of a device, without the fields to leave out."""
    lines = map(json.loads, result_lines(state))
    return [{key: value for key, value in line.items() if key not in leave_out} for line in lines]


def result_lines(state: Path) -> list[str]:
    return latte("edge", "results", "--state", state, check=True).stdout.splitlines()


def status(state: Path) -> dict[str, object]:
    done = latte("edge", "status", "--state", state, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == (0 if document["well"] else 3), done
    return document


def said(state: Path) -> DeviceStatus:
    """Return what a device said of itself last: for waiting, without a process for every look."""
    with closing(open_record(state)) as database:
        return read_status(database)


def memory(state: Path, part: str = "") -> dict[str, bytes]:
    """Return the arrays of a device's snapshot whose names begin with ``part``; nothing may be left in the journal."""
    with closing(sqlite3.connect(state / DEVICE_FILE)) as database:
        assert database.execute("SELECT count(*) FROM embeddings").fetchone()[0] == 0
        content = b"".join(piece for (piece,) in database.execute("SELECT piece FROM snapshot ORDER BY place"))
    arrays = parse_safetensors(content, "snapshot").arrays
    return {name: array.tobytes() for name, array in arrays.items() if name.startswith(part)}


def end(process: Running) -> None:
    """Stop a device as a service manager does; it must end well."""
    process.process.terminate()
    done = process.finish()
    assert done.returncode == 0 and "Traceback" not in done.stderr, str(process)
