"""What a fleet needs in machines, from measured costs: ``benchmarks/server/cells.py machines`` prints it."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Measured costs of one server process, C = 10, D = 512, k_e = 9. Everything below follows from these."""

    few: int = 1_000  # known clients, and the processor ms of a sync with so many: benchmarks/server/serve_load.py
    few_ms: float = 0.57
    many: int = 20_000
    many_ms: float = 3.57
    up: int = 3_300  # bytes of a steady sync in int8 with deltas: benchmarks/wire/wire_bytes.py
    down: int = 24_600
    memory: int = 26_000  # bytes of memory per client: ten vectors of 512 float32 numbers, the same in int8, name
    disk: int = 5_500  # bytes of a stored upload, in int8
    base_memory: float = 0.08  # GB of a server process without clients
    load: float = 0.5  # the share of a core that a server should use on average at the peak hour
    peak: float = 3.0  # the peak hour's rate over the mean

    def ms(self, clients: float) -> float:
        """Return the processor ms of a sync in a cell of so many clients: a fixed part, and one for every client."""
        slope = (self.many_ms - self.few_ms) / (self.many - self.few)
        return self.few_ms + slope * (clients - self.few)


COSTS = Costs()
CELL_SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


def print_machines(a: argparse.Namespace) -> None:
    """Print what ``--devices`` need, by the size of a cell."""
    rate = a.devices * a.syncs_per_day / 86_400
    daily = a.devices * a.syncs_per_day
    up, down = daily * COSTS.up / 1e12, daily * COSTS.down / 1e12
    print(
        f"{a.devices:,} devices, {a.syncs_per_day} syncs a day each: {rate:,.0f} syncs/s in the mean, "
        f"{COSTS.peak * rate:,.0f} at the peak; {up:.2f} TB up and {down:.2f} TB down a day, "
        f"{8e-9 * COSTS.peak * rate * (COSTS.up + COSTS.down):.1f} Gbit/s at the peak\n"
    )
    print("| clients per cell | cells | ms per sync | cores | GB of memory | GB on disk | use of a core |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for size in CELL_SIZES:
        cells, ms = math.ceil(a.devices / size), COSTS.ms(size)
        use = COSTS.peak * rate / cells * ms / 1000
        cores = COSTS.peak * rate * ms / 1000 / COSTS.load
        memory = a.devices * COSTS.memory / 1e9 + cells * COSTS.base_memory
        sizes = f"{cores:.0f} | {memory:.0f} | {a.devices * COSTS.disk / 1e9:.1f}"
        print(f"| {size:,} | {cells:,} | {ms:.1f} | {sizes} | {use:.1%} |")
    print(f"\n{limits(a.syncs_per_day)}")


def limits(syncs_per_day: float) -> str:
    """Return how many devices one cell could have on one core, one gigabit and 8 GB, each alone."""
    each = COSTS.peak * syncs_per_day / 86_400  # syncs per second of one device at the peak
    slope = COSTS.ms(1) - COSTS.ms(0)
    fixed, want = COSTS.ms(0), 1000 * COSTS.load / each  # n (fixed + slope n) = want
    processor = (-fixed + math.sqrt(fixed**2 + 4 * slope * want)) / (2 * slope)
    network, memory = 1e9 / 8 / (each * (COSTS.up + COSTS.down)), (8 - COSTS.base_memory) * 1e9 / COSTS.memory
    return (
        f"one cell holds at most {processor:,.0f} devices by its processor (one core at {COSTS.load:.0%}), "
        f"{network:,.0f} by 1 Gbit/s, {memory:,.0f} by 8 GB of memory"
    )
