"""Single values of a configuration, changed by their path: ``method.alpha=0.5``, ``schedule.period=5``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from ..core.validate import near
from ..errors import refuse
from ..simulation.schedule import Schedule
from .config import RunConfig, parameters, parse_seeds, parse_value
from .structure import build_config, dump_config


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
    known = {f.name for f in fields(RunConfig)} - {"methods", "schedule"}
    paths = sorted(known) + [f"schedule.{f.name}" for f in fields(Schedule)] + ["method.PARAMETER"]
    if key not in paths or key == "method.PARAMETER":
        raise refuse("--set", repr(key), "one of " + ", ".join(near(key, paths)))
    raw = dump_config(config)
    target = raw["schedule"] if head == "schedule" else raw
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
