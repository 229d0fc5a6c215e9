"""Docstrings for the site: the little reStructuredText that ours contain becomes Markdown. An extension of griffe.

- a doctest becomes a block of code;
- ``:class:`Encoder` `` becomes a link where the name is public, and code where it is not;
- ``docs/calibration.md`` in a sentence becomes a link to that page;
- a simple table becomes a Markdown table, and ``::`` before an indented block a colon.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import griffe
from site_api import homes, public_names

_ROLE = re.compile(r":(?:class|data|func|meth|mod|attr):`~?([^`]+)`")
_PAGE = re.compile(r"(?<![\w/`\[(])docs/([\w-]+)\.md(?!`)")
_RULE = re.compile(r"=+( +=+)+ *")


class MarkdownDocstrings(griffe.Extension):
    """Rewrite each docstring when its object has been read."""

    def __init__(self) -> None:
        self.homes = homes(public_names())

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value, self.homes)


def as_markdown(text: str, homes: dict[str, str]) -> str:
    """Return a docstring as Markdown."""
    lines = [line for block in _blocks(text.splitlines()) for line in block]
    text = re.sub(r"::$", ":", "\n".join(lines), flags=re.MULTILINE)
    text = _PAGE.sub(r"[docs/\1.md](../\1.md)", text)  # the pages of the API are in a folder of their own
    return _ROLE.sub(lambda match: _link(match[1], homes), text)


def _link(target: str, homes: dict[str, str]) -> str:
    name = target.rpartition(".")[2]
    return f"[`{name}`][{homes[name]}]" if name in homes else f"`{target.lstrip('.')}`"


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines, a doctest or a table at a time."""
    i = 0
    while i < len(lines):
        end = i + 1
        if lines[i].lstrip().startswith(">>> "):
            while end < len(lines) and lines[end].strip():
                end += 1
            yield _fenced(lines[i:end])
        elif _RULE.fullmatch(lines[i]):
            end = _table_end(lines, i) + 1
            yield _table(lines[i:end])
        else:
            yield [lines[i]]
        i = end


def _fenced(lines: list[str]) -> list[str]:
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return ["", f"{indent}```pycon", *lines, f"{indent}```", ""]


def _table_end(lines: list[str], start: int) -> int:
    """Return the line of the third rule, which closes a table: rule, head, rule, rows, rule."""
    rules = [j for j in range(start, len(lines)) if _RULE.fullmatch(lines[j])]
    return rules[2]


def _table(lines: list[str]) -> list[str]:
    """Return a simple table (columns are where the rule has ``=``) as a Markdown table."""
    starts = [match.start() for match in re.finditer(r"=+", lines[0])]
    spans = [*pairwise(starts), (starts[-1], None)]
    head, *rows = [[line[a:b].strip() for a, b in spans] for line in lines if not _RULE.fullmatch(line)]
    cells = [head, ["---"] * len(spans), *rows]
    return ["", *("| " + " | ".join(row) + " |" for row in cells), ""]
