"""Whatever a name is, it shows as a name: on a terminal, in a spreadsheet, in Markdown and in LaTeX."""

import ast
import csv
import io
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import latte
from latte.report.formats.markup import csv_text
from latte.text import csv_cell, latex, markdown, visible

ANY = st.text(st.characters(categories=None))  # lone surrogates and controls too
CONTROL = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u2028\u2029\u200e\u200f\u061c\ufeff\udcff\ud800"]
BIDI = [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]


@pytest.mark.parametrize("char", [*CONTROL, *BIDI], ids=ascii)
def test_characters_that_control_are_written_out(char):
    for safe in (visible, markdown, latex, csv_cell):
        shown = safe(f"a{char}b")
        assert shown.isascii() and shown.isprintable() and shown[0] == "a" and shown[-1] == "b"
    assert visible(f"a{char}b", keep=char) == f"a{char}b"


@pytest.mark.parametrize("text", ["gaussian_noise", "Δ ±0.5 – 70 %", "日本語", "café", "👩‍🚀", "می‌خواهم", "x\u00a0y"])
def test_ordinary_text_stays(text):
    assert visible(text) == text


@given(ANY)
def test_visible_text_can_be_printed_anywhere_and_stays_visible(text):
    shown = visible(text)
    assert not {unicodedata.category(char) for char in shown if char not in "\u200c\u200d"} & {
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    }
    assert shown.encode().decode() == shown and len(shown.splitlines()) <= 1
    assert visible(shown) == shown


@given(ANY)
@example("=1+1")
@example(" +x")
@example("\t=x")
@example("\r\n@x")
@example("-2+3")
@example("-1e5")
@example("＝1")
def test_no_cell_is_a_formula(text):
    cell = csv_cell(text)
    assert cell.encode().decode() == cell
    number = re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?", cell)
    assert number or not cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"))


@pytest.mark.parametrize("value", [-0.5, -3, "-0.5", "+1e-05", "-.5", "3", 0, None, True])
def test_numbers_stay_numbers(value):
    assert csv_cell(value) is value


def test_a_csv_file_is_safe_and_keeps_its_numbers():
    rows = [("=cmd|' /C calc'!A0", -1.5), ("\x1b[31m", -2), ('a,"b"\n=x', float("nan"))]
    read = list(csv.reader(io.StringIO(csv_text([("@name", "value"), *rows]))))
    assert read[0] == ["'@name", "value"]
    assert [row[1] for row in read[1:]] == ["-1.5", "-2", "nan"]
    assert [row[0] for row in read[1:]] == ["'=cmd|' /C calc'!A0", "\\x1b[31m", 'a,"b"\\n=x']


@given(ANY)
@example("<script>alert(1)</script>")
@example("[x](javascript:alert(1)) ![y](z) [z]: a <a:b> `c` | _d_ __e__ **f** ~~g~~ $h$ \\")
@example("\\[x](y)")
def test_markdown_has_no_marks_of_the_text(text):
    shown = markdown(text)
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", shown)  # what is escaped is text
    assert not set(bare) & set("<>[]`|*~$\\\n\r")
    assert not re.search(r"(?<![^\W_])_|_(?![^\W_])", bare.replace("\\", ""))
    assert "<" not in shown and not re.search(r"&(?!amp;|lt;|gt;)", shown)


@given(ANY)
@example("\\input{/etc/passwd}")
@example("^^5cinput")
@example("a % b\n\\end{table}")
def test_latex_has_no_commands_of_the_text(text):
    shown = latex(text)
    known = r"\\text(backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\$\\Delta\$|\\[&%$#_{}]|\{[\[\]*]\}"
    assert not set(re.sub(known, "", shown)) & set("\\{}$&#^_%~[]*<>|\n\r")


PRINTS = {"print", "echo", "secho", "writer", "DictWriter"}
PLACES = {
    "cli/output.py": {"echo"},
    "demo/clients.py": {"print"},  # to the process that started it
    "demo/fleet.py": {"print"},  # likewise
    "edge/classify/answers.py": {"writer"},
    "report/formats/markup.py": {"writer"},
}


def calls(path: Path) -> set[str]:
    """Return the names of all functions that a module calls."""
    functions = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    return {getattr(function, "attr", getattr(function, "id", "")) for function in functions}


def test_everything_that_prints_or_writes_csv_does_so_in_one_place():
    root = Path(latte.__file__).parent
    modules = {path.relative_to(root).as_posix(): calls(path) & PRINTS for path in root.rglob("*.py")}
    assert {name: found for name, found in modules.items() if found} == PLACES
