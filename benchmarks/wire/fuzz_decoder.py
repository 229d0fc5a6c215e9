"""Fuzz what decodes requests, with atheris: nothing but documented refusals, no hang, no memory above a bound.

python benchmarks/wire/fuzz_decoder.py --inputs 1000000     # needs: pip install atheris

Inputs begin as sound requests of every precision, and are changed under the guidance of the coverage of ``latte.wire``.
One that begins with the byte C1, which no msgpack has, is not decoded but says of which blocks a request is made: these
get as far as the checks of arrays. Each input goes through everything that a server does with an upload before it
stores it. The process may use at most ``--memory`` MB, and an input may take at most five seconds; libFuzzer ends the
program otherwise.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import atheris
import msgspec
import numpy as np

with atheris.instrument_imports(include=["latte.wire"]):
    from latte.wire.blocks import Block, encode
    from latte.wire.messages import NO_VERSION, DeviceReport, Have, SyncRequest, pack, unpack
    from latte.wire.rows import PRECISIONS

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.joining import make_task
from latte.server.hub.hub import Hub
from latte.server.store.base import Record, open_store
from latte.wire.messages import Problem, Upload

MADE_UP = b"\xc1"
_counts = {"inputs": 0, "decoded": 0, "accepted": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--memory", type=int, default=1024, help="MB that the process may use")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(a_zero_shot(), "latte", {"k_e": 3})
        hub = Hub(task, open_store(Path(folder) / "store"))
        before = {p: Record("a", 3, b"", pack(Upload(encode(an_upload(1), p, 8))), 0.0) for p in PRECISIONS}
        corpus = write_corpus(Path(folder) / "corpus", task.fingerprint)

        def one(content: bytes) -> None:
            _counts["inputs"] += 1
            decode(hub, content, before)
            if _counts["inputs"] == options.inputs:
                report(start)

        start = time.perf_counter()
        flags = [f"-runs={options.inputs}", f"-rss_limit_mb={options.memory}", "-timeout=5", f"-seed={options.seed}"]
        atheris.Setup([sys.argv[0], *flags, "-max_len=4096", str(corpus)], one)
        atheris.Fuzz()


def decode(hub: Hub, content: bytes, before: dict[str, Record]) -> None:
    """Do what a server does with a request before anything is stored."""
    try:
        request = made_up(hub, content[1:]) if content[:1] == MADE_UP else unpack(content, SyncRequest)
    except ValueError:
        return
    _counts["decoded"] += 1
    if hub._refusal(request) is not None or request.upload is None:
        return
    precision = next((block.coding for block in request.upload if block.coding in before), "fp32")
    try:
        hub.reader.read(request, before[precision] if request.base != NO_VERSION else None)
        _counts["accepted"] += 1
    except Problem:
        pass


def made_up(hub: Hub, content: bytes) -> SyncRequest:
    """Return a request whose blocks are those of an upload, each with some of its parts replaced."""
    draw = atheris.FuzzedDataProvider(content)
    precision = draw.PickValueInList(list(PRECISIONS))
    blocks = [changed(block, draw) for block in sound_blocks(precision)]
    blocks += blocks[: draw.ConsumeIntInRange(0, 1)]
    base = draw.PickValueInList([NO_VERSION, 3, 4])
    request = SyncRequest(hub.task.fingerprint, "a", version=9, base=base, upload=tuple(blocks), precision=precision)
    return unpack(pack(request), SyncRequest)


@lru_cache
def sound_blocks(precision: str) -> tuple[Block, ...]:
    return encode(an_upload(1), precision, 8)


def changed(block: Block, draw: atheris.FuzzedDataProvider) -> Block:
    """Return a block with some of its parts replaced by anything."""
    parts = {}
    if draw.ConsumeBool():
        parts["name"] = draw.PickValueInList(["vectors", "seen", "", draw.ConsumeString(8)])
    if draw.ConsumeBool():
        parts["dtype"] = draw.PickValueInList(["f4", "f8", "b1", "u8", draw.ConsumeString(3)])
    if draw.ConsumeBool():
        parts["shape"] = tuple(draw.ConsumeIntListInRange(draw.ConsumeIntInRange(0, 9), -2, 2**40))
    if draw.ConsumeBool():
        parts["coding"] = draw.PickValueInList([*PRECISIONS, "raw", "single", "bits", draw.ConsumeString(4)])
    if draw.ConsumeBool():
        places = [draw.ConsumeIntInRange(-3, 4) for _ in range(draw.ConsumeIntInRange(0, 4))]
        parts["source"] = np.array(places, "<i4").tobytes() + draw.ConsumeBytes(draw.ConsumeIntInRange(0, 2))
    if draw.ConsumeBool():
        cut = block.data[: draw.ConsumeIntInRange(0, len(block.data))]
        parts["data"] = cut + draw.ConsumeBytes(draw.ConsumeIntInRange(0, 200))
    return msgspec.structs.replace(block, **parts)


def write_corpus(folder: Path, fingerprint: str) -> Path:
    folder.mkdir()
    for number, precision in enumerate(PRECISIONS):
        blocks = encode(an_upload(number + 1), precision, 8)
        have = (Have("vectors", 1, bytes(16)),)
        whole = SyncRequest(fingerprint, "a", version=9, key=b"k", upload=blocks, precision=precision, have=have)
        (folder / precision).write_bytes(pack(whole))
        (folder / f"{precision}-base").write_bytes(
            pack(SyncRequest(fingerprint, "a", version=9, base=3, upload=blocks, report=DeviceReport(images=3)))
        )
    for number in range(8):
        (folder / f"made-up-{number}").write_bytes(MADE_UP + bytes([number]) * 40)
    return folder


def report(start: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    spent = time.perf_counter() - start
    print(
        f"{_counts['inputs']:,} inputs in {spent:.0f} s: {_counts['decoded']:,} were messages, "
        f"{_counts['accepted']:,} sound uploads; no failure, no hang, {peak:.0f} MB at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
