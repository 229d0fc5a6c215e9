"""``latte demo --fleet`` and ``--join``: what they print."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .output import line, silence_retries
from .stop import Stopped, accept_stop

if TYPE_CHECKING:
    from ..serve.demo_fleet import DemoFleet, FleetTally
    from ..serve.fleet_options import FleetOptions

_ROWS = 10  # of the table
_HEAD = f"{'images':>8}{'zero-shot, %':>15}{'adapted, %':>13}{'gain':>8}"


def run_fleet(options: FleetOptions, once: bool, as_json: bool) -> None:
    """Run the demo until all images are classified, or until a signal."""
    from ..core.extras import need

    for module in ("starlette", "uvicorn", "msgspec", "prometheus_client", "httpx2", "stamina"):
        need(module, "serve")
    from ..serve.demo_fleet import demo_fleet

    with demo_fleet(options) as fleet:
        _announce(fleet, options)
        for tally in _milestones(fleet, as_json):
            line(_as_json(tally) if as_json else tally_row(tally.images, tally.correct, tally.correct_zero_shot))
        if not once:
            line("all images are classified; the dashboard stays until Ctrl-C", err=True)
            try:
                threading.Event().wait()
            except Stopped:
                accept_stop()


def _announce(fleet: DemoFleet, options: FleetOptions) -> None:
    """Say what runs and where to look: on stderr, the results are what a program reads."""
    how = "in lock step" if options.lock_step else "each at its own pace"
    line(f"a server and {options.devices} devices, with forty clients of PACS, {how}", err=True)
    line(f"dashboard: {fleet.dashboard}", err=True)
    line(f"join from another terminal: latte demo --join {fleet.address} --token {fleet.tokens.guest}", err=True)


def _milestones(fleet: DemoFleet, last_only: bool) -> Iterator[FleetTally]:
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
    """Return a row of the table: images, accuracy of zero-shot and of the adapted answers, and the gain."""
    plain, adapted = (100 * right / images for right in (correct_zero_shot, correct))
    return f"{images:>8,}{plain:>15.2f}{adapted:>13.2f}{adapted - plain:>+8.2f}"


def _as_json(tally: FleetTally) -> str:
    return json.dumps(
        {
            "images": tally.images,
            "zero_shot": 100 * tally.correct_zero_shot / tally.images,
            "adapted": 100 * tally.correct / tally.images,
            "labels": tally.labels,
        }
    )


def run_guest(server: str, token: str, precision: str, seconds: float) -> None:
    """Join a running demo as one more device."""
    from ..core.extras import need

    for module in ("msgspec", "httpx2", "stamina"):
        need(module, "http")
    from ..simulation.fleet_guest import guest_tallies

    silence_retries()
    shown = 0
    for tally in guest_tallies(server, token, precision, seconds):
        if tally.images == 1:
            line(f"joined {server} as {tally.name!r}: {tally.length} images of {tally.domain}", err=True)
            line(_HEAD)
        if tally.images == tally.length or tally.images * _ROWS // tally.length > shown:
            shown = tally.images * _ROWS // tally.length
            line(tally_row(tally.images, tally.correct, tally.correct_zero_shot))


def check_options(join: str | None, token: str | None, fleet: bool) -> None:
    """Refuse options that do not go together."""
    if (join is None) != (token is None):
        raise click.UsageError("--join and --token go together")
    if join is not None and fleet:
        raise click.UsageError("--fleet starts a fleet, --join joins one: choose one of them")
