"""Sweeps as curves and grids."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from latte.report.formats.markup import render
from latte.report.page.charts import Series, line_chart, named_axis
from latte.report.page.sections import render_page, sweep_section, tuning_section
from latte.report.sweeps import SweepPoint, SweepTable, axis_name
from latte.report.tables import build_table
from report.fake import fake_results


def table(methods=("clip", "latte"), shift=0):
    results = fake_results(methods=methods, seeds=2)
    moved = [replace(one, clients=tuple(replace(c, correct=c.correct - shift) for c in one.clients)) for one in results]
    return build_table(moved)


def sweep(axes, points, tuning=False):
    return SweepTable("b", "an encoder", "runs/s", axes, tuple(points), len(points) + 1, tuning, tuning)


CURVE = sweep(("alpha",), [SweepPoint((a,), table(shift=s)) for a, s in ((0.1, 30), (1.0, 0), (10, 0), ("all", 60))])
GRID = sweep(("alpha", "T"), [SweepPoint((a, t), table(shift=a + t)) for a in (1, 2) for t in (5, 6, 7)], tuning=True)


def test_the_names_of_axes():
    assert [axis_name(key) for key in ("clients_per_domain", "schedule.participation")] == [
        "clients_per_domain", "participation",
    ]  # fmt: skip


def test_a_curve_is_a_column_per_method():
    (grid,) = CURVE.grids()
    assert (grid.corner, grid.columns) == ("alpha", ("CLIP", "Latte"))
    assert [row.name for row in grid.rows] == ["0.1", "1", "10", "all"]
    assert grid.rows[1].cells[1] == CURVE.points[1].table.rows[1].cells[0]
    assert CURVE.notes() == ["4 of 5 points so far. Seeds 0-1. an encoder. runs/s"]


def test_two_axes_are_a_grid_per_method():
    clip, latte = GRID.grids()
    assert (clip.title, latte.title, latte.corner, latte.columns) == ("CLIP", "Latte", "alpha", ("T=5", "T=6", "T=7"))
    assert latte.rows[1].cells[2] == GRID.points[5].table.rows[1].cells[0]
    missing = replace(GRID, points=GRID.points[:5])
    assert missing.grids()[0].rows[1].cells[2] is None
    assert "–" in render([], "markdown", [replace(missing, folded=False)])


def test_the_best_point_and_its_ties():
    assert re.search(r"Latte [\d.]+ at alpha=1 \(2 points tie\)", CURVE.summary())


def test_a_curve_on_a_page():
    body = sweep_section(CURVE).body
    assert body.count('class="band"') == body.count('class="dots"') == 2
    assert re.findall(r'class="x-tick" style="left:([\d.]+)%">([^<]+)<', body) == [
        ("0.0", "0.1"), ("33.333", "1"), ("66.667", "10"), ("100.0", "all"),
    ]  # fmt: skip
    assert "±" in body, "the deviations are in the numbers"


def test_a_grid_on_a_page_is_shaded_from_the_lowest_to_the_highest():
    body = sweep_section(GRID).body
    shades = [float(shade) for shade in re.findall(r"--s:([\d.]+)%", body)]
    assert len(shades) == 12 and (min(shades), max(shades)) == (0.0, 60.0)


def test_searches_are_closed():
    page = render_page("x", [tuning_section([GRID])])
    assert page.count('<details class="folded">') == 1 and "open" not in re.findall(r"<details[^>]*>", page)[0]
    assert f"<summary>{GRID.summary()}</summary>" in page


def test_a_point_where_a_method_was_not_run():
    partial = sweep(("alpha",), [SweepPoint((1,), table()), SweepPoint((2,), table(("clip",)))])
    (grid,) = partial.grids()
    assert grid.rows[1].cells[1] is None and "–" in render([], "text", [partial])
    assert "NaN" not in sweep_section(partial).body


def test_an_axis_of_names():
    axis = named_axis(["only"])
    assert axis.place(0) == 50 and axis.text(0.0) == "only"
    chart = line_chart([Series("latte", [0, 1], [1.0, math.nan], sd=[0.5, 0.0])], ["a", "b"])
    assert chart.lines[0].band == "" and chart.data["names"] == ["a", "b"]
    assert chart.values == (("a", ("1.00 ±0.50",)), ("b", ("–",)))
    whole = line_chart([Series("latte", [0, 1], [1.0, 2.0], sd=[0.5, 0.5])], ["a", "b"])
    assert whole.y.low <= 0.5 and whole.y.high >= 2.5 and whole.lines[0].band.endswith("Z")


@pytest.mark.parametrize("kind", ["markdown", "latex"])
def test_grids_in_markup_have_a_cell_for_every_column(kind):
    text = render([], kind, [CURVE, replace(GRID, folded=False)])
    if kind == "latex":
        for columns, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.S):
            assert {line.count("&") + 1 for line in body.splitlines() if "&" in line} == {len(columns)}
        assert text.count("{") == text.count("}") and text.isascii()
    else:
        assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {4, 5}
    folded = render([], kind, [GRID])
    assert GRID.folder in folded and "T=6" not in folded
