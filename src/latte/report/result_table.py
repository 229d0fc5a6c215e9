"""A table of results as data, independent of the format that it is shown in."""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.cost import short_count
from ..analysis.stats import Paired

# "paper": published; "difference": from the published; of "bytes" (in kB) and "calibration" errors, less is better;
# "change": within a row, from its first images to its last
COLUMN_KINDS = ("accuracy", "gain", "bytes", "calibration", "paper", "difference", "change")
PANELS = ("summary", "deployment", "domains")
SETTING_TITLES = {
    "preset": "published hyper-parameters",
    "default": "one setting for all data",
    "tuned": "chosen with labels, on other partitions than the reported ones",
    "oracle": "chosen with the labels it is scored on: an upper bound, not a result",
    "custom": "set by hand",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``kind`` is one of :data:`COLUMN_KINDS`, ``panel`` (one of :data:`PANELS`) where it is shown."""

    key: str
    label: str
    kind: str
    help: str = ""
    panel: str = "summary"

    @property
    def signed(self) -> bool:
        """Whether its numbers are differences."""
        return self.kind in ("gain", "difference", "change")

    @property
    def missing(self) -> str:
        """What stands where a row has no number: nothing to say, or something that its records do not have."""
        return "n/a" if self.panel == "deployment" else "–"


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean in per cent (or points), and its standard deviation over seeds where there is one.

    ``paper`` and ``paper_sd`` are what the paper prints for the same method and domain, where it may be compared.
    """

    mean: float
    sd: float | None = None
    paper: float | None = None
    paper_sd: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One method with one set of parameters; ``cells`` follow the table's columns, None where there is no number.

    ``method`` is the method's label in the results, ``name`` its registered name, ``label`` what the row is called.
    """

    method: str
    name: str
    label: str
    setting: str
    seeds: tuple[int, ...]
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that belongs to the table but not into a cell; ``paper`` is what the paper prints for it, or "".

    >>> Fact("Latte's round", 0.3564, "%", "less than 0.4%").sentence()
    "Latte's round: 0.356 % here, less than 0.4% in the paper."
    """

    name: str
    here: float
    unit: str
    paper: str = ""

    def sentence(self) -> str:
        """Return the fact in words."""
        beside = f", {self.paper} in the paper" if self.paper else ""
        amount = f"{short_count(self.here)}{self.unit}" if self.unit == "B" else f"{self.here:.3g} {self.unit}"
        return f"{self.name}: {amount} here{beside}."


@dataclass(frozen=True, slots=True)
class ResultTable:
    """The results on one benchmark.

    ``differences`` holds every pair of rows, paired over seeds, of the total and then of the columns of deployment;
    ``reference`` is the label of the row that the others are shown against. ``notes`` are sentences that a reader needs
    beside the numbers; ``facts`` are in them, in words.
    """

    title: str
    benchmark: str
    encoder: str | None
    backbone: str | None
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    differences: tuple[Paired, ...]
    reference: str
    notes: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def beside_paper(self) -> bool:
        """Whether cells have the paper's value beside ours."""
        return any(cell is not None and cell.paper is not None for row in self.rows for cell in row.cells)

    @property
    def short_title(self) -> str:
        """The title without the encoder."""
        return self.title.replace(f", {self.encoder}", "", 1)

    def panel(self, *names: str) -> list[int]:
        """Return the positions of the columns in the panels ``names``."""
        return [i for name in names for i, column in enumerate(self.columns) if column.panel == name]

    def against_reference(self, metric: str = "micro") -> tuple[Paired, ...]:
        """Return the differences of the reference minus each other row."""
        return tuple(pair for pair in self.differences if pair.first == self.reference and pair.metric == metric)

    def best(self, column: int) -> float | None:
        """Return the highest mean of an accuracy or gain column; rows that saw the labels do not count.

        None where nothing gains: zero-shot, whose own gain is left empty, is then the best.
        """
        kind = self.columns[column].kind
        if kind not in ("accuracy", "gain"):
            return None
        cells = [row.cells[column] for row in self.rows if row.setting != "oracle"]
        highest = max((cell.mean for cell in cells if cell is not None), default=None)
        return None if kind == "gain" and (highest or 0) <= 0 else highest

    def is_best(self, row: Row, column: int) -> bool:
        """Say whether a cell is the best of its column, or is shown as the same number as the best."""
        cell, best = row.cells[column], self.best(column)
        if cell is None or best is None or row.setting == "oracle":
            return False
        return f"{cell.mean:.2f}" == f"{best:.2f}"
