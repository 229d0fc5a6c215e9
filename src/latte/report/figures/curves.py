"""Accuracy against what is varied: clients per domain, the period, each parameter; and the ablations as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...analysis.study_runs import Score, summary
from ..palette import look
from .style import SOFT, canvas, draw_line, grid

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


def draw_decentralisation(scores: Sequence[Score]) -> Any:
    """Draw accuracy against clients per domain, a line per method."""
    return _against(scores, "clients per domain (more clients: fewer images for each)")


def draw_period(scores: Sequence[Score]) -> Any:
    """Draw accuracy against the period T."""
    return _against(scores, "images between two exchanges, $T$")


def _against(scores: Sequence[Score], label: str) -> Any:
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
        _sensitivity(place, panel, lines_of(scores, panel), used[panel])
    for place in axes.flat[len(panels) :]:
        place.set_axis_off()
    _same_scale(list(axes.flat[: len(panels)]))
    figure.supylabel(ACCURACY, fontsize=10)
    return figure


def _sensitivity(axes: Any, panel: str, lines: dict[str, Points], used: float) -> None:
    """Place the values at even steps: they span decades, and 0 is among them."""
    for method, points in lines.items():
        values = list(points)
        draw_line(axes, method, list(range(len(values))), list(points.values()))
        axes.set_xticks(range(len(values)), [f"{float(value):g}" for value in values])
        axes.axvline(values.index(used), color=SOFT, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
    axes.set_xlabel(PARAMETER_TITLES[panel])
    grid(axes)


def draw_ablation(scores: Sequence[Score]) -> Any:
    """Draw a dot per variant with one sd over seeds; dots, not bars, because the axis does not start at 0."""
    titles = {"memory": "What is read", "weights": "What weighs it"}
    figure, (places,) = canvas(6.4, 3.2, 1, 2)
    for axes, (panel, title) in zip(places, titles.items(), strict=True):
        _dots(axes, lines_of(scores, panel)["latte"])
        axes.set_title(title)
    _same_scale(list(places))
    places[0].set_ylabel(ACCURACY)
    return figure


def _dots(axes: Any, points: Points) -> None:
    for place, (name, (mean, sd)) in enumerate(points.items()):
        colour = look("latte").light if name == "both" else SOFT
        axes.errorbar(place, mean, yerr=sd, fmt="o", color=colour, markersize=7, capsize=4, linewidth=1.5)
        axes.annotate(f"{mean:.2f}", (place, mean), (9, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_xticks(range(len(points)), [str(name).replace(" only", "\nonly") for name in points])
    axes.set_xlim(-0.5, len(points) - 0.35)
    grid(axes)


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
