"""JSON and TOML: from bytes to checked plain values, and on to dataclasses.

Refused besides syntax errors: a key twice in one object (parsers disagree on which one counts), NaN and infinity,
integers beyond 64 bits, strings that are no text (lone surrogates, NUL), and deeper nesting than any of our files has.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, time
from pathlib import Path
from typing import Any, TypeVar

from ..core.validate import first_twice
from ..errors import InputError, refuse
from .reading import check_text, decode_text, read_bytes
from .schema import shorten, structure

T = TypeVar("T")

MOST_DOCUMENT_BYTES = 64 << 20  # of one document: plain values take some twenty times as much memory as their text
DEEPEST = 32  # ours have at most six levels
_INTEGERS = range(-(2**63), 2**63)


def read_json(path: Path, kind: type[T], what: str = "file", extra: bool = False) -> T:
    """Read a JSON file into ``kind``, a dataclass or a type of plain values; ``extra`` allows unknown keys.

    ``what`` is the name of a missing file in its refusal.
    """
    return structure(parse_json(read_bytes(path, what, MOST_DOCUMENT_BYTES), str(path)), kind, str(path), extra)


def parse_json(text: str | bytes, name: str) -> Any:
    """Return the value of a JSON text; ``name`` is its origin, for refusals."""
    return _parse(text, name, "JSON", lambda plain: json.loads(plain, object_pairs_hook=_object))


def read_toml(path: Path, what: str = "file") -> dict[str, Any]:
    """Read a TOML file."""
    return parse_toml(read_bytes(path, what, MOST_DOCUMENT_BYTES), str(path))


def parse_toml(text: str | bytes, name: str) -> dict[str, Any]:
    """Return the table of a TOML text."""
    table: dict[str, Any] = _parse(text, name, "TOML", tomllib.loads)
    return table


def _parse(text: str | bytes, name: str, form: str, parse: Callable[[str], Any]) -> Any:
    plain = decode_text(text, name) if isinstance(text, bytes) else text
    try:
        value = parse(plain)
        _check(value, DEEPEST)
    except RecursionError:  # what both parsers raise for nesting without end
        raise refuse(name, f"{form} nested deeper than {DEEPEST} levels", "a flatter file") from None
    except ValueError as error:
        raise refuse(name, f"text that is not {form} ({shorten(error)})", f"a {form} file") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise InputError(f"the key {first_twice(key for key, _ in pairs)!r} twice")
    return table


def _check(value: Any, levels: int) -> None:
    """Refuse a tree that holds anything but plain values."""
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, Mapping):
        for key, branch in value.items():
            check_text(key)
            _check(branch, _deeper(levels))
    elif isinstance(value, list):
        for branch in value:
            _check(branch, _deeper(levels))
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError("a number that is NaN or infinite")
    elif isinstance(value, int) and value not in _INTEGERS:
        raise InputError("a whole number beyond 64 bits")
    elif isinstance(value, (date, time)):
        raise InputError(f"the date or time {value}")


def _deeper(levels: int) -> int:
    if levels == 0:
        raise RecursionError
    return levels - 1
