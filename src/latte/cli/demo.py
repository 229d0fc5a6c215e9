"""``latte demo``: the first thing to run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import JOBS, OutputFile
from .output import line
from .stop import Stopped, accept_stop

if TYPE_CHECKING:
    from ..demo.clients import DeviceTally
    from ..demo.fleet import DemoFleet, FleetOptions

_ROWS = 10  # of the table
_HEAD = f"{'images':>8}{'zero-shot, %':>15}{'adapted, %':>13}{'gain':>8}"


@click.command()
@click.option("--out", type=OutputFile(), default=Path("report.html"), show_default=True, help="Page to write.")
@JOBS
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every method and domain.")
@click.option("--fleet", is_flag=True, help="Start a server and devices instead, with a dashboard to look at.")
@click.option("--join", metavar="URL", help="Join such a fleet, from another terminal or machine, as one more device.")
@click.option("--token", help="With --join: the token that --fleet printed.")
@click.option(
    "--method", type=click.Choice(["latte", "ristretto"]), default="latte", help="Method of the fleet (default: latte)."
)
@click.option("--devices", type=click.IntRange(1, 40), default=4, help="Device processes of the fleet (default: 4).")
@click.option(
    "--precision",
    type=click.Choice(["exact", "fp32", "fp16", "int8", "int4"]),
    default="fp32",
    help="Precision of the vectors in uploads and downloads (default: fp32).",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=60.0,
    help="How long the fleet takes for all images (default: 60).",
)
@click.option(
    "--lock-step/--free",
    default=True,
    help="Devices wait for each other at every sync, as in the simulator (default), or do not.",
)
@click.option(
    "--host", default="127.0.0.1", help="Address of the fleet's server; give the machine's own for others to join."
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="Port of the fleet's server (default: a free one)."
)
@click.option("--once", is_flag=True, help="End the fleet when all images are classified.")
def demo(
    out: Path,
    jobs: int | str,
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

    The data is all of PACS: 9,991 images of four domains, embedded by a small vision-language model that is not CLIP.
    Nothing is downloaded. Ten seeds split the images among forty clients, ten per domain, in ten ways. Every method has
    its defaults; Latte and Ristretto sync after 1, 2, 4, 8 and 16 images of a client, then after every 16.

    With --fleet, the forty clients of seed 0 run in device processes and sync with a server over HTTP. In lock step
    their predictions are those of the simulator. Ctrl-C ends everything, and nothing is left behind.
    """

    if (join is None) != (token is None):
        raise click.UsageError("--join and --token go together")
    if join is not None and fleet:
        raise click.UsageError("--fleet starts a fleet, --join joins one: choose one of them")
    if join is not None and token is not None:
        run_guest(join, token, precision, seconds)
    elif fleet:
        from ..demo.fleet import FleetOptions

        run_fleet(FleetOptions(method, devices, precision, 0, seconds, lock_step, host, port), once, as_json)
    else:
        _simulate(out, jobs, as_json)


def _simulate(out: Path, jobs: int | str, as_json: bool) -> None:
    from ..demo.pacs import BENCHMARK, SYNC, demo_lines, demo_page, demo_plan, demo_rows
    from ..experiment.runner import in_order, run_trials
    from ..files.atomic import write_text
    from .experiments import how_to_run
    from .output import bar

    plan, done = demo_plan(), []
    with bar("demo", len(plan.items())) as advance:
        for trial in run_trials(plan, how_to_run(jobs)):
            done.append(trial)
            advance(1)
    trials = in_order(done, plan)
    rows = demo_rows(trials)
    write_text(out, demo_page(trials, plan.data.encoder))
    for text in [json.dumps([row.as_json() for row in rows])] if as_json else demo_lines(rows):
        line(text)
    line(f"wrote {out}: every method and domain, the gain over time, who helped whom", err=True)
    options = f"--methods clip,latte,ristretto --seeds 0-2 --set schedule.sync={SYNC}"
    line(f"next: latte run --benchmark {BENCHMARK} {options}", err=True)


def run_fleet(options: FleetOptions, once: bool, as_json: bool) -> None:
    """Run the demo until all images are classified, or until a signal."""
    from ..errors import need

    for module in ("starlette", "uvicorn", "msgspec", "prometheus_client", "httpx2"):
        need(module, "serve")
    from ..demo.fleet import demo_fleet

    with demo_fleet(options) as fleet:
        how = "in lock step" if options.lock_step else "each at its own pace"
        line(f"a server and {options.devices} devices, with forty clients of PACS, {how}", err=True)
        line(f"dashboard: {fleet.dashboard}", err=True)
        line(f"join from another terminal: latte demo --join {fleet.address} --token {fleet.guest}", err=True)
        for tally in _milestones(fleet, as_json):
            plain, adapted = (100 * right / tally.images for right in (tally.correct_zero_shot, tally.correct))
            about = {"images": tally.images, "zero_shot": plain, "adapted": adapted, "labels": tally.labels}
            row = tally_row(tally.images, tally.correct, tally.correct_zero_shot)
            line(json.dumps(about) if as_json else row)
        if not once:
            line("all images are classified; the dashboard stays until Ctrl-C", err=True)
            try:
                threading.Event().wait()
            except Stopped:
                accept_stop()


def _milestones(fleet: DemoFleet, last_only: bool) -> Iterator[DeviceTally]:
    """Yield about ten tallies on the way, and the last."""
    step = fleet.images / _ROWS
    due = step
    if not last_only:
        line(_HEAD)
    for tally in fleet.tallies():
        if tally.labels or (tally.images >= due and not last_only and tally.images < fleet.images):
            due = (tally.images // step + 1) * step
            yield tally


def tally_row(images: int, correct: int, correct_zero_shot: int) -> str:
    """Return a row of the table: images, accuracy of zero-shot and adapted predictions, and the gain."""
    plain, adapted = (100 * right / images for right in (correct_zero_shot, correct))
    return f"{images:>8,}{plain:>15.2f}{adapted:>13.2f}{adapted - plain:>+8.2f}"


def run_guest(server: str, token: str, precision: str, seconds: float) -> None:
    """Join a running demo as one more device."""
    from ..errors import need

    for module in ("msgspec", "httpx2"):
        need(module, "http")
    from ..demo.clients import guest_clients

    shown = 0
    for client in guest_clients(server, token, precision, seconds):
        counts, length = client.counts, len(client.rows)
        if counts.labelled == 1:
            line(f"joined {server} as {client.name!r}: {length} images of {client.domain}", err=True)
            line(_HEAD)
        if counts.labelled == length or counts.labelled * _ROWS // length > shown:
            shown = counts.labelled * _ROWS // length
            line(tally_row(counts.labelled, counts.correct, counts.correct_zero_shot))
