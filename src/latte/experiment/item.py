"""One item of a run: a method on a federation. This is where an engine is chosen."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ..data.catalogue import BenchmarkFile, read_benchmark
from ..data.federation import Federation, federate, generators
from ..engine import has_engine, readout_parameters, run_fast, run_grid, use_engine
from ..methods import METHODS, describe, register, resolve
from ..methods.plugins import load_plugin
from ..methods.traffic import traffic_of
from ..simulation.results import Outcome, Result
from ..simulation.simulator import count_syncs, run_readable
from .config import RunConfig, build_config
from .plan import Job
from .predictions import pack, predictions_of


def batches(jobs: Sequence[Job]) -> list[list[int]]:
    """Return which jobs are done together, by position: each is in one batch.

    Runs that differ only in how the memory is read are: the engine replays what happens once and reads it for all.
    """
    groups: dict[str, list[int]] = {}
    for position, (plan, item) in enumerate(jobs):
        method, readout = item.method, readout_parameters(item.method.name)
        key = f"alone {position}"
        if plan.config.engine == "auto" and readout is not None and has_engine(method.name, dict(method.params)):
            settings = {**asdict(plan.config), "methods": method.name, "seeds": item.seed}
            fixed = {name: value for name, value in method.params.items() if name not in readout}
            key = json.dumps([str(plan.entry.path), settings, fixed], sort_keys=True)
        groups.setdefault(key, []).append(position)
    return list(groups.values())


def run_together(
    configs: Sequence[RunConfig], path: Path, runs: int = 1, threads: int = 1
) -> tuple[Federation, list[Outcome]]:
    """Run the only method and the only seed of every one of ``configs`` on the embeddings in ``path``.

    Several are a batch: they differ in the two readout parameters of their method only, and one replay serves them.
    ``runs`` is the number of all runs of the campaign, ``threads`` how many these may use.
    """
    first = configs[0]
    (seed,), (method,) = first.seeds, first.methods
    embeddings = read_benchmark(BenchmarkFile(first.benchmark, path))
    federation = federate(embeddings, first.clients_per_domain, seed, first.order)
    told = first.labels and describe(method.name).teachable
    if told or len(configs) == 1 or not use_engine(federation, method.name, dict(method.params), runs):
        return federation, [run_item(federation, config, seed, runs, threads) for config in configs]
    names = readout_parameters(method.name) or ()
    pairs = [tuple(float(config.methods[0].params[name]) for name in names) for config in configs]
    alphas, betas = (sorted({pair[axis] for pair in pairs}) for axis in (0, 1))
    params, rng = resolve(method.name, dict(method.params)), generators(seed).cohort
    grid = run_grid(federation, method.name, params, (alphas, betas), first.schedule, rng, threads=threads)
    labelled = first.labels.told(federation, generators(seed).labels)
    outcomes = [grid.outcome(alphas.index(alpha), betas.index(beta)) for alpha, beta in pairs]
    return federation, [replace(outcome, told=labelled) for outcome in outcomes]


def run_item(federation: Federation, config: RunConfig, seed: int, runs: int = 1, threads: int = 1) -> Outcome:
    """Run the only method of ``config`` on ``federation``, with the fast engine where it has one for the method.

    With labels, a method that learns from them takes the readable simulator.
    """
    (method,) = config.methods
    params = resolve(method.name, dict(method.params))
    told = config.labels.told(federation, generators(seed).labels)
    taught = told if describe(method.name).teachable else None
    if taught is None and config.engine == "auto" and use_engine(federation, method.name, params, runs):
        rng = generators(seed).cohort
        outcome = run_fast(federation, method.name, params, config.schedule, rng, threads=threads)
        if outcome is not None:
            return replace(outcome, told=told)
    tuner = None
    if describe(method.name).tunes_prompt:
        from ..encoders.tuning import make_prompt_tuner

        classnames = federation.embeddings.zero_shot.classnames
        tuner = make_prompt_tuner(str(config.text_encoder), classnames, threads=1)  # the pool has a process per core
    rng = generators(seed).cohort
    outcome = run_readable(federation, method.name, params, config.schedule, rng, text_encoder=tuner, told=taught)
    return replace(outcome, told=told)


def make_result(federation: Federation, config: RunConfig, outcome: Outcome) -> Result:
    """Return the record of the only method and the only seed of ``config``, with the bytes that a client sent.

    These are the mean over the clients: the closed form of a sync, vectors in half precision, times the number of its
    syncs. The global form of a memory sends for every image.
    """
    (method,), (seed,) = config.methods, config.seeds
    result = outcome.result(federation, method.label, dict(method.params), method.setting, seed)
    text, info = federation.embeddings.zero_shot.text, describe(method.name)
    bytes_per_sync = traffic_of(method.name, resolve(method.name, dict(method.params)), *text.shape)
    sent = None
    if bytes_per_sync is not None:
        lengths, schedule = list(map(len, federation.clients)), config.schedule.for_method(info.sync)
        syncs = lengths if info.shared else count_syncs(lengths, schedule, generators(seed).cohort)
        sent = bytes_per_sync.vectors * sum(syncs) / len(syncs)
    return replace(result, benchmark=config.benchmark, sent=sent)


def as_message(
    jobs: Sequence[Job],
    plugins: tuple[str, ...] = (),
    predictions: bool = False,
    runs: int = 1,
    threads: int = 1,
    downloads: bool = False,
) -> str:
    """Return items of the same data as text, for a worker process that does them together.

    ``runs`` is the number of all items, ``threads`` the number of threads that a worker may use for an item. With
    ``downloads`` it also says who received how much from whom.
    """
    return json.dumps(
        {
            "configs": [asdict(job.config()) for job in jobs],
            "path": str(jobs[0].plan.entry.path.resolve()),
            "plugins": list(plugins),
            "own": {name: METHODS[name] for job in jobs for name in job.plan.sources},
            "predictions": predictions,
            "runs": runs,
            "threads": threads,
            "downloads": downloads,
        }
    )


def work(message: str) -> str:
    """Do items in a worker process; text comes in and goes out, so nothing is ever pickled but strings."""
    task = json.loads(message)
    for plugin in task["plugins"]:
        load_plugin(Path(plugin))
    for name, registration in task["own"].items():
        if name not in METHODS:
            register(name, *registration)
    started = time.perf_counter()
    configs = [build_config(config) for config in task["configs"]]
    federation, outcomes = run_together(configs, Path(task["path"]), task["runs"], task["threads"])
    lines = [make_result(federation, *pair).to_json() for pair in zip(configs, outcomes, strict=True)]
    seconds = (time.perf_counter() - started) / len(lines)
    packed = [pack(predictions_of(federation, outcome)) if task["predictions"] else None for outcome in outcomes]
    counted = [None if one.downloads is None or not task["downloads"] else one.downloads.tolist() for one in outcomes]
    return json.dumps({"lines": lines, "seconds": seconds, "predictions": packed, "downloads": counted})
