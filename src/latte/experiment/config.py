"""The configuration of a run: a benchmark, methods, seeds and a schedule, from TOML, the command line or Python.

    benchmark = "cifar10c-mini"
    seeds = "0-4"

    [schedule]
    period = 5

    [[methods]]
    name = "latte"
    preset = "cifar10c"
    params = { alpha = 0.5 }

A method may also be a text, as on the command line: ``methods = ["clip", "latte:cifar10c+alpha=0.5"]``. A key that
does not exist is refused with its path and the near ones; so is a value of the wrong type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..core.near_copies import NEUTRAL
from ..core.validate import at_least, choice, first_twice, whole
from ..data.partition import ORDERS
from ..errors import InputError, refuse
from ..files.documents import parse_toml, read_toml
from ..files.reading import check_text
from ..methods import resolve
from ..simulation.records import SETTINGS
from ..simulation.schedule import Schedule

ENGINES = ("auto", "readable")
MOST_RUNS = 100_000  # runs of one command: the quickest take a hundredth of a second each
_SPEC = re.compile(
    r"(?:(?P<label>[^=:+]+)=)?(?P<name>[^=:+]+)(?::(?P<preset>[^=:+]+))?(?P<changes>(?:\+[^=+]+=[^+]+)*)"
)


@dataclass(frozen=True, slots=True)
class MethodConfig:
    """One row of a comparison: ``params`` change ``preset``, or the method's defaults.

    ``label`` names the row (by default the method's name). ``setting`` is where the parameters come from; left empty,
    it is "preset", "default", or "custom" where ``params`` change a number by hand.
    """

    name: str
    label: str = ""
    preset: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    setting: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.params, Mapping):
            raise refuse(
                "params", repr(self.params), f"a mapping; a preset is its own argument: preset={self.params!r}"
            )
        resolve(self.name, dict(self.params), self.preset)  # refuses unknown names and values
        if self.setting:
            choice("setting", self.setting, SETTINGS)
        if not self.label:
            object.__setattr__(self, "label", self.name)
        _check_words("label", self.label)


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that decides what a run computes.

    ``clients_per_domain`` None means the benchmark's own: the clients that its file fixes, or the paper's number.
    ``engine`` is "auto" (a fast engine where there is one for the method) or "readable". ``text_encoder`` names the
    encoder whose prompts are tuned, "onnx:DIR", "hf:ID" or "openclip:MODEL/WEIGHTS": only the methods that tune a
    prompt need it.
    """

    benchmark: str
    methods: tuple[MethodConfig, ...]
    seeds: tuple[int, ...] = (0,)
    clients_per_domain: int | None = None
    schedule: Schedule = field(default_factory=Schedule)
    order: str = "shuffled"
    engine: str = "auto"
    text_encoder: str | None = None

    def __post_init__(self) -> None:
        _check_words("benchmark", self.benchmark)
        choice("order", self.order, ORDERS)
        choice("engine", self.engine, ENGINES)
        if self.clients_per_domain is not None:
            at_least("clients_per_domain", self.clients_per_domain, 1)
        for seed in self.seeds:
            at_least("seeds", seed, 0)
        for method in self.methods:
            if not isinstance(method, MethodConfig):
                raise refuse("methods", repr(method), "a MethodConfig, such as MethodConfig('latte', preset='vlcs')")
        _each_once("methods", tuple(method.label for method in self.methods))
        _each_once("seeds", self.seeds)
        check_items("methods and seeds", len(self.methods) * len(self.seeds))


def _check_words(name: str, value: str) -> None:
    """Refuse a name that no file of a run could hold as text."""
    try:
        check_text(value)
    except InputError as error:
        raise refuse(name, f"{value!r}, {error}", "text") from None


def check_items(name: str, count: int) -> None:
    """Refuse more than ``MOST_RUNS`` runs before they are listed."""
    if count > MOST_RUNS:
        raise refuse(name, f"{count} runs", f"at most {MOST_RUNS}")


def _each_once(name: str, values: tuple[object, ...]) -> None:
    if not values:
        raise refuse(name, "none", "at least one")
    if (twice := first_twice(values)) is not None:
        raise refuse(name, f"{twice!r} twice", "each once (a method may have a label: LABEL=NAME)")


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file as it is; :func:`configure` makes a configuration of it."""
    return read_toml(path, "config file")


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds that a text names.

    >>> parse_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in str(text).split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part, re.ASCII)
        if not match:
            raise refuse("seeds", repr(text), "numbers and ranges, such as 0-4 or 0,2,7")
        first, last = (whole("seeds", end) for end in (match[1], match[2] or match[1]))
        if last < first:
            raise refuse("seeds", repr(part.strip()), f"a range that goes up, such as {last}-{first}")
        check_items(f"seeds {part.strip()}", last - first + 1 + len(seeds))
        seeds += range(first, last + 1)
    return tuple(seeds)


def format_seeds(seeds: Sequence[int]) -> str:
    """Return seeds as :func:`parse_seeds` reads them, consecutive ones as a range.

    >>> format_seeds((0, 1, 2, 7))
    '0-2,7'
    """
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_method(text: str) -> dict[str, Any]:
    """Return the method that ``[LABEL=]NAME[:PRESET][+KEY=VALUE...]`` names.

    >>> parse_method("latte:vlcs+variant=released")
    {'name': 'latte', 'preset': 'vlcs', 'label': 'latte+variant=released', 'params': {'variant': 'released'}}
    """
    match = _SPEC.fullmatch(text.strip())
    if not match:
        raise refuse("method", repr(text), "[LABEL=]NAME[:PRESET][+KEY=VALUE...], such as latte:vlcs+alpha=0.5")
    pairs = [part.split("=", 1) for part in match["changes"].split("+")[1:]]
    return {
        "name": match["name"],
        "preset": match["preset"],
        "label": match["label"] or match["name"] + match["changes"],
        "params": {key: parse_value(value) for key, value in pairs},
    }


def parse_value(text: str) -> Any:
    """Read a value as TOML has it; what is not TOML is a word.

    >>> parse_value("0.5"), parse_value("false"), parse_value("released")
    (0.5, False, 'released')
    """
    try:
        return parse_toml(f"value = {text}", "value")["value"]
    except InputError:
        return text.strip()


def parameters(method: MethodConfig) -> dict[str, Any]:
    """Return the full parameters of a method, preset and changes applied; 1 for a fraction is 1.0."""
    base = resolve(method.name, {}, method.preset)
    full = resolve(method.name, dict(method.params), method.preset)
    return {f.name: _like(getattr(base, f.name), getattr(full, f.name)) for f in fields(full)}


def recorded_parameters(method: MethodConfig) -> dict[str, Any]:
    """Return the parameters that name a run: without those that were added later and have no effect at their value."""
    full = parameters(method)
    neutral = {f.name: f.default for f in fields(resolve(method.name)) if f.metadata.get(NEUTRAL)}
    return {name: value for name, value in full.items() if name not in neutral or value != neutral[name]}


def _like(example: Any, value: Any) -> Any:
    return float(value) if isinstance(example, float) and type(value) is int else value


def setting_of(method: MethodConfig) -> str:
    """Return where a method's parameters come from; another word (``variant``) is a choice of form, not of a number."""
    if method.setting:
        return method.setting
    base = parameters(replace(method, params={}))
    full = parameters(method)
    if any(full[key] != base[key] and not isinstance(full[key], str) for key in full):
        return "custom"
    return "default" if method.preset is None else "preset"
