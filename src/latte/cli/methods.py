"""``latte methods``: what there is to know about each method before it is run."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click

from .options import JSON, PLUGINS, load_plugins
from .output import line, print_rows


@click.command()
@click.argument("name", required=False)
@PLUGINS
@JSON
def methods(name: str | None, plugins: tuple[Path, ...], as_json: bool) -> None:
    """List the methods with their parameters, presets and grids, or show the method NAME in detail.

    \b
    latte methods latte
    latte run --benchmark cifar10c-mini --methods clip,latte:cifar10c+alpha=0.5
    """
    from ..methods import METHODS

    load_plugins(plugins)
    cards = [_card(one) for one in ([name] if name else sorted(METHODS))]
    if as_json:
        line(json.dumps(cards, default=str))
    elif name:
        _print_details(cards[0])
    else:
        _print_list(cards)


def _card(name: str) -> dict[str, Any]:
    """Return what a method is, how clients use it, what it needs, and what can be set.

    ``about`` is the first line of its module, or of a plugin's class, ``help`` what its parameters mean. ``presets``
    are the parameters that differ from the defaults, by name of the preset; ``grid`` the values that ``latte tune``
    tries.
    """
    from ..methods import describe

    info = describe(name)
    known: list[Any] = list(fields(info.params))
    defaults = {f.name: f.default_factory() if f.default is MISSING else f.default for f in known}
    form = "clients learn from each other" if info.collaborative else "each client by itself"
    needs = "several views of an image" if info.uses_views else "one embedding of an image"
    module, own = sys.modules[info.kind.__module__].__doc__, info.kind.__doc__
    about = ((module or own if info.built_in else own or module) or "").strip()  # a plugin's file may have several
    written = (info.params.__doc__ or "") if defaults else ""
    written = "" if written.startswith(f"{info.params.__name__}(") else written  # what a dataclass makes itself
    text = inspect.cleandoc(written).replace("``", "")
    text = re.sub(r"^(\S.*)\n +", r"\n\1: ", text.replace("\nParameters\n----------\n", ""), flags=re.MULTILINE)
    return {
        "name": info.name,
        "about": about.partition("\n")[0],
        "form": "all clients share one memory" if info.shared else form,
        "needs": f"a text encoder (--set text_encoder=...), {needs}" if info.tunes_prompt else needs,
        "parameters": [
            {"name": f.name, "type": getattr(f.type, "__name__", str(f.type)), "default": defaults[f.name]}
            for f in known
        ],
        "presets": {
            preset: {key: value for key in defaults if (value := getattr(values, key)) != defaults[key]}
            for preset, values in info.presets.items()
        },
        "grid": dict(info.tuning),
        "help": re.sub(r"\n +", "\n", text),  # every parameter is a paragraph
    }


def _print_list(cards: list[dict[str, Any]]) -> None:
    indent = max(len(card["name"]) for card in cards) + 2
    for card in cards:
        defaults = {parameter["name"]: parameter["default"] for parameter in card["parameters"]}
        texts = [card["about"], f"{card['form']}; needs {card['needs']}"]
        texts += [f"parameters: {_values(defaults)}"] if defaults else []
        texts += [f"presets: {' '.join(card['presets'])}"] if card["presets"] else []
        texts += [f"latte tune tries: {_grid(card)}"] if card["grid"] else []
        for number, text in enumerate(texts):  # beside the name
            head = f"{card['name'] if number == 0 else '':<{indent}}"
            rest = " " * (indent if number == 0 else indent + 2)
            for row in textwrap.wrap(text, _columns(), initial_indent=head, subsequent_indent=rest):
                line(row)
    line("one of them in detail: latte methods NAME; how to add one: docs/own-method.md", err=True)


def _print_details(card: dict[str, Any]) -> None:
    _print_wrapped(f"{card['about']}")
    _print_wrapped(f"{card['name']}: {card['form']}; needs {card['needs']}")
    if card["parameters"]:
        line("")
        rows = [{"parameter": p["name"], "type": p["type"], "default": str(p["default"])} for p in card["parameters"]]
        print_rows(rows, False)
    if card["help"]:
        line("")
        _print_wrapped(card["help"])
    if card["presets"]:
        line("")
        print_rows([{"preset": name, "changes": _values(new) or "-"} for name, new in card["presets"].items()], False)
    if card["grid"]:
        line("")
        _print_wrapped(f"latte tune tries: {_grid(card)}")


def _print_wrapped(text: str) -> None:
    """Print paragraphs, which empty lines separate, as wide as the terminal."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            line("")
        for row in textwrap.wrap(paragraph, _columns()):
            line(row)


def _columns() -> int:
    return max(60, shutil.get_terminal_size().columns)


def _values(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _grid(card: dict[str, Any]) -> str:
    return "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in card["grid"].items())
