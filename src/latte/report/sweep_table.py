"""A sweep as data: the accuracies at every value of what varies, independent of the format that it is shown in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..experiment.collection import StoredPoint, SweepFolder
from ..experiment.config import format_seeds
from .groups import order_of
from .paper import display
from .result_table import Cell, ResultTable
from .tables import build_table

AXIS_NAMES = {"schedule.period": "T"}


class SweepLine(NamedTuple):
    """A line of a sweep: the method's label in the results, its registered name, and what the line is called."""

    method: str
    name: str
    label: str


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The results at one point; ``values`` follow the axes of the sweep."""

    values: tuple[Any, ...]
    table: ResultTable


@dataclass(frozen=True, slots=True)
class BestPoint:
    """Where a method is best: the accuracy, the values (the first where several are), and how many points share it."""

    label: str
    accuracy: float
    values: tuple[Any, ...]
    tied: int


@dataclass(frozen=True, slots=True)
class GridRow:
    """A row of a grid; ``cells`` follow its columns, None where nothing was run."""

    name: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Accuracies in rows and columns; ``corner`` is what the rows are, ``title`` what the whole is of, or ""."""

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[GridRow, ...]


@dataclass(frozen=True, slots=True)
class SweepTable:
    """The results of a sweep or, with ``tuning``, of a search for parameters, at all points in numerical order.

    ``folded``: a search is not shown point by point, unless its folder was named. ``planned`` points, of which some may
    be missing.
    """

    benchmark: str
    encoder: str | None
    folder: str
    axes: tuple[str, ...]
    points: tuple[SweepPoint, ...]
    planned: int
    tuning: bool
    folded: bool

    @property
    def heading(self) -> str:
        """What the whole is of."""
        return f"{'Tuning' if self.tuning else 'Sweep'} over {' and '.join(self.axes)} on {self.benchmark}"

    @property
    def lines(self) -> tuple[SweepLine, ...]:
        """The lines of the sweep, one per method."""
        rows = [row for point in self.points for row in point.table.rows]
        return tuple(dict.fromkeys(SweepLine(r.method, r.name, display(r.method, r.name)) for r in rows))

    @property
    def seeds(self) -> str:
        """The seeds of its points, as "0-4"."""
        return format_seeds(sorted({seed for p in self.points for row in p.table.rows for seed in row.seeds}))

    def total(self, point: SweepPoint, method: str) -> Cell | None:
        """Return the accuracy of a method at a point."""
        return next((row.cells[0] for row in point.table.rows if row.method == method), None)

    def _totals(self, point: SweepPoint) -> tuple[Cell | None, ...]:
        return tuple(self.total(point, line.method) for line in self.lines)

    def best(self) -> list[BestPoint]:
        """Return where each method is best."""
        return [_best(self, line) for line in self.lines]

    def grids(self) -> list[Grid]:
        """Return the accuracies: of one axis a column per method, of two a grid per method."""
        if len(self.axes) == 2:
            return [_grid(self, line) for line in self.lines]
        rows = tuple(GridRow(", ".join(map(value_text, point.values)), self._totals(point)) for point in self.points)
        return [Grid("", ", ".join(self.axes), tuple(line.label for line in self.lines), rows)]

    def notes(self) -> list[str]:
        """Return the sentences that a reader needs beside the numbers."""
        count = len(self.points)
        missing = f"{count} of {self.planned} points so far. " if count < self.planned else ""
        encoder = f" {self.encoder}." if self.encoder else ""
        return [f"{missing}Seeds {self.seeds}.{encoder} {self.folder}"]

    def summary(self) -> str:
        """Return the sweep in a line: how many points, and where each method is best."""
        best = "; ".join(
            f"{point.label} {point.accuracy:.2f} at {self.place(point.values)}"
            + (f" ({point.tied} points tie)" if point.tied > 1 else "")
            for point in self.best()
        )
        return f"{self.heading}, {len(self.points)} points, seeds {self.seeds}; best: {best}"

    def place(self, values: Sequence[Any]) -> str:
        """Return a point in words: ``alpha=0.3, T=5``."""
        return ", ".join(f"{axis}={value_text(value)}" for axis, value in zip(self.axes, values, strict=True))


def build_sweep(sweep: SweepFolder, encoders: Mapping[str, str] | None = None) -> SweepTable:
    """Return the table of a sweep."""
    benchmark = sweep.points[0].run.results[0].benchmark
    encoder = (encoders or {}).get(benchmark)
    points = [_point(point, sweep.axes, encoder) for point in sweep.points]
    points.sort(key=lambda point: [order_of(value) for value in point.values])
    return SweepTable(
        benchmark=benchmark,
        encoder=encoder,
        folder=str(sweep.folder),
        axes=tuple(map(axis_name, sweep.axes)),
        points=tuple(points),
        planned=sweep.planned,
        tuning=sweep.tuning,
        folded=sweep.tuning and not sweep.named,
    )


def _point(point: StoredPoint, axes: Sequence[str], encoder: str | None) -> SweepPoint:
    table = build_table(point.run.results, encoder, names=point.run.method_names())
    return SweepPoint(tuple(point.values[key] for key in axes), table)


def axis_name(key: str) -> str:
    """Return how what varies is called, as on the command line.

    >>> axis_name("method.alpha"), axis_name("method.latte.alpha"), axis_name("schedule.period")
    ('alpha', 'latte.alpha', 'T')
    """
    return AXIS_NAMES.get(key) or key.removeprefix("method.").removeprefix("schedule.")


def value_text(value: Any) -> str:
    """Return a value of an axis as text, a number without needless digits.

    >>> value_text(10.0), value_text(0.003), value_text(True), value_text("paper")
    ('10', '0.003', 'True', 'paper')
    """
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _best(sweep: SweepTable, line: SweepLine) -> BestPoint:
    cells = [(point.values, sweep.total(point, line.method)) for point in sweep.points]
    scores = [(cell.mean, values) for values, cell in cells if cell is not None]
    best = max(score for score, _ in scores)
    values = [point for score, point in scores if score == best]
    return BestPoint(line.label, best, values[0], len(values))


def _grid(sweep: SweepTable, line: SweepLine) -> Grid:
    """Return the accuracies of a method: the first axis down, the second across."""
    down, across = (_values(sweep, axis) for axis in (0, 1))
    cells = {point.values: sweep.total(point, line.method) for point in sweep.points}
    rows = (GridRow(value_text(first), tuple(cells.get((first, second)) for second in across)) for first in down)
    columns = tuple(f"{sweep.axes[1]}={value_text(value)}" for value in across)
    return Grid(line.label, sweep.axes[0], columns, tuple(rows))


def _values(sweep: SweepTable, axis: int) -> list[Any]:
    return sorted({point.values[axis] for point in sweep.points}, key=order_of)
