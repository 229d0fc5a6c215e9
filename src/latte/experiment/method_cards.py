"""What there is to know about each method before it is run: parameters, presets, the grid of its search."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from ..methods import METHODS, describe
from ..methods.registry import MethodInfo
from .tune import TUNING_GRIDS


@dataclass(frozen=True, slots=True)
class ParameterCard:
    """A parameter: its name, its type as it is written in the code, and its default."""

    name: str
    type: str
    default: Any


@dataclass(frozen=True, slots=True)
class MethodCard:
    """A method: what it is, how clients use it, what it needs, and what can be set.

    ``about`` is the first sentence of its module, ``help`` what its parameters mean. ``presets`` are the parameters
    that differ from the defaults, by name of the preset; ``grid`` the values that ``latte tune`` tries.
    """

    name: str
    about: str
    form: str
    needs: str
    parameters: tuple[ParameterCard, ...] = ()
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    help: str = ""


def method_cards(names: Iterable[str] = ()) -> list[MethodCard]:
    """Return the cards of methods by name; of all that are registered, if none is named.

    >>> card, = method_cards(["clip"])
    >>> card.form, card.parameters
    ('each client by itself', ())
    """
    return [_card(describe(name)) for name in names or sorted(METHODS)]


def _card(info: MethodInfo) -> MethodCard:
    defaults = {f.name: _default(f) for f in fields(info.params)}
    presets = {
        name: {key: getattr(preset, key) for key, value in defaults.items() if getattr(preset, key) != value}
        for name, preset in info.presets.items()
    }
    return MethodCard(
        name=info.name,
        about=_first_line(sys.modules[info.kind.__module__].__doc__ or info.kind.__doc__),
        form=_form(info),
        needs=_needs(info),
        parameters=tuple(ParameterCard(f.name, str(f.type), defaults[f.name]) for f in fields(info.params)),
        presets=presets,
        grid={axis.key.rpartition(".")[2]: tuple(axis.values) for axis in TUNING_GRIDS.get(info.name, ())},
        help=_paragraphs(info.params.__doc__) if defaults else "",
    )


def _default(parameter: Any) -> Any:
    return parameter.default_factory() if parameter.default is MISSING else parameter.default


def _form(info: MethodInfo) -> str:
    if info.shared:
        return "all clients share one memory"
    return "clients learn from each other" if info.collaborative else "each client by itself"


def _needs(info: MethodInfo) -> str:
    if info.tunes_prompt:
        return "a text encoder (--set text_encoder=...), several views of an image"
    return "several views of an image" if info.uses_views else "one embedding of an image"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _paragraphs(text: str | None) -> str:
    """Return a docstring without its indentation and its double backquotes."""
    lines = (line.strip() for line in (text or "").strip().splitlines())
    return "\n".join(lines).replace("``", "")
