"""A page with every kind of section, as a large report has it."""

from __future__ import annotations

import numpy as np

from latte.analysis.stats import Paired
from latte.report.page.sections import (
    Series,
    deployment_section,
    differences_section,
    folded_section,
    heatmap_section,
    lines_section,
    manifest_section,
    render_page,
    sweep_section,
    table_section,
    text_section,
    tuning_section,
)
from latte.report.sweeps import SweepPoint, SweepTable
from latte.report.tables import build_table
from report.fake import DOMAINS, GAINS, fake_results

NASTY = "</script><!--<script>alert(1)</script><b>&'\"\x1b\u2028"


def full_page(title: str = "Latte on CIFAR-10-C") -> str:
    """Return the page."""
    table = build_table(fake_results(), "CLIP ViT-B/16")
    unclear = Paired("Latte", "a near tie", 0.1, -0.4, 0.6, 5)
    single = Paired("Latte", "a single seed", 0.7, None, None, 1)
    same = Paired("Latte", "itself", 0.0, 0.0, 0.0, 5)
    facts = {"version": "0.1", "note": NASTY, "data": {"sha256": "ab" * 32}}
    sections = [
        table_section(table, "Results"),
        differences_section("Latte against the others", [*table.against_reference(), unclear, single, same]),
        lines_section("Accuracy over time", lines(), "samples per client", "accuracy, %", "All samples so far."),
        heatmap_section("Who learns from whom", *collaboration(), "Row: who downloads. Column: from whom."),
        deployment_section(table),
        sweep_section(sweep(("alpha",), [(value,) for value in (0.1, 1, 10)])),
        tuning_section([sweep(("alpha", "beta"), [(a, b) for a in (0.1, 1) for b in range(1, 12)])]),
        text_section("About", ["One paragraph.", f"Another, with {NASTY}."]),
        manifest_section("Where the numbers come from", facts),
        folded_section("Also", [manifest_section("another run", facts)]),
    ]
    return render_page(title, sections, "Nine methods, 38 clients, five seeds.")


def sweep(axes: tuple[str, ...], values: list[tuple[float, ...]]) -> SweepTable:
    """Return a sweep whose points all have the same results."""
    table = build_table(fake_results(seeds=2))
    points = tuple(SweepPoint(value, table) for value in values)
    return SweepTable("cifar10c", None, "runs/sweep-1", axes, points, len(points), False, False)


def lines() -> list[Series]:
    """Return running accuracies of all methods over 1,500 samples."""
    rng = np.random.default_rng(0)
    x = np.arange(1, 1501)
    noise = {name: np.cumsum(rng.normal(size=len(x))) / (x + 20) * 3 for name in GAINS}
    return [Series(name, x, 50 + gain * (1 - np.exp(-x / 200)) + noise[name]) for name, gain in GAINS.items()]


def collaboration() -> tuple[np.ndarray, list[str], list[str]]:
    """Return who downloads from whom among two clients per domain, and their names."""
    rng = np.random.default_rng(0)
    groups = [domain for domain in DOMAINS for _ in range(2)]
    n = len(groups)
    matrix = rng.poisson(3, (n, n)) + 40.0 * (np.arange(n)[:, None] // 2 == np.arange(n) // 2)
    np.fill_diagonal(matrix, np.nan)
    return matrix, [f"{domain}-{i % 2}" for i, domain in enumerate(groups)], groups
