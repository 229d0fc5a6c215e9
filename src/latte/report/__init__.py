"""What is shown to people: tables, charts, pages and figures. matplotlib is imported where it is used.

``contents`` says what a report of run folders shows. ``tables`` makes a ``result_table`` of results (``groups`` are
its rows, ``metrics`` its numbers), ``sweep_table`` a curve of a sweep; ``formats`` writes them as JSON and CSV,
``plain_text`` for a terminal, ``markup`` as Markdown and LaTeX, ``html``, ``sweep_page`` and ``page`` as a page.
``paper`` has the published accuracies; ``reproduce``, ``baselines`` and ``protocol`` make the paper's tables.
``figures`` draws the paper's figures, ``theory_figures`` and ``theory_files`` those of the theory.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .formats import as_csv, as_json
    from .markup import as_latex, as_markdown
    from .page import report_page
    from .plain_text import as_text
    from .result_table import ResultTable
    from .tables import build_table, build_tables

_HOMES = {
    ".formats": (
        "as_csv",
        "as_json",
    ),
    ".markup": (
        "as_latex",
        "as_markdown",
    ),
    ".page": ("report_page",),
    ".plain_text": ("as_text",),
    ".result_table": ("ResultTable",),
    ".tables": (
        "build_table",
        "build_tables",
    ),
}

__all__ = [
    "ResultTable",
    "as_csv",
    "as_json",
    "as_latex",
    "as_markdown",
    "as_text",
    "build_table",
    "build_tables",
    "report_page",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
