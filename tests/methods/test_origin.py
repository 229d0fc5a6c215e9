"""Every method says where it comes from, and how its constants were chosen."""

import pytest

from latte.methods import METHODS, describe


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].target.startswith("latte.")])
def test_a_method_says_where_it_comes_from(name):
    info = describe(name)
    assert info.origin is not None and info.origin.paper and info.origin.constants
    assert info.form in ("local", "global", "collaborative")
    assert bool(info.origin.code) <= bool(info.origin.licence)


def test_a_method_of_ones_own_need_not(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["clip"]._replace(target="collections:OrderedDict"))
    assert describe("mine").origin is None
