"""``latte methods``: what can be run, and what can be set."""

from __future__ import annotations

import json
import shutil
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import PLUGINS, load_plugins
from .output import line, print_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..experiment.method_cards import MethodCard


@click.command()
@click.argument("name", required=False)
@PLUGINS
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def methods(name: str | None, plugins: tuple[Path, ...], as_json: bool) -> None:
    """List the methods with their parameters, presets and grids, or show the method NAME in detail.

    \b
    latte methods latte
    latte run --benchmark cifar10c-mini --methods clip,latte:cifar10c+alpha=0.5
    """
    from ..experiment.method_cards import method_cards

    load_plugins(plugins)
    cards = method_cards([name] if name else [])
    if as_json:
        line(json.dumps([asdict(card) for card in cards], default=str))
    elif name:
        _print_details(cards[0])
    else:
        _print_list(cards)


def _print_list(cards: list[MethodCard]) -> None:
    width = max(len(card.name) for card in cards) + 2
    for card in cards:
        texts = [card.about, f"{card.form}; needs {card.needs}"]
        texts += [f"parameters: {_values({p.name: p.default for p in card.parameters})}"] if card.parameters else []
        texts += [f"presets: {' '.join(card.presets)}"] if card.presets else []
        texts += [f"latte tune tries: {_grid(card.grid)}"] if card.grid else []
        _print_beside(card.name, texts, width)
    line("one of them in detail: latte methods NAME; how to add one: docs/own-method.md", err=True)


def _columns() -> int:
    return max(60, shutil.get_terminal_size().columns)


def _print_beside(name: str, texts: list[str], indent: int) -> None:
    """Print a name, and texts beside it that are wrapped to the terminal."""
    columns = _columns()
    for number, text in enumerate(texts):
        first = name if number == 0 else ""
        head, rest = f"{first:<{indent}}", " " * (indent if number == 0 else indent + 2)
        for row in textwrap.wrap(text, columns, initial_indent=head, subsequent_indent=rest):
            line(row)


def _print_details(card: MethodCard) -> None:
    _print_wrapped(card.about)
    _print_wrapped(f"{card.name}: {card.form}; needs {card.needs}")
    if card.parameters:
        line("")
        print_rows([{"parameter": p.name, "type": p.type, "default": str(p.default)} for p in card.parameters], False)
        line("")
        _print_wrapped(card.help)
    if card.presets:
        line("")
        print_rows(
            [{"preset": name, "changes": _values(changes) or "-"} for name, changes in card.presets.items()], False
        )
    if card.grid:
        line("")
        _print_wrapped(f"latte tune tries: {_grid(card.grid)}")


def _print_wrapped(text: str) -> None:
    """Print paragraphs, which empty lines separate, as wide as the terminal."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            line("")
        for row in textwrap.wrap(paragraph, _columns()):
            line(row)


def _values(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _grid(grid: Mapping[str, tuple[Any, ...]]) -> str:
    return "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in grid.items())
