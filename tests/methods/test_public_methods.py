"""Every built-in method is exported alike, and what type checkers are told of it is what it is."""

import inspect
from dataclasses import fields
from typing import get_overloads

import pytest

import latte
from latte import methods
from latte.methods import METHODS, create, describe, options

BUILT_IN = sorted(name for name in METHODS if describe(name).built_in)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_method_and_its_parameters_are_exported(name):
    info = describe(name)
    assert getattr(latte, info.kind.__name__) is getattr(methods, info.kind.__name__) is info.kind
    if fields(info.params):
        assert getattr(methods, info.params.__name__) is info.params


@pytest.mark.parametrize("name", BUILT_IN)
def test_type_checkers_know_what_create_takes_and_returns(name):
    info = describe(name)
    stem = info.params.__name__.removesuffix("Params") if fields(info.params) else ""
    known = {"preset": "str | None", "normalise": "bool", **{field.name: field.type for field in fields(info.params)}}
    typed = getattr(options, f"{stem}Options").__annotations__
    assert {key: value.__forward_arg__ for key, value in typed.items()} == known
    told = [one.__annotations__ for one in get_overloads(create) if repr(name) in one.__annotations__["name"]]
    assert [(one["return"], one["options"]) for one in told] == [(info.kind.__name__, f"Unpack[{stem}Options]")]


def test_a_notebook_completes_the_parameters():
    shown = inspect.signature(latte.Latte).parameters
    assert {"zero_shot", "params", "preset", "alpha"} < set(shown) and "changes" not in shown
    assert shown["alpha"].default == methods.LatteParams().alpha
    assert "text_encoder" in inspect.signature(latte.Tpt).parameters
