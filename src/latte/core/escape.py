r"""Text made safe for where it is shown: a name out of a file moves no cursor, runs no formula and opens no tag.

Everything that is printed or written for people goes through one of these: terminals through :func:`visible`, then
CSV, Markdown and LaTeX. What a page shows goes through :func:`visible` and is escaped by jinja (report/html.py); JSON
escapes by itself as long as it is ASCII.
"""

from __future__ import annotations

import html
import re
import unicodedata

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, formats such as bidi overrides, lone surrogates, separators
_JOINERS = "\u200c\u200d"  # formats that spell words of many scripts, and emoji
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FORMULA = tuple("=+-@＝＋－＠")  # what spreadsheets take for the start of a formula
# an underscore between letters is one; elsewhere it may begin or end emphasis
_MARKS = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "Δ": r"$\Delta$",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{char: "\\" + char for char in "&%$#_{}"},
    **{char: f"{{{char}}}" for char in "[]*"},  # at the start of a row they would belong to the \\ before it
}  # fmt: skip


def visible(text: str, keep: str = "") -> str:
    r"""Return ``text`` with every character that controls or hides written out; those in ``keep`` stay.

    >>> visible("a\x1b[31m\nb"), visible("a\nb\u202ec", keep="\n")
    ('a\\x1b[31m\\nb', 'a\nb\\u202ec')
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep or not _hidden(char) else _escape(char) for char in text)


def _hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN and char not in _JOINERS


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def csv_cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula; numbers stay numbers.

    >>> csv_cell("=1+1"), csv_cell("-0.5"), csv_cell(-0.5), csv_cell("-x")
    ("'=1+1", '-0.5', -0.5, "'-x")
    """
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def markdown(text: str) -> str:
    r"""Return ``text`` as Markdown shows it: no tags, links, pictures, code, emphasis or cells of its own.

    >>> markdown("<b>|[x](y)"), markdown("gaussian_noise _x_")
    ('&lt;b&gt;\\|\\[x\\](y)', 'gaussian_noise \\_x\\_')
    """
    return _MARKS.sub(r"\\\g<0>", html.escape(visible(text), quote=False))


def latex(text: str) -> str:
    r"""Return ``text`` as LaTeX sets it.

    >>> latex("a_b & 50 %")
    'a\\_b \\& 50 \\%'
    """
    return "".join(_LATEX.get(char, char) for char in visible(text))
