"""A sweep as data: the accuracies at every value of what varies, independent of the format that it is shown in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..experiment.collection import SweepFolder
from ..experiment.config import format_seeds
from .groups import order_of
from .paper import display
from .result_table import Cell, ResultTable
from .tables import build_table

AXIS_NAMES = {"schedule.period": "T"}


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
    def methods(self) -> tuple[tuple[str, str], ...]:
        """The lines of the sweep: (method, label)."""
        return tuple(dict.fromkeys((row.method, display(row.method)) for p in self.points for row in p.table.rows))

    @property
    def seeds(self) -> str:
        """The seeds of its points, as "0-4"."""
        return format_seeds(sorted({seed for p in self.points for row in p.table.rows for seed in row.seeds}))

    def total(self, point: SweepPoint, method: str) -> Cell | None:
        """Return the accuracy of a method at a point."""
        return next((row.cells[0] for row in point.table.rows if row.method == method), None)

    def best(self) -> list[BestPoint]:
        """Return where each method is best."""
        return [_best(self, method, label) for method, label in self.methods]

    def grids(self) -> list[Grid]:
        """Return the accuracies: of one axis a column per method, of two a grid per method."""
        if len(self.axes) == 2:
            return [_grid(self, method, label) for method, label in self.methods]
        rows = (
            GridRow(", ".join(map(value_text, point.values)), tuple(self.total(point, m) for m, _ in self.methods))
            for point in self.points
        )
        return [Grid("", ", ".join(self.axes), tuple(label for _, label in self.methods), tuple(rows))]

    def notes(self) -> list[str]:
        """Return the sentences that a reader needs beside the numbers."""
        count = len(self.points)
        missing = f"{count} of {self.planned} points so far. " if count < self.planned else ""
        encoder = f" {self.encoder}." if self.encoder else ""
        return [f"{missing}Seeds {self.seeds}.{encoder} {self.folder}"]

    def summary(self) -> str:
        """Return the sweep in a line: how many points, and where each method is best."""
        best = "; ".join(
            f"{one.label} {one.accuracy:.2f} at {self.place(one.values)}"
            + (f" ({one.tied} points tie)" if one.tied > 1 else "")
            for one in self.best()
        )
        return f"{self.heading}, {len(self.points)} points, seeds {self.seeds}; best: {best}"

    def place(self, values: Sequence[Any]) -> str:
        """Return a point in words: ``alpha=0.3, T=5``."""
        return ", ".join(f"{axis}={value_text(value)}" for axis, value in zip(self.axes, values, strict=True))


def build_sweep(sweep: SweepFolder, encoders: Mapping[str, str] | None = None) -> SweepTable:
    """Return the table of a sweep."""
    benchmark = sweep.points[0].run.results[0].benchmark
    encoder = (encoders or {}).get(benchmark)
    points = [
        SweepPoint(tuple(point.values[key] for key in sweep.axes), build_table(point.run.results, encoder))
        for point in sweep.points
    ]
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


def _best(sweep: SweepTable, method: str, label: str) -> BestPoint:
    cells = [(point.values, sweep.total(point, method)) for point in sweep.points]
    scores = [(cell.mean, values) for values, cell in cells if cell is not None]
    best = max(score for score, _ in scores)
    values = [point for score, point in scores if score == best]
    return BestPoint(label, best, values[0], len(values))


def _grid(sweep: SweepTable, method: str, label: str) -> Grid:
    """Return the accuracies of a method: the first axis down, the second across."""
    down, across = (_values(sweep, axis) for axis in (0, 1))
    cells = {point.values: sweep.total(point, method) for point in sweep.points}
    rows = (GridRow(value_text(one), tuple(cells.get((one, two)) for two in across)) for one in down)
    columns = tuple(f"{sweep.axes[1]}={value_text(value)}" for value in across)
    return Grid(label, sweep.axes[0], columns, tuple(rows))


def _values(sweep: SweepTable, axis: int) -> list[Any]:
    return sorted({point.values[axis] for point in sweep.points}, key=order_of)
