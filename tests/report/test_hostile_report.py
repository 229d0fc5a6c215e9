"""Names of any characters in every format of a report, in a page and in a plot."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile import CLASSES, DOMAINS, ENCODER, LABELS, check_clean
from latte.paper.figures.draw import Drawing, Placed, draw_heat_map, draw_memory
from latte.paper.figures.draw import settings as plotting
from latte.paper.figures.make import pair_rows
from latte.paper.studies import ClientMemory, Collaboration, MemoryItems
from latte.report.formats.markup import FORMATS, render
from latte.report.page.sections import (
    Section,
    Series,
    heatmap_section,
    lines_section,
    manifest_section,
    render_page,
    table_section,
    text_section,
)
from latte.report.tables import build_table
from latte.simulation.results import ClientScore, Result
from latte.simulation.wrapped import InsideShare
from latte.text import visible

NAME = st.one_of(
    st.text(st.characters(categories=None), min_size=1, max_size=12), st.sampled_from([*CLASSES, *DOMAINS, *LABELS])
)


class Words(HTMLParser):
    """Collect the elements of a page and the text that it shows."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not [name for name, _ in attributes if name.startswith("on")]

    def handle_data(self, data):
        self.text.append(data)


def made(benchmark, method, domain):
    clients = (ClientScore(f"{domain}-0", domain, 10, 7), ClientScore("b", "other", 10, 4))
    return [Result(benchmark, name, {}, "custom", seed, clients) for name in (method, "clip") for seed in (0, 1)]


@given(NAME, NAME, NAME)
@settings(max_examples=60)
def test_every_format(benchmark, method, domain):
    table = build_table(made(benchmark, f"x{method}", f"d{domain}"), benchmark)
    for kind in FORMATS:
        check_clean(render([table], kind).encode())
    assert not re.search(r"<|!\[|[^\\]\]\(", render([table], "markdown"))
    rows = [line for line in render([table], "markdown").splitlines() if line.startswith("| ")][:4]
    bars = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows]
    assert set(bars) == {len(table.panel("summary", "domains")) + 3}, "a cell is a cell"
    assert [row["method"] for row in json.loads(render([table], "json"))[0]["rows"]][-1] == f"x{method}"


def sections(name: str) -> list[Section]:
    table = build_table(made(name, f"x{name}", f"d{name}"), name)
    matrix = np.arange(4.0).reshape(2, 2)
    return [
        table_section(table),
        lines_section(name, [Series(name, [0, 1], [1, 2])], name, name, name),
        heatmap_section(name, matrix, [name, "b"], [name, "c"], name),
        text_section(name, name),
        manifest_section(name, {name: name, "nested": {name: [name] * 300}}),
    ]


@given(NAME)
@settings(max_examples=40)
def test_a_page_shows_any_name_and_runs_none(name):
    page = check_clean(render_page(name, sections(name), name).encode())
    plain = Words()
    plain.feed(check_clean(render_page("x", sections("x"), "x").encode()))
    found = Words()
    found.feed(page)
    assert found.tags == plain.tags, "no element comes from a name"
    assert visible(name).strip() in "".join(found.text)
    for data in re.findall(r'<script type="application/json" class="data">(.*?)</script>', page, re.S):
        assert "<" not in data
        assert name in str(list(json.loads(data).values())) or ascii(name)[1:-1] in ascii(json.loads(data))


@pytest.fixture
def plots(tmp_path):
    """Draw hostile names and return the folder."""
    pytest.importorskip("matplotlib")
    found = Collaboration(("a", "b"), DOMAINS, np.array([[0, 2], [1, 0]]), InsideShare(50.0, 50.0, 50.0))
    items = MemoryItems(np.eye(3, dtype=np.float32), np.arange(3), np.full(3, 0.5), np.array([False, True, False]))
    placed = [Placed(ClientMemory("c", name, 3, items, items), np.eye(3, 2), np.eye(3, 2)) for name in DOMAINS]
    with plotting():
        pairs = draw_heat_map(found, ("across", "down", "scale"), "title")
        memory = draw_memory(placed, CLASSES)
    header = ("client", "domain", "from_client", "from_domain", "n")
    Drawing("collaboration", "", pairs, header, pair_rows(found)).save(tmp_path)
    Drawing("memory", "", memory, (), []).save(tmp_path)
    return tmp_path


def test_a_plot_sets_names_as_they_are(plots):
    for name in ("collaboration", "memory"):
        picture = check_clean((plots / f"{name}.svg").read_bytes())
        ElementTree.fromstring(picture)
        assert "-![x](javascript:alert(1))\\u2066$&amp;\\%{}^~\\x85" in picture.replace("- -", "--")
        assert "<script" not in picture
    assert "[/red]$\\frac$" in (plots / "memory.svg").read_text(), "not mathematics, and in the legend"


def test_the_numbers_of_a_plot_are_no_formulas(plots):
    text = check_clean((plots / "collaboration.csv").read_bytes())
    rows = list(csv.reader(text.splitlines()))
    assert {row[1][0] for row in rows[1:]} == {"'"} and [row[-1] for row in rows[1:]] == ["0", "2", "1", "0"]


def test_every_template_is_escaped():
    from latte.report.page.sections import _templates

    environment = _templates()
    assert environment.autoescape is True and environment.finalize is not None
    sources = {name: environment.loader.get_source(environment, name)[0] for name in environment.list_templates()}
    safe = {name: re.findall(r"{{[^}]*\|\s*safe[^}]*}}|autoescape", text) for name, text in sources.items()}
    assert {name: found for name, found in safe.items() if found} == {
        "page.html.j2": ["{{ section.body|safe }}"],
        "folded.html.j2": ["{{ part.body|safe }}"],  # both are sections, whose bodies are rendered
    }
    render_page(ENCODER, [])
