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
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import jinja2

from ...analysis.diagnose import LEVELS, Diagnosis, HeadDiagnosis
from ...analysis.stats import Paired
from ...errors import refuse
from ...text import visible
from .. import leaderboard
from ..contents import Report
from ..formats.markup import render
from ..formats.text import TEXT_WIDTH, cell_text, interval_title, number, signed
from ..sweeps import Grid, SweepTable, value_text
from ..tables import ResultTable
from .charts import DARK_PAGE, LIGHT_PAGE, heat_map, line_chart, look, nice_axis
from .charts import Series as Series

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
    anchored = []
    for place, section in enumerate(sections, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")
        anchored.append((f"s{place}-{slug}", section))
    return _render("page", title=title, subtitle=subtitle, sections=anchored, light=LIGHT_PAGE, dark=DARK_PAGE)


def table_section(table: ResultTable, title: str | None = None) -> Section:
    """Show the totals and the domains of a table of results; a click on a heading sorts by it."""
    return Section(title or table.title, _table(table, ("summary", "domains"), TABLE_CAPTION, table.notes))


def deployment_section(table: ResultTable) -> Section:
    """Show what somebody who deploys a method looks at, and how the reference differs from the others in it."""
    columns = [table.columns[i] for i in table.panel("deployment")]
    pairs = {column.key: {pair.second: pair for pair in table.against_reference(column.key)} for column in columns}
    others = [pair.second for pair in table.against_reference()]
    body = _table(table, ("deployment",), " ".join(f"{column.label}: {column.help}." for column in columns))
    if others:
        body += _render("pairs", table=table, columns=columns, others=others, pairs=pairs)
    return Section(f"In deployment: {table.short_title}", body)


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
    """Draw paired differences as dots with their intervals, on an axis that holds zero."""
    if not pairs:
        raise refuse("pairs", "none", "at least one paired difference")
    names: dict[str, Any] = {
        "axis": nice_axis([0.0, *(value for pair in pairs for value in (pair.mean, *(pair.interval or ())))]),
        "one_reference": len({pair.first for pair in pairs}) == 1,  # then its name may be left out of a line
        "over": interval_title(pairs).removeprefix("95 % interval over "),
    }
    return Section(title, _render("differences", pairs=pairs, caption=caption, **names))


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
    """Show where the numbers come from: names and values, nested values as JSON, on one line where it is short."""
    rows = []
    for name, value in facts.items():
        line = visible(value) if isinstance(value, str) else json.dumps(value)
        rows.append((name, line if isinstance(value, str) or len(line) <= 100 else json.dumps(value, indent=1)))
    return Section(title, _render("manifest", rows=rows))


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
    environment.filters.update(number=number, signed=signed, total=cell_text)
    return environment


def _visible(value: Any) -> Any:
    """Return what a page shows for ``value``, before it is escaped; finished HTML stays as it is."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _render(template: str, **names: Any) -> str:
    return _templates().get_template(f"{template}.html.j2").render(names)


# --- sweeps and searches: a curve where one parameter varies, shaded grids where two do ---------------------------


def sweep_section(sweep: SweepTable) -> Section:
    """Return the accuracies of a sweep: lines for one axis, grids for more."""
    if len(sweep.axes) > 1:
        return grids_section(sweep.heading, sweep.grids(), sweep.notes(), shaded=len(sweep.axes) == 2)
    names = [value_text(point.values[0]) for point in sweep.points]
    series = []
    for line in sweep.lines:
        cells = [point.total(line.method) for point in sweep.points]
        means = [math.nan if cell is None else cell.mean for cell in cells]
        spreads = [0.0 if cell is None or cell.sd is None else cell.sd for cell in cells]
        known = any(cell is not None and cell.sd is not None for cell in cells)
        series.append(Series(line.method, range(len(means)), means, line.label, spreads if known else (), line.name))
    words = "Accuracy over all samples; the values are at even steps, the bands are one standard deviation over seeds."
    caption = " ".join([words, *sweep.notes()])
    return lines_section(sweep.heading, series, sweep.axes[0], "accuracy, %", caption, names)


def tuning_section(sweeps: Sequence[SweepTable]) -> Section:
    """Return searches, each a line that opens: their points were run for a choice, not for a report."""
    parts = [Section(sweep.summary(), sweep_section(sweep).body) for sweep in sweeps]
    words = "Points that were run to choose parameters with labels: they are no results."
    return folded_section("Tuning", parts, words)


# --- the diagnosis of a run ---------------------------------------------------------------------------------------

# the columns follow the fields of a report; what each is stands below the table
DIAGNOSIS_COLUMNS = {
    "Class": "",
    "Images": "images whose zero-shot prediction is the class",
    "Full, %": "filled local slots at the end, mean over clients",
    "Without, %": "clients that end with no item of the class",
    "Empty queries, %": "syncs at which a client had no prototype of its own for the class",
    "Nothing to read, %": "predictions with nothing stored for the class",
    "External, %": "items from other clients among those read",
    "Silenced, %": "predictions at which the released code's gate silences the class, of those with something stored",
    "Local entropy": "median of the items in local memories at the end",
    "External entropy": "median of the prototypes in external memories at the end",
}


def diagnosis_sections(diagnosis: Diagnosis | HeadDiagnosis) -> list[Section]:
    """Return the sections of a diagnosis."""
    return _memory_sections(diagnosis) if isinstance(diagnosis, Diagnosis) else _head_sections(diagnosis)


def _memory_sections(diagnosis: Diagnosis) -> list[Section]:
    """Return the table per class, and how certain images and items are."""
    where = f"{diagnosis.method} on {diagnosis.benchmark}"
    caption = (
        f"Seed {diagnosis.seed}, one seed, replayed: {diagnosis.clients} clients, {diagnosis.samples:,} images, "
        f"accuracy {diagnosis.accuracy:.2f} %. Entropies are medians, 0 certain and 1 no idea. "
        "A click on a heading sorts by it."
    )
    reports = (diagnosis.total, *diagnosis.classes)
    table = _reports_section(f"Memories, class by class: {where}", DIAGNOSIS_COLUMNS, reports, caption)
    series = [Series(name, LEVELS, below) for name, below in diagnosis.below.items()]
    words = "Share of the images, and of the items stored at the end, that are at most this uncertain."
    return [table, lines_section(f"How certain: {where}", series, "entropy, 0 to 1", "share, %", words)]


def report_cells(report: Any) -> list[Any]:
    """Return the fields of a report (a dataclass) as cells of a row; of several quantiles, the median."""
    return [value[1] if isinstance(value, tuple) else value for value in astuple(report)]


def column_notes(columns: Mapping[str, str]) -> list[str]:
    """Return what columns mean, a sentence each."""
    return [f"{name}: {text}." for name, text in columns.items() if text]


def _reports_section(title: str, columns: Mapping[str, str], reports: Sequence[Any], caption: str) -> Section:
    """Show reports as rows: the first field names a row."""
    rows, notes = list(map(report_cells, reports)), column_notes(columns)
    return Section(title, _render("rows", title=title, columns=list(columns), rows=rows, caption=caption, notes=notes))


HEAD_COLUMNS = {
    "Domain": "",
    "Clients": "",
    "Images": "",
    "Accuracy, %": "of Ristretto, over the images of the domain",
    "Trust": "the evidence weight w at the end, from 0 to 1, mean over clients",
    "Evidence": "images that a head rests on, mean over clients",
    "Own, %": "the client's own among them",
    "Inside, %": "of the evidence of others, how much comes from the client's own domain",
}


def _head_sections(diagnosis: HeadDiagnosis) -> list[Section]:
    """Return the table per domain, how trust grows, and the spectrum of the covariance."""
    where = f"{diagnosis.method} on {diagnosis.benchmark}"
    answers = diagnosis.zero_shot
    caption = (
        f"Seed {diagnosis.seed}, one seed, replayed: {diagnosis.clients} clients, {diagnosis.samples:,} images, "
        f"accuracy {diagnosis.accuracy:.2f} %, zero-shot {answers.accuracy:.2f} %. If everyone's evidence counted "
        f"alike, {diagnosis.chance:.1f} % of it would come from the own domain; at best it is {diagnosis.best()}, "
        f"with heads that use their own domain only. {answers.warning() or ''}"
    )
    trust = Series("trust", tuple(map(float, diagnosis.trust_after)), tuple(diagnosis.trust_after.values()))
    spectrum = Series("share", tuple(range(1, len(diagnosis.spectrum) + 1)), diagnosis.spectrum)
    words = f"Images spread around their classes as if in {diagnosis.directions:.0f} equal directions."
    reports = (diagnosis.total, *diagnosis.domains)
    sections = [_reports_section(f"Heads, domain by domain: {where}", HEAD_COLUMNS, reports, caption)]
    if len(diagnosis.trust_after) > 1:
        sections.append(lines_section(f"Trust: {where}", [trust], "images of a client", "trust of its head, 0 to 1"))
    sections.append(lines_section(f"Covariance: {where}", [spectrum], "eigenvalue", "share of all, %", words))
    return sections


# --- the whole report ---------------------------------------------------------------------------------------------


def render_report(report: Report, kind: str, width: int = TEXT_WIDTH) -> str:
    """Return a report in any format, "html" among them; ``width`` is that of text."""
    if kind == "html":
        return report_page(report)
    return render(report.tables, kind, report.sweeps, width)


def report_page(report: Report) -> str:
    """Return the page that ``latte report --format html`` writes: with diagnoses, and the origin of the numbers."""
    sections = []
    for table in report.tables:
        sections += [table_section(table), deployment_section(table)]
        if pairs := table.against_reference():
            heading = f"{table.reference} against the others on {table.short_title}"
            sections.append(differences_section(heading, pairs))
    sections += [sweep_section(sweep) for sweep in report.sweeps if not sweep.folded]
    searches = [sweep for sweep in report.sweeps if sweep.folded]
    sections += [tuning_section(searches)] if searches else []
    origins = []
    for run in report.runs:
        for kind in (Diagnosis, HeadDiagnosis):
            if diagnosis := kind.load(run.folder):
                sections += diagnosis_sections(diagnosis)
        if facts := {**run.manifest, **({"configuration": run.config} if run.config else {})}:
            origins.append(manifest_section(run.folder.name, facts))
    sections += [folded_section("Where the numbers come from", origins)] if origins else []
    return render_page("Latte: results", sections)


def leaderboard_page(boards: Sequence[leaderboard.Board]) -> str:
    """Return the page of ``latte leaderboard``: its rows, which a reader filters and sorts, and origins."""
    sections = []
    for board in boards:
        names: dict[str, Any] = {
            "board": board,
            "looks": {entry.label: look(entry.label, entry.name) for entry in board.entries},
            "rows": [(entry, leaderboard.summary_cells(entry)) for entry in board.entries],
            "forms": [form for form in leaderboard.FORMS if any(entry.form == form for entry in board.entries)],
            "score_text": leaderboard.score_text,
            "rank_text": leaderboard.rank_text,
        }
        sections.append(Section(board.title, _render("leaderboard", **names)))
        origins = [leaderboard.origin_cells(entry) for entry in board.entries]
        sections.append(
            _words_section(f"Where the methods come from: {board.title.lower()}", leaderboard.ORIGIN, origins)
        )
        sets = [leaderboard.set_cells(one) for one in board.sets]
        sections.append(_words_section(f"Sets: {board.title.lower()}", leaderboard.SETS, sets))
    return render_page("Latte: leaderboard", sections)


def _words_section(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Section:
    return Section(title, _render("words", title=title, columns=columns, rows=rows))
