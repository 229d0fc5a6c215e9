"""One page that a browser shows without a network: style, script, charts and data are all inside it.

A page is a title and a sequence of sections::

    page = render_page("My run", [table_section(table), lines_section("Accuracy over time", series, "samples", "%")])
    Path("report.html").write_text(page, encoding="utf-8")

Everything shown is escaped; every chart has its numbers as a table too, for readers who cannot see it or hover over it.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from ..analysis.stats import Paired
from ..core.escape import visible
from ..errors import refuse
from .charts import Series, difference_chart, heat_map, line_chart
from .palette import DARK_PAGE, LIGHT_PAGE, look
from .result_table import ResultTable
from .sweep_table import Grid
from .text import number, signed, total_text

__all__ = [
    "Section",
    "Series",
    "deployment_section",
    "differences_section",
    "folded_section",
    "grids_section",
    "heatmap_section",
    "lines_section",
    "manifest_section",
    "picture_section",
    "render_page",
    "rows_section",
    "table_section",
    "text_section",
]


TABLE_CAPTION = (
    "Accuracy in per cent: mean ± standard deviation over seeds; the highest of each column is bold. A click on a "
    "heading sorts by it."
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: its heading and its finished HTML."""

    title: str
    body: str


def render_page(title: str, sections: Sequence[Section], subtitle: str = "") -> str:
    """Return a whole page; ``subtitle`` is a sentence under the title."""
    anchored = [(f"s{number}-{_slug(section.title)}", section) for number, section in enumerate(sections, 1)]
    return _render("page", title=title, subtitle=subtitle, sections=anchored, light=LIGHT_PAGE, dark=DARK_PAGE)


def table_section(table: ResultTable, title: str | None = None) -> Section:
    """Show the totals and the domains of a table of results; a click on a heading sorts by it."""
    return Section(title or table.title, _table(table, ("summary", "domains"), TABLE_CAPTION, table.notes))


def deployment_section(table: ResultTable, title: str | None = None) -> Section:
    """Show what somebody who deploys a method looks at, and how the reference differs from the others in it."""
    columns = [table.columns[i] for i in table.panel("deployment")]
    pairs = {column.key: {pair.second: pair for pair in table.against_reference(column.key)} for column in columns}
    others = [pair.second for pair in table.against_reference()]
    body = _table(table, ("deployment",), " ".join(f"{column.label}: {column.help}." for column in columns))
    if others:
        body += _render("pairs", table=table, columns=columns, others=others, pairs=pairs)
    return Section(title or f"In deployment: {table.short_title}", body)


def _table(table: ResultTable, panels: Sequence[str], caption: str, notes: Sequence[str] = ()) -> str:
    looks = {row.method: look(row.method, row.name) for row in table.rows}
    shown = table.panel(*panels)
    return _render("table", table=table, shown=shown, looks=looks, caption=caption, notes=notes)


def lines_section(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    caption: str = "",
    x_names: Sequence[str] = (),
) -> Section:
    """Draw lines, such as the accuracy over time: one :class:`Series` (name, x, y) per method.

    With ``x_names``, x are the numbers of these names, from 0 on, and the names stand at even steps.
    """
    if not series:
        raise refuse("series", "none", "at least one Series(name, x, y)")
    chart = line_chart(series, x_names)
    return Section(title, _render("lines", chart=chart, x_label=x_label, y_label=y_label, caption=caption, title=title))


def heatmap_section(
    title: str,
    matrix: Any,
    labels: Sequence[str],
    groups: Sequence[str] | None = None,
    caption: str = "",
) -> Section:
    """Draw a square matrix (N, N), such as the downloads between clients.

    ``labels`` names each client and ``groups`` its domain; lines separate neighbouring groups. Values that are NaN
    (a client and itself) are left empty.
    """
    return Section(title, _render("heatmap", chart=heat_map(matrix, labels, groups), caption=caption, title=title))


def picture_section(title: str, svg: str, caption: str = "", links: Mapping[str, str] | None = None) -> Section:
    """Show an SVG picture on a white sheet, inside the page; ``links`` (name -> address) go under it."""
    match = re.search(r'<svg[^>]*?viewBox="0 0 ([0-9.]+) ([0-9.]+)"', svg)
    if match is None:
        raise refuse("svg", "no viewBox", "an SVG picture with a viewBox from 0 0")
    width, height = (round(float(size) * 4 / 3) for size in match.groups())  # points to pixels
    uri = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")
    names = {"uri": uri, "width": width, "height": height, "links": links or {}}
    return Section(title, _render("picture", title=title, caption=caption, **names))


def differences_section(title: str, pairs: Sequence[Paired], caption: str = "") -> Section:
    """Draw paired differences as dots with their intervals."""
    if not pairs:
        raise refuse("pairs", "none", "at least one paired difference")
    return Section(title, _render("differences", chart=difference_chart(pairs), caption=caption))


def rows_section(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str | float | None]],
    caption: str = "",
    notes: Sequence[str] = (),
) -> Section:
    """Show any table: the first cell of a row names it, the others are numbers (None if there is none)."""
    for row in rows:
        if len(row) != len(columns):
            raise refuse("row", f"{len(row)} cells", f"{len(columns)}, one per column")
    return Section(title, _render("rows", title=title, columns=columns, rows=rows, caption=caption, notes=notes))


def grids_section(title: str, grids: Sequence[Grid], notes: Sequence[str] = (), shaded: bool = False) -> Section:
    """Show grids of accuracies; ``shaded``, the higher ones are darker."""
    means = [cell.mean for grid in grids for row in grid.rows for cell in row.cells if cell is not None]
    low, high = min(means, default=0.0), max(means, default=0.0)
    return Section(title, _render("grids", grids=grids, notes=notes, shaded=shaded, low=low, span=high - low or 1.0))


def folded_section(title: str, parts: Sequence[Section], caption: str = "") -> Section:
    """Show parts that a reader opens with a click: their titles are what is seen."""
    return Section(title, _render("folded", parts=parts, caption=caption))


def text_section(title: str, paragraphs: str | Sequence[str]) -> Section:
    """Show plain text: one paragraph, or several."""
    texts = [paragraphs] if isinstance(paragraphs, str) else list(paragraphs)
    return Section(title, _render("text", paragraphs=texts))


def manifest_section(title: str, facts: Mapping[str, Any]) -> Section:
    """Show where the numbers come from: names and values, nested values as JSON."""
    return Section(title, _render("manifest", rows=[(name, _fact(value)) for name, value in facts.items()]))


def _fact(value: Any) -> str:
    """Return a value as text: on one line where it is short."""
    if isinstance(value, str):
        return visible(value)
    line = json.dumps(value)
    return line if len(line) <= 100 else json.dumps(value, indent=1)


@functools.cache
def _templates() -> jinja2.Environment:
    loader = jinja2.PackageLoader("latte.report", "templates")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        finalize=_visible,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(look=look)
    environment.filters.update(number=number, signed=signed, total=total_text)
    return environment


def _visible(value: Any) -> Any:
    """Return what a page shows for ``value``, before it is escaped; finished HTML stays as it is."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _render(template: str, **names: Any) -> str:
    return _templates().get_template(f"{template}.html.j2").render(names)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
