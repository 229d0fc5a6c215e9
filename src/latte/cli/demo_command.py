"""``latte demo``: the first thing to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import line

if TYPE_CHECKING:
    from ..data.benchmark import Federation
    from ..simulation.outcome import Outcome

PRESET = "cifar10c"


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("report.html"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def demo(out: Path, as_json: bool) -> None:
    """Run CLIP and Latte on the bundled benchmark and write report.html.

    38 clients, two per corruption of CIFAR-10-C, 60 images each, embedded by a small vision-language model. Nothing is
    downloaded. Latte has the published parameters for CIFAR-10-C and syncs after every round.
    """
    from ..data.bundled import bundled
    from ..files.atomic import write_text

    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {out.parent} is not there", param_hint="--out")
    federation = bundled()
    outcomes = {name: _run(federation, name) for name in ("clip", "latte")}
    write_text(out, _page(federation, outcomes))
    _print(federation, outcomes, as_json)
    line("", err=True)
    line(f"wrote {out}", err=True)


def _run(federation: Federation, name: str) -> Outcome:
    from ..methods import describe, resolve
    from ..simulation.readable import run_readable
    from .progress import bar

    with bar(name, federation.samples) as advance:
        preset = PRESET if PRESET in describe(name).presets else None
        return run_readable(federation, name, resolve(name, preset=preset), progress=advance)


def _print(federation: Federation, outcomes: dict[str, Outcome], as_json: bool) -> None:
    import json

    results = {name: outcome.result(federation, name, {}, "preset", 0) for name, outcome in outcomes.items()}
    clip, latte = results["clip"].by_domain(), results["latte"].by_domain()
    rows = [(domain, clip[domain], latte[domain]) for domain in clip]
    rows.append(("all", results["clip"].micro, results["latte"].micro))
    if as_json:
        line(json.dumps([{"domain": d, "clip": a, "latte": b, "gain": b - a} for d, a, b in rows]))
        return
    line(f"{'accuracy, %':<20}{'CLIP':>8}{'Latte':>8}{'gain':>8}")
    for domain, before, after in rows:
        line(f"{domain:<20}{before:8.1f}{after:8.1f}{after - before:+8.1f}")


def _page(federation: Federation, outcomes: dict[str, Outcome]) -> str:
    from ..report.demo import demo_page

    return demo_page(federation, outcomes)
