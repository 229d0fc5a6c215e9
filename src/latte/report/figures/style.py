"""What all figures share: paper, ink, a line per method, and how they are written to disk."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ...core.escape import csv_cell, visible
from ...core.extras import need
from ...files.atomic import write_text, writing
from ..palette import look
from ..paper import display

INK, SOFT, GRID = "#1b1f24", "#58606b", "#e0e4ea"
P = ParamSpec("P")
T = TypeVar("T")
MATPLOTLIB_SETTINGS = {
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 10.0,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "svg.hashsalt": "latte",  # the same picture is the same file
}


def settings() -> Any:
    """Return the context in which a figure is made and saved."""
    return need("matplotlib", "report").rc_context(MATPLOTLIB_SETTINGS)


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Return ``draw`` inside :func:`settings`."""

    @functools.wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        with settings():
            return draw(*args, **kwargs)

    return inside


def canvas(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure of ``width`` x ``height`` inches and its axes (rows, columns), without any global state."""
    figure = need("matplotlib.figure", "report").Figure(
        figsize=(width, height), layout="constrained", facecolor="white"
    )
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_line(axes: Any, method: str, x: Sequence[float], points: Sequence[tuple[float, float]]) -> None:
    """Draw the line of a method through (mean, sd), with a band of one sd on either side."""
    style, means = look(method), [mean for mean, _ in points]
    dashes: Any = (0, tuple(float(part) for part in style.dash.split())) if style.dash else "-"
    line = {"color": style.light, "linestyle": dashes, "linewidth": 1.8, "marker": "o", "markersize": 4}
    axes.plot(x, means, label=display(method), **line)
    low, high = [mean - sd for mean, sd in points], [mean + sd for mean, sd in points]
    axes.fill_between(x, low, high, color=style.light, alpha=0.12, linewidth=0)


def grid(axes: Any, direction: str = "y") -> None:
    """Draw pale lines behind everything: horizontal ones, or with "both" vertical ones, too."""
    axes.grid(axis=direction, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def as_label(name: str) -> str:
    """Return a name out of the data as matplotlib sets it: as it is, not as mathematics and not as a hidden label."""
    return visible(name).replace("_", " ").replace("$", r"\$")


def save_figure(figure: Any, folder: Path, name: str) -> None:
    """Write ``name``.png and ``name``.svg; the same figure gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    with writing(folder / f"{name}.png") as file:
        figure.savefig(file, format="png", dpi=200, metadata={"Software": None})
    with writing(folder / f"{name}.svg") as file:
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write the numbers behind a figure; a float keeps all its digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([csv_cell(cell) for cell in row] for row in (header, *rows))
    write_text(path, text.getvalue())
