"""How fast the engine is: beside the readable simulator and a torch baseline, at the paper's shapes, T = 1.

python benchmarks/engine/speed.py [--shape NAME ...] [--repeat 5] [--json]

Times are processor time, because wall time means little on a shared machine. What is compared is measured in turns in
one run. The slow ones are timed on the first rounds.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # decided when numpy is imported

import argparse
import gc
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from latte.core.types import Integers, Vectors
from latte.core.zero_shot import ZeroShot
from latte.data.federation import ClientStream, Embeddings, Federation
from latte.engine import run_fast
from latte.engine.cache import compile_loops
from latte.engine.streams import WINDOW
from latte.methods.latte.client import PRESETS, LatteParams
from latte.simulation.simulator import run_readable

DIM, DOMAINS = 512, 4


@dataclass(frozen=True, slots=True)
class BenchShape:
    """One of the paper's benchmarks: how many clients, classes and samples, and how many rounds the slow ones run."""

    clients: int
    classes: int
    samples: int
    rounds: int


SHAPES = {
    "vlcs": BenchShape(40, 5, 10_729, 40),
    "terra": BenchShape(40, 10, 24_788, 40),
    "cifar10c": BenchShape(190, 10, 60_000, 8),
    "cifar100c": BenchShape(57, 100, 60_000, 10),
}


@dataclass(frozen=True, slots=True)
class Speed:
    """Processor microseconds per sample at one shape; None where there is nothing to measure.

    ``balance`` is the processor time of the busier of two threads over that of one thread alone: its inverse is the
    speed-up on two free cores. ``limit`` is the roofline: no implementation that does the same arithmetic in float32
    is faster on this core. ``different`` counts samples on which the two slow ones disagree with the engine.
    """

    shape: str
    engine: float
    readable: float
    baseline: float | None
    balance: float
    limit: float
    different: tuple[int, int | None]
    megabytes: tuple[float, float]  # peak of a process of its own, and the embeddings alone


@dataclass(frozen=True, slots=True)
class Machine:
    """What one core can do: bytes per second of a copy, and multiply-adds per second of a matrix product."""

    bandwidth: float
    products: float


def measure_speed(name: str, machine: Machine, baseline: ModuleType | None, repeat: int = 5) -> Speed:
    """Time everything at one of the paper's shapes."""
    shape, params = SHAPES[name], replace(PRESETS[name], variant="released")
    run_fast(clip_like(replace(shape, clients=4, samples=80)), "latte", params)  # compiles
    federation = clip_like(shape)
    head = first_rounds(federation, shape.rounds)
    turns: list[Callable[[], Any]] = [
        lambda: run_fast(federation, "latte", params, calibration=False),  # labels, as the baseline
        lambda: _busier_thread(federation, params),
        lambda: _run_baseline(baseline, head, params),
    ]
    (engine, _), (both, busier), (torch, theirs) = _in_turns(turns, repeat)
    (slow, by_hand), *_ = _in_turns([lambda: run_readable(head, "latte", params, calibration=False)], 1)
    early = _labels(run_fast(head, "latte", params))
    different = int((early != _labels(by_hand)).sum()), None if theirs is None else int((early != theirs).sum())
    return Speed(
        shape=name,
        engine=1e6 * engine / federation.samples,
        readable=1e6 * slow / head.samples,
        baseline=None if theirs is None else 1e6 * torch / head.samples,
        balance=busier * both / engine,
        limit=1e6 * _roofline(shape, params, machine),
        different=different,
        megabytes=(peak_memory(name), federation.embeddings.views.nbytes / 2**20),
    )


def clip_like(shape: BenchShape, seed: int = 0) -> Federation:
    """Return made-up embeddings with the geometry of CLIP's: a cone of images, a cone of texts, weak class signals."""
    rng = np.random.default_rng(seed)
    text = _unit(0.8 * _unit(rng.normal(size=DIM)) + 0.6 * _unit(rng.normal(size=(shape.classes, DIM))))
    cone, own = _unit(rng.normal(size=DIM)), _unit(rng.normal(size=(shape.classes, DIM)))
    shift = _unit(rng.normal(size=(DOMAINS, DIM)))
    labels = rng.integers(0, shape.classes, shape.samples)
    domain = np.sort(rng.integers(0, DOMAINS, shape.samples))
    rows = np.empty((shape.samples, 1, DIM), np.float32)
    for part in np.array_split(np.arange(shape.samples), max(1, shape.samples // 200)):
        noise = _unit(rng.normal(size=(len(part), DIM)))
        signal = 0.18 * text[labels[part]] + 0.25 * own[labels[part]] + 0.3 * shift[domain[part]]
        rows[part, 0] = _unit(0.7 * cone + signal + 0.5 * noise)
    zero_shot = ZeroShot(text, tuple(f"class {y}" for y in range(shape.classes)))
    names = tuple(f"domain {d}" for d in range(DOMAINS))
    embeddings = Embeddings("clip-like", zero_shot, rows, labels, domain, names)
    parts = np.array_split(np.arange(shape.samples), shape.clients)
    streams = (ClientStream(f"client {i}", int(domain[p[0]]), rng.permutation(p)) for i, p in enumerate(parts))
    return Federation(embeddings, tuple(streams))


def first_rounds(federation: Federation, rounds: int) -> Federation:
    """Return the same clients with streams that end after ``rounds`` samples."""
    return Federation(
        federation.embeddings,
        tuple(ClientStream(c.name, c.domain, c.samples[:rounds]) for c in federation.clients),
    )


def _unit(rows: Any) -> Vectors:
    unit: Vectors = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return unit


def _labels(outcome: Any) -> Integers:
    labels: Integers = np.concatenate(outcome.labels)
    return labels


def _in_turns(calls: list[Callable[[], Any]], repeat: int) -> list[tuple[float, Any]]:
    """Make the calls in turn, several times; return the result and the least processor seconds of each.

    As in the standard library's timeit, no garbage is collected meanwhile: what that costs depends on everything
    else that is loaded.
    """
    best: list[tuple[float, Any]] = [(np.inf, None)] * len(calls)
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeat):
            for number, call in enumerate(calls):
                start = time.process_time()
                result = call()
                seconds = time.process_time() - start
                best[number] = min(best[number], (seconds, result), key=itemgetter(0))
    finally:
        gc.enable()
    return best


def _busier_thread(federation: Federation, params: LatteParams) -> float:
    """Run on two threads; return the share of the processor time that the busier of them took."""
    mine, total = time.thread_time(), time.process_time()
    run_fast(federation, "latte", params, threads=2, calibration=False)
    mine, total = time.thread_time() - mine, time.process_time() - total
    return max(mine, total - mine) / total


# --- the baseline -----------------------------------------------------------------------------------------


def load_baseline() -> ModuleType | None:
    """Return the torch baseline, None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    path = next(Path(__file__).parents[1].rglob("torch_baseline.py"))
    spec = importlib.util.spec_from_file_location("torch_baseline", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.torch.set_num_threads(1)
    return module


def _run_baseline(baseline: ModuleType | None, federation: Federation, params: LatteParams) -> Integers | None:
    if baseline is None:
        return None
    text, scale = np.array(federation.embeddings.zero_shot.text), federation.embeddings.zero_shot.scale
    streams = [federation.stream(client)[:, 0] for client in federation.clients]
    labels: Integers = np.concatenate(baseline.run(streams, text, params, scale))
    return labels


# --- the limit --------------------------------------------------------------------------------------------


def probe() -> Machine:
    """Measure one core: a copy that no cache holds, and a large float32 matrix product."""
    block = np.ones(1 << 24, np.float32)
    out = np.empty_like(block)
    (copy, _), *_ = _in_turns([lambda: np.copyto(out, block)], 5)
    square = np.ones((1024, 1024), np.float32)
    (product, _), *_ = _in_turns([lambda: square @ square], 5)
    return Machine(2 * block.nbytes / copy, 1024**3 / product)


def _roofline(shape: BenchShape, params: LatteParams, machine: Machine) -> float:
    """Return the least seconds per sample: multiply-adds and bytes that the method itself needs.

    Multiply-adds: D for each of C texts, C · S things that are read, and, for the share of samples that enter a
    memory, S for the new prototype, C for its entropy and N for its similarities. Bytes: the sample, what its
    prototype is made of, and the C · S items that it reads, which come from main memory once per window.
    """
    per_class = shape.samples / (shape.clients * shape.classes)
    share = min(1.0, params.k_l / per_class * (1 + np.log(max(per_class / params.k_l, 1.0))))
    rows = shape.classes + shape.classes * params.k_l
    rows_of_sync = share * (params.k_l + shape.classes + shape.clients)
    loaded = 1 + shape.classes * params.k_l / WINDOW + share * params.k_l
    return float(max((rows + rows_of_sync) * DIM / machine.products, 4 * DIM * loaded / machine.bandwidth))


def peak_memory(name: str) -> float:
    """Return the peak resident megabytes of a process that makes a benchmark and runs the engine on it."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import speed as s;"
        "from dataclasses import replace;"
        f"from latte.methods.latte.client import PRESETS; p = replace(PRESETS[{name!r}], variant='released');"
        f"s.run_fast(s.clip_like(s.SHAPES[{name!r}]), 'latte', p);"
        "print(s.high_water())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def high_water() -> float:
    """Return the peak resident megabytes of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # what getrusage says there includes the parent that started the process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="One of the paper's; default all.")
    parser.add_argument("--repeat", type=int, default=5, help="Runs; the best counts.")
    parser.add_argument("--json", action="store_true", help="Print JSON instead of the table.")
    options = parser.parse_args()
    for _ in compile_loops():
        pass
    machine, baseline = probe(), load_baseline()
    rows = []
    for name in options.shape or SHAPES:
        print(f"timing {name} ...", file=sys.stderr)
        rows.append(measure_speed(name, machine, baseline, options.repeat))
    if options.json:
        print(json.dumps({"machine": asdict(machine), "shapes": [asdict(row) for row in rows]}, indent=2))
        return
    print(f"one core: {machine.bandwidth / 1e9:.1f} GB/s, {machine.products / 1e9:.1f} G multiply-adds/s")
    print("processor microseconds per sample, one thread; the slow two on the first rounds only")
    head = ("shape", "engine", "readable", "baseline", "ratio", "2 threads", "limit", "differ", "MB", "embeddings")
    print(" ".join(f"{cell:>10}" for cell in head))
    for row in rows:
        base = "-" if row.baseline is None else f"{row.baseline:.0f}"
        ratio = "-" if row.baseline is None else f"{row.baseline / row.engine:.0f}x"
        differ = f"{row.different[0]}/{'-' if row.different[1] is None else row.different[1]}"
        cells = [row.shape, f"{row.engine:.1f}", f"{row.readable:.0f}", base, ratio, f"{1 / row.balance:.2f}x"]
        cells += [f"{row.limit:.1f}", differ, f"{row.megabytes[0]:.0f}", f"{row.megabytes[1]:.0f}"]
        print(" ".join(f"{cell:>10}" for cell in cells))


if __name__ == "__main__":
    main()
