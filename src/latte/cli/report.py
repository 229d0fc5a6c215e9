"""``latte report``, ``figure`` and ``theory``: tables, figures and pages of runs and of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import DATA, Command, Folder, OutputFile, OutputFolder
from .output import block, line, terminal_width
from .run_options import JOBS, collect_failures, collect_options, plain_options

if TYPE_CHECKING:
    from ..paper.studies import Setup

FORMAT_NAMES = ("text", "markdown", "latex", "json", "csv", "html")


@click.command()
@click.argument("runs", nargs=-1, required=True, type=Folder(exists=True))
@click.option("--format", "kind", type=click.Choice(FORMAT_NAMES), help="Default: what --out ends in, else text.")
@click.option("--out", type=OutputFile(makes_folder=True), help="Write to a file instead of stdout.")
@click.option(
    "--paper-backbone",
    type=click.Choice(["ViT-B/16", "RN50"]),
    help="The CLIP encoder of the data, where the data file does not say: shows the paper's numbers beside yours.",
)
@click.option("--width", type=click.IntRange(40), help="Of text, in characters [default: the terminal's, else 118].")
def report(
    runs: tuple[Path, ...], kind: str | None, out: Path | None, paper_backbone: str | None, width: int | None
) -> None:
    """Show the results of run folders: per domain, total, gain over CLIP, the worst client, and what is noise.

    RUNS are run folders, or folders that hold some. Every benchmark gets a table of its own, a sweep its curve. The
    points of a tuning are folded away, unless its folder is one of RUNS. The paper's numbers stand beside yours only
    where the benchmark is the paper's and the data was made with the paper's CLIP encoder.
    """
    from ..experiment.collection import collect
    from ..report.contents import build_report
    from ..report.formats.text import TEXT_WIDTH
    from ..report.page.sections import render_report

    collection = collect(runs)
    for note in collection.notes():
        line(note, err=True)
    contents = build_report(collection, paper_backbone)
    columns = width or (terminal_width() if out is None else None) or TEXT_WIDTH
    write_output(render_report(contents, kind or format_of(out), columns), out)


def write_output(text: str, out: Path | None) -> None:
    """Write to a file, or to stdout."""
    if out is None:
        block(text)
        return
    from ..files.atomic import write_text

    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, text)
    line(f"wrote {out}", err=True)


def format_of(out: Path | None) -> str:
    """Return the format for the ending of a file name; text for any other."""
    endings = {".md": "markdown", ".tex": "latex", ".json": "json", ".csv": "csv", ".html": "html", ".htm": "html"}
    return endings.get(out.suffix.lower(), "text") if out is not None else "text"


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
        from ..core.validate import choice
        from ..experiment.config import parse_seeds
        from ..experiment.plan import open_benchmark
        from ..methods.latte.client import PRESETS
        from ..paper.studies import make_setup

        if self.preset is not None:
            choice("preset", self.preset, tuple(PRESETS))
        benchmark = open_benchmark(self.benchmark, self.data)
        return make_setup(benchmark, parse_seeds(self.seeds), self.clients, self.preset)


def figure_options(command: Command) -> Command:
    """Add the options that decide what the figures show; the command gets them as ``chosen``."""
    options = [
        click.option("--benchmark", default="cifar10c-mini", show_default=True, help="By name or file."),
        DATA,
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
@JOBS
def figure(name: str, chosen: FigureOptions, values: str | None, out: Path, jobs: int | str) -> None:
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
    from ..core.validate import whole
    from ..paper.figures.make import make_figures, need_packages, write_gallery

    names = FIGURE_NAMES[:-1] if name == "all" else (name,)
    need_packages(names)  # before the data is read
    with collect_failures():
        setup, last = chosen.setup(), ""

        def say(what: str, done: int, total: int) -> None:  # where the work is; a tenth of the runs is a step
            nonlocal last
            text = f"{what} {total * (10 * done // total) // 10}/{total}" if total > 1 else what
            if text != last:
                line(text, err=True)
            last = text

        parts = values.split(",") if values else []
        numbers = tuple(sorted({whole("--values", part.strip(), 1) for part in parts}))
        pictures = make_figures(names, setup, out, plain_options(jobs), numbers, say)
        page = write_gallery(pictures, setup, out)
        for picture in pictures:
            line(picture.path("svg"))
            line(f"  {picture.caption}")
        line(f"wrote {page}", err=True)


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
    from ..errors import need
    from ..paper.theory.figures import write_theory
    from ..paper.theory.study import StudyPlan, run_study

    need("matplotlib.figure", "report")  # before the simulation, not after it
    line("simulating: about two minutes (half a minute with --quick) ...", err=True)
    paths = write_theory(run_study(seed, StudyPlan.quick() if quick else StudyPlan()), out)
    line(f"wrote {len(paths)} files to {out}", err=True)
    block((out / ("theory.json" if as_json_ else "theory.txt")).read_text(encoding="utf-8"))
