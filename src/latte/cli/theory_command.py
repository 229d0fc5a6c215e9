"""``latte theory``: the sphere model of the paper's appendix, simulated, beside its bounds."""

from __future__ import annotations

from pathlib import Path

import click

from .arguments import OutputFolder
from .output import block, line


@click.command("theory")
@click.option(
    "--out",
    type=OutputFolder(),
    default=Path("theory"),
    show_default=True,
    help="Folder for the figures (PNG, SVG, CSV), theory.json and theory.txt.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Of the simulations.")
@click.option("--quick", is_flag=True, help="Fewer repetitions, for a first look.")
@click.option("--json", "as_json_", is_flag=True, help="Print theory.json instead of the table.")
def theory(out: Path, seed: int, quick: bool, as_json_: bool) -> None:
    """Simulate the sphere model and compare it with the theorems."""
    from ..core.extras import need
    from ..report.theory_files import write_theory
    from ..theory.study import StudyPlan, run_study

    need("matplotlib.figure", "report")  # before the simulation, not after it
    line("simulating: about two minutes (half a minute with --quick) ...", err=True)
    paths = write_theory(run_study(seed, StudyPlan.quick() if quick else StudyPlan()), out)
    line(f"wrote {len(paths)} files to {out}", err=True)
    block((out / ("theory.json" if as_json_ else "theory.txt")).read_text(encoding="utf-8"))
