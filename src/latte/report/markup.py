"""Tables and sweeps as Markdown for a README and as LaTeX (booktabs) for a paper."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.escape import latex, markdown, visible
from .plain_text import split_columns
from .result_table import ResultTable, Row
from .sweep_table import Grid, SweepTable
from .text import interval_text, interval_title, own_text, pair_text, paper_text, total_text

_LATEX_UNIT = "accuracy in \\%, mean $\\pm$ standard deviation over seeds"
LATEX_COLUMNS = 7  # in one panel: what fits the width of a page


def as_markdown(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = ()) -> str:
    """Return tables for a README; the best of each column is bold."""
    folded = [f"- {markdown(sweep.summary())} ({markdown(sweep.folder)})" for sweep in sweeps if sweep.folded]
    parts = [_markdown(table) for table in tables]
    parts += [_markdown_sweep(sweep) for sweep in sweeps if not sweep.folded]
    parts += ["\n".join(["### Tuning, folded", "", *folded])] if folded else []
    return "\n\n".join(parts) + "\n"


def _markdown(table: ResultTable) -> str:
    parts = [f"### {markdown(table.title)}", _markdown_rows(table, table.panel("summary", "domains"), True)]
    parts.append(_markdown_rows(table, table.panel("deployment"), False))
    pairs = table.against_reference()
    if pairs:
        parts.append(_markdown_pairs(table))
    return "\n\n".join([*parts, "\n".join(f"- {markdown(note)}" for note in table.notes)]).rstrip()


def _markdown_rows(table: ResultTable, columns: Sequence[int], settings: bool) -> str:
    head = ["Method", *(["Setting"] if settings else [])]
    labels = [markdown(table.columns[i].label) for i in columns]
    rows = []
    for row in table.rows:
        cells = marked_cells(table, row, "**{}**")
        name = [markdown(row.label), *([markdown(row.setting)] if settings else [])]
        rows.append(_line([*name, *(cells[i] for i in columns)]))
    return "\n".join([_line([*head, *labels]), _line([*(":--" for _ in head), *("--:" for _ in labels)]), *rows])


def _markdown_pairs(table: ResultTable) -> str:
    """Return the reference against the others; the interval is behind the mean."""
    columns = [table.columns[i] for i in table.panel("deployment")]
    total = f"Total, points [{interval_title(table.against_reference())}]"
    head = ["Paired over seeds", total, *(column.label for column in columns)]
    others = {column.key: {pair.second: pair for pair in table.against_reference(column.key)} for column in columns}
    rows = [
        _line(
            [
                markdown(f"{table.reference} − {pair.second}"),
                pair_text(pair),
                *(interval_text(others[column.key].get(pair.second)) for column in columns),
            ]
        )
        for pair in table.against_reference()
    ]
    return "\n".join([_line(head), _line([":--" for _ in head]), *rows])


def _markdown_sweep(sweep: SweepTable) -> str:
    parts = [f"### {markdown(sweep.heading)}", *(_markdown_grid(grid) for grid in sweep.grids())]
    return "\n\n".join([*parts, "\n".join(f"- {markdown(note)}" for note in sweep.notes())])


def _markdown_grid(grid: Grid) -> str:
    head = _line([markdown(grid.corner), *map(markdown, grid.columns)])
    rows = [_line([markdown(row.name), *map(total_text, row.cells)]) for row in grid.rows]
    title = [f"{markdown(grid.title)}\n"] if grid.title else []
    return "\n".join([*title, head, _line(["--:" for _ in range(1 + len(grid.columns))]), *rows])


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def marked_cells(table: ResultTable, row: Row, mark: str) -> list[str]:
    """Return the cells of a row as text, those that are the best of their column inside ``mark``."""
    texts = []
    for i, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
        text = own_text(cell, column)
        texts.append((mark.format(text) if table.is_best(row, i) else text) + paper_text(cell))
    return texts


def as_latex(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = ()) -> str:
    """Return tables for a paper; they need the package booktabs. Many domains go below each other in panels."""
    parts = [_latex(table) for table in tables]
    parts += [_latex_sweep(sweep) for sweep in sweeps if not sweep.folded]
    parts += [f"% {visible(sweep.summary())} ({visible(sweep.folder)})" for sweep in sweeps if sweep.folded]
    return "\n\n".join(parts) + "\n"


def _latex(table: ResultTable) -> str:
    panels = [_tabular(table, panel, not number) for number, panel in enumerate(_latex_panels(table))]
    brackets = " (in brackets: the paper's)" if table.beside_paper else ""
    return _float(table.notes, f"{latex(table.title)}: {_LATEX_UNIT}{brackets}", panels)


def _comment(note: str) -> str:
    """Return a note as it stands in a comment of LaTeX: without commands, whoever chose its words."""
    return visible(note).replace("\\", r"\textbackslash{}")


def _float(notes: Sequence[str], caption: str, panels: Sequence[str]) -> str:
    lines = [
        *(f"% {_comment(note)}" for note in notes),
        "\\begin{table}",
        "\\centering\\footnotesize\\setlength{\\tabcolsep}{3pt}",
        f"\\caption{{{caption}.}}",
        "\n\n\\medskip\n".join(panels),
        "\\end{table}",
    ]
    return "\n".join(lines)


def _latex_panels(table: ResultTable) -> list[list[int]]:
    widths = [_latex_width(table, i) for i in range(len(table.columns))]
    whole, deployment = table.panel("summary", "domains"), table.panel("deployment")
    if sum(widths[i] for i in whole) <= LATEX_COLUMNS:
        return [whole, deployment]
    summary, domains = (split_columns(table.panel(name), widths, LATEX_COLUMNS) for name in ("summary", "domains"))
    return [*summary, deployment, *domains]


def _latex_width(table: ResultTable, i: int) -> int:
    """Return how many columns' room a column takes: two where the paper's value is beside ours."""
    return 2 if any(paper_text(row.cells[i]) for row in table.rows) else 1


def _tabular(table: ResultTable, panel: Sequence[int], settings: bool) -> str:
    heads = ["Method", *(["Setting"] if settings else [])]
    head = [*heads, *(latex(table.columns[i].label) for i in panel)]
    rows = [_latex_row(table, row, panel, settings) for row in table.rows]
    return _booktabs(f"{'l' * len(heads)}{'r' * len(panel)}", head, rows)


def _booktabs(columns: str, head: Sequence[str], rows: Sequence[str]) -> str:
    top = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", _row(head), "\\midrule"]
    return "\n".join([*top, *rows, "\\bottomrule", "\\end{tabular}"])


def _latex_row(table: ResultTable, row: Row, panel: Sequence[int], settings: bool) -> str:
    cells = marked_cells(table, row, "\\textbf{{{}}}")
    name = [latex(row.label), *([latex(row.setting)] if settings else [])]
    return _row([*name, *(_maths(cells[i]) for i in panel)])


def _latex_sweep(sweep: SweepTable) -> str:
    return _float(sweep.notes(), f"{latex(sweep.heading)}: {_LATEX_UNIT}", [_latex_grid(g) for g in sweep.grids()])


def _latex_grid(grid: Grid) -> str:
    head = [latex(grid.corner), *map(latex, grid.columns)]
    rows = [_row([latex(row.name), *(_maths(total_text(cell)) for cell in row.cells)]) for row in grid.rows]
    title = f"{latex(grid.title)}\\\\\n" if grid.title else ""
    return title + _booktabs("r" * len(head), head, rows)


def _row(texts: Sequence[str]) -> str:
    return " & ".join(texts) + " \\\\"


def _maths(text: str) -> str:
    return text.replace(" ±", " $\\pm$ ").replace("−", "$-$").replace("–", "--")
