"""The figures of the theory, drawn from a :class:`latte.paper.theory.study.Study`; their numbers go with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...files.atomic import write_text
from ..figures.draw import SOFT, Drawing, canvas, grid, settings
from .bounds import BOUND_FORMS, log_cap_share, log_lower, log_upper
from .study import CASES, DELTA, OVERLAPPING, SEPARABLE, Errors, Study

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
PlottedRow = tuple[object, ...]


def new_axes(panels: int = 1, width: float = 4.8) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, side by side."""
    figure, (axes,) = canvas(width * panels, 3.6, 1, panels)
    for panel in axes:
        grid(panel, "both")
    return figure, list(axes)


def draw_all(study: Study) -> list[Drawing]:
    """Return every figure."""
    makers = (draw_volumes, draw_convergence, draw_error, draw_product, draw_strangers, draw_limit, draw_vacuous)
    with settings():
        drawings = [maker(study) for maker in makers]
    for axes in (axes for drawing in drawings for axes in drawing.figure.axes):
        axes.minorticks_off()
    return drawings


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


def draw_error(study: Study) -> Drawing:
    """Draw the measured error against N beside the bounds."""
    figure, axes = new_axes(len(study.curves), width=3.2)
    rows: list[PlottedRow] = []
    for axis, curve in zip(axes, study.curves, strict=True):
        setting, errors = curve.setting, curve.errors
        _band(axis, errors, COLOURS[0], "measured")
        for form, colour in (("corrected", COLOURS[1]), ("sharp", COLOURS[2])):
            values = [bound.value if bound.holds else np.nan for bound in curve.bounds[form]]
            axis.plot(errors.x, values, "--s", color=colour, markersize=3, label=f"bound, {form}")
        axis.axhline(setting.error_initial, color=SOFT, linewidth=0.8, label="ε before adaptation")
        axis.axhline(setting.error_asymptotic, color=SOFT, linewidth=0.8, linestyle=":", label="ε for N → ∞")
        axis.axhline(0.5, color="#bbbbbb", linewidth=0.8, label="guessing")
        title = f"d = {setting.d}, ε∞ = {setting.error_asymptotic:.3f}, k = {curve.k}"
        axis.set(xscale="log", ylim=(0, 0.62), xlabel="samples seen N", title=title)
        axis.title.set_fontsize(9)
        for i, n in enumerate(errors.x):  # a bound whose conditions fail is left empty
            bounds = [curve.bounds[form][i] for form in BOUND_FORMS]
            shown = [bound.value if bound.holds else "" for bound in bounds]
            measured = (int(n), errors.mean[i], errors.half_width[i])
            rows.append((setting.d, curve.k, setting.error_asymptotic, *measured, *shown))
    axes[0].set_ylabel("error rate")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=6, fontsize=9)
    caption = "Error of one client with k slots per class; a bound is drawn where its conditions hold."
    header = ("d", "k", "error_asymptotic", "samples", "error", "half_width", "printed", "corrected", "sharp")
    return Drawing("error", caption, figure, header, rows)


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


def draw_strangers(study: Study) -> Drawing:
    """Draw the error against n_OOD: everyone contributes, or only the nearest do."""
    figure, axes = new_axes(2, width=4.4)
    half = len(study.strangers) // 2
    for i, errors in enumerate(study.strangers):
        axis = axes[i // half]
        _band(axis, errors, COLOURS[i % half], errors.label.split(", ")[1])
        axis.set(xlabel="clients of other domains n_OOD", title=errors.label.split(", ")[0], ylim=(0, 0.4))
    axes[0].set_ylabel("error rate")
    axes[1].legend(fontsize=8)
    caption = "Strangers do no harm when only the nearest contribute; they may when everyone does."
    header = ("series", "n_ood", "error", "half_width")
    return Drawing("strangers", caption, figure, header, _rows_of(study.strangers))


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
    axes[0].set_ylabel("share of predictions equal to 1-NN")
    caption = f"Latte and 1-NN over the same memory, {limit.predictions} predictions each."
    return Drawing("limit", caption, figure, ("varied", "value", "agreement"), rows)


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


# --- what ``latte paper theory`` leaves behind: figures with their numbers, ``theory.json`` and a plain table ---


def write_theory(study: Study, out: Path) -> list[Path]:
    """Write everything to the folder ``out`` and return the paths."""
    out.mkdir(parents=True, exist_ok=True)
    drawings = draw_all(study)
    paths = [path for drawing in drawings for path in drawing.save(out)]
    captions = {drawing.name: drawing.caption for drawing in drawings}
    for name, text in (("theory.json", theory_json(study, captions)), ("theory.txt", table(study))):
        write_text(out / name, text)
        paths.append(out / name)
    return paths


def theory_json(study: Study, captions: dict[str, str] | None = None) -> str:
    """Return the results as JSON; the figures' numbers are in the CSV files beside it."""
    record = {
        "seed": study.seed,
        "delta": DELTA,
        "overlapping": dict(zip(("norm", "angle", "bias"), OVERLAPPING, strict=True)),
        "separable": dict(zip(("norm", "angle", "bias"), SEPARABLE, strict=True)),
        "rates": [
            {
                "d": rate.d,
                "k": rate.k,
                "slope": rate.slope,
                "expected": rate.expected,
                "relative_error": rate.slope / rate.expected - 1,
                "repetitions": len(rate.farthest),
            }
            for rate in study.rates
        ],
        "asymptotic": {
            "worlds": [asdict(planes) | {"holds": planes.holds} for planes in study.planes],
            "grid": asdict(study.planes_grid) | {"holds": study.planes_grid.holds},
        },
        "containment": [asdict(case) | {"ok": case.as_promised} for case in study.containment],
        "strangers": [
            {
                "arm": one.label,
                "slope": one.slope()[0],
                "half_width": one.slope()[1],
                "flat": one.flat,
                "share_lost": [round(share, 4) for share in one.lost.tolist()],
            }
            for one in study.strangers
        ],
        "limit": {"beta_1e6": study.limit.by_beta[-1], "alpha_largest": study.limit.by_alpha[-1]},
        "log10_samples_needed": {
            "overlapping": [asdict(needed) for needed in study.needed],
            "separable": [asdict(needed) for needed in study.needed_separable],
        },
        "figures": captions or {},
    }
    return json.dumps(record, indent=2) + "\n"


def table(study: Study) -> str:
    """Return the results for people."""
    limit, grid = study.limit, study.planes_grid
    lines = ["Memory converging to ±(μ + w): slope of log distance against log N"]
    for r in study.rates:
        off = 100 * (r.slope / r.expected - 1)
        lines.append(f"  d = {r.d}  k = {r.k}  slope {r.slope:.4f}  theory {r.expected:.4f}  ({off:+.1f} %)")
    lines += ["", "The limit is no worse than zero-shot: ε_asym ≤ ε(w_pre, 0) ≤ ε_pre, exact (measured)"]
    for p in study.planes:
        exact = f"{p.asymptotic:.4f} ({p.measured_asymptotic:.4f})  {p.unbiased:.4f}  "
        exact += f"{p.initial:.4f} ({p.measured_initial:.4f})"
        lines.append(f"  {p.name:11s}  d = {p.d:<3d}  {exact}  {'holds' if p.holds else 'DOES NOT HOLD'}")
    gains = f"ε_pre - ε_asym from {grid.smallest_gain:.4f} to {grid.largest_gain:.4f}"
    lines.append(f"  holds in {grid.holding} of {grid.settings} settings of a grid, {gains}")
    lines += ["", f"Memory inside its cap, {len(CASES)} cases: frequency for the printed θ and the sharp θ"]
    for c in study.containment:
        small = "" if c.small_angle else "  (θ >= π/12: the error bound does not apply)"
        lines.append(
            f"  d = {c.d}  N = {c.samples}  k = {c.k}  1-δ = {1 - c.delta:.2f}"
            f"  printed {c.theta:.3f}: {c.inside:.3f}  sharp {c.theta_sharp:.3f}: {c.inside_sharp:.3f}{small}"
        )
    lines += ["", "Error against n_OOD: slope per client, 95 % interval"]
    for s in study.strangers:
        slope, half = s.slope()
        lines.append(f"  {s.label:42s} {slope:+.5f} ± {half:.5f}  {'flat' if s.flat else 'NOT flat'}")
    lines += ["", f"Latte equals 1-NN in {limit.predictions} predictions"]
    lines += [f"  β = {b:<9.3g} α = 1e6: {s:.4f}" for b, s in zip(limit.beta, limit.by_beta, strict=True)]
    lines += [f"  α = {a:<9.3g} β = 1e6: {s:.4f}" for a, s in zip(limit.alpha, limit.by_alpha, strict=True)]
    lines += ["", "log10 of the samples before the bound says anything (k = 8); below that it is vacuous"]
    lines.append("     d  conditions  overlap<1/2  separable<1/2  sharp<1/2  sharp<ε_pre")
    for n, apart in zip(study.needed, study.needed_separable, strict=True):
        separable = f"{apart.separable:13.1f}" if apart.separable is not None else " " * 13
        improves = f"{n.improves:11.1f}" if n.improves is not None else " " * 11
        row = f"  {n.d:4d}  {n.conditions:10.1f}  {n.general:11.1f}  {separable}"
        lines.append(f"{row}  {n.sharp:9.1f}  {improves}")
    return "\n".join(lines) + "\n"
