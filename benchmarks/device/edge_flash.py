"""Bytes that a device writes to its disk: per picture of a backlog, per picture that comes alone, per idle hour.

python benchmarks/device/edge_flash.py --model ../shared/data/mini-vlm

``latte edge --watch`` runs as a process of its own, in turns with a server that answers its syncs and with one that is
away. Its state is in a folder on a real disk (``--folder``; on a RAM disk the system counts nothing). The figures are
``write_bytes`` of /proc/PID/io, what the system has to write to the disk, and beside it the bytes that the process
handed to the system for its files (``wchar``). ``--source`` takes the package from another checkout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

CLASSES = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="an ONNX folder")
    parser.add_argument("--method", default="latte")
    parser.add_argument("--pictures", type=int, default=2000, help="of the backlog")
    parser.add_argument("--alone", type=int, default=10, help="pictures that come one by one")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="of the package")
    options = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(options.source.absolute()), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        latte = [sys.executable, "-m", "latte"]
        words = ["--encoder", f"onnx:{options.model.absolute()}", "--classes", CLASSES, "--method", options.method]
        subprocess.run([*latte, "task", "create", folder / "task", *words], env=environment, check=True, stdout=-3)
        for served in (True, False):
            measure(options, folder / ("served" if served else "away"), folder / "task", served, environment)


def measure(options: argparse.Namespace, folder: Path, task: Path, served: bool, environment: dict[str, str]) -> None:
    """Print what a device writes in its phases."""
    from serving import server_process

    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    with server_process(task, folder / "data", "--rate", 0) as (server, _):
        if not served:
            command = device(options, server, folder, "--from", "/dev/null")
            subprocess.run(command, env=environment, check=True, stderr=-3)
        else:
            phases(options, server, folder, pictures, environment)
    if not served:
        phases(options, server, folder, pictures, environment)
    shutil.rmtree(folder)


def device(options: argparse.Namespace, server: str, folder: Path, *more: object) -> list[str]:
    words = ["--server", server, "--state", folder / "state", "--name", "one", "--threads", 1, "--encoder"]
    words += [f"onnx:{options.model.absolute()}", *more]
    return [sys.executable, "-m", "latte", "edge", *map(str, words)]


def phases(options: argparse.Namespace, server: str, folder: Path, pictures: Path, environment: dict[str, str]) -> None:
    write_pictures(pictures, 0, options.pictures, time.time() - 3600)
    with running(device(options, server, folder, "--watch", pictures), environment, folder) as process:
        wait_for(lambda: lines(folder) >= 1, process)
        first, begin = lines(folder), written(process)
        wait_for(lambda: lines(folder) >= options.pictures, process)
        time.sleep(3)  # the last sync
        show(
            folder.name,
            f"backlog of {options.pictures}, per picture",
            begin,
            written(process),
            options.pictures - first,
        )
        begin = written(process)
        time.sleep(options.idle)
        show(folder.name, "idle, per hour", begin, written(process), options.idle / 3600)
        begin = written(process)
        for number in range(options.alone):
            write_pictures(pictures, options.pictures + number, 1, time.time())
            wait_for(lambda want=options.pictures + number + 1: lines(folder) >= want, process)
            time.sleep(1)
        time.sleep(3)
        show(folder.name, f"{options.alone} alone, per picture", begin, written(process), options.alone)


def write_pictures(folder: Path, first: int, count: int, when: float) -> None:
    """Write smooth noise as files of 160 x 120 pixels."""
    from PIL import Image

    for number in range(first, first + count):
        noise = np.random.default_rng(number).integers(0, 256, (12, 16, 3), np.uint8)
        hidden, path = folder / f".{number:06}.jpg", folder / f"IMG_{number:06}.jpg"
        Image.fromarray(noise).resize((160, 120)).save(hidden, quality=90)
        os.utime(hidden, (when + number / 1000,) * 2)
        hidden.rename(path)


@contextmanager
def running(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "lines").open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def lines(folder: Path) -> int:
    return (folder / "lines").read_bytes().count(b"\n")


def wait_for(condition, process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None, "the device has ended"
        time.sleep(0.05)


def written(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Return the bytes for the disk, and the bytes handed to the system."""
    about = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
    return int(about["write_bytes"]), int(about["wchar"])


def show(where: str, what: str, before: tuple[int, int], after: tuple[int, int], unit: float) -> None:
    disk, handed = ((late - early) / unit / 1000 for early, late in zip(before, after, strict=True))
    print(f"server {where:<7} {what:<32} {disk:9.2f} kB to the disk, {handed:9.2f} kB handed to the system", flush=True)


if __name__ == "__main__":
    main()
