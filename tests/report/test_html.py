"""The page: everything inside it, everything escaped, the same numbers as the table."""

import base64
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from latte.analysis.stats import Paired
from latte.report.page.charts import (
    DARK_PAGE,
    LIGHT_PAGE,
    LIGHT_STOPS,
    LOOKS,
    OTHERS,
    Series,
    colours,
    data_uri,
    heat_map,
    line_chart,
    look,
    nice_axis,
)
from latte.report.page.sections import (
    differences_section,
    heatmap_section,
    lines_section,
    render_page,
    table_section,
    text_section,
)
from latte.report.tables import build_table
from report.fake import fake_results
from report.page import NASTY, full_page, lines


def contrast_ratio(first, second):
    """Return the contrast ratio of two colours as WCAG 2 defines it, 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


VOID = {"meta", "link", "br", "img", "source"}
PAGE = full_page(f"Latte {NASTY}")


class Nesting(HTMLParser):
    """Check that every element is closed where it belongs; keep attributes and ids."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.scripts = [], [], [], 0

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[name] for name in ("href", "src", "srcset", "action") if name in given]
        self.scripts += tag == "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def parsed():
    checker = Nesting()
    checker.feed(PAGE)
    checker.close()
    return checker


def test_elements_are_nested_and_ids_are_unique(parsed):
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids)) > 5


def test_nothing_comes_from_a_network(parsed):
    for link in parsed.links:
        assert link.startswith(("#", "data:"))
        assert not link.startswith("#") or link[1:] in parsed.ids
    assert not re.search(r"https?://|@import|url\(", PAGE)


def test_everything_is_escaped(parsed):
    assert parsed.scripts == 4  # the script, and the data of three charts
    assert "<b>&" not in PAGE
    assert "&lt;/script&gt;" in PAGE


def test_chart_data_cannot_end_its_script():
    section = lines_section(NASTY, [Series(NASTY, [0, 1], [1, 2])], NASTY, NASTY, NASTY)
    assert section.body.count("</script>") == 1
    data = re.search(r'class="data">(.*?)</script>', section.body, re.S)[1]
    assert json.loads(data)["lines"][0]["label"] == NASTY


def test_the_table_shows_what_the_table_holds():
    table = build_table(fake_results(), "CLIP ViT-B/16")
    body = table_section(table).body
    values = [float(value) for value in re.findall(r'<td class="[^"]*" data-value="([^"]*)"', body)]
    shown = table.panel("summary", "domains")
    assert values == [row.cells[i].mean for row in table.rows for i in shown if row.cells[i] is not None]
    assert body.count(" best") == sum(table.columns[i].kind in ("accuracy", "gain") for i in shown)


def test_the_same_page_twice_is_the_same_text():
    assert full_page() == full_page()


def test_paths_lie_where_the_numbers_say():
    chart = line_chart([Series("latte", [0, 5, 10], [50.0, float("nan"), 100.0]), Series("clip", [10], [75.0])])
    assert (chart.y.low, chart.y.high) == (50, 100)
    assert chart.lines[0].path == "M0 100h0M100 0h0"  # a gap, and a dot on either side of it
    assert chart.lines[1].path == "M100 50h0"
    assert chart.data["lines"][0]["y"] == [50.0, None, 100.0]


def test_long_lines_are_thinned_and_keep_their_end():
    chart = line_chart([Series("latte", range(100_000), np.linspace(0, 1, 100_000))])
    assert len(chart.lines[0].x) <= 402
    assert (chart.lines[0].x[0], chart.lines[0].x[-1]) == (0, 99_999)


def test_the_numbers_of_the_lines_are_in_a_table_too():
    chart = line_chart(lines())
    assert [row[0] for row in chart.values] == ["500", "1,000", "1,500"]
    end = [f"{series.y[-1]:.2f}" for series in lines()]
    assert list(chart.values[-1][1]) == end


def test_heat_map_pictures_are_the_matrix():
    pillow = pytest.importorskip("PIL.Image")
    matrix = np.arange(9.0).reshape(3, 3)
    picture = pillow.open(io.BytesIO(base64.b64decode(data_uri(matrix / 8, LIGHT_STOPS).partition(",")[2])))
    assert (np.asarray(picture) == colours(matrix / 8, LIGHT_STOPS)).all()
    assert picture.getpixel((0, 0)) == (0xF4, 0xF6, 0xF9)
    assert picture.getpixel((2, 2)) == (0x0B, 0x2A, 0x55)


def test_heat_map_means_by_group_leave_out_what_is_empty():
    matrix = np.array([[np.nan, 4.0, 1.0], [2.0, np.nan, 3.0], [5.0, 7.0, np.nan]])
    chart = heat_map(matrix, ["a", "b", "c"], ["X", "X", "Y"])
    assert chart.means == (("X", (3.0, 2.0)), ("Y", (6.0, None)))
    assert chart.data["values"][0] == [None, 4.0, 1.0]
    assert [group[0] for group in chart.groups] == ["X", "Y"]
    assert heat_map(np.zeros((1, 1)), ["a"], None).means == ()


def test_bad_charts_are_refused():
    with pytest.raises(ValueError, match="matrix"):
        heatmap_section("t", np.zeros((2, 3)), ["a", "b"])
    with pytest.raises(ValueError, match="groups"):
        heatmap_section("t", np.zeros((2, 2)), ["a", "b"], ["x"])
    with pytest.raises(ValueError, match="series"):
        lines_section("t", [Series("clip", [1], [1, 2])], "x", "y")
    for make in (lambda: lines_section("t", [], "x", "y"), lambda: differences_section("t", [])):
        with pytest.raises(ValueError, match="got none"):
            make()


def test_a_page_of_text_alone():
    page = render_page("T", [text_section("S", "one")])
    assert "<nav" not in page
    assert "<p>one</p>" in page


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-3.2, 8.1], [1e-6, 2e-6], [1e6, 3e9], [float("nan")]])
def test_axes_hold_their_values(values):
    axis = nice_axis(values)
    assert 2 <= len(axis.ticks) <= 8
    assert all(axis.low - 1e-9 <= value <= axis.high + 1e-9 for value in values if np.isfinite(value))
    assert len({axis.text(tick) for tick in axis.ticks}) == len(axis.ticks)


def test_zero_has_no_sign():
    axis = nice_axis([-0.4, 0.4])
    assert [axis.text(tick) for tick in axis.ticks] == ["−0.4", "−0.2", "0.0", "0.2", "0.4"]


@pytest.mark.parametrize("one", [*LOOKS.values(), *OTHERS])
def test_colours_can_be_seen_on_both_pages(one):
    assert contrast_ratio(one.light, LIGHT_PAGE) >= 4.5
    assert contrast_ratio(one.dark, DARK_PAGE) >= 4.5


def test_no_two_methods_look_the_same():
    assert len({(one.light, one.dash) for one in LOOKS.values()}) == len(LOOKS)
    assert look("latte+variant=released").light == look("latte").light
    assert look("latte+variant=released") != look("latte")
    assert look("mine") in OTHERS


def test_differences_from_one_baseline_show_every_method_on_a_phone():
    """The name that a narrow window may leave out is one that all lines share."""
    of_many = [Paired(name, "zero-shot", 1.0, 0.5, 1.5, 5) for name in ("TDA", "Latte")]
    of_one = [Paired("Latte", name, 1.0, 0.5, 1.5, 5) for name in ("zero-shot", "TDA")]
    assert "pair-first" not in differences_section("x", of_many).body
    assert differences_section("x", of_one).body.count('<span class="pair-first">Latte') == 2
