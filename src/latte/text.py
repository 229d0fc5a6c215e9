"""Text made safe for where it is shown: a name out of a file moves no cursor, runs no formula and opens no tag.

Everything that is printed or written for people goes through one of these: terminals through :func:`visible`, then
CSV, Markdown and LaTeX. What a page shows goes through :func:`visible` and is escaped by jinja (report/html.py); JSON
escapes by itself as long as it is ASCII.
"""

from __future__ import annotations

import html
import re
import unicodedata

from .errors import refuse

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
    shown = []
    for char in text:
        hidden = unicodedata.category(char) in _HIDDEN and char not in _JOINERS + keep
        shown.append(char.encode("unicode_escape").decode("ascii") if hidden else char)
    return "".join(shown)


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


def short_count(number: float | None) -> str:
    """Write a count as the paper does, three digits and a letter.

    >>> short_count(871_200), short_count(614_400), short_count(17_563_453_440), short_count(2_049_024)
    ('871 K', '614 K', '17.6 G', '2.05 M')
    """
    if number is None:
        return ""
    if number < 0:
        raise refuse("number", number, "a count")
    letters = ("", " K", " M", " G", " T")
    power = 0
    while power < 4 and float(f"{number / 1000**power:.3g}") >= 1000:  # 999,600 is 1 M, not 1000 K
        power += 1
    return f"{float(f'{number / 1000**power:.3g}'):g}{letters[power]}"
