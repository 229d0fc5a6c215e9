"""``latte figure``: the paper's figures, for any benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import Folder, OutputFolder
from .options import Command
from .output import line
from .run_options import collect_options, or_exit, plain_options

if TYPE_CHECKING:
    from ..analysis.studies import Setup

FIGURE_NAMES = (
    "decentralisation",
    "period",
    "collaboration",
    "memory",
    "ablation",
    "sensitivity",
    "steps",
    "routing",
    "all",
)
VARIED = ("decentralisation", "period")


@dataclass(frozen=True, slots=True)
class FigureOptions:
    """The options of a call that decide what the figures show."""

    benchmark: str
    data: Path | None
    seeds: str
    clients: int | None
    preset: str | None

    def setup(self) -> Setup:
        """Open the benchmark."""
        from ..analysis.studies import make_setup
        from ..core.validate import choice
        from ..experiment.config import parse_seeds
        from ..experiment.plan import open_benchmark
        from ..methods.latte import PRESETS

        if self.preset is not None:
            choice("preset", self.preset, tuple(PRESETS))
        benchmark = open_benchmark(self.benchmark, self.data)
        return make_setup(benchmark, parse_seeds(self.seeds), self.clients, self.preset)


def figure_options(command: Command) -> Command:
    """Add the options that decide what the figures show; the command gets them as ``chosen``."""
    options = [
        click.option("--benchmark", default="cifar10c-mini", show_default=True, help="By name or file."),
        click.option("--data", type=Folder(), help="Folder of embedding files (default: $LATTE_DATA)."),
        click.option("--seeds", default="0-2", show_default=True, help="Seeds, such as 0-4 or 0,2,7."),
        click.option("--clients", type=click.IntRange(1), help="Clients per domain (default: the benchmark's own)."),
        click.option("--preset", help="Latte's parameters (default: those published for the benchmark, if any)."),
    ]
    return collect_options(command, FigureOptions, options)


@click.command()
@click.argument("name", type=click.Choice(FIGURE_NAMES))
@figure_options
@click.option("--values", help="What decentralisation or period varies, such as 1,2,5,10.")
@click.option("--out", type=OutputFolder(), default=Path("figures"), show_default=True, help="Folder for the files.")
@click.option("--jobs", type=click.IntRange(0, 1024), default=0, help="Processes at once (default: one per core).")
def figure(name: str, chosen: FigureOptions, values: str | None, out: Path, jobs: int) -> None:
    """Draw a figure of the paper or of Ristretto, or all, for a benchmark: PNG, SVG, the numbers as CSV, and a page.

    \b
    decentralisation  accuracy against clients per domain
    period            accuracy against the images between two exchanges
    collaboration     who downloads from whom, clients sorted by domain
    memory            t-SNE of one client's local and merged memory per domain
    ablation          local, external or both; similarity, certainty or both
    sensitivity       k_l, k_e, alpha, beta, gamma; kappa, rho, eta, nu of Ristretto
    steps             Ristretto without each of its six steps
    routing           whose evidence a head of Ristretto uses, clients sorted by domain

    The runs behind the figures go to run folders in --out/runs: running again computes only what is missing there, and
    draws only what is not drawn yet.
    """
    if values and name not in VARIED:
        raise click.UsageError(f"--values is for {' and '.join(VARIED)}")
    if chosen.clients and name == "decentralisation":
        raise click.UsageError("decentralisation varies the clients per domain: give them as --values, not --clients")
    from ..report.figures.make import need_packages

    names = FIGURE_NAMES[:-1] if name == "all" else (name,)
    need_packages(names)  # before the data is read
    or_exit(lambda: _draw(names, chosen.setup(), out, jobs, _numbers(values)))


def _numbers(values: str | None) -> tuple[int, ...]:
    from ..core.validate import whole

    parts = values.split(",") if values else []
    return tuple(sorted({whole("--values", part.strip(), 1) for part in parts}))


def _draw(names: tuple[str, ...], setup: Setup, out: Path, jobs: int, values: tuple[int, ...]) -> None:
    from ..report.figures.gallery import write_gallery
    from ..report.figures.make import make_figures

    pictures = make_figures(names, setup, out, plain_options(jobs), values, _Follow())
    page = write_gallery(pictures, setup, out)
    for picture in pictures:
        line(picture.path("svg"))
        line(f"  {picture.caption}")
    line(f"wrote {page}", err=True)


class _Follow:
    """Write to stderr where the work is, one line per step; a tenth of the runs is a step."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        text = f"{what} {total * (10 * done // total) // 10}/{total}" if total > 1 else what
        if text != self._last:
            line(text, err=True)
        self._last = text
