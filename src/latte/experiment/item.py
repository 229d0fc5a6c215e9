"""One item of a run: a method on a federation. This is where an engine is chosen."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..core.validate import refuse
from ..data.benchmark import Federation
from ..data.catalogue import Entry, open_entry
from ..data.partition import federate, generators
from ..methods import METHODS, register, resolve
from .config import RunConfig
from .outcome import Outcome
from .readable import run_readable
from .records import Result
from .structure import structured


def run_item(federation: Federation, config: RunConfig, seed: int) -> Outcome:
    """Run the only method of ``config`` on ``federation``, with the fast engine where it has one for the method."""
    (method,) = config.methods
    params = resolve(method.name, dict(method.params))
    if config.engine == "auto":
        outcome = _fast(federation, method.name, params, config, generators(seed).cohort)
        if outcome is not None:
            return outcome
    return run_readable(federation, method.name, params, config.schedule, generators(seed).cohort)


def run_one(config: RunConfig, path: Path) -> Result:
    """Run the only method and the only seed of ``config`` on the embeddings in ``path``."""
    (method,), (seed,) = config.methods, config.seeds
    embeddings = open_entry(Entry(config.benchmark, path))
    federation = federate(embeddings, config.clients_per_domain, seed, config.order)
    outcome = run_item(federation, config, seed)
    result = outcome.result(federation, method.label, dict(method.params), method.setting, seed)
    return replace(result, benchmark=config.benchmark)


def work(message: str) -> str:
    """Do one item in a worker process; text comes in and goes out, so nothing is ever pickled but strings."""
    told = json.loads(message)
    for plugin in told["plugins"]:
        load_plugin(Path(plugin))
    for name, target in told["own"].items():
        if name not in METHODS:
            register(name, target)
    started = time.perf_counter()
    result = run_one(structured(told["config"]), Path(told["path"]))
    return json.dumps({"line": result.to_json(), "seconds": time.perf_counter() - started})


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
    sys.modules[name] = module  # before it runs: its methods are found by this name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"plugin {path}: {type(error).__name__}: {error}") from error
    return module


def _fast(
    federation: Federation, name: str, params: Any, config: RunConfig, rng: np.random.Generator
) -> Outcome | None:
    """Ask the fast engine; None where it is not installed or has nothing for this method."""
    if importlib.util.find_spec("latte.experiment.engine") is None:
        return None
    engine = importlib.import_module("latte.experiment.engine")
    outcome: Outcome | None = engine.run_fast(federation, name, params, config.schedule, rng)
    return outcome
