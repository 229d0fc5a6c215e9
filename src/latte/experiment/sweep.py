"""A sweep: the same run at every point of a grid, in one folder."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any

from ..core.validate import choice
from ..errors import InputError, refuse
from ..files.atomic import write_text
from ..files.documents import read_json, sha256_of, shorten
from ..simulation.simulator import Schedule
from .config import RunConfig, change_setting, check_items, parse_value
from .folder import RunFolder
from .plan import OpenBenchmark, Plan, plan_on
from .runner import Event, Options, execute_all

SWEEP_FILE, SWEEP_FORMAT = "sweep.json", "latte-sweep/1"
PURPOSES = ("sweep", "tuning")  # a curve that is reported; a search whose points are not


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """One parameter and its values; ``key`` is a path such as ``method.alpha`` or ``schedule.period``."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the grid: the values that were set, and the run."""

    values: Mapping[str, Any]
    plan: Plan


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid of runs."""

    axes: tuple[SweepAxis, ...]
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """The name of the folder that the runs share."""
        digest = sha256_of(self.canonical().encode())[:10]
        return f"sweep-{self.points[0].plan.config.benchmark}-{digest}"

    def canonical(self) -> str:
        """Return which values are in which run folder, as JSON."""
        points = [{"values": dict(point.values), "run": point.plan.name} for point in self.points]
        axes = [{"key": axis.key, "values": list(axis.values)} for axis in self.axes]
        return json.dumps({"format": SWEEP_FORMAT, "axes": axes, "points": points}, sort_keys=True, indent=1) + "\n"


def parse_axis(text: str) -> SweepAxis:
    """Read ``KEY=V1,V2,...``; a bare name is a method's parameter, ``T`` the period.

    >>> parse_axis("alpha=0.1,1")
    SweepAxis(key='method.alpha', values=(0.1, 1))
    >>> parse_axis("T=1,5").key
    'schedule.period'
    """
    name, equals, values = text.partition("=")
    if not equals or not all(part.strip() for part in values.split(",")):
        raise refuse("--over", repr(text), "KEY=V1,V2,..., such as alpha=0.1,0.3,1")
    key = "period" if name.strip() == "T" else name.strip()
    if key in {field.name for field in fields(Schedule)}:
        key = f"schedule.{key}"
    elif key not in ("clients_per_domain", "order") and not key.startswith(("method.", "schedule.", "labels.")):
        key = f"method.{key}"
    return SweepAxis(key, tuple(parse_value(value) for value in values.split(",")))


def make_sweep(config: RunConfig, axes: Sequence[SweepAxis], benchmark: OpenBenchmark) -> Sweep:
    """Plan every point of the grid; nothing is written, and an impossible value is refused here."""
    if not axes:
        raise refuse("--over", "nothing", "at least one KEY=V1,V2,...")
    check_items("--over", math.prod(len(axis.values) for axis in axes) * len(config.methods) * len(config.seeds))
    keys = [axis.key for axis in axes]
    points = []
    for values in itertools.product(*(axis.values for axis in axes)):
        settings = dict(zip(keys, values, strict=True))
        here = config
        for key, value in settings.items():
            here = change_setting(here, key, value)
        points.append(Point(settings, plan_on(here, benchmark)))
    return Sweep(tuple(axes), tuple(points))


def check_plain(values: Mapping[str, Any]) -> None:
    """Refuse values of a file that no parameter can have."""
    for key, value in values.items():
        if not isinstance(value, (int, float, str, NoneType)):
            raise refuse(shorten(key), shorten(repr(value)), "a number, a word, true, false or null")


@dataclass(frozen=True, slots=True)
class PointEntry:
    """A point in sweep.json: its values, and the name of its run folder."""

    values: dict[str, Any]
    run: str

    def __post_init__(self) -> None:
        check_plain(self.values)


@dataclass(frozen=True, slots=True)
class SweepFile:
    """The content of sweep.json; ``purposes``, some of :data:`PURPOSES`, are what the points were run for."""

    format: str
    axes: tuple[SweepAxis, ...]
    points: tuple[PointEntry, ...]
    purposes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choice("format", self.format, (SWEEP_FORMAT,))
        keys = [axis.key for axis in self.axes]
        if not keys or any(sorted(point.values) != sorted(keys) for point in self.points):
            raise refuse("points", "other keys than those of the axes", "a value for each axis")


def read_sweep_file(folder: Path) -> SweepFile:
    """Read the sweep.json of a folder; a damaged one is refused."""
    return read_json(folder / SWEEP_FILE, SweepFile, "list of a sweep's points", extra=True)


def execute_sweep(sweep: Sweep, out: Path, options: Options | None = None) -> Iterator[tuple[Point, Event]]:
    """Run what is missing; points that differ in how a memory is read only are done together."""
    yield from execute_sweeps([sweep], out, options)


def execute_sweeps(
    sweeps: Sequence[Sweep], out: Path, options: Options | None = None, purpose: str = "sweep"
) -> Iterator[tuple[Point, Event]]:
    """Run what is missing of several sweeps, with the same processes; a report shows them by their ``purpose``."""
    choice("purpose", purpose, PURPOSES)
    points = [(point, Path(out) / sweep.name) for sweep in sweeps for point in sweep.points]
    with contextlib.ExitStack() as locks:  # of the sweeps: no other process works in these folders
        for sweep in sweeps:
            folder = Path(out) / sweep.name
            locks.enter_context(RunFolder(folder).lock())
            before: tuple[str, ...] = ()
            with contextlib.suppress(InputError):
                before = read_sweep_file(folder).purposes
            content = {**json.loads(sweep.canonical()), "purposes": sorted({*before, purpose})}
            write_text(folder / SWEEP_FILE, json.dumps(content, sort_keys=True, indent=1) + "\n")
        plans = [(point.plan, folder) for point, folder in points]
        for position, event in execute_all(plans, options or Options()):
            yield points[position][0], event
