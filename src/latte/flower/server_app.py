"""The ServerApp of Latte: a plain loop around the method's exchange; there is no model to average, and no strategy."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import ServerApp

from ..coordination.sqlite_store import STORE_FILE
from ..coordination.upload_check import mended_hub
from ..edge.exchange_folder import look_for
from ..files.locks import is_locked
from ..wire.task_file import read_task
from .barrier import Barrier, write_labels
from .fleet import Fleet
from .settings import BENCHMARK, BenchmarkSettings, FleetSettings, mode_of

log = logging.getLogger("flwr.latte")
STORE_SECONDS = 120.0  # to wait until another run has released the store


def make_server_app() -> ServerApp:
    """Return a ServerApp."""
    app = ServerApp()
    app.main()(_main)
    return app


def _main(grid: Any, context: Context) -> None:
    if mode_of(context.run_config) == BENCHMARK:
        run_benchmark(grid, BenchmarkSettings.of(context.run_config))
    else:
        run_fleet(grid, FleetSettings.of(context.run_config))


def run_fleet(grid: Any, settings: FleetSettings) -> None:
    """Serve a fleet; uploads that an earlier run stored are used again."""
    wait_for_store(settings.state)
    hub = mended_hub(read_task(settings.task), settings.state)
    with closing(hub.store):
        hours = (time.time() - min(hub.updated.values(), default=time.time())) / 3600
        log.info("%r: the uploads of %s nodes are restored, up to %.1f hours old", hub.task, len(hub), hours)
        Fleet(grid, hub, settings).run()


def wait_for_store(folder: Path, seconds: float = STORE_SECONDS) -> None:
    """Wait until the store is free: if a SuperLink is killed, the app of its run goes on for a while."""
    if is_locked(folder / f"{STORE_FILE}.lock"):
        log.warning("another run still has %s: waiting until it has ended", folder)
        look_for(lambda: None if is_locked(folder / f"{STORE_FILE}.lock") else True, seconds)


def run_benchmark(grid: Any, settings: BenchmarkSettings) -> None:
    """Walk through a benchmark in step, and log the accuracy of the labels."""
    barrier = Barrier(grid, settings)
    outcome = barrier.run()
    accuracy = 100 * float(np.concatenate(outcome.correct(barrier.federation)).mean())
    log.info("%s on %s: accuracy %.2f %%", settings.method, settings.benchmark, accuracy)
    if settings.out:
        write_labels(Path(settings.out), barrier.federation, outcome)


app = make_server_app()
