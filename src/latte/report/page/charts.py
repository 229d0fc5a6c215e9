"""The geometry of the page's charts: everything in per cent of the plot, so that they fit any width."""

from __future__ import annotations

import base64
import itertools
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import refuse
from ...methods import METHODS, describe
from ..published import display, family

# --- axes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear axis from ``low`` to ``high`` with round ``ticks``; with ``names``, those stand at 0, 1, ..."""

    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int
    names: tuple[str, ...] = ()

    def place(self, value: float) -> float:
        """Return the position of ``value`` on the axis, 0 to 100 per cent."""
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    def text(self, value: float) -> str:
        """Return the label of a tick at ``value``."""
        if self.names:
            return self.names[round(value)]
        return f"{value:,.{self.decimals}f}".replace("-", "−").replace("−0", "0" if value == 0 else "−0")


def nice_axis(values: Iterable[float], tight: bool = False) -> Axis:
    """Return an axis that holds ``values`` with about five round steps; ``tight`` ends at the data.

    >>> nice_axis([61.3, 78.9]).ticks
    (60.0, 65.0, 70.0, 75.0, 80.0)
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if high == low:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if not tight:
        return Axis(first * step, last * step, tuple(ticks), decimals)
    inside = tuple(tick for tick in ticks if low - 1e-9 * step <= tick <= high + 1e-9 * step)
    return Axis(low, high, inside, decimals)


def named_axis(names: Sequence[str]) -> Axis:
    """Return an axis with ``names`` at even steps: values that span decades, and words.

    >>> axis = named_axis(["0.1", "1", "10"])
    >>> [axis.text(tick) for tick in axis.ticks]
    ['0.1', '1', '10']
    """
    last = len(names) - 1
    low, high = (0.0, float(last)) if last else (-0.5, 0.5)
    return Axis(low, high, tuple(map(float, range(len(names)))), 0, tuple(names))


# --- one colour and dash per method, the same in every table, chart and page --------------------------------------

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#15181d"


@dataclass(frozen=True, slots=True)
class Look:
    """How a method is drawn: its colour on a light and on a dark page, and an SVG dash pattern ("" is solid)."""

    light: str
    dark: str
    dash: str = ""


LOOKS = {info.name: Look(*info.colours) for info in map(describe, METHODS) if info.colours}

# for methods that the paper does not have; which one depends on the name only
OTHERS = (
    Look("#3f6212", "#a3d65c", "10 3"),
    Look("#7c2d12", "#e8a584", "10 3"),
    Look("#155e75", "#5cc6e0", "10 3"),
    Look("#86198f", "#e58df0", "10 3"),
    Look("#334155", "#9fb3cf", "10 3"),
)


def look(label: str, name: str | None = None) -> Look:
    """Return how the row or line ``label`` is drawn, which is a form of the method ``name``; None: the label names it.

    A form such as "latte+variant=released", or one with a label of the user's, has its method's colour and long dashes.

    >>> look("latte").light == look("mine", "latte").light
    True
    """
    key = label.lower()
    method = family(key) if name is None else name
    if method not in LOOKS:
        return OTHERS[zlib.crc32(key.encode(errors="backslashreplace")) % len(OTHERS)]
    return LOOKS[method] if key == method else replace(LOOKS[method], dash="12 4")


# --- a matrix as a tiny PNG, one pixel per cell, so that a large heat map stays a small page ----------------------

# from "never" to "most often": even steps in lightness, starting at the page's own colour
LIGHT_STOPS = ("#f4f6f9", "#b8cfe6", "#6a9fd0", "#2c67a8", "#0b2a55")
DARK_STOPS = ("#1d222a", "#244a75", "#2f7bb8", "#6fb4dd", "#d9f0ff")


def data_uri(values: NDArray[Any], stops: tuple[str, ...]) -> str:
    """Return ``values`` (R, C) in [0, 1] as a ``data:`` address of a PNG coloured along ``stops``."""
    lines = b"".join(b"\0" + row.tobytes() for row in colours(values, stops))  # filter 0: the bytes as they are
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 8, 2, 0, 0, 0)  # 8 bits, RGB
    file = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")):
        file += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return "data:image/png;base64," + base64.b64encode(file).decode("ascii")


def colours(values: NDArray[Any], stops: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the colour of each value, (R, C, 3)."""
    table = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops], float)
    at = np.linspace(0, 1, len(stops))
    channels = [np.interp(np.clip(values, 0, 1), at, table[:, channel]) for channel in range(3)]
    pixels: NDArray[np.uint8] = np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
    return pixels


# --- lines, heat maps and differences: everything in per cent of the plot, so that they fit any width -------------

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
    sd: tuple[float, ...]
    band: str
    dots: str

    def value_at(self, place: float) -> str:
        """Return the value of the point nearest to ``place``."""
        nearest = min(range(len(self.x)), key=lambda i: abs(self.x[i] - place))
        spread = f" ±{self.sd[nearest]:.2f}" if self.sd else ""
        return f"{self.y[nearest]:.2f}{spread}" if math.isfinite(self.y[nearest]) else "–"


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
    """A matrix as two pictures; ``groups`` have their start and size in per cent; ``means`` is the matrix by group."""

    light: str
    dark: str
    groups: tuple[tuple[str, float, float], ...]
    high: float
    data: dict[str, Any]
    means: tuple[tuple[str, tuple[float | None, ...]], ...]


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
    places = sorted({*x.ticks, x.high})
    values = tuple((x.text(place), tuple(line.value_at(place) for line in lines)) for place in places)
    return LineChart(lines, x, y, data, values)


def _thin(series: Series) -> Series:
    """Return a series of at most about ``MOST_POINTS`` points, the last among them."""
    x, y = [float(value) for value in series.x], [float(value) for value in series.y]
    if len(x) != len(y) or not x:
        raise refuse(f"series {series.name!r}", f"{len(x)} x and {len(y)} y", "the same number of both, at least 1")
    step = math.ceil(len(x) / MOST_POINTS)
    positions = sorted({*range(0, len(x), step), len(x) - 1})
    sd = [float(series.sd[i]) for i in positions] if series.sd else []
    return replace(series, x=[x[i] for i in positions], y=[y[i] for i in positions], sd=sd)


def _ends(series: Series, sign: int) -> list[float]:
    """Return the lower or the upper ends of the band; none where a series has no band."""
    return [mean + sign * sd for mean, sd in zip(series.y, series.sd, strict=True)] if series.sd else []


def _line(series: Series, x: Axis, y: Axis) -> Line:
    """Return a line: a point that is not finite breaks it, and leaves it without its band."""

    def place(across: float, up: float) -> str:
        return f"{x.place(across):g} {round(100 - y.place(up), 3):g}"

    path, dots, start = "", "", True
    for across, up in zip(series.x, series.y, strict=True):
        known = math.isfinite(across) and math.isfinite(up)
        if known:
            dot = f"M{place(across, up)}h0"  # h0: a point alone is a dot, by its round cap
            path += dot if start else f"L{place(across, up)}"
            dots += dot if x.names else ""
        start = not known
    corners = [*zip(series.x, _ends(series, 1), strict=False)]
    corners += reversed([*zip(series.x, _ends(series, -1), strict=False)])
    band = ""
    if corners and all(math.isfinite(up) for _, up in corners):
        band = f"M{'L'.join(place(*corner) for corner in corners)}Z"
    method = series.method or None
    label = series.label or display(series.name, method)
    points = tuple(series.x), tuple(series.y), tuple(series.sd)
    return Line(label, look(series.name, method), path, *points, band, dots)


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
    spans = neighbours(groups or [])
    bounds = tuple((name, 100 * start / n, 100 * (end - start) / n) for name, start, end in spans)
    data = {
        "labels": list(labels),
        "groups": list(groups) if groups is not None else None,
        "values": [[_short(value) for value in row] for row in values.tolist()],
    }

    def mean(block: NDArray[Any]) -> float | None:
        finite = block[np.isfinite(block)]
        return float(finite.mean()) if finite.size else None

    means = tuple(
        (name, tuple(mean(values[top:bottom, left:right]) for _, left, right in spans)) for name, top, bottom in spans
    )
    light, dark = (data_uri(known / high, stops) for stops in (LIGHT_STOPS, DARK_STOPS))
    return HeatMap(light, dark, bounds, high, data, means)


def neighbours(groups: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (name, start, end) of each run of equal neighbours.

    >>> neighbours(["a", "a", "b"])
    [('a', 0, 2), ('b', 2, 3)]
    """
    spans: list[tuple[str, int, int]] = []
    for name, same in itertools.groupby(groups):
        start = spans[-1][2] if spans else 0
        spans.append((name, start, start + len(list(same))))
    return spans


def _short(value: float) -> float | None:
    """Return ``value`` with four significant digits; None (null in JSON) for NaN."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
