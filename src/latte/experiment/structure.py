"""From plain dictionaries to a :class:`RunConfig` and back, strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..files.schema import structure
from .config import RunConfig, parse_seeds


def configure(raw: Mapping[str, Any]) -> RunConfig:
    """Return the configuration in ``raw``: the content of a TOML file, or what the command line collected."""
    values = dict(raw)
    if isinstance(values.get("seeds"), str):
        values["seeds"] = parse_seeds(values["seeds"])
    return structured(values)


def structured(raw: Mapping[str, Any]) -> RunConfig:
    """Structure ``raw``; everything that does not fit is refused with its path."""
    return structure(raw, RunConfig, "", root="config")


def unstructured(config: RunConfig) -> dict[str, Any]:
    """Return ``config`` as plain dictionaries and lists."""
    return asdict(config)
