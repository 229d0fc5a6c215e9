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
METHODS = ("clip", "latte", "ristretto")


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("report.html"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def demo(out: Path, as_json: bool) -> None:
    """Run CLIP, Latte and Ristretto on the bundled benchmark and write report.html.

    38 clients, two per corruption of CIFAR-10-C, 60 images each, embedded by a small vision-language model. Nothing is
    downloaded. Latte has the published parameters for CIFAR-10-C and syncs after every image; Ristretto has its
    defaults and syncs after 1, 2, 4, 8, 16 images of a client, then every 16.
    """
    from ..data.bundled import bundled
    from ..files.atomic import write_text

    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {out.parent} is not there", param_hint="--out")
    federation = bundled()
    outcomes = {name: _run(federation, name) for name in METHODS}
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

    rows = _accuracies(federation, outcomes)
    if as_json:
        line(json.dumps([{"domain": domain, **row, **_gains(row)} for domain, row in rows.items()]))
        return
    line(f"{'accuracy, %':<20}{'CLIP':>8}{'Latte':>8}{'gain':>8}{'Ristretto':>12}{'gain':>8}")
    for domain, row in rows.items():
        parts = [f"{row[name]:{width}.1f}{row[name] - row['clip']:+8.1f}" for name, width in _ADAPTIVE.items()]
        line(f"{domain:<20}{row['clip']:8.1f}{''.join(parts)}")


_ADAPTIVE = {"latte": 8, "ristretto": 12}  # the widths of their columns


def _accuracies(federation: Federation, outcomes: dict[str, Outcome]) -> dict[str, dict[str, float]]:
    """Return domain -> method -> accuracy, and "all" at the end."""
    results = {name: outcome.result(federation, name, {}, "preset", 0) for name, outcome in outcomes.items()}
    by_domain = {name: result.by_domain() for name, result in results.items()}
    rows = {domain: {name: by_domain[name][domain] for name in results} for domain in by_domain["clip"]}
    return rows | {"all": {name: result.micro for name, result in results.items()}}


def _gains(row: dict[str, float]) -> dict[str, float]:
    return {"gain" if name == "latte" else f"{name}_gain": row[name] - row["clip"] for name in _ADAPTIVE}


def _page(federation: Federation, outcomes: dict[str, Outcome]) -> str:
    from ..report.demo import demo_page

    return demo_page(federation, outcomes)
