"""``latte demo``: the first thing to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import OutputFile
from .output import line

if TYPE_CHECKING:
    from ..experiment.plan import Plan
    from ..experiment.trials import TrialRun


@click.command()
@click.option("--out", type=OutputFile(), default=Path("report.html"), show_default=True)
@click.option("--jobs", type=click.IntRange(0, 1024), default=0, help="Processes at once (default: one per core).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every method and domain.")
@click.option("--fleet", is_flag=True, help="Start a server and devices instead, with a dashboard to look at.")
@click.option("--join", metavar="URL", help="Join such a fleet, from another terminal or machine, as one more device.")
@click.option("--token", help="With --join: the token that --fleet printed.")
@click.option("--method", type=click.Choice(["latte", "ristretto"]), default="latte", help="Of the fleet.")
@click.option("--devices", type=click.IntRange(1, 40), default=4, help="Of the fleet: processes (default: 4).")
@click.option(
    "--precision",
    type=click.Choice(["exact", "fp32", "fp16", "int8", "int4"]),
    default="fp32",
    help="Of vectors on the way to the server and back (default: fp32).",
)
@click.option("--seconds", type=click.FloatRange(0), default=60.0, help="For all images of the fleet (default: 60).")
@click.option("--lock-step/--free", default=True, help="Devices wait for each other, as in the simulator; or do not.")
@click.option("--host", default="127.0.0.1", help="Of the fleet's server: its own address, for other machines to join.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Of the fleet's server (default: a free one).")
@click.option("--once", is_flag=True, help="End the fleet when all images are classified.")
def demo(
    out: Path,
    jobs: int,
    as_json: bool,
    fleet: bool,
    join: str | None,
    token: str | None,
    method: str,
    devices: int,
    precision: str,
    seconds: float,
    lock_step: bool,
    host: str,
    port: int,
    once: bool,
) -> None:
    """Show what Latte and Ristretto gain over zero-shot on real data, and write report.html.

    PACS as a whole: 9,991 images of four domains, embedded by a small vision-language model that is not CLIP, dealt to
    forty clients, ten per domain, in ten ways (seeds 0 to 9). Nothing is downloaded. Every method has its defaults;
    Latte and Ristretto sync after 1, 2, 4, 8, 16 images of a client, then after every 16.

    With --fleet, the forty clients of seed 0 run in device processes of their own and sync with a server over HTTP. In
    lock step they give what the simulator gives. Ctrl-C ends everything, and nothing is left behind.
    """
    from .fleet_demo import check_options, run_fleet, run_guest

    check_options(join, token, fleet)
    if join is not None and token is not None:
        run_guest(join, token, precision, seconds)
    elif fleet:
        from ..serve.fleet_options import FleetOptions

        run_fleet(FleetOptions(method, devices, precision, 0, seconds, lock_step, host, port), once, as_json)
    else:
        _simulate(out, jobs, as_json)


def _simulate(out: Path, jobs: int, as_json: bool) -> None:
    from ..files.atomic import write_text
    from ..report.demo import BENCHMARK, SYNC, demo_lines, demo_page, demo_plan, demo_rows

    plan = demo_plan()
    trials = _run(plan, jobs)
    rows = demo_rows(trials)
    write_text(out, demo_page(trials, plan.data.encoder))
    for text in [json.dumps([row.as_json() for row in rows])] if as_json else demo_lines(rows):
        line(text)
    line(f"wrote {out}: every method and domain, the gain over time, who helped whom", err=True)
    options = f"--methods clip,latte,ristretto --seeds 0-2 --set schedule.sync={SYNC}"
    line(f"next: latte run --benchmark {BENCHMARK} {options}", err=True)


def _run(plan: Plan, jobs: int) -> list[TrialRun]:
    """Run everything while a bar follows."""
    from ..experiment.trials import in_order, run_trials
    from .progress import bar

    trials = []
    with bar("demo", len(plan.items())) as advance:
        for trial in run_trials(plan, jobs):
            trials.append(trial)
            advance(1)
    return in_order(trials, plan)
