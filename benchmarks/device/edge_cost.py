"""What a device costs beside its bare encoder: processor and wall time per picture, alone and syncing, and memory.

python benchmarks/device/edge_cost.py --model ../shared/data/mini-vlm

The bare encoder is a loop without Latte's device: open a JPEG file, decode, preprocess, run the model, one picture
after the other, with the same functions and settings (one thread of ONNX Runtime) in the same process. A device does
that and all the rest, as `latte edge FILES` does: it looks for files, decodes ahead in a thread, predicts and learns,
records every picture on disk before its answer, writes the answer as JSON, and syncs with a server in another process
on which other clients have left what they learnt: after every 16 pictures, and at most once per second, as is the
default (``--pause 0``: after every 16, however fast). The ways take turns of 64 pictures on one core: two threads on
two halves of a core would slow each other. A turn takes less than a second, and the others' turns make the pause longer
than that: so every turn has a sync, and ends when it has been answered. Processor time is that of all threads.

Then the same for frames that the model takes as they are: the time of the thread that classifies, beside the model
alone. Then a syncing device classifies many pictures, and the memory of the process is printed on the way.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

import numpy as np

from latte.edge.clients.http import HttpExchange
from latte.edge.device.device import DeviceLoop
from latte.edge.device.feeds import NamedFiles, PictureFeed
from latte.edge.device.record import DeviceRecord
from latte.edge.device.syncing import SYNC_PAUSE, SyncTimes
from latte.edge.joining import Membership, identify, link_to, make_task, new_member
from latte.encoders import Encoder, load_encoder, open_picture, zero_shot
from latte.wire.task import Task, write_task
from serving import server_process

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
PERIOD = 16  # pictures from one sync to the next
BLOCK = 4 * PERIOD  # pictures of a turn; for the last of its syncs, a turn waits
DONORS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="an ONNX folder")
    parser.add_argument("--method", default="latte")
    parser.add_argument("--pictures", type=int, default=1920, help="for the times")
    parser.add_argument("--images", type=int, default=10_000, help="for the memory of the process; 0: leave it out")
    parser.add_argument("--pause", type=float, default=SYNC_PAUSE, help="least seconds between two syncs")
    options = parser.parse_args()
    encoder = load_encoder(f"onnx:{options.model}", threads=1)
    task = make_task(zero_shot(encoder, CLASSES), options.method, encoder=identify(encoder), period=PERIOD)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_task(folder / "task", task)
        with server_process(folder / "task", folder / "data", "--rate", 0) as (server, _):
            donate(server, task, encoder)
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            times = SyncTimes("every", PERIOD, 0, options.pause)
            alone = open_device(encoder, task, folder / "alone", None, times)
            syncing = open_device(encoder, task, folder / "syncing", server, times)
            compare_programs(encoder, alone, syncing, jpegs(folder, options.pictures))
            compare_frames(encoder, alone, syncing, pictures(encoder, options.pictures))
            watch_memory(syncing, options.images)
            state = syncing.current_status()
            print(f"the last sync was after {state.sync_images} of {syncing.tally.answered} pictures")
            syncing.close()


def open_device(encoder: Encoder, task: Task, folder: Path, server: str | None, times: SyncTimes) -> DeviceLoop:
    link = link_to(Membership(server), task, folder.name) if server else None
    record = DeviceRecord(folder, task.fingerprint)
    return DeviceLoop(encoder, task, new_member(task), record, link, times)


def donate(server: str, task: Task, encoder: Encoder) -> None:
    """Let other clients upload what they learnt, so that every download brings something."""
    rows = encoder.images(pictures(encoder, 60))
    with HttpExchange(server, task) as exchange:
        for number in range(DONORS):
            donor = new_member(task)
            for row in rows[number :: DONORS // 2]:
                donor.predict(row[None])
            exchange.push(f"donor {number}", donor.summary())


def pictures(encoder: Encoder, count: int) -> list[np.ndarray]:
    """Return what the encoder takes: smooth noise, preprocessed."""
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (count, 12, 12, 3), np.uint8)
    return [encoder.preprocess(Image.fromarray(one).resize((256, 256))) for one in noise]


def jpegs(folder: Path, count: int) -> list[Path]:
    """Write smooth noise as files of 640 x 480 pixels, about 50 kB."""
    from PIL import Image

    rng, paths = np.random.default_rng(0), []
    for number in range(count):
        paths.append(folder / f"{number}.jpg")
        noise = Image.fromarray(rng.integers(0, 256, (48, 64, 3), np.uint8))
        noise.resize((640, 480)).save(paths[-1], quality=90)
    return paths


# --- the whole program -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Seconds per picture of a turn."""

    processor: float
    wall: float


def compare_programs(encoder: Encoder, alone: DeviceLoop, syncing: DeviceLoop, paths: list[Path]) -> None:
    """Print what a picture costs from file to line of JSON, beside the bare encoder from file to embedding."""
    ways: dict[str, Callable[[list[Path]], None]] = {
        "bare encoder": lambda block: run_bare(encoder, block),
        "device": program(alone),
        "device, syncing": program(syncing),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for start in range(0, len(paths), BLOCK):
        for name, way in ways.items():
            costs[name].append(cost_of(way, paths[start : start + BLOCK]))
    print("the program, from a JPEG file of 640 x 480 pixels to the recorded answer, all threads:")
    show("processor", {name: [cost.processor for cost in several[1:]] for name, several in costs.items()})
    show("wall", {name: [cost.wall for cost in several[1:]] for name, several in costs.items()})


def cost_of(way: Callable[[list[Path]], None], block: list[Path]) -> Cost:
    processor, wall = time.process_time(), time.perf_counter()
    way(block)
    return Cost((time.process_time() - processor) / len(block), (time.perf_counter() - wall) / len(block))


def run_bare(encoder: Encoder, paths: list[Path]) -> None:
    for path in paths:
        encoder.images([encoder.preprocess(open_picture(path))])


def program(device: DeviceLoop) -> Callable[[list[Path]], None]:
    """Return a function that does with files what ``latte edge FILES`` does."""
    is_done = device.record.is_done

    def run(paths: list[Path]) -> None:
        feed = PictureFeed(NamedFiles(paths, is_done), lambda path: device.encoder.preprocess(open_picture(path)))
        with Path(os.devnull).open("w") as out:
            for answer in device.answers(feed):
                if answer is not None:
                    print(answer.line(), file=out)
        if device.link is not None:
            device.link.drain(60)  # its syncs belong to its turn

    return run


def show(what: str, seconds: dict[str, list[float]]) -> None:
    """Print milliseconds per picture: the mean of the fastest quarter of the turns, because other programs only add.

    Beside it, of all turns: the median ratio to the turn of the bare encoder just before, which was as disturbed.
    """
    fastest = {name: np.sort(values)[: max(len(values) // 4, 1)].mean() for name, values in seconds.items()}
    for name, value in fastest.items():
        ratio = value / fastest["bare encoder"]
        beside = np.median(np.divide(seconds[name], seconds["bare encoder"]))
        print(f"{what:<9} {name:<16} {1e3 * value:6.3f} ms per picture, {ratio:.3f} x; turn by turn {beside:.3f} x")


# --- frames ----------------------------------------------------------------------------------------------------


def compare_frames(encoder: Encoder, alone: DeviceLoop, syncing: DeviceLoop, given: list[Any]) -> None:
    """Print what a frame that the model takes as it is waits for, beside the model alone: its thread's processor time.

    Each frame goes through all three in turn, so that a busy machine slows all of them.
    """
    ways: dict[str, Callable[[Any], object]] = {
        "bare encoder": lambda one: encoder.images([one]),
        "device": lambda one: list(alone.answer_frames([one])),
        "device, syncing": lambda one: list(syncing.answer_frames([one])),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for one in given:
        for name, way in ways.items():
            start = time.thread_time()
            way(one)
            seconds[name].append(time.thread_time() - start)
    print("a frame, from an input of the model to the recorded answer, the thread that classifies:")
    bare = typical(seconds["bare encoder"])
    for name, values in seconds.items():
        print(f"processor {name:<16} {1e3 * typical(values):6.3f} ms per picture, {typical(values) / bare:.3f} x")


def typical(seconds: list[float]) -> float:
    """Return the mean without the first tenth, which warms up, and without the highest 2 %: other programs' doing."""
    values = np.sort(seconds[len(seconds) // 10 :])
    return float(values[: int(0.98 * len(values))].mean())


# --- memory ----------------------------------------------------------------------------------------------------


def watch_memory(device: DeviceLoop, images: int) -> None:
    """Print the resident memory of the process while a device works."""
    block = pictures(device.encoder, 50)
    for done in range(0, images, max(images // 10, 1)):
        print(f"{done:>6} pictures: {resident():.1f} MiB resident")
        for _ in device.answer_frames(block[i % len(block)] for i in range(images // 10)):
            pass
    print(f"{images:>6} pictures: {resident():.1f} MiB resident")


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
