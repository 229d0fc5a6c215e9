"""Screenshots of the documentation have the numbers of the pages around them: each holds what its commands printed."""

import re

import pytest

from waiting import ROOT

ADVICE = "run: python scripts/screenshots.py"


def description(name):
    image = pytest.importorskip("PIL.Image")
    with image.open(ROOT / "docs" / "assets" / f"{name}.png") as picture:
        return picture.text["Description"]


def text_blocks(page):
    return re.findall(r"```text\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_report_is_that_of_the_tutorial():
    block = next(text for text in text_blocks("docs/tutorials/compare-methods.md") if "Worst client" in text)
    rows = [line for line in block.splitlines() if "±" in line]
    shown = description("report-page").splitlines()
    assert len(rows) >= 8 and not [row for row in rows if row not in shown], ADVICE


def test_the_demo_is_that_of_the_readme():
    block = next(text for text in text_blocks("README.md") if text.startswith("PACS, all"))
    assert block == description("demo-page"), ADVICE
