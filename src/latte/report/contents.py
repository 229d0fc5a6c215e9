"""What a report shows: tables of comparable runs, curves of sweeps, and searches, which are folded away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from ..experiment.collection import Collection
from ..experiment.runs import Run, encoders
from ..methods import METHODS, describe
from ..simulation.records import Result
from ..simulation.schedule import Schedule
from .result_table import ResultTable
from .sweep_table import SweepTable, axis_name, build_sweep, value_text
from .tables import build_table


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report shows; ``runs`` are those behind the tables, for their origin and their diagnoses."""

    tables: tuple[ResultTable, ...]
    runs: tuple[Run, ...]
    sweeps: tuple[SweepTable, ...] = ()


class Comparable(NamedTuple):
    """Results that belong into one table, and what they share: ``streams`` and, where they sync, ``schedule``."""

    streams: Mapping[str, Any]
    schedule: Mapping[str, Any]
    results: list[Result]


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
        table = build_table(part.results, encoder, claimed)
        table = replace(table, notes=(*table.notes, *_run_notes(part, runs)))
        yield replace(table, title=f"{table.title}; {words}") if words else table


def _run_notes(part: Comparable, runs: Sequence[Run]) -> list[str]:
    """Return what a reader has to know about the runs of a table, such as that one is not finished."""
    shown = {id(result) for result in part.results}
    notes = [run.note() for run in runs if any(id(result) in shown for result in run.results)]
    return [f"{note}." for note in notes if note]


def _comparable(benchmark: str, runs: Sequence[Run]) -> list[Comparable]:
    """Share the results on a benchmark out to tables."""
    parts: dict[tuple[str, str], Comparable] = {}
    for run in runs:
        streams, schedule = _federation(run)
        for result in run.results:
            if result.benchmark == benchmark:
                syncs = schedule if _exchanges(run, result) else {}
                key = (json.dumps(streams, sort_keys=True), json.dumps(syncs, sort_keys=True))
                parts.setdefault(key, Comparable(streams, syncs, [])).results.append(result)
    return [_with_others(part, list(parts.values())) for part in parts.values() if not _joins(part, parts.values())]


def _joins(part: Comparable, parts: Iterable[Comparable]) -> bool:
    """Say whether the results of ``part``, which sync with nobody, are rows of other tables of the same streams."""
    return not part.schedule and any(other.schedule and other.streams == part.streams for other in parts)


def _with_others(part: Comparable, parts: Sequence[Comparable]) -> Comparable:
    others = [one for one in parts if part.schedule and not one.schedule and one.streams == part.streams]
    return part._replace(results=[result for one in (*others, part) for result in one.results])


def _varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that do not have the same value everywhere."""
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if len({json.dumps(one[key]) for one in settings if key in one}) > 1]


def _federation(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what decides the streams and the syncs of a run, by key; empty where it is not recorded."""
    config = run.config.get("config")
    if not isinstance(config, Mapping):
        return {}, {}
    schedule = config.get("schedule")
    parts = {**asdict(Schedule()), **(schedule if isinstance(schedule, Mapping) else {})}
    streams = {key: config.get(key) for key in ("clients_per_domain", "order")}
    return streams, {f"schedule.{key}": value for key, value in parts.items()}


def _exchanges(run: Run, result: Result) -> bool:
    """Say whether other clients, and so the schedule, matter to a result; a method that is not known here may."""
    config = run.config.get("config")
    methods = config.get("methods") if isinstance(config, Mapping) else None
    entries = [one for one in methods if isinstance(one, Mapping)] if isinstance(methods, list) else []
    name = next((str(one.get("name")) for one in entries if one.get("label") == result.method), result.method)
    return name not in METHODS or describe(name).collaborative or describe(name).shared
