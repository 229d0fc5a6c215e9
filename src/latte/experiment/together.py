"""Runs that differ in how the memory is read only: the engine replays what happens once and reads it for all of them.

These are the parameters of :func:`latte.simulation.engine.readout_parameters`: alpha and beta for Latte and TDA, the
weight of the memory and beta for DMN.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from ..data.benchmark import Federation
from ..methods import resolve
from ..simulation.engine import has_engine, readout_parameters, run_grid
from ..simulation.outcome import Outcome
from .config import RunConfig
from .plan import Job
from .structure import dump_config


def batches(jobs: Sequence[Job]) -> list[list[int]]:
    """Return which jobs are done together, by position: each is in one batch."""
    groups: dict[str, list[int]] = {}
    for position, job in enumerate(jobs):
        groups.setdefault(_key(job) or f"alone {position}", []).append(position)
    return list(groups.values())


def _key(job: Job) -> str | None:
    """Return what jobs that can be done together have in common; None where there is no engine for it."""
    plan, item = job
    method, readout = item.method, readout_parameters(item.method.name)
    if plan.config.engine != "auto" or readout is None or not has_engine(method.name, dict(method.params)):
        return None
    settings = dump_config(plan.config)
    settings["methods"] = method.name
    settings["seeds"] = item.seed
    fixed = {key: value for key, value in method.params.items() if key not in readout}
    return json.dumps([str(plan.entry.path), settings, fixed], sort_keys=True)


def run_readouts(
    federation: Federation, configs: Sequence[RunConfig], rng: np.random.Generator, threads: int = 1
) -> list[Outcome]:
    """Return the outcome of every one of ``configs``, which a batch has put together."""
    methods = [config.methods[0] for config in configs]
    names = readout_parameters(methods[0].name) or ()
    pairs = [tuple(float(method.params[name]) for name in names) for method in methods]
    alphas, betas = (sorted({pair[axis] for pair in pairs}) for axis in (0, 1))
    params = resolve(methods[0].name, dict(methods[0].params))
    grid = run_grid(federation, methods[0].name, params, (alphas, betas), configs[0].schedule, rng, threads=threads)
    return [grid.outcome(alphas.index(alpha), betas.index(beta)) for alpha, beta in pairs]
