"""A sweep as data: the accuracies at every value of what varies, independent of the format that it is shown in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..experiment.collection import SweepFolder
from ..experiment.config import format_seeds
from .published import display
from .tables import Cell, ResultTable, build_table, order_of

AXIS_NAMES = {"schedule.period": "T"}


class SweepLine(NamedTuple):
    """A line of a sweep: the method's label in the results, its registered name, and what the line is called."""

    method: str
    name: str
    label: str


class SweepPoint(NamedTuple):
    """The results at one point; ``values`` follow the axes of the sweep."""

    values: tuple[Any, ...]
    table: ResultTable

    def total(self, method: str) -> Cell | None:
        """Return the accuracy of a method."""
        return next((row.cells[0] for row in self.table.rows if row.method == method), None)


class GridRow(NamedTuple):
    """A row of a grid; ``cells`` follow its columns, None where nothing was run."""

    name: str
    cells: tuple[Cell | None, ...]


class Grid(NamedTuple):
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

    def grids(self) -> list[Grid]:
        """Return the accuracies: of one axis a column per method, of two a grid per method, the first axis down."""
        if len(self.axes) != 2:
            methods = [line.method for line in self.lines]
            rows = tuple(
                GridRow(", ".join(map(value_text, point.values)), tuple(map(point.total, methods)))
                for point in self.points
            )
            return [Grid("", ", ".join(self.axes), tuple(line.label for line in self.lines), rows)]
        down, across = (sorted({point.values[axis] for point in self.points}, key=order_of) for axis in (0, 1))
        columns = tuple(f"{self.axes[1]}={value_text(value)}" for value in across)
        grids = []
        for line in self.lines:
            cells = {point.values: point.total(line.method) for point in self.points}
            rows = tuple(GridRow(value_text(v), tuple(cells.get((v, second)) for second in across)) for v in down)
            grids.append(Grid(line.label, self.axes[0], columns, rows))
        return grids

    def notes(self) -> list[str]:
        """Return the sentences that a reader needs beside the numbers."""
        count = len(self.points)
        missing = f"{count} of {self.planned} points so far. " if count < self.planned else ""
        encoder = f" {self.encoder}." if self.encoder else ""
        return [f"{missing}Seeds {self.seeds}.{encoder} {self.folder}"]

    def summary(self) -> str:
        """Return the sweep in a line: how many points, and where (first) each method is best."""
        best = []
        for line in self.lines:
            scores = [(cell.mean, p.values) for p in self.points if (cell := p.total(line.method)) is not None]
            highest = max(score for score, _ in scores)
            places = [values for score, values in scores if score == highest]
            tied = f" ({len(places)} points tie)" if len(places) > 1 else ""
            best.append(f"{line.label} {highest:.2f} at {self.place(places[0])}{tied}")
        return f"{self.heading}, {len(self.points)} points, seeds {self.seeds}; best: {'; '.join(best)}"

    def place(self, values: Sequence[Any]) -> str:
        """Return a point in words: ``alpha=0.3, T=5``."""
        return ", ".join(f"{axis}={value_text(value)}" for axis, value in zip(self.axes, values, strict=True))


def build_sweep(sweep: SweepFolder, encoders: Mapping[str, str]) -> SweepTable:
    """Return the table of a sweep; ``encoders`` are those of the benchmarks."""
    benchmark = sweep.points[0].run.results[0].benchmark
    encoder = encoders.get(benchmark)
    points = [
        SweepPoint(
            tuple(point.values[key] for key in sweep.axes),
            build_table(point.run.results, encoder, names=point.run.method_names()),
        )
        for point in sweep.points
    ]
    return SweepTable(
        benchmark=benchmark,
        encoder=encoder,
        folder=str(sweep.folder),
        axes=tuple(map(axis_name, sweep.axes)),
        points=tuple(sorted(points, key=lambda point: [order_of(value) for value in point.values])),
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
