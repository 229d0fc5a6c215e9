"""The geometry of the page's charts: everything in per cent of the plot, so that they fit any width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.stats import Paired
from ..errors import refuse
from .axes import Axis, named_axis, nice_axis
from .palette import Look, look
from .paper import display
from .png import DARK_STOPS, LIGHT_STOPS, data_uri
from .text import interval_title

MOST_POINTS = 400  # per line: a screen shows no more


@dataclass(frozen=True, slots=True)
class Series:
    """A line: the label of a method and its points; ``label`` is shown instead.

    ``method`` is the method's registered name, which gives the colour; "" means that ``name`` is that name.
    ``sd``, if there is one, is drawn as a band around the line.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    label: str = ""
    sd: Sequence[float] = ()
    method: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line ready to draw: SVG paths in a 100 x 100 box, and its points for the tooltip."""

    label: str
    look: Look
    path: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    sd: tuple[float, ...] = ()
    band: str = ""
    dots: str = ""


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines and their axes; ``data`` is what the script needs, ``values`` (x, one text per line) the table."""

    lines: tuple[Line, ...]
    x: Axis
    y: Axis
    data: dict[str, Any]
    values: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A matrix as two pictures; ``bounds`` are where groups end, in per cent; ``means`` is the matrix by group."""

    light: str
    dark: str
    groups: tuple[tuple[str, float, float], ...]
    high: float
    data: dict[str, Any]
    means: tuple[tuple[str, tuple[float | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class DifferenceChart:
    """Differences and the axis that they share."""

    pairs: tuple[Paired, ...]
    axis: Axis

    @property
    def one_reference(self) -> bool:
        """Whether all differences are those of one method from others: then its name may be left out of a line."""
        return len({pair.first for pair in self.pairs}) == 1

    @property
    def over(self) -> str:
        """What the intervals are over."""
        return interval_title(self.pairs).removeprefix("95 % interval over ")


def line_chart(series: Sequence[Series], x_names: Sequence[str] = ()) -> LineChart:
    """Place lines in a common plot; ``x_names`` stand at 0, 1, ... across."""
    thin = [_thin(line) for line in series]
    x = named_axis(x_names) if x_names else nice_axis([value for line in thin for value in line.x], tight=True)
    y = nice_axis([value for line in thin for value in (*line.y, *_ends(line, -1), *_ends(line, 1))])
    lines = tuple(_line(line, x, y) for line in thin)
    data = {
        "x": [x.low, x.high],
        "y": [y.low, y.high],
        "lines": [{"label": line.label, "x": line.x, "y": [_short(value) for value in line.y]} for line in lines],
        **({"names": list(x_names)} if x_names else {}),
    }
    return LineChart(lines, x, y, data, _values(lines, x))


def _line(series: Series, x: Axis, y: Axis) -> Line:
    method = series.method or None
    label = series.label or display(series.name, method)
    dots = _path(series, x, y, joined=False) if x.names else ""
    points = tuple(series.x), tuple(series.y), tuple(series.sd)
    return Line(label, look(series.name, method), _path(series, x, y), *points, _band(series, x, y), dots)


def _ends(series: Series, sign: int) -> list[float]:
    """Return the lower or the upper ends of the band; none where a series has no band."""
    return [mean + sign * sd for mean, sd in zip(series.y, series.sd, strict=True)] if series.sd else []


def _band(series: Series, x: Axis, y: Axis) -> str:
    """Return the band as a closed path; none where a point is not known."""
    corners = [*zip(series.x, _ends(series, 1), strict=False)]
    corners += reversed([*zip(series.x, _ends(series, -1), strict=False)])
    if not all(math.isfinite(up) for _, up in corners):
        return ""
    places = [f"{x.place(across):g} {round(100 - y.place(up), 3):g}" for across, up in corners]
    return f"M{'L'.join(places)}Z" if places else ""


def _thin(series: Series) -> Series:
    """Return a series of at most about ``MOST_POINTS`` points, the last among them."""
    x, y = [float(value) for value in series.x], [float(value) for value in series.y]
    if len(x) != len(y) or not x:
        raise refuse(f"series {series.name!r}", f"{len(x)} x and {len(y)} y", "the same number of both, at least 1")
    step = math.ceil(len(x) / MOST_POINTS)
    positions = sorted({*range(0, len(x), step), len(x) - 1})
    sd = [float(series.sd[i]) for i in positions] if series.sd else []
    return replace(series, x=[x[i] for i in positions], y=[y[i] for i in positions], sd=sd)


def _path(series: Series, x: Axis, y: Axis, joined: bool = True) -> str:
    """Return an SVG path, or only its points; a point that is not finite breaks the line."""
    parts, start = [], True
    for across, up in zip(series.x, series.y, strict=True):
        known = math.isfinite(across) and math.isfinite(up)
        if known:
            place = f"{x.place(across):g} {round(100 - y.place(up), 3):g}"
            parts.append(f"M{place}h0" if start else f"L{place}")  # h0: a point alone is a dot, by its round cap
        start = not (known and joined)
    return "".join(parts)


def _values(lines: Sequence[Line], x: Axis) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return each line's value at the ticks, and at the end."""
    places = sorted({*x.ticks, x.high})
    return tuple((x.text(place), tuple(_value_at(line, place) for line in lines)) for place in places)


def _value_at(line: Line, place: float) -> str:
    nearest = min(range(len(line.x)), key=lambda i: abs(line.x[i] - place))
    value = line.y[nearest]
    spread = f" ±{line.sd[nearest]:.2f}" if line.sd else ""
    return f"{value:.2f}{spread}" if math.isfinite(value) else "–"


def heat_map(matrix: Any, labels: Sequence[str], groups: Sequence[str] | None) -> HeatMap:
    """Turn a square matrix into pictures and numbers."""
    values = np.asarray(matrix, float)
    n = len(labels)
    if values.shape != (n, n) or n == 0:
        raise refuse("matrix", f"shape {values.shape}", f"({n}, {n}), one row and column per label")
    if groups is not None and len(groups) != n:
        raise refuse("groups", f"{len(groups)} entries", f"{n}, one per label")
    known = np.nan_to_num(values, nan=0.0)
    high = float(known.max()) or 1.0
    spans = _spans(groups) if groups is not None else []
    bounds = tuple((name, 100 * start / n, 100 * (end - start) / n) for name, start, end in spans)
    data = {
        "labels": list(labels),
        "groups": list(groups) if groups is not None else None,
        "values": [[_short(value) for value in row] for row in values.tolist()],
    }
    light, dark = (data_uri(known / high, stops) for stops in (LIGHT_STOPS, DARK_STOPS))
    return HeatMap(light, dark, bounds, high, data, _means(values, spans))


def _spans(groups: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (name, start, end) of each run of equal neighbours."""
    starts = [i for i, name in enumerate(groups) if i == 0 or groups[i - 1] != name]
    return [(groups[start], start, end) for start, end in zip(starts, [*starts[1:], len(groups)], strict=True)]


def _means(
    values: NDArray[Any], spans: Sequence[tuple[str, int, int]]
) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    """Return the mean of each block of the matrix; None for a block without values."""
    return tuple(
        (name, tuple(_block(values[start:end, left:right]) for _, left, right in spans)) for name, start, end in spans
    )


def _block(values: NDArray[Any]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def difference_chart(pairs: Sequence[Paired]) -> DifferenceChart:
    """Place differences on a common axis that holds zero."""
    ends = [value for pair in pairs for value in (pair.mean, *(pair.interval or ()))]
    return DifferenceChart(tuple(pairs), nice_axis([0.0, *ends]))


def _short(value: float) -> float | None:
    """Return ``value`` with four significant digits; None (null in JSON) for NaN."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
