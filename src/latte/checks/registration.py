"""What the class of a method says of itself has to be what ``create``, ``latte run`` and the sweeps need."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from typing import Any

from ..core.sync import SYNC_TIMES
from .material import CLASSES, DIM, MakeMethod, a_zero_shot, images

SEPARATORS = ",:=+"  # of a method on the command line: NAME:PRESET+KEY=VALUE,...


def can_be_registered(make: MakeMethod) -> None:
    """Check the class attributes and the constructor; a function that makes methods says nothing of itself."""
    if not isinstance(make, type):
        return
    kind: Any = make
    params = _checked_params(kind)
    _check_sync(kind)
    _check_engine(kind)
    _check_messages(kind, params)
    if getattr(kind, "tunes_prompt", False):
        takes = "text_encoder" in inspect.signature(kind).parameters
        assert takes, "tunes_prompt = True: the constructor takes text_encoder=..., or leave tunes_prompt out"
    else:
        _check_constructor(kind, () if params is None else (params,))


def _checked_params(kind: Any) -> Any:
    """Return the default parameters; None for a class without ``Params``."""
    params, presets = getattr(kind, "Params", None), getattr(kind, "presets", {})
    if params is None:
        assert not presets, "presets need a class of parameters, Params"
        return None
    frozen = is_dataclass(params) and vars(params)["__dataclass_params__"].frozen
    assert frozen, "Params is a frozen dataclass"
    default = _call(params, "every field of Params has a default")
    assert all(isinstance(preset, params) for preset in presets.values()), "a preset is one of the Params"
    for name in presets:
        assert not set(str(name)) & set(SEPARATORS), f"the name of a preset has none of {SEPARATORS}: got {name!r}"
    for values in (default, *presets.values()):
        _check_fields(values)
    return default


def _check_fields(params: Any) -> None:
    """Records and configurations are files: what they hold has to come back as it was."""
    for field in fields(params):
        value = getattr(params, field.name)
        plain = (
            value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
        )
        want = "a number, a word, a bool or None (make several fields of a tuple or a list)"
        assert plain, f"Params.{field.name} is {want}: got {value!r:.80}"


def _check_constructor(kind: Any, params: tuple[Any, ...]) -> None:
    first = "(zero_shot, params)" if params else "(zero_shot)"
    method = _call(lambda: kind(a_zero_shot(), *params), f"the constructor takes {first}")
    if params:
        assert getattr(method, "params", None) == params[0], (
            "the constructor takes (zero_shot, params) and keeps .params"
        )
    want = f"the constructor takes normalise=True, too: __init__(self, {first[1:-1]}, *, normalise=False)"
    normalising, image = _call(lambda: kind(a_zero_shot(), *params, normalise=True), want), images(1)[0]
    answer = _call(lambda: normalising.predict(3 * image), "with normalise=True, rows of any length are accepted")
    assert answer.label == method.predict(image).label, "with normalise=True, rows are divided by their length"


def _check_sync(kind: Any) -> None:
    sync = getattr(kind, "sync", "every")
    assert sync in SYNC_TIMES, f"sync is one of {', '.join(map(repr, SYNC_TIMES))}: got {sync!r}"


def _check_engine(kind: Any) -> None:
    target = vars(kind).get("engine")
    if target is not None:
        want = f"engine is the 'module:Name' of a MethodEngine, or None: got {target!r}"
        assert isinstance(target, str), want
        module, _, name = target.partition(":")
        _call(lambda: getattr(import_module(module), name), want)


def _check_messages(kind: Any, params: Any) -> None:
    """What is sent is counted by ``latte cost`` and ``latte run``."""
    if not hasattr(kind, "messages"):
        return
    want = "messages(params, classes) is a static method that returns two Contents: what goes up, and what comes down"
    parts = _call(lambda: tuple(kind.messages(params, CLASSES)), want)
    assert len(parts) == 2, f"{want}; got {len(parts)}"
    for part in parts:
        assert _call(partial(_counts_bytes, part), want), want


def _counts_bytes(part: Any) -> bool:
    return bool(part.whole(DIM, "fp16") >= part.counted(DIM, "fp16") >= 0)


def _call(function: Callable[[], Any], want: str) -> Any:
    """Return what ``function`` returns; fail with ``want`` if it raises."""
    try:
        return function()
    except Exception as error:
        raise AssertionError(f"{want}; got {error!r}") from error
