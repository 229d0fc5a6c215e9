"""``latte bench``: how fast this machine runs the engine."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import block, line
from .progress import draw_compilation

if TYPE_CHECKING:
    from ..analysis.speed import Machine, Speed

NAMES = ("vlcs", "terra", "cifar10c", "cifar100c")


@click.group("bench")
def bench() -> None:
    """Measure speed on this machine."""


@bench.command("speed")
@click.option("--shape", "shapes", multiple=True, type=click.Choice(NAMES), help="One of the paper's; default all.")
@click.option(
    "--baseline",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("benchmarks/torch_baseline.py"),
    show_default=True,
    help="The per-sample torch version, in the source tree; left out without it or without torch.",
)
@click.option("--repeat", type=click.IntRange(1, 1000), default=5, show_default=True, help="Runs; the best counts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def speed(shapes: tuple[str, ...], baseline: Path, repeat: int, as_json: bool) -> None:
    """Time the engine beside the readable simulator and a torch baseline at the paper's shapes (T = 1).

    Linear algebra uses one thread, unless OPENBLAS_NUM_THREADS and the like say otherwise.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # decided when numpy is imported: below
    from ..analysis.speed import load_baseline, measure_speed, probe
    from ..core.extras import need
    from ..simulation.engine import are_loops_on_disk, compile_loops

    need("numba", "fast")  # the engine that is timed
    if not are_loops_on_disk():
        draw_compilation(compile_loops())
    machine, module = probe(), load_baseline(baseline)
    rows = []
    for name in shapes or NAMES:
        line(f"timing {name} ...", err=True)
        rows.append(measure_speed(name, machine, module, repeat))
    if as_json:
        block(json.dumps({"machine": asdict(machine), "shapes": [asdict(row) for row in rows]}, indent=2) + "\n")
        return
    _table(rows, machine)


def _table(rows: list[Speed], machine: Machine) -> None:
    line(f"one core: {machine.bandwidth / 1e9:.1f} GB/s, {machine.products / 1e9:.1f} G multiply-adds/s")
    line("processor microseconds per sample, one thread; the slow two on the first rounds only")
    head = ("shape", "engine", "readable", "baseline", "ratio", "2 threads", "limit", "differ", "MB", "embeddings")
    line(" ".join(f"{cell:>10}" for cell in head))
    for row in rows:
        base = "-" if row.baseline is None else f"{row.baseline:.0f}"
        ratio = "-" if row.baseline is None else f"{row.baseline / row.engine:.0f}x"
        differ = f"{row.different[0]}/{'-' if row.different[1] is None else row.different[1]}"
        cells = [row.shape, f"{row.engine:.1f}", f"{row.readable:.0f}", base, ratio, f"{1 / row.balance:.2f}x"]
        cells += [f"{row.limit:.1f}", differ, f"{row.megabytes[0]:.0f}", f"{row.megabytes[1]:.0f}"]
        line(" ".join(f"{cell:>10}" for cell in cells))
