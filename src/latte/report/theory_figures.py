"""The figures of the theory, drawn from a :class:`latte.theory.study.Study`; their numbers go with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..theory.errors import Errors
from ..theory.sphere import log_cap_share, log_lower, log_upper
from ..theory.study import BoundCurve, Study
from .figures.style import SOFT, canvas, grid, save_figure, settings, styled, write_csv

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
PlottedRow = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with its file name, its caption and the numbers in it."""

    name: str
    caption: str
    figure: Any
    header: tuple[str, ...]
    rows: list[PlottedRow]

    def save(self, folder: Path) -> list[Path]:
        """Write PNG, SVG and CSV; the SVG is the same for the same numbers."""
        for axes in self.figure.axes:
            axes.minorticks_off()
        with settings():
            save_figure(self.figure, folder, self.name)
        write_csv(folder / f"{self.name}.csv", self.header, self.rows)
        return [folder / f"{self.name}.{ending}" for ending in ("png", "svg", "csv")]


def new_axes(panels: int = 1, width: float = 4.8) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, side by side."""
    figure, (axes,) = canvas(width * panels, 3.6, 1, panels)
    for panel in axes:
        grid(panel, "both")
    return figure, list(axes)


def draw_all(study: Study) -> list[Drawing]:
    """Return every figure."""
    makers: tuple[Callable[[Study], Drawing], ...] = (
        draw_volumes,
        draw_convergence,
        draw_error,
        draw_product,
        draw_strangers,
        draw_limit,
        draw_vacuous,
    )
    return [maker(study) for maker in makers]


@styled
def draw_volumes(study: Study) -> Drawing:
    """Draw the cap's share of the ball between its bounds."""
    figure, (axis,) = new_axes(width=5.6)
    theta = np.linspace(0.02, np.pi / 2, 60)
    rows: list[PlottedRow] = []
    for d, colour in zip((2, 8, 32), COLOURS, strict=False):
        low, exact, high = (f(d, theta) / np.log(10) for f in (log_lower, log_cap_share, log_upper))
        axis.fill_between(theta, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(theta, exact, color=colour, label=f"d = {d}")
        rows += [(d, *map(float, values)) for values in zip(theta, low, exact, high, strict=True)]
    axis.set(xlabel="polar angle θ", ylabel="log₁₀ share of the ball", ylim=(-30, 1))
    axis.legend()
    header = ("d", "theta", "log10_lower", "log10_exact", "log10_upper")
    return Drawing("volumes", "The share of a cap (line) and the two bounds (band).", figure, header, rows)


@styled
def draw_convergence(study: Study) -> Drawing:
    """Draw the distance of the memory from its limit against N."""
    figure, (axis,) = new_axes(width=5.6)
    rows: list[PlottedRow] = []
    for rate, colour in zip(study.rates, COLOURS, strict=False):
        middle = np.exp(np.log(rate.farthest).mean(axis=0))
        label = f"d = {rate.d}: slope {rate.slope:.3f}, theory {rate.expected:.3f}"
        axis.loglog(rate.samples, middle, "o-", color=colour, markersize=3, label=label)
        axis.loglog(rate.samples, rate.reach, "--", color=colour, linewidth=1)
        columns = (rate.samples, middle, rate.reach, 2 * np.sin(rate.theta_sharp / 2))
        rows += [(rate.d, rate.k, *map(float, values)) for values in zip(*columns, strict=True)]
    axis.set(xlabel="samples seen N", ylabel="distance from ±(μ + w)")
    axis.legend(fontsize=8)
    caption = "Farthest stored vector (geometric mean over repetitions) and what θ allows (dashed)."
    header = ("d", "k", "samples", "farthest", "allowed_printed", "allowed_sharp")
    return Drawing("convergence", caption, figure, header, rows)


@styled
def draw_error(study: Study) -> Drawing:
    """Draw the measured error against N beside the bounds."""
    figure, axes = new_axes(len(study.curves), width=3.2)
    rows: list[PlottedRow] = []
    for axis, curve in zip(axes, study.curves, strict=True):
        _error_panel(axis, curve)
        rows += _error_rows(curve)
    axes[0].set_ylabel("error rate")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=6, fontsize=9)
    caption = "Error of one client with k slots per class; a bound is drawn where its conditions hold."
    header = ("d", "k", "error_asymptotic", "samples", "error", "half_width", "printed", "corrected", "sharp")
    return Drawing("error", caption, figure, header, rows)


def _error_panel(axis: Any, curve: BoundCurve) -> None:
    _band(axis, curve.errors, COLOURS[0], "measured")
    for form, colour in (("corrected", COLOURS[1]), ("sharp", COLOURS[2])):
        values = [bound.value if bound.holds else np.nan for bound in curve.bounds[form]]
        axis.plot(curve.errors.x, values, "--s", color=colour, markersize=3, label=f"bound, {form}")
    axis.axhline(curve.error_initial, color=SOFT, linewidth=0.8, label="ε before adaptation")
    axis.axhline(curve.error_asymptotic, color=SOFT, linewidth=0.8, linestyle=":", label="ε for N → ∞")
    axis.axhline(0.5, color="#bbbbbb", linewidth=0.8, label="guessing")
    title = f"d = {curve.d}, ε∞ = {curve.error_asymptotic:.3f}, k = {curve.k}"
    axis.set(xscale="log", ylim=(0, 0.62), xlabel="samples seen N", title=title)
    axis.title.set_fontsize(9)


def _error_rows(curve: BoundCurve) -> list[PlottedRow]:
    """Return the rows of one panel; a bound whose conditions fail is left empty."""
    errors, forms = curve.errors, ("printed", "corrected", "sharp")
    rows: list[PlottedRow] = []
    for i, n in enumerate(errors.x):
        bounds = [curve.bounds[form][i] for form in forms]
        values = [bound.value if bound.holds else "" for bound in bounds]
        measured = (int(n), errors.mean[i], errors.half_width[i])
        rows.append((curve.d, curve.k, curve.error_asymptotic, *measured, *values))
    return rows


def _band(axis: Any, errors: Errors, colour: str, label: str, x: Any = None) -> None:
    where = errors.x if x is None else x
    low, high = errors.mean - errors.half_width, errors.mean + errors.half_width
    axis.fill_between(where, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.plot(where, errors.mean, "o-", color=colour, markersize=3, label=label)


def _rows_of(series: Sequence[Errors]) -> list[PlottedRow]:
    return [
        (errors.label, int(x), mean, half)
        for errors in series
        for x, mean, half in zip(errors.x, errors.mean, errors.half_width, strict=True)
    ]


@styled
def draw_product(study: Study) -> Drawing:
    """Draw the error against n_ID · N."""
    figure, (axis,) = new_axes(width=5.6)
    product = study.product
    series = (*product.by_clients, product.prototypes)
    for errors, x, colour in zip(series, (*product.products, product.products[0]), COLOURS, strict=False):
        _band(axis, errors, colour, errors.label, x)
    axis.set(xscale="log", xlabel="samples of one's own domain, n_ID · N", ylabel="error rate")
    axis.legend(fontsize=8)
    caption = "Clients of one domain that share samples (as in the proof) or prototypes (as Latte does)."
    header = ("series", "n_id", "error", "half_width")
    return Drawing("clients", caption, figure, header, _rows_of(series))


@styled
def draw_strangers(study: Study) -> Drawing:
    """Draw the error against n_OOD: everyone contributes, or only the nearest do."""
    figure, axes = new_axes(2, width=4.4)
    half = len(study.strangers) // 2
    for i, strangers in enumerate(study.strangers):
        axis, errors = axes[i // half], strangers.errors
        _band(axis, errors, COLOURS[i % half], errors.label.split(", ")[1])
        axis.set(xlabel="clients of other domains n_OOD", title=errors.label.split(", ")[0], ylim=(0, 0.4))
    axes[0].set_ylabel("error rate")
    axes[1].legend(fontsize=8)
    caption = "Strangers do no harm when only the nearest contribute; they may when everyone does."
    rows = _rows_of([strangers.errors for strangers in study.strangers])
    return Drawing("strangers", caption, figure, ("series", "n_ood", "error", "half_width"), rows)


@styled
def draw_limit(study: Study) -> Drawing:
    """Draw how soon Latte is 1-NN."""
    figure, axes = new_axes(2, width=4.0)
    limit = study.limit
    rows: list[PlottedRow] = []
    for axis, name, x, y in (
        (axes[0], "beta", limit.beta, limit.by_beta),
        (axes[1], "alpha", limit.alpha, limit.by_alpha),
    ):
        axis.semilogx(x, y, "o-", color=COLOURS[0], markersize=3)
        other = {"beta": "α = 10⁶", "alpha": "β = 10⁶"}[name]
        axis.set(xlabel=f"{name} ({other})", ylim=(None, 1.005))
        rows += [(name, float(a), float(b)) for a, b in zip(x, y, strict=True)]
    axes[0].set_ylabel("share of answers equal to 1-NN")
    caption = f"Latte and 1-NN over the same memory, {limit.predictions} predictions each."
    return Drawing("limit", caption, figure, ("varied", "value", "agreement"), rows)


@styled
def draw_vacuous(study: Study) -> Drawing:
    """Draw the samples that the bounds need, by dimension."""
    figure, (axis,) = new_axes(width=5.6)
    d = [needed.d for needed in study.needed]
    series: dict[str, list[float | None]] = {
        "conditions hold": [n.conditions for n in study.needed],
        "bound below 1/2, overlap": [n.general for n in study.needed],
        "bound below 1/2, separable": [n.separable for n in study.needed_separable],
        "sharp bound below 1/2, overlap": [n.sharp for n in study.needed],
        "sharp bound below ε_pre, overlap": [n.improves for n in study.needed],
    }
    for (label, values), colour in zip(series.items(), COLOURS, strict=False):
        axis.loglog(d, values, "o-", color=colour, markersize=3, label=label)
    axis.axhline(80, color=SOFT, linewidth=0.8, linestyle=":")
    axis.text(2, 86, "atoms in the universe", fontsize=7, color=SOFT)
    axis.set(xlabel="dimension d", ylabel="log₁₀ of the samples needed")
    axis.legend(fontsize=7)
    rows: list[PlottedRow] = [(label, *pair) for label, v in series.items() for pair in zip(d, v, strict=True)]
    caption = "Where the bounds begin to say something."
    return Drawing("vacuous", caption, figure, ("series", "d", "log10_n"), rows)
