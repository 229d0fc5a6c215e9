"""The figures as matplotlib draws them: accuracy against what is varied, who downloads from whom, memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.types import Reals, Vectors
from ...errors import need
from ...files.atomic import write_text, writing
from ...report.formats.markup import csv_text
from ...report.page.charts import LIGHT_STOPS, look, neighbours
from ...report.published import display
from ...text import visible
from ..studies import ClientMemory, Collaboration, MemoryItems, Score, summary

# --- what all figures share: paper, ink, a line per method, and how they are written to disk ----------------------

INK, SOFT, GRID = "#1b1f24", "#58606b", "#e0e4ea"
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


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with its file name, its caption and the numbers in it."""

    name: str
    caption: str
    figure: Any
    header: tuple[str, ...]
    rows: Sequence[Sequence[object]]

    def save(self, folder: Path) -> list[Path]:
        """Write PNG, SVG and CSV and return the paths; the same numbers give the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        png, svg, numbers = (folder / f"{self.name}.{ending}" for ending in ("png", "svg", "csv"))
        with settings():
            with writing(png) as file:
                self.figure.savefig(file, format="png", dpi=200, metadata={"Software": None})
            with writing(svg) as file:
                self.figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        write_text(numbers, csv_text([self.header, *self.rows]))
        return [png, svg, numbers]


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


# --- accuracy against what is varied: clients per domain, the period, each parameter; and the ablations as dots ---

ACCURACY = "accuracy, % of all images"
PARAMETER_TITLES = {
    "k_l": "local slots per class, $k_l$",
    "k_e": "others' prototypes per class, $k_e$",
    "alpha": r"weight of the memory, $\alpha$",
    "beta": r"sharpness of similarity, $\beta$",
    "gamma": r"sharpness of certainty, $\gamma$",
    "kappa": r"Ristretto: samples that the text counts as, $\kappa$",
    "rho": r"Ristretto: ridge, $\rho$",
    "eta": r"Ristretto: weight of the head, $\eta$",
    "nu": r"Ristretto: samples to half weight, $\nu$",
}
Points = dict[float | str, tuple[float, float]]  # value -> mean and sd over seeds


def lines_of(scores: Sequence[Score], panel: str = "") -> dict[str, Points]:
    """Return the points of each method in a panel, in the order in which they were measured."""
    lines: dict[str, Points] = {}
    for score, mean, sd in summary([score for score in scores if score.panel == panel]):
        lines.setdefault(score.method, {})[score.value] = (mean, sd)
    return lines


def draw_against(scores: Sequence[Score], label: str) -> Any:
    """Draw accuracy against what varies (``label``), on a logarithmic scale, a line per method."""
    lines = lines_of(scores)
    figure, ((axes,),) = canvas(5.4, 4.3 if len(lines) > 1 else 3.4)
    for method, points in lines.items():
        draw_line(axes, method, [float(value) for value in points], list(points.values()))
    values = sorted({float(score.value) for score in scores})
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()
    axes.set_xlabel(label)
    axes.set_ylabel(ACCURACY)
    grid(axes)
    figure.legend(loc="outside lower center", ncols=3, handlelength=3.2)
    return figure


def draw_sensitivity(scores: Sequence[Score], used: dict[str, float]) -> Any:
    """Draw a panel per parameter on one scale of accuracy; ``used`` are the values that the other figures have."""
    panels = list(dict.fromkeys(score.panel for score in scores))
    rows = (len(panels) + 1) // 2
    figure, axes = canvas(6.4, 2.3 * rows, rows, 2)
    for place, panel in zip(axes.flat, panels, strict=False):
        for method, points in lines_of(scores, panel).items():
            values = list(points)  # at even steps: they span decades, and 0 is among them
            draw_line(place, method, list(range(len(values))), list(points.values()))
            place.set_xticks(range(len(values)), [f"{float(value):g}" for value in values])
            place.axvline(values.index(used[panel]), color=SOFT, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
        place.set_xlabel(PARAMETER_TITLES[panel])
        grid(place)
    for place in axes.flat[len(panels) :]:
        place.set_axis_off()
    _same_scale(list(axes.flat[: len(panels)]))
    figure.supylabel(ACCURACY, fontsize=10)
    return figure


def draw_ablation(scores: Sequence[Score]) -> Any:
    """Draw a dot per variant with one sd over seeds; dots, not bars, because the axis does not start at 0."""
    titles = {"memory": "What is read", "weights": "What weighs it"}
    figure, (places,) = canvas(6.4, 3.2, 1, 2)
    for axes, (panel, title) in zip(places, titles.items(), strict=True):
        points = lines_of(scores, panel)["latte"]
        for place, (name, (mean, sd)) in enumerate(points.items()):
            colour = look("latte").light if name == "both" else SOFT
            axes.errorbar(place, mean, yerr=sd, fmt="o", color=colour, markersize=7, capsize=4, linewidth=1.5)
            axes.annotate(f"{mean:.2f}", (place, mean), (9, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set_xticks(range(len(points)), [str(name).replace(" only", "\nonly") for name in points])
        axes.set_xlim(-0.5, len(points) - 0.35)
        grid(axes)
        axes.set_title(title)
    _same_scale(list(places))
    places[0].set_ylabel(ACCURACY)
    return figure


def draw_steps(scores: Sequence[Score]) -> Any:
    """Draw a dot per step that is left out, with one sd over seeds, and a line at the whole method."""
    points = lines_of(scores)["ristretto"]
    figure, ((axes,),) = canvas(5.4, 3.2)
    colour = look("ristretto").light
    whole = next(iter(points.values()))[0]
    axes.axvline(whole, color=colour, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
    for place, (mean, sd) in enumerate(points.values()):
        axes.errorbar(mean, place, xerr=sd, fmt="o", color=SOFT if place else colour, capsize=3, linewidth=1.5)
        axes.annotate(f"{mean:.2f}", (mean, place), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    axes.set_yticks(range(len(points)), [str(name) for name in points])
    axes.set_ylim(len(points) - 0.5, -0.9)
    axes.set_xlabel(ACCURACY)
    grid(axes, "x")
    return figure


def _same_scale(places: Sequence[Any]) -> None:
    """Give all panels the range of accuracy that the widest needs."""
    low = min(axes.get_ylim()[0] for axes in places)
    high = max(axes.get_ylim()[1] for axes in places)
    for axes in places:
        axes.set_ylim(low, high)


# --- downloads between clients as a heat map, and the memories of some clients as t-SNE maps ----------------------

MOST_NAMED = 12  # classes that a legend can name and an eye can tell apart


def draw_heat_map(counts: Collaboration, words: tuple[str, str, str], title: str) -> Any:
    """Draw (N, N) numbers, clients sorted by domain, lines between domains.

    ``words`` are on the axis across, the axis down and the scale.
    """
    side = 5.4
    figure, ((axes,),) = canvas(side + 0.9, side)
    ramp = need("matplotlib.colors", "report").LinearSegmentedColormap.from_list("latte", LIGHT_STOPS)
    picture = axes.imshow(counts.downloads, cmap=ramp, interpolation="nearest", vmin=0)
    spans = neighbours(counts.domains)
    names, middles = [as_label(name) for name, _, _ in spans], [(start + end) / 2 - 0.5 for _, start, end in spans]
    size = 9 if len(names) <= 8 else 7.5
    axes.set_xticks(middles, names, rotation=90, fontsize=size)
    axes.set_yticks(middles, names, fontsize=size)
    axes.tick_params(length=0)
    for _, start, _ in spans[1:]:
        axes.axhline(start - 0.5, color=SOFT, linewidth=0.4)
        axes.axvline(start - 0.5, color=SOFT, linewidth=0.4)
    axes.set_xlabel(f"{words[0]} (clients, sorted by domain)")
    axes.set_ylabel(words[1])
    axes.set_title(title)
    figure.colorbar(picture, ax=axes, shrink=0.7, label=words[2], pad=0.02)
    return figure


@dataclass(frozen=True, eq=False)
class Placed:
    """A client's memories with a place (n, 2) for each item; both memories share one map."""

    memory: ClientMemory
    local: Reals
    merged: Reals


def place_memory(memory: ClientMemory) -> Placed:
    """Give a client's items their places: one t-SNE over its local and merged memory together."""
    both = np.concatenate([memory.local.vectors, memory.merged.vectors])
    distinct, where = np.unique(both, axis=0, return_inverse=True)  # an item that is in both is one point
    places = tsne(distinct)[where.ravel()]
    n = len(memory.local.vectors)
    return Placed(memory, places[:n], places[n:])


def tsne(vectors: Vectors) -> Reals:
    """Return a place (n, 2) for each unit vector; by the first two principal components where n is below 5."""
    n = len(vectors)
    if n < 5:
        left, scales, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        flat = np.zeros((n, 2))
        flat[:, : min(2, len(scales))] = (left * scales)[:, :2]
        return flat
    model = need("sklearn.manifold", "report").TSNE(perplexity=min(15.0, (n - 1) / 3), init="pca", random_state=0)
    places: Reals = np.asarray(model.fit_transform(vectors), np.float64)
    return places


def classes_to_draw(placed: Sequence[Placed], classes: int) -> list[int]:
    """Return the classes to draw: all, or those with the most items of the clients' own."""
    if classes <= MOST_NAMED:
        return list(range(classes))
    counts = np.bincount(np.concatenate([client.memory.local.label for client in placed]), minlength=classes)
    return sorted(np.argsort(-counts, kind="stable")[:MOST_NAMED].tolist())


def draw_memory(placed: Sequence[Placed], classnames: Sequence[str]) -> Any:
    """Draw a column per client: its local memory above, what it reads (merged with the external one) below."""
    figure, axes = canvas(max(1.75 * len(placed), 4.4), 4.9, 2, len(placed))
    extra = ((0.0, 0.0, 0.0), (0.68, 0.78, 0.91))  # black and pale blue, beside matplotlib's ten
    palette = [*need("matplotlib", "report").colormaps["tab10"].colors, *extra]
    colours = dict(zip(classes_to_draw(placed, len(classnames)), palette, strict=False))
    for column, client in enumerate(placed):
        everything = np.concatenate([client.local, client.merged])
        low, high = everything.min(axis=0), everything.max(axis=0)
        room = 0.06 * np.maximum(high - low, 1e-6)
        both = ((client.memory.local, client.local), (client.memory.merged, client.merged))
        for place, (items, where) in zip(axes[:, column], both, strict=True):
            _scatter(place, items, where, colours)
            place.set_title(f"mean entropy {items.mean_entropy:.2f}", fontsize=8.5, color=INK)
            place.set_xlim(low[0] - room[0], high[0] + room[0])
            place.set_ylim(low[1] - room[1], high[1] + room[1])
        axes[1, column].set_xlabel(as_label(client.memory.domain), fontsize=9)
    axes[0, 0].set_ylabel("local memory")
    axes[1, 0].set_ylabel("merged memory")
    kinds = [("o", "own embedding", SOFT, SOFT), ("D", "prototype of another client", SOFT, "none")]
    kinds += [("o", as_label(classnames[number]), colour, colour) for number, colour in colours.items()]
    line = need("matplotlib.lines", "report").Line2D
    handles = [
        line([], [], marker=mark, color="none", markeredgecolor=edge, markerfacecolor=face, markersize=5, label=name)
        for mark, name, edge, face in kinds
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4 if len(placed) > 2 else 3, fontsize=8)
    return figure


def _scatter(axes: Any, items: MemoryItems, where: Reals, colours: dict[int, Any]) -> None:
    for label, colour in colours.items():
        own = where[(items.label == label) & ~items.external]
        axes.scatter(*own.T, s=11, color=[colour], linewidths=0)
        other = where[(items.label == label) & items.external]
        axes.scatter(*other.T, s=16, marker="D", facecolors="none", edgecolors=[colour], linewidths=0.9)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
