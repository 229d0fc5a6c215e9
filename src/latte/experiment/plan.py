"""A configuration with every default filled in, bound to its data: its hash names the run folder."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..core.validate import choice
from ..data.catalogue import UNKNOWN as UNKNOWN
from ..data.catalogue import BenchmarkFile, default_clients, find_benchmark, find_problems, read_benchmark
from ..data.federation import Embeddings, federate
from ..encoders.tuning import TUNABLE, check_tunable
from ..engine.api import readable_seconds
from ..errors import InputError, MissingExtra, refuse
from ..files.documents import checksum, parse_json, sha256_of
from ..methods import create, describe
from ..methods.plugins import describe_failure
from ..simulation.labelling import Labelling
from ..simulation.simulator import check_data_views
from .config import MethodConfig, RunConfig, recorded_parameters, setting_of

RUN_FORMAT = "latte-run/1"
ItemKey = tuple[str, int]  # the label of a method, and a seed


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

    @property
    def key(self) -> ItemKey:
        """What names it in a run: the label of the method, and the seed."""
        return self.method.label, self.seed


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that can start. ``sources`` are the checksums of the methods that are not ours, by name.

    ``readable_seconds`` is about how long an item takes without an engine. ``prompts`` are the templates of the class
    names, and what else the text rows were made from, where the data file says it.
    """

    config: RunConfig
    entry: BenchmarkFile
    data: DataInfo
    sources: Mapping[str, str]
    readable_seconds: float
    prompts: tuple[str, ...] = ()

    def canonical(self) -> str:
        """Return the resolved configuration as JSON, the same text for the same run on any machine."""
        config = asdict(self.config)
        if self.config.labels == Labelling():  # records from before there were labels keep their names
            del config["labels"]
        content = {
            "format": RUN_FORMAT,
            "config": config,
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
    if not len(embeddings):
        raise refuse(str(entry.path), "no images", "at least one")
    for problem in find_problems(embeddings):
        raise refuse(str(entry.path), problem, "a sound file (latte data check)")
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
    own = [info for method in methods if not (info := describe(method.name)).built_in]
    sources = {info.name: checksum(Path(inspect.getfile(info.kind))) for info in own}
    seconds, prompts = readable_seconds(federation), _prompts(benchmark.embeddings)
    return Plan(full, benchmark.entry, benchmark.info, sources, seconds, prompts)


def _prompts(embeddings: Embeddings) -> tuple[str, ...]:
    texts = embeddings.metadata.get("templates", "[]")
    templates = parse_json(texts, f"{embeddings.name}: templates", tuple[str, ...])
    return (*templates, *(("descriptions of each class",) if "descriptions" in embeddings.metadata else ()))


def _fill_in(method: MethodConfig, embeddings: Embeddings, text_encoder: str | None) -> MethodConfig:
    check_data_views(method.name, embeddings)
    full = recorded_parameters(method)
    for key, value in full.items():  # a file of the run has to give it back as it was
        if not (value is None or isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))):
            raise refuse(f"{method.name} parameter {key}", repr(value), "a number, a word, true, false or None")
    if not describe(method.name).tunes_prompt:
        try:  # to make it once refuses what it cannot do without; one of the user's own may fail in any way
            create(method.name, embeddings.zero_shot, full)
        except (InputError, MissingExtra):
            raise
        except Exception as error:
            raise InputError(f"method {method.name}: {describe_failure(error)}") from error
    elif text_encoder is None:
        want = f"{TUNABLE}, because {method.name} tunes a prompt (--set text_encoder=...)"
        raise refuse("text_encoder", "none", want)
    else:
        check_tunable(text_encoder)
    return replace(method, params=full, setting=setting_of(method))
