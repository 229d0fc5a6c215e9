"""A configuration with every default filled in, bound to its data: its hash names the run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..core.validate import choice
from ..data.benchmark import Embeddings
from ..data.catalogue import UNKNOWN as UNKNOWN
from ..data.catalogue import BenchmarkFile, default_clients, find_benchmark, find_problems, read_benchmark
from ..data.partition import federate
from ..encoders import split_spec as split_encoder
from ..encoders.prompt_tuner import TUNABLE
from ..errors import InputError, MissingExtra, refuse
from ..files.checksums import checksum, sha256_of
from ..methods import METHODS, create, describe
from ..simulation.engine import TaskSize, size_of
from ..simulation.readable import check_data_views
from .config import MethodConfig, RunConfig, recorded_parameters, setting_of
from .failures import describe_failure
from .structure import dump_config

RUN_FORMAT = "latte-run/1"


@dataclass(frozen=True, slots=True)
class DataInfo:
    """Which data a run saw: the file, the classifier in it, and the encoder that it names."""

    sha256: str
    fingerprint: str
    encoder: str


@dataclass(frozen=True, slots=True)
class RunFile:
    """The config.json of a run folder; ``config`` becomes a RunConfig where every method in it is known."""

    format: str
    config: dict[str, Any]
    data: DataInfo
    sources: dict[str, str]

    def __post_init__(self) -> None:
        choice("format", self.format, (RUN_FORMAT,))


@dataclass(frozen=True, slots=True)
class Item:
    """The unit of work: one method on one seed."""

    method: MethodConfig
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that can start. ``sources`` are the checksums of the methods that are not ours, by name.

    ``size`` is that of one item.
    """

    config: RunConfig
    entry: BenchmarkFile
    data: DataInfo
    sources: Mapping[str, str]
    size: TaskSize

    def canonical(self) -> str:
        """Return the resolved configuration as JSON, the same text for the same run on any machine."""
        content = {
            "format": RUN_FORMAT,
            "config": dump_config(self.config),
            "data": asdict(self.data),
            "sources": dict(self.sources),
        }
        return json.dumps(content, sort_keys=True, indent=1) + "\n"

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return f"{self.config.benchmark}-{sha256_of(self.canonical().encode())[:10]}"

    def items(self) -> list[Item]:
        """Return everything to do, in the order of the results."""
        return [Item(method, seed) for method in self.config.methods for seed in self.config.seeds]


class Job(NamedTuple):
    """An item, and the plan that it belongs to."""

    plan: Plan
    item: Item

    def config(self) -> RunConfig:
        """Return the configuration of the item alone: one method, one seed."""
        return replace(self.plan.config, methods=(self.item.method,), seeds=(self.item.seed,))


class PlacedPlan(NamedTuple):
    """A plan, and the folder in which its run folder is."""

    plan: Plan
    out: Path


@dataclass(frozen=True, slots=True)
class OpenBenchmark:
    """A benchmark whose file was read and checked."""

    entry: BenchmarkFile
    embeddings: Embeddings
    info: DataInfo


def make_plan(config: RunConfig, data: Path | None = None) -> Plan:
    """Fill in every default of ``config`` and check that it can run; nothing is written."""
    return plan_on(config, open_benchmark(config.benchmark, data))


def open_benchmark(name: str, data: Path | None = None) -> OpenBenchmark:
    """Read and check a benchmark, by name or file."""
    entry = find_benchmark(name, data)
    embeddings = read_benchmark(entry)
    _sound(entry, embeddings)
    encoder = embeddings.metadata.get("encoder", UNKNOWN)
    return OpenBenchmark(entry, embeddings, DataInfo(checksum(entry.path), embeddings.zero_shot.fingerprint, encoder))


def plan_on(config: RunConfig, benchmark: OpenBenchmark) -> Plan:
    """Fill in every default of ``config`` for a benchmark that is open."""
    clients = config.clients_per_domain
    if clients is None:
        clients = default_clients(benchmark.embeddings, benchmark.entry.name)
    methods = tuple(_fill_in(method, benchmark.embeddings, config.text_encoder) for method in config.methods)
    full = replace(config, benchmark=benchmark.entry.name, methods=methods, clients_per_domain=clients)
    federation = federate(benchmark.embeddings, clients, config.seeds[0], config.order)
    config.schedule.check(len(federation))
    own = [method.name for method in methods if not describe(method.name).built_in]
    sources = {name: _source(name) for name in own}
    return Plan(full, benchmark.entry, benchmark.info, sources, size_of(federation))


def _sound(entry: BenchmarkFile, embeddings: Embeddings) -> None:
    if not len(embeddings):
        raise refuse(str(entry.path), "no images", "at least one")
    for problem in find_problems(embeddings):
        raise refuse(str(entry.path), problem, "a sound file (latte data check)")


def _fill_in(method: MethodConfig, embeddings: Embeddings, text_encoder: str | None) -> MethodConfig:
    check_data_views(method.name, embeddings)
    full = recorded_parameters(method)
    for key, value in full.items():
        _check_plain(f"{method.name} parameter {key}", value)
    if not describe(method.name).tunes_prompt:
        _try_to_create(method.name, embeddings, full)
    elif text_encoder is None:
        want = f"{TUNABLE}, because {method.name} tunes a prompt (--set text_encoder=...)"
        raise refuse("text_encoder", "none", want)
    else:
        split_encoder(text_encoder)  # refuses a name that no encoder can have before anything runs
    return replace(method, params=full, setting=setting_of(method))


def _check_plain(name: str, value: object) -> None:
    """Refuse a parameter that a file of the run would not give back as it was."""
    if not (
        value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
    ):
        raise refuse(name, repr(value), "a number, a word, true, false or None")


def _try_to_create(name: str, embeddings: Embeddings, params: Mapping[str, Any]) -> None:
    """Make a method once, which refuses what it cannot do without; one of the user's own may fail in any way."""
    try:
        create(name, embeddings.zero_shot, params)
    except (InputError, MissingExtra):
        raise
    except Exception as error:
        raise InputError(f"method {name}: {describe_failure(error)}") from error


def _source(name: str) -> str:
    """Return the checksum of the file that defines a method of the user's own."""
    import inspect

    return checksum(Path(inspect.getfile(describe(name).kind)))


def as_message(
    jobs: Sequence[Job],
    plugins: tuple[str, ...] = (),
    predictions: bool = False,
    runs: int = 1,
    threads: int = 1,
) -> str:
    """Return items of the same data as text, for a worker process that does them together.

    ``runs`` is the number of all items, ``threads`` the number of threads that a worker may use for an item.
    """
    own: dict[str, Any] = {name: METHODS[name] for job in jobs for name in job.plan.sources}
    return json.dumps(
        {
            "configs": [dump_config(job.config()) for job in jobs],
            "path": str(jobs[0].plan.entry.path.resolve()),
            "plugins": list(plugins),
            "own": own,
            "predictions": predictions,
            "runs": runs,
            "threads": threads,
        }
    )
