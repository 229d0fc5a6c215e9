"""What ``latte theory`` leaves behind: figures with their numbers, ``theory.json`` and a plain table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ..files.atomic import write_text
from ..theory.planes import Planes
from ..theory.rate import Containment
from ..theory.study import CASES, DELTA, OVERLAPPING, SEPARABLE, Study
from ..theory.vacuous import SampleNeeds
from .theory_figures import draw_all

TheoryRecord = dict[str, object]


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
        "rates": rate_records(study),
        "asymptotic": {
            "worlds": [planes_record(planes) for planes in study.planes],
            "grid": asdict(study.planes_grid) | {"holds": study.planes_grid.holds},
        },
        "containment": [containment_record(case) for case in study.containment],
        "strangers": stranger_records(study),
        "limit": {"beta_1e6": study.limit.by_beta[-1], "alpha_largest": study.limit.by_alpha[-1]},
        "log10_samples_needed": {
            "overlapping": [needed_record(needed) for needed in study.needed],
            "separable": [needed_record(needed) for needed in study.needed_separable],
        },
        "figures": captions or {},
    }
    return json.dumps(record, indent=2) + "\n"


def rate_records(study: Study) -> list[TheoryRecord]:
    """Return the fitted slopes and how far they are from the theory."""
    return [
        {
            "d": rate.d,
            "k": rate.k,
            "slope": rate.slope,
            "expected": rate.expected,
            "relative_error": rate.slope / rate.expected - 1,
            "repetitions": len(rate.farthest),
        }
        for rate in study.rates
    ]


def planes_record(planes: Planes) -> TheoryRecord:
    """Return one row of the table of ε_asym and ε_pre."""
    return asdict(planes) | {"holds": planes.holds}


def containment_record(case: Containment) -> TheoryRecord:
    """Return one row of the containment table."""
    names = ("d", "samples", "k", "delta", "repetitions", "theta", "theta_sharp", "inside", "inside_sharp")
    record: TheoryRecord = {name: getattr(case, name) for name in names}
    return record | {"conditions": case.conditions, "small_angle": case.small_angle, "ok": case.as_promised}


def stranger_records(study: Study) -> list[TheoryRecord]:
    """Return, per arm, the slope of the error against n_OOD with its interval."""
    records: list[TheoryRecord] = []
    for strangers in study.strangers:
        slope, half = strangers.errors.slope()
        record: TheoryRecord = {"arm": strangers.errors.label, "slope": slope, "half_width": half}
        lost = [round(share, 4) for share in strangers.lost.tolist()]
        records.append(record | {"flat": strangers.errors.flat, "share_lost": lost})
    return records


def needed_record(needed: SampleNeeds) -> TheoryRecord:
    """Return one row of the table of samples needed, as log10."""
    names = ("d", "conditions", "general", "separable", "sharp", "improves")
    return {name: getattr(needed, name) for name in names}


def table(study: Study) -> str:
    """Return the results for people."""
    parts = (_rates(study), _planes(study), _containment(study), _strangers(study), _limit(study), _needed(study))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _rates(study: Study) -> list[str]:
    lines = ["Memory converging to ±(μ + w): slope of log distance against log N"]
    for r in study.rates:
        off = 100 * (r.slope / r.expected - 1)
        lines.append(f"  d = {r.d}  k = {r.k}  slope {r.slope:.4f}  theory {r.expected:.4f}  ({off:+.1f} %)")
    return lines


def _planes(study: Study) -> list[str]:
    lines = ["The limit is no worse than zero-shot: ε_asym ≤ ε(w_pre, 0) ≤ ε_pre, exact (measured)"]
    for p in study.planes:
        exact = f"{p.asymptotic:.4f} ({p.measured_asymptotic:.4f})  {p.unbiased:.4f}  "
        exact += f"{p.initial:.4f} ({p.measured_initial:.4f})"
        lines.append(f"  {p.name:11s}  d = {p.d:<3d}  {exact}  {'holds' if p.holds else 'DOES NOT HOLD'}")
    grid = study.planes_grid
    gains = f"ε_pre - ε_asym from {grid.smallest_gain:.4f} to {grid.largest_gain:.4f}"
    return [*lines, f"  holds in {grid.holding} of {grid.settings} settings of a grid, {gains}"]


def _containment(study: Study) -> list[str]:
    lines = [f"Memory inside its cap, {len(CASES)} cases: frequency for the printed θ and the sharp θ"]
    for c in study.containment:
        small = "" if c.small_angle else "  (θ >= π/12: the error bound does not apply)"
        lines.append(
            f"  d = {c.d}  N = {c.samples}  k = {c.k}  1-δ = {1 - c.delta:.2f}"
            f"  printed {c.theta:.3f}: {c.inside:.3f}  sharp {c.theta_sharp:.3f}: {c.inside_sharp:.3f}{small}"
        )
    return lines


def _strangers(study: Study) -> list[str]:
    lines = ["Error against n_OOD: slope per client, 95 % interval"]
    for s in study.strangers:
        slope, half = s.errors.slope()
        verdict = "flat" if s.errors.flat else "NOT flat"
        lines.append(f"  {s.errors.label:42s} {slope:+.5f} ± {half:.5f}  {verdict}")
    return lines


def _limit(study: Study) -> list[str]:
    limit = study.limit
    return [
        f"Latte equals 1-NN in {limit.predictions} predictions",
        *(f"  β = {b:<9.3g} α = 1e6: {s:.4f}" for b, s in zip(limit.beta, limit.by_beta, strict=True)),
        *(f"  α = {a:<9.3g} β = 1e6: {s:.4f}" for a, s in zip(limit.alpha, limit.by_alpha, strict=True)),
    ]


def _needed(study: Study) -> list[str]:
    lines = ["log10 of the samples before the bound says anything (k = 8); below that it is vacuous"]
    lines.append("     d  conditions  overlap<1/2  separable<1/2  sharp<1/2  sharp<ε_pre")
    for n, s in zip(study.needed, study.needed_separable, strict=True):
        separable = f"{s.separable:13.1f}" if s.separable is not None else " " * 13
        improves = f"{n.improves:11.1f}" if n.improves is not None else " " * 11
        row = f"  {n.d:4d}  {n.conditions:10.1f}  {n.general:11.1f}  {separable}"
        lines.append(f"{row}  {n.sharp:9.1f}  {improves}")
    return lines
