"""One item of a run: a method on a federation. This is where an engine is chosen."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ..data.benchmark import Federation
from ..data.catalogue import BenchmarkFile, read_benchmark
from ..data.partition import federate, generators
from ..errors import InputError, refuse
from ..methods import METHODS, describe, register, resolve
from ..simulation.engine import run_fast, use_engine
from ..simulation.outcome import Outcome
from ..simulation.readable import run_readable
from ..simulation.records import Result
from .config import RunConfig
from .failures import describe_failure
from .predictions import pack, predictions_of
from .sent import sent_per_client
from .structure import build_config
from .together import run_readouts


class Share(NamedTuple):
    """How much of a campaign one item is: the number of all runs in it, and the threads that this one may use."""

    runs: int = 1
    threads: int = 1


def run_item(federation: Federation, config: RunConfig, seed: int, share: Share | None = None) -> Outcome:
    """Run the only method of ``config`` on ``federation``, with the fast engine where it has one for the method."""
    (method,), share = config.methods, share or Share()
    params = resolve(method.name, dict(method.params))
    if config.engine == "auto" and use_engine(federation, method.name, params, share.runs):
        rng = generators(seed).cohort
        outcome = run_fast(federation, method.name, params, config.schedule, rng, threads=share.threads)
        if outcome is not None:
            return outcome
    tuner = _prompt_tuner(federation, config) if describe(method.name).tunes_prompt else None
    return run_readable(
        federation,
        method.name,
        params,
        config.schedule,
        generators(seed).cohort,
        text_encoder=tuner,
    )


def _prompt_tuner(federation: Federation, config: RunConfig) -> Any:
    """Return the differentiable text encoder of the classes, on one thread: the pool has a process per core."""
    from ..encoders.tuning import make_prompt_tuner

    return make_prompt_tuner(str(config.text_encoder), federation.embeddings.zero_shot.classnames, threads=1)


def run_together(
    configs: Sequence[RunConfig], path: Path, share: Share | None = None
) -> tuple[Federation, list[Outcome]]:
    """Run the only method and the only seed of every one of ``configs`` on the embeddings in ``path``.

    Several differ in the two readout parameters of their method only (see :mod:`together`): one replay serves them.
    """
    first, share = configs[0], share or Share()
    (seed,), (method,) = first.seeds, first.methods
    embeddings = read_benchmark(BenchmarkFile(first.benchmark, path))
    federation = federate(embeddings, first.clients_per_domain, seed, first.order)
    if len(configs) == 1 or not use_engine(federation, method.name, dict(method.params), share.runs):
        return federation, [run_item(federation, config, seed, share) for config in configs]
    return federation, run_readouts(federation, configs, generators(seed).cohort, share.threads)


def make_result(federation: Federation, config: RunConfig, outcome: Outcome) -> Result:
    """Return the record of the only method and the only seed of ``config``, with the bytes that a client sent."""
    (method,), (seed,) = config.methods, config.seeds
    result = outcome.result(federation, method.label, dict(method.params), method.setting, seed)
    sent = sent_per_client(federation, method.name, method.params, config.schedule, generators(seed).cohort)
    return replace(result, benchmark=config.benchmark, sent=sent)


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
    federation, outcomes = run_together(configs, Path(task["path"]), Share(task["runs"], task["threads"]))
    lines = [make_result(federation, *pair).to_json() for pair in zip(configs, outcomes, strict=True)]
    seconds = (time.perf_counter() - started) / len(lines)
    packed = [pack(predictions_of(federation, outcome)) if task["predictions"] else None for outcome in outcomes]
    return json.dumps({"lines": lines, "seconds": seconds, "predictions": packed})


def load_plugin(path: Path) -> ModuleType:
    """Import a file that registers methods of its own; a second call for the same file does nothing."""
    path = Path(path).resolve()
    name = f"latte_plugin_{path.stem}"
    if name in sys.modules and Path(str(sys.modules[name].__file__)) == path:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path) if path.suffix == ".py" and path.is_file() else None
    if spec is None or spec.loader is None:
        raise refuse("plugin", f"{path}", "a Python file that calls latte.methods.register")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: its methods are looked up by this name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"plugin {path}: {describe_failure(error)}") from error
    return module
