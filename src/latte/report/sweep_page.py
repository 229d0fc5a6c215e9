"""Sweeps and searches as sections of a page: a curve where one parameter varies, shaded grids where two do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .charts import Series
from .html import Section, folded_section, grids_section, lines_section
from .sweep_table import SweepLine, SweepTable, value_text


def sweep_section(sweep: SweepTable) -> Section:
    """Return the accuracies of a sweep: lines for one axis, grids for more."""
    if len(sweep.axes) > 1:
        return grids_section(sweep.heading, sweep.grids(), sweep.notes(), shaded=len(sweep.axes) == 2)
    names = [value_text(point.values[0]) for point in sweep.points]
    series = [_series(sweep, line) for line in sweep.lines]
    words = "Accuracy over all samples; the values are at even steps, the bands are one standard deviation over seeds."
    caption = " ".join([words, *sweep.notes()])
    return lines_section(sweep.heading, series, sweep.axes[0], "accuracy, %", caption, names)


def _series(sweep: SweepTable, line: SweepLine) -> Series:
    cells = [sweep.total(point, line.method) for point in sweep.points]
    means = [math.nan if cell is None else cell.mean for cell in cells]
    spreads = [0.0 if cell is None or cell.sd is None else cell.sd for cell in cells]
    known = any(cell is not None and cell.sd is not None for cell in cells)
    return Series(line.method, range(len(means)), means, line.label, spreads if known else (), line.name)


def tuning_section(sweeps: Sequence[SweepTable]) -> Section:
    """Return searches, each a line that opens: their points were run for a choice, not for a report."""
    parts = [Section(sweep.summary(), sweep_section(sweep).body) for sweep in sweeps]
    words = "Points that were run to choose parameters with labels: they are no results."
    return folded_section("Tuning", parts, words)
