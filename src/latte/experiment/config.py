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

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..core.memory import NEUTRAL
from ..core.validate import at_least, choice, first_twice, near, whole
from ..data.federation import ORDERS
from ..errors import InputError, refuse
from ..files.documents import check_text, parse_toml, read_toml, structure
from ..methods import resolve
from ..simulation.labelling import Labelling
from ..simulation.results import SETTINGS
from ..simulation.simulator import Schedule

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
    prompt need it. ``labels`` says which images somebody labels: accuracy is then that on the others.
    """

    benchmark: str
    methods: tuple[MethodConfig, ...]
    seeds: tuple[int, ...] = (0,)
    clients_per_domain: int | None = None
    schedule: Schedule = field(default_factory=Schedule)
    order: str = "shuffled"
    engine: str = "auto"
    text_encoder: str | None = None
    labels: Labelling = field(default_factory=Labelling)

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
    values = asdict(resolve(method.name, dict(method.params), method.preset))
    whole = {key for key, value in values.items() if type(value) is int and isinstance(getattr(base, key), float)}
    return {key: float(value) if key in whole else value for key, value in values.items()}


def recorded_parameters(method: MethodConfig) -> dict[str, Any]:
    """Return the parameters that name a run: without those that were added later and have no effect at their value."""
    full = parameters(method)
    neutral = {f.name: f.default for f in fields(resolve(method.name)) if f.metadata.get(NEUTRAL)}
    return {name: value for name, value in full.items() if name not in neutral or value != neutral[name]}


def setting_of(method: MethodConfig) -> str:
    """Return where a method's parameters come from; another word (``variant``) is a choice of form, not of a number."""
    if method.setting:
        return method.setting
    base = parameters(replace(method, params={}))
    full = parameters(method)
    if any(full[key] != base[key] and not isinstance(full[key], str) for key in full):
        return "custom"
    return "default" if method.preset is None else "preset"


def configure(raw: Mapping[str, Any]) -> RunConfig:
    """Return the configuration in ``raw``: the content of a TOML file, or what the command line collected."""
    values = dict(raw)
    if isinstance(values.get("methods"), list):
        values["methods"] = [parse_method(one) if isinstance(one, str) else one for one in values["methods"]]
        for method in values["methods"]:
            params = method.get("params") if isinstance(method, Mapping) else None
            if isinstance(params, str):
                want = f"a table of values; a preset is its own key: preset = {json.dumps(params)}"
                raise refuse("params", repr(params), want)
    if isinstance(values.get("seeds"), str):
        values["seeds"] = parse_seeds(values["seeds"])
    return build_config(values)


def build_config(raw: Mapping[str, Any]) -> RunConfig:
    """Structure ``raw``; everything that does not fit is refused with its path."""
    return structure(raw, RunConfig, "", root="config")


def apply_settings(config: RunConfig, settings: Iterable[str]) -> RunConfig:
    """Return ``config`` with changes such as ``method.alpha=0.5``, ``method.latte.k_l=3`` or ``schedule.period=5``."""
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise refuse("--set", repr(text), "KEY=VALUE, such as method.alpha=0.5")
        config = change_setting(config, key.strip(), parse_value(value))
    return config


def change_setting(config: RunConfig, key: str, value: Any) -> RunConfig:
    """Return ``config`` with one value changed; ``key`` is a path such as ``schedule.period``."""
    head, _, rest = key.partition(".")
    if head == "method" and rest:
        return _change_methods(config, rest, value)
    tables = {"schedule": Schedule, "labels": Labelling}
    known = {f.name for f in fields(RunConfig)} - {"methods", *tables}
    paths = sorted(known) + [f"{name}.{f.name}" for name, kind in tables.items() for f in fields(kind)]
    paths.append("method.PARAMETER")
    if key not in paths or key == "method.PARAMETER":
        raise refuse("--set", repr(key), "one of " + ", ".join(near(key, paths)))
    raw = asdict(config)
    target = raw[head] if head in tables else raw
    target[rest or head] = parse_seeds(value) if key == "seeds" and isinstance(value, str) else value
    return build_config(raw)


def _change_methods(config: RunConfig, path: str, value: Any) -> RunConfig:
    """Change a parameter of every method that has it, or of the one that ``path`` names by name or label."""
    name, _, key = path.rpartition(".")
    chosen = [m for m in config.methods if not name or name in (m.name, m.label)]
    if not chosen:
        raise refuse("--set", f"method {name!r}", "one of " + ", ".join(near(name, [m.label for m in config.methods])))
    having = [m for m in chosen if key in parameters(m)]
    if not having:
        known = sorted({name for m in chosen for name in parameters(m)})
        want = "one of " + ", ".join(near(key, known)) if known else "a method that has parameters"
        raise refuse("--set", f"parameter {key!r}", want)
    methods = tuple(replace(m, params={**m.params, key: value}) if m in having else m for m in config.methods)
    return replace(config, methods=methods)
