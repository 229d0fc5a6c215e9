"""From plain dictionaries to a :class:`RunConfig` and back, strictly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from ..core.validate import real, refuse, show
from .config import RunConfig, near, parse_seeds

_WANT = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def configure(raw: Mapping[str, Any]) -> RunConfig:
    """Return the configuration in ``raw``: the content of a TOML file, or what the command line collected."""
    given = dict(raw)
    if isinstance(given.get("seeds"), str):
        given["seeds"] = parse_seeds(given["seeds"])
    return structured(given)


def structured(raw: Mapping[str, Any]) -> RunConfig:
    """Structure ``raw``; everything that does not fit is refused with its path."""
    import cattrs

    try:
        config: RunConfig = _converter().structure(raw, RunConfig)
    except cattrs.BaseValidationError as error:
        problems = cattrs.transform_error(error, path="config", format_exception=_explain)
        raise ValueError("; ".join(problem.replace(" @ config", " at config") for problem in problems)) from None
    return config


def unstructured(config: RunConfig) -> dict[str, Any]:
    """Return ``config`` as plain dictionaries and lists."""
    return asdict(config)


def _converter() -> Any:
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (int, float, bool, str):
        converter.register_structure_hook(kind, partial(_plain, kind))
    return converter


def _plain(kind: type, value: Any, _: type) -> Any:
    """Accept a value only as what it is: no text for a number, no fraction for a whole one."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return real("value", value, -math.inf)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise refuse("value", show(value), _WANT[kind])
    return value


def _explain(error: BaseException, kind: type | None) -> str:
    import cattrs

    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        known = [field.name for field in fields(error.cl)]
        found = sorted(error.extra_fields)
        return "; ".join(f"no key {key!r} (want {', '.join(near(key, known))})" for key in found)
    if isinstance(error, KeyError):
        return f"missing key {error}"
    if isinstance(error, ValueError):
        return str(error)
    return f"a value of the wrong kind ({error})"
