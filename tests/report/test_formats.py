"""Every format says the same numbers, and survives names with special characters."""

import dataclasses
import json
import re

import pytest

from latte.analysis.stats import Paired
from latte.report.formats.markup import render
from latte.report.formats.text import TEXT_WIDTH
from latte.report.tables import build_table
from report.fake import DOMAINS, GAINS, fake_results
from report.test_tables import SMALL, result

TABLE = build_table(fake_results(), "CLIP ViT-B/16")
TINY = build_table(SMALL, "CLIP ViT-B/16")


def test_text_of_a_small_table():
    lines = render([TINY], "text").splitlines()
    assert lines[2].split() == ["method", "setting", "Total", "Macro", "Gain", "Paper", "Δ", "paper", "A", "B"]
    assert lines[4] == (
        "Latte   preset   77.50 ±3.54  80.00 ±0.00  +23.75 ±8.84  82.57 ±0.12    −5.07  85.00 ±7.07  75.00 ±7.07"
    )
    assert "Latte − CLIP  +23.75 [−55.66, +103.16]  may be noise" in lines


def test_wide_text_is_broken_into_panels_of_whole_columns():
    text = render([TABLE], "text")
    assert max(map(len, text.splitlines())) <= TEXT_WIDTH
    heads = [line for line in text.splitlines() if line.startswith("method ")]
    assert len(heads) > 2
    labels = [label for head in heads for label in re.split(r"\s{2,}", head)[1:]]
    assert labels == ["setting", *(column.label for column in TABLE.columns)]
    assert "gaussian_noise" not in heads[0]


def test_the_papers_value_and_deviation_stand_beside_ours():
    """Of Latte on frost (CIFAR-10-C, ViT-B/16) the paper prints 81.22 ±0.63; of CLIP 79.88 and no deviation."""
    for kind, latte in (
        ("text", "(81.22 ±0.63)"),
        ("markdown", "** (81.22 ±0.63) |"),
        ("latex", "(81.22 $\\pm$ 0.63)"),
    ):
        text = render([TABLE], kind)
        assert latte in text
        assert "(79.88)" in text
        assert "in brackets" in text
    plain = render([build_table(SMALL)], "text")
    assert "brackets" not in plain


def test_domains_are_in_the_papers_order_whatever_the_files():
    results = fake_results()
    turned = [dataclasses.replace(one, clients=one.clients[::-1]) for one in results]
    for benchmark, order in (("cifar10c", list(DOMAINS)), ("mine", list(DOMAINS)[::-1])):
        table = build_table([dataclasses.replace(one, benchmark=benchmark) for one in turned])
        keys = [column.key for column in table.columns if column.key.startswith("domain:")]
        assert keys == [f"domain:{name}" for name in order]


def test_markdown_has_a_cell_for_every_column():
    lines = [line for line in render([TABLE], "markdown").splitlines() if line.startswith("|")]
    table = lines[: 2 + len(GAINS)]
    assert {line.count("|") for line in table} == {len(TABLE.panel("summary", "domains")) + 3}
    assert "**57.29 ±0.15**" in table[-1]
    assert table[2].startswith("| CLIP | default | 54.04 ±0.18 |")


def test_latex_is_balanced_and_has_a_cell_for_every_column():
    text = render([TABLE], "latex")
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") > 0
    for panel in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.S):
        rows = [line for line in panel[1].splitlines() if line.endswith("\\\\")]
        assert {line.count("&") + 1 for line in rows} == {len(panel[0])}
        assert len(rows) == 1 + len(GAINS)
    assert text.count("{") == text.count("}")
    assert text.isascii()


@pytest.mark.parametrize("kind", ["markdown", "latex"])
def test_special_characters_are_escaped(kind):
    odd = [result("a|b_c&d%e#f{g}h$i^j~k\\l", 0, (1, 1), benchmark="x_y|z")]
    text = render([build_table(odd)], kind)
    if kind == "markdown":
        assert "a\\|b_c" in text
        assert {line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("|")} == {7, 4}
    else:
        assert "b\\_c\\&d\\%e\\#f\\{g\\}h\\$i\\textasciicircum{}j\\textasciitilde{}k\\textbackslash{}l" in text


def test_json_holds_every_digit():
    (table,) = json.loads(render([TINY], "json"))
    latte = table["rows"][1]
    own = {"mean": 77.5, "sd": pytest.approx(3.5355339059327378)}
    assert latte["cells"]["micro"] == {**own, "paper": None, "paper_sd": None}
    assert latte["cells"]["paper"] == {"mean": 82.57, "sd": 0.12, "paper": None, "paper_sd": None}
    assert table["rows"][0]["cells"]["gain"] is None
    assert latte["seeds"] == [0, 1]
    pair = Paired(**next(pair for pair in table["differences"] if pair["first"] == "Latte"))
    assert pair == TINY.against_reference()[0]
    assert (table["encoder"], table["backbone"]) == ("CLIP ViT-B/16", "ViT-B/16")


@pytest.mark.parametrize("kind", ["text", "markdown", "latex", "json"])
def test_one_seed_in_every_format(kind):
    table = build_table([one for one in SMALL if one.seed == 0])
    text = render([table, table], kind)
    assert text.endswith("\n")
    assert "±" not in text.replace("± sd", "")
    assert "One seed" in text


def test_one_method_alone():
    table = build_table(SMALL[:2])
    for kind in ("text", "markdown", "latex", "json"):
        assert "77.5" in render([table], kind)
    assert table.against_reference() == ()


def test_a_difference_that_no_seed_changes():
    twice = [result(method, seed, right) for method, right in (("vte", (5, 5)), ("zero", (6, 6))) for seed in (0, 1)]
    assert "Zero − VTE  +5.00 (the same on every seed: no interval)" in render([build_table(twice)], "text")


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="format: got 'pdf'"):
        render([TINY], "pdf")
