"""From plain values to frozen dataclasses with cattrs, strictly: the annotations of the dataclass are the schema.

Text is never converted to a number, a fraction never to an integer, a string never to a list of its letters. Checks in
the ``__post_init__`` of a dataclass apply. Every refusal gives the path inside the document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar, get_args, get_origin

from ..core.validate import near, real
from ..errors import InputError, refuse

T = TypeVar("T")

LONGEST_PROBLEM = 240  # characters of one problem: a name may be megabytes long
MOST_PROBLEMS = 3  # problems in one refusal: a file with thousands is not listed in full
_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def structure(raw: Any, kind: type[T], name: str, extra: bool = False, root: str = "") -> T:
    """Return ``raw`` (plain values) as ``kind``; ``extra`` allows keys that the dataclass does not have.

    Every refusal begins with ``name``; paths inside the value begin with ``root``.
    """
    import cattrs

    try:
        value: T = _converter(not extra).structure(raw, kind)
    except cattrs.BaseValidationError as error:
        problems = cattrs.transform_error(error, path=root, format_exception=_explain)
        raise InputError(f"{name}: {_join_problems(problems)}" if name else _join_problems(problems)) from None
    except InputError as error:
        raise refuse_inside(name or root, error) from None
    return value


def shorten(value: object, length: int = 80) -> str:
    """Return a text as one line of at most ``length`` characters."""
    line = " ".join(str(value).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def refuse_inside(name: object, error: InputError) -> InputError:
    """Return ``error`` as the refusal of the file ``name``, shortened to one line."""
    return InputError(f"{name}: {shorten(error, LONGEST_PROBLEM)}")


@lru_cache
def _converter(strict: bool) -> Any:
    import cattrs
    from cattrs.gen import make_dict_structure_fn

    converter = cattrs.Converter(forbid_extra_keys=strict)

    def of_class(kind: Any) -> Callable[[Any, Any], Any]:
        return partial(_table, make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=strict))

    def of_entries(kind: Any) -> Callable[[Any, Any], Any]:
        return partial(_table, partial(_entries, converter))

    for plain in _PLAIN:
        converter.register_structure_hook(plain, partial(_plain, plain))
    converter.register_structure_hook_factory(is_dataclass, of_class)
    converter.register_structure_hook_factory(partial(_is_one_of, dict, Mapping), of_entries)
    converter.register_structure_hook_func(partial(_is_one_of, tuple), partial(_sequence, converter))
    return converter


def _is_one_of(*arguments: Any) -> bool:
    """Return whether the last of ``arguments``, such as ``dict[str, int]``, is one of the others."""
    *origins, kind = arguments
    return get_origin(kind) in origins


def _plain(kind: type, value: Any, _: type) -> Any:
    """Accept a value of exactly this type; an integer counts as a float too."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return real("value", value, -math.inf)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise refuse("value", shorten(repr(value)), _PLAIN[kind])
    return value


def _table(make: Callable[[Any, Any], Any], raw: Any, kind: Any) -> Any:
    if not isinstance(raw, Mapping):
        raise refuse("value", shorten(repr(raw)), "keys and values")
    return make(raw, kind)


def _entries(converter: Any, raw: Mapping[Any, Any], kind: Any) -> dict[str, Any]:
    """Structure ``dict[str, X]``."""
    of_key, of_value = get_args(kind)
    keys = _each(converter, list(raw), of_key, list(raw))
    return dict(zip(keys, _each(converter, list(raw.values()), of_value, list(raw)), strict=True))


def _sequence(converter: Any, raw: Any, kind: Any) -> tuple[Any, ...]:
    """Structure ``tuple[X, ...]``, or ``tuple[X, X]``, which has a fixed length."""
    first, *rest = get_args(kind)
    want = "a list" if Ellipsis in rest else f"a list of {1 + len(rest)}"
    if not isinstance(raw, (list, tuple)) or (Ellipsis not in rest and len(raw) != 1 + len(rest)):
        raise refuse("value", shorten(repr(raw)), want)
    return tuple(_each(converter, raw, first, range(len(raw))))


def _each(converter: Any, values: Sequence[Any], kind: Any, places: Sequence[Any]) -> list[Any]:
    """Structure all ``values``; the error lists every value that does not fit, with its place."""
    import cattrs

    done, errors = [], []
    for place, value in zip(places, values, strict=True):
        try:
            done.append(converter.structure(value, kind))
        except (InputError, cattrs.BaseValidationError) as error:
            error.add_note(cattrs.IterableValidationNote(f"at {place}", place, kind))
            errors.append(error)
    if errors:
        raise cattrs.IterableValidationError("values", errors, kind)
    return done


def _explain(error: BaseException, kind: type | None) -> str:
    import cattrs

    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        known = [field.name for field in fields(error.cl)]
        unknown = sorted(map(shorten, error.extra_fields))
        return "; ".join(f"no key {key!r} (want {', '.join(near(key, known))})" for key in unknown[:MOST_PROBLEMS])
    if isinstance(error, KeyError):
        return f"missing key {error}, want a value"
    return str(error) if isinstance(error, ValueError) else f"a value of the wrong kind ({shorten(error)})"


def _join_problems(problems: Sequence[str]) -> str:
    first, more = problems[:MOST_PROBLEMS], len(problems) - MOST_PROBLEMS
    plain = [problem.removesuffix(" @ ").replace(" @ .", " at ").replace(" @ ", " at ") for problem in first]
    lines = [shorten(problem, LONGEST_PROBLEM) for problem in plain]
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")
