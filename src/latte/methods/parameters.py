"""The parameters of a method: a frozen dataclass, from a preset or the defaults, with some fields changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from ..core.validate import near
from ..errors import refuse


class ParameterClass(Protocol):
    """The parameters of a method: any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


ParameterChoice: TypeAlias = ParameterClass | Mapping[str, Any] | None  # whole, or the fields to change


class Choices(NamedTuple):
    """What the parameters of a method can be."""

    method: str
    params: type
    presets: Mapping[str, Any]


def choose_parameters(choices: Choices, params: ParameterChoice, preset: str | None, changes: Mapping[str, Any]) -> Any:
    """Return the parameters of a method.

    ``params`` is its own dataclass, or a mapping of the fields to change; ``changes`` are more of these. Without a
    dataclass they apply to ``preset``, or to the defaults.
    """
    if isinstance(params, Mapping) or params is None:
        return _changed(choices.method, _starting_point(choices, preset), {**(params or {}), **changes})
    if isinstance(params, str) and params in choices.presets:
        raise refuse("params", repr(params), f"a preset by its own argument: preset={params!r}")
    if not isinstance(params, choices.params):
        raise refuse("params", type(params).__name__, f"{choices.params.__name__}, or a mapping of its fields")
    if preset is not None:
        raise refuse("preset", repr(preset), "a preset or whole parameters, not both")
    return _changed(choices.method, params, changes)


def _starting_point(choices: Choices, preset: str | None) -> Any:
    if preset is None:
        return choices.params()
    if preset not in choices.presets:
        known = ", ".join(choices.presets) or "none: it has no presets"
        raise refuse("preset", repr(preset), f"one of {known}")
    return choices.presets[preset]


def _changed(method: str, base: Any, changes: Mapping[str, Any]) -> Any:
    known = [field.name for field in fields(base)]
    for key in changes:
        if key not in known:
            raise refuse(
                f"{method} parameter", repr(key), "one of " + (", ".join(near(key, known)) or "none: it has none")
            )
    return replace(base, **changes) if changes else base
