"""Fuzz what decodes requests, with atheris: nothing but documented refusals, no hang, no memory above a bound.

python benchmarks/fuzz_decoder.py --inputs 1000000     # needs: pip install atheris

Inputs begin as sound requests of every precision, and are changed under the guidance of the coverage of ``latte.wire``.
Each goes through everything that a server does with an upload before it stores it. The process may use at most
``--memory`` MB, and an input may take at most five seconds; libFuzzer ends the program otherwise.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["latte.wire"]):
    from latte.wire.array_blocks import encode
    from latte.wire.messages import NEVER, DeviceReport, Have, SyncRequest, pack, unpack
    from latte.wire.rows import PRECISIONS

from latte.checks.material import a_zero_shot, an_upload
from latte.coordination.hub import Hub
from latte.coordination.problems import Problem
from latte.edge.make_task import make_task
from latte.serve.upload_store import Record, open_store
from latte.wire.messages import Upload

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
        request = unpack(content, SyncRequest)
    except ValueError:
        return
    _counts["decoded"] += 1
    if hub._refusal(request) is not None or request.upload is None:
        return
    precision = next((block.coding for block in request.upload if block.coding in before), "fp32")
    try:
        hub._check(request, before[precision] if request.base != NEVER else None)
        _counts["accepted"] += 1
    except Problem:
        pass


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
