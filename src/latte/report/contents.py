"""What a report shows: tables of comparable runs, curves of sweeps, and searches, which are folded away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..analysis.stats import Answers
from ..errors import InputError
from ..experiment.collection import Collection
from ..experiment.predictions import PredictionFiles, Predictions, read_predictions
from ..experiment.runs import Run, encoders
from ..methods import METHODS, describe
from ..simulation.records import Result
from ..simulation.schedule import Schedule
from .paper import family
from .result_table import ResultTable
from .sweep_table import SweepTable, axis_name, build_sweep, value_text
from .tables import build_table, result_key


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report shows; ``runs`` are those behind the tables, for their origin and their diagnoses."""

    tables: tuple[ResultTable, ...]
    runs: tuple[Run, ...]
    sweeps: tuple[SweepTable, ...] = ()


class Comparable(NamedTuple):
    """Results that belong into one table, and what they share: ``streams`` and, if they sync, ``schedule``.

    ``names`` are the registered names of methods by label, ``runs`` those that the results come from. ``answers`` are
    those to single images, where a run stored them, by :func:`latte.report.tables.result_key`.
    """

    streams: Mapping[str, Any]
    schedule: Mapping[str, Any]
    results: list[Result]
    names: Mapping[str, str]
    runs: list[Run]
    answers: dict[str, Answers]


def build_report(collection: Collection, claimed: str | None = None) -> Report:
    """Return the report of everything in ``collection``: a table per benchmark and per kind of federation.

    Runs with other clients or orders are no rows of one table, because their seeds mean other streams, nor are methods
    that sync at other times. What distinguishes such tables stands in their titles; a method that exchanges nothing is
    in each table of its streams.
    """
    names = encoders(collection.every_run())
    benchmarks = dict.fromkeys(result.benchmark for run in collection.runs for result in run.results)
    tables = [table for name in benchmarks for table in _tables(name, collection.runs, names.get(name), claimed)]
    sweeps = sorted((build_sweep(sweep, names) for sweep in collection.sweeps), key=lambda sweep: sweep.folded)
    return Report(tuple(tables), collection.runs, tuple(sweeps))


def _tables(benchmark: str, runs: Sequence[Run], encoder: str | None, claimed: str | None) -> Iterator[ResultTable]:
    parts = _comparable(benchmark, runs)
    varying = _varying([{**part.streams, **part.schedule} for part in parts])
    for part in parts:
        settings = {**part.streams, **part.schedule}
        words = ", ".join(f"{axis_name(key)}={value_text(settings[key])}" for key in varying if key in settings)
        table = build_table(part.results, encoder, claimed, part.names, part.answers)
        table = replace(table, notes=(*table.notes, *_run_notes(part)))
        yield replace(table, title=f"{table.title}; {words}") if words else table


def _run_notes(part: Comparable) -> list[str]:
    """Return what a reader has to know about the runs of a table, such as that one is not finished."""
    return [f"{note}." for note in dict.fromkeys(run.note() for run in part.runs) if note]


def _comparable(benchmark: str, runs: Sequence[Run]) -> list[Comparable]:
    """Share the results on a benchmark out to tables."""
    parts: dict[tuple[str, str], Comparable] = {}
    names: dict[str, str] = {}  # of all runs
    for run in runs:
        (streams, schedule), own_names = _federation(run), run.method_names()
        listed = PredictionFiles(run.folder).entries()
        for result in run.results:
            if result.benchmark == benchmark:
                name = own_names.get(result.method) or family(result.method)
                syncs = schedule if _exchanges(name) else {}
                key = (json.dumps(streams, sort_keys=True), json.dumps(syncs, sort_keys=True))
                part = parts.setdefault(key, Comparable(streams, syncs, [], names, [], {}))
                part.results.append(_with_unique_label(result, name, names))
                if (result.method, result.seed) in listed:
                    part.answers.update(_answers(run, result, result_key(part.results[-1])))
                part.runs.append(run)
    return [_with_others(part, list(parts.values())) for part in parts.values() if not _joins(part, parts.values())]


def _answers(run: Run, result: Result, key: str) -> dict[str, Answers]:
    """Return the stored answers behind a result; none where they are damaged or of other results."""
    try:
        return {key: answers_of(read_predictions(run.folder, result.method, result.seed))}
    except InputError:
        return {}


def answers_of(predictions: Predictions) -> Answers:
    """Return predictions image by image."""
    images, place, seen = np.unique(predictions.image, return_inverse=True, return_counts=True)
    return Answers(images, seen, np.bincount(place, predictions.correct, len(images)).astype(np.int64))


def _with_unique_label(result: Result, name: str, names: dict[str, str]) -> Result:
    """Return a result with a label of its own: with the method's name, if another run has the label for another method.

    ``names`` are the methods of the labels so far; this one is added.
    """
    taken = names.setdefault(result.method, name) != name
    label = f"{result.method} ({name})" if taken else result.method
    names[label] = name
    return replace(result, method=label) if taken else result


def _joins(part: Comparable, parts: Iterable[Comparable]) -> bool:
    """Say whether the results of ``part``, which sync with nobody, are rows of other tables of the same streams."""
    return not part.schedule and any(other.schedule and other.streams == part.streams for other in parts)


def _with_others(part: Comparable, parts: Sequence[Comparable]) -> Comparable:
    others = [other for other in parts if part.schedule and not other.schedule and other.streams == part.streams]
    results = [result for member in (*others, part) for result in member.results]
    answers = {key: found for member in (*others, part) for key, found in member.answers.items()}
    runs = [run for member in (*others, part) for run in member.runs]
    return part._replace(results=results, runs=runs, answers=answers)


def _varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that do not have the same value everywhere."""
    keys = dict.fromkeys(key for values in settings for key in values)
    return [key for key in keys if len({json.dumps(values[key]) for values in settings if key in values}) > 1]


def _federation(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what decides the streams and the syncs of a run, by key; empty where it is not recorded."""
    config = run.config.get("config")
    if not isinstance(config, Mapping):
        return {}, {}
    schedule = config.get("schedule")
    parts = {**asdict(Schedule()), **(schedule if isinstance(schedule, Mapping) else {})}
    streams = {key: config.get(key) for key in ("clients_per_domain", "order")}
    return streams, {f"schedule.{key}": value for key, value in parts.items()}


def _exchanges(name: str) -> bool:
    """Say whether other clients, and so the schedule, matter to a method; one that is not known here may exchange."""
    return name not in METHODS or describe(name).collaborative or describe(name).shared
