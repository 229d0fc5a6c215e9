"""From plain dictionaries to a :class:`RunConfig` and back, strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..errors import refuse
from ..files.schema import structure
from .config import RunConfig, parse_method, parse_seeds


def configure(raw: Mapping[str, Any]) -> RunConfig:
    """Return the configuration in ``raw``: the content of a TOML file, or what the command line collected."""
    values = dict(raw)
    if isinstance(values.get("methods"), list):
        values["methods"] = [_method_table(method) for method in values["methods"]]
    if isinstance(values.get("seeds"), str):
        values["seeds"] = parse_seeds(values["seeds"])
    return build_config(values)


def _method_table(method: Any) -> Any:
    """Return the table of a method that is named as on the command line; refuse a preset where parameters belong."""
    if isinstance(method, str):
        return parse_method(method)
    params = method.get("params") if isinstance(method, Mapping) else None
    if isinstance(params, str):
        raise refuse(
            "params", repr(params), f"a table of values; a preset is its own key: preset = {json.dumps(params)}"
        )
    return method


def build_config(raw: Mapping[str, Any]) -> RunConfig:
    """Structure ``raw``; everything that does not fit is refused with its path."""
    return structure(raw, RunConfig, "", root="config")


def dump_config(config: RunConfig) -> dict[str, Any]:
    """Return ``config`` as plain dictionaries and lists."""
    return asdict(config)
