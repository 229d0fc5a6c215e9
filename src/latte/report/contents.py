"""What a report shows: tables of comparable runs, curves of sweeps, and searches, which are folded away."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..analysis.stats import Answers
from ..errors import InputError
from ..experiment.collection import Collection, Run, encoders
from ..experiment.folder import PredictionFiles, Predictions, RunFolder, read_predictions
from ..methods import METHODS, describe
from ..simulation.labelling import Labelling
from ..simulation.results import Result
from ..simulation.simulator import Schedule
from .published import family
from .sweeps import SweepTable, axis_name, build_sweep, value_text
from .tables import ResultTable, build_table, result_key

LABELS = ("labels.per_class", "labels.random", "labels.margin")  # one of them is more than 0 in a run with labels


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report shows; ``runs`` are those behind the tables, for their origin and their diagnoses."""

    tables: tuple[ResultTable, ...]
    runs: tuple[Run, ...]
    sweeps: tuple[SweepTable, ...] = ()


@dataclass
class Comparable:
    """Results that belong into one table, and what they share: ``streams`` and, if they sync, ``schedule``.

    ``words`` tell it from other tables of the benchmark; ``names`` are the registered names of methods by label.
    ``runs`` are those that the results come from. ``answers`` are those to single images, where a run stored them, and
    ``seconds`` how long a result took, both by :func:`latte.report.tables.result_key`.
    """

    streams: Mapping[str, Any]
    schedule: Mapping[str, Any]
    benchmark: str
    encoder: str | None = None
    words: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    answers: dict[str, Answers] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """What distinguishes its table from others of the benchmark."""
        return {**self.streams, **self.schedule}

    @property
    def title(self) -> str:
        """The benchmark, and what tells this table from its others."""
        return f"{self.benchmark}; {self.words}" if self.words else self.benchmark

    def prompts(self) -> tuple[str, ...] | None:
        """Return the templates of the class names, where a manifest has them."""
        for run in self.runs:
            if (prompts := run.prompts()) is not None:
                return prompts
        return None


def build_report(collection: Collection, claimed: str | None = None) -> Report:
    """Return the report of everything in ``collection``: a table per benchmark and per kind of federation.

    Runs with other clients, orders or labels are no rows of one table, because their seeds mean other streams, nor are
    methods that sync at other times. What distinguishes such tables stands in their titles; a method that exchanges
    nothing is in each table of its streams.
    """
    tables = [_table(part, claimed) for part in comparable_sets(collection)]
    names = encoders(collection.every_run())
    sweeps = sorted((build_sweep(sweep, names) for sweep in collection.sweeps), key=lambda sweep: sweep.folded)
    return Report(tuple(tables), collection.runs, tuple(sweeps))


def comparable_sets(collection: Collection) -> Iterator[Comparable]:
    """Yield what belongs into one table each; methods that exchange nothing are in every one of their streams."""
    names = encoders(collection.every_run())
    for benchmark in dict.fromkeys(result.benchmark for run in collection.runs for result in run.results):
        yield from _sets(benchmark, collection.runs, names.get(benchmark))


def _sets(benchmark: str, runs: Sequence[Run], encoder: str | None) -> Iterator[Comparable]:
    parts, names = _comparable(benchmark, runs)
    synced = [part for part in parts if part.schedule]
    alone = [part for part in parts if not part.schedule]  # with nobody: rows of every table of the same streams
    parts = [part for part in parts if part.schedule or not any(other.streams == part.streams for other in synced)]
    every = [part.settings for part in parts]
    varying = [
        key
        for key in dict.fromkeys(key for settings in every for key in settings)
        if len({json.dumps(settings[key]) for settings in every if key in settings}) > 1
    ]
    for part in parts:
        members = [*(other for other in alone if part.schedule and other.streams == part.streams), part]
        words = ", ".join(
            f"{axis_name(key)}={value_text(part.settings[key])}" for key in varying if key in part.settings
        )
        yield Comparable(
            streams=part.streams,
            schedule=part.schedule,
            benchmark=benchmark,
            encoder=encoder,
            words=words,
            names=names,
            results=[result for member in members for result in member.results],
            runs=[run for member in members for run in member.runs],
            answers={key: found for member in members for key, found in member.answers.items()},
            seconds={key: found for member in members for key, found in member.seconds.items()},
        )


def _table(part: Comparable, claimed: str | None) -> ResultTable:
    table = build_table(part.results, part.encoder, claimed, part.names, part.answers)
    notes = dict.fromkeys(run.note() for run in part.runs)
    labels = [f"{key}={part.settings[key]}" for key in LABELS if part.settings.get(key)]
    if labels:
        notes[f"{', '.join(labels)}: accuracy is that on the images that nobody labelled"] = None
    title = f"{table.title}; {part.words}" if part.words else table.title
    return replace(table, title=title, notes=(*table.notes, *(f"{note}." for note in notes if note)))


def _comparable(benchmark: str, runs: Sequence[Run]) -> tuple[list[Comparable], dict[str, str]]:
    """Share the results on a benchmark out to tables; return also the registered names of methods by label.

    A label that another run has for another method gets the method's name beside it.
    """
    parts: dict[tuple[str, str], Comparable] = {}
    names: dict[str, str] = {}
    for run in runs:
        (streams, schedule), own_names = _federation(run), run.method_names()
        listed, seconds = PredictionFiles(run.folder).entries(), RunFolder(run.folder).seconds()
        for result in run.results:
            if result.benchmark != benchmark:
                continue
            name = own_names.get(result.method) or family(result.method)
            # the schedule matters to a method that exchanges; one that is not known here may
            exchanges = name not in METHODS or describe(name).collaborative or describe(name).shared
            syncs = schedule if exchanges else {}
            key = (json.dumps(streams, sort_keys=True), json.dumps(syncs, sort_keys=True))
            part = parts.setdefault(key, Comparable(streams, syncs, benchmark))
            shown = result
            if names.setdefault(result.method, name) != name:
                shown = replace(result, method=f"{result.method} ({name})")
                names[shown.method] = name
            part.results.append(shown)
            part.runs.append(run)
            if (result.method, result.seed) in seconds:
                part.seconds[result_key(shown)] = seconds[result.method, result.seed]
            if (result.method, result.seed) in listed:
                with suppress(InputError):  # damaged, or of other results
                    predictions = read_predictions(run.folder, result.method, result.seed)
                    part.answers[result_key(shown)] = answers_of(predictions)
    return list(parts.values()), names


def answers_of(predictions: Predictions) -> Answers:
    """Return predictions image by image."""
    images, place, seen = np.unique(predictions.image, return_inverse=True, return_counts=True)
    return Answers(images, seen, np.bincount(place, predictions.correct, len(images)).astype(np.int64))


def _federation(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what decides the streams and the syncs of a run, by key; empty where it is not recorded."""
    config = run.config.get("config")
    if not isinstance(config, Mapping):
        return {}, {}
    schedule = config.get("schedule")
    parts = {**asdict(Schedule()), **(schedule if isinstance(schedule, Mapping) else {})}
    labels = config.get("labels")
    given = {**asdict(Labelling()), **(labels if isinstance(labels, Mapping) else {})}
    streams = {key: config.get(key) for key in ("clients_per_domain", "order")}
    streams |= {f"labels.{key}": value for key, value in given.items()}  # accuracy is that on the other images
    return streams, {f"schedule.{key}": value for key, value in parts.items()}
