"""Text fits the width, whatever the names: whole columns in blocks, nothing lost, nothing broken inside a cell."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte.report.formats.markup import render
from latte.report.formats.text import split_columns
from latte.report.sweeps import SweepPoint, SweepTable
from latte.report.tables import build_table
from latte.simulation.results import ClientScore, Result
from report.fake import fake_results


def with_quarters(result):
    clients = (replace(c, first_correct=c.correct // 5, last_correct=c.correct // 4) for c in result.clients)
    return replace(result, clients=tuple(clients))


RESULTS = [with_quarters(one) for one in fake_results(seeds=3)]
LONG = [replace(one, method="a method with a name that is as long as a sentence of a paper") for one in RESULTS[:3]]
TUNED = [replace(one, setting="tuned", params={"alpha": 3.0, "beta": 0.25, "gamma": 1.5}) for one in RESULTS[-3:]]
TABLE = build_table([*RESULTS, *LONG, *TUNED])


def sweep(axes, values, folded=False):
    points = tuple(SweepPoint(value, build_table(RESULTS)) for value in values)
    return SweepTable("cifar10c", None, "runs/sweep-1", axes, points, len(points), folded, folded)


@given(st.integers(1, 12), st.lists(st.integers(3, 40), min_size=1, max_size=30), st.integers(10, 150))
def test_blocks_hold_every_column_once_in_order(first, widths, room):
    columns = list(range(len(widths)))[min(first, len(widths)) - 1 :]
    blocks = split_columns(columns, widths, room)
    assert [i for block in blocks for i in block] == columns
    assert all(len(block) == 1 or sum(widths[i] for i in block) <= room for block in blocks)
    assert all(blocks)


@pytest.mark.parametrize("width", [60, 80, 100, 118, 120, 200])
def test_no_line_is_longer_than_the_width(width):
    sweeps = [
        sweep(("alpha",), [(value,) for value in (0.1, 1, 10)]),
        sweep(("alpha", "beta"), [(a, b) for a in (0.1, 1) for b in range(9)]),
        sweep(("alpha", "beta", "T"), [(1, 2, 3), (1, 2, 4)]),
        sweep(("weight",), [(1,)], folded=True),
    ]
    text = render([TABLE], "text", sweeps, width)
    assert max(map(len, text.splitlines())) <= width
    heads = [line for line in text.splitlines() if line.startswith("method ")]
    labels = [label for head in heads for label in re.split(r"\s{2,}", head.strip())[1:]]
    assert sorted(labels) == sorted(["setting", *(column.label for column in TABLE.columns)])


def test_long_names_are_numbered_and_written_out():
    text = render([TABLE], "text", width=80)
    lines = text.splitlines()
    assert "Latte #2: Latte [tuned, alpha=3.0, beta=0.25, gamma=1.5]" in lines
    assert any(line.startswith("Latte #2 ") for line in lines)
    written = " ".join(text.split())
    assert "as long as a sentence of a paper" in written, "the whole name is there once"
    wide = render([TABLE], "text", width=300)
    assert "#" not in wide


@given(st.text(st.characters(categories=("L", "N", "P", "Z")), min_size=1, max_size=90))
@settings(max_examples=40, deadline=None)
def test_a_domain_of_any_name(name):
    clients = (ClientScore("a", "d" + name, 8, 4, 1, 1), ClientScore("b", "other", 8, 5, 1, 2))
    table = build_table([Result("b", "clip", {}, "default", seed, clients) for seed in (0, 1)])
    text = render([table], "text", width=80)
    words = [line for line in text.splitlines() if " " not in line.strip()]  # a word that is longer than the line
    assert all(len(line) <= 80 or line in words or ": " in line for line in text.splitlines())


def test_rows_are_sorted_as_numbers():
    results = [
        replace(RESULTS[0], method="tda", setting=setting, params={"alpha": alpha, "mode": mode})
        for setting, alpha, mode in (
            ("custom", 10.0, "a"), ("custom", 2, "a"), ("custom", 0.3, "b"), ("tuned", 7.0, "a"), ("custom", 0.3, "a"),
            ("default", 1.0, "a"),
        )
    ]  # fmt: skip
    labels = [row.label for row in build_table(results).rows]
    found = [re.search(r"\[(.*)\]", label)[1] for label in labels]
    assert found == [
        "default, alpha=1.0, mode=a", "tuned, alpha=7.0, mode=a", "custom, alpha=0.3, mode=a",
        "custom, alpha=0.3, mode=b", "custom, alpha=2, mode=a", "custom, alpha=10.0, mode=a",
    ]  # fmt: skip


def test_what_a_deployment_needs_stands_in_a_block_of_its_own():
    text = render([TABLE], "text")
    (head,) = (line for line in text.splitlines() if "Worst client" in line and line.startswith("method"))
    assert head.split("  ")[-1] and "Last quarter" in head and "Total" not in head
    assert "~ marks an interval that holds zero" in text


def test_a_row_of_an_older_record_says_so():
    older = [replace(one, method="mine") for one in fake_results(seeds=3)[:3]]
    table = build_table([*RESULTS, *older])
    row = next(line for line in render([table], "text").splitlines() if line.startswith("mine") and "n/a" in line)
    assert row.count("n/a") == 3
    assert any(note.startswith("First and last quarter of mine: n/a") for note in table.notes)
    none = build_table(fake_results(seeds=1))
    assert "first_quarter" not in [column.key for column in none.columns]
    assert any(note.startswith("First and last quarter: n/a") for note in none.notes)


def test_one_run_of_two_records_has_what_either_has():
    """The same run, once in an older folder and once with its calibration: one row with everything."""
    older = replace(fake_results(seeds=1)[0], calibration_error=0.25)
    newer = with_quarters(fake_results(seeds=1)[0])
    for pair in ([older, newer], [newer, older]):
        (row,) = (table := build_table(pair)).rows
        cells = {column.key: cell for column, cell in zip(table.columns, row.cells, strict=True)}
        assert cells["ece"].mean == 25.0 and cells["first_quarter"] is not None
