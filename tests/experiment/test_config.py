"""Configuration: what is meant is found, what is mistyped is refused with its path and the near names."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import asdict

import pytest

from latte.experiment.config import (
    MOST_RUNS,
    MethodConfig,
    RunConfig,
    apply_settings,
    build_config,
    configure,
    parameters,
    parse_method,
    parse_seeds,
    read_config,
    recorded_parameters,
    setting_of,
)
from latte.simulation.simulator import Schedule

RAW = {
    "benchmark": "cifar10c-mini",
    "seeds": "0-2",
    "schedule": {"period": 5},
    "methods": [{"name": "clip"}, {"name": "tda"}, {"name": "latte", "preset": "cifar10c", "params": {"alpha": 0.5}}],
}
TOML = """
benchmark = "cifar10c-mini"
seeds = [0, 1, 2]
schedule = { period = 5 }
methods = [{ name = "clip" }, { name = "tda" }, { name = "latte", preset = "cifar10c", params = { alpha = 0.5 } }]
"""


def with_(**changes):
    return {**RAW, **changes}


def test_a_file_and_a_dictionary_say_the_same(tmp_path):
    (tmp_path / "c.toml").write_text(TOML)
    config = configure(read_config(tmp_path / "c.toml"))
    assert config == configure(RAW)
    assert config.seeds == (0, 1, 2) and config.schedule == Schedule(period=5)
    assert [m.label for m in config.methods] == ["clip", "tda", "latte"]
    assert build_config(asdict(config)) == config


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (with_(sedes=[0]), ["'sedes'", "seeds", "at config"]),
        (with_(schedule={"perod": 5}), ["'perod'", "period", "config.schedule"]),
        (with_(methods=[{"name": "clip", "parms": {}}]), ["'parms'", "params", "config.methods[0]"]),
        (with_(methods=[{"name": "late"}]), ["'late'", "latte"]),
        (with_(methods=[{"name": "latte", "params": {"aplha": 1}}]), ["'aplha'", "alpha"]),
        (with_(methods=[{"name": "latte", "preset": "vlsc"}]), ["'vlsc'", "vlcs"]),
        (with_(methods=[{"name": "latte", "params": {"alpha": -1}}]), ["alpha", "-1"]),
        (with_(methods=[{"name": "clip"}, {"name": "clip"}]), ["'clip' twice"]),
        (with_(methods=[]), ["methods", "none"]),
        (with_(methods=[{}]), ["missing key 'name'"]),
        (with_(schedule={"period": "5"}), ["'5'", "a whole number", "schedule.period"]),
        (with_(schedule={"period": 5.5}), ["5.5", "a whole number"]),
        (with_(schedule={"period": True}), ["True", "a whole number"]),
        (with_(schedule={"barrier": 1}), ["1", "true or false"]),
        (with_(schedule={"participation": 0}), ["participation"]),
        (with_(schedule=5), ["config.schedule"]),
        (with_(clients_per_domain=0), ["clients_per_domain"]),
        (with_(order="sorted"), ["'sorted'", "'shuffled'"]),
        (with_(seeds=[0, 0]), ["0 twice"]),
        (with_(seeds=[-1]), ["-1"]),
        (with_(seeds="a-b"), ["'a-b'", "0-4"]),
        ({"methods": [{"name": "clip"}]}, ["missing key 'benchmark'"]),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(raw, words):
    with pytest.raises(ValueError) as caught:
        configure(raw)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_toml_or_not_there(tmp_path):
    (tmp_path / "c.toml").write_text("benchmark = ")
    with pytest.raises(ValueError, match="not TOML"):
        read_config(tmp_path / "c.toml")
    with pytest.raises(ValueError, match="config file"):
        read_config(tmp_path / "d.toml")


def test_settings_reach_every_method_that_has_the_parameter():
    config = apply_settings(configure(RAW), ["method.beta=3", "method.latte.alpha=0.7", "schedule.period=2"])
    tda, latte = config.methods[1:]
    assert (tda.params, latte.params) == ({"beta": 3}, {"alpha": 0.7, "beta": 3})
    assert config.methods[0].params == {} and config.schedule.period == 2
    assert parameters(tda)["beta"] == 3.0 and isinstance(parameters(tda)["beta"], float)
    more = ["seeds=7-8", "order=correlated", "clients_per_domain=4", "method.variant=released"]
    config = apply_settings(config, more)
    assert (config.seeds, config.order, config.clients_per_domain) == ((7, 8), "correlated", 4)
    assert config.methods[2].params["variant"] == "released"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("method.aplha=1", ["'aplha'", "alpha"]),
        ("method.lattte.alpha=1", ["'lattte'", "latte"]),
        ("method.clip.alpha=1", ["'alpha'", "a method that has parameters"]),
        ("schedule.perid=1", ["'schedule.perid'", "schedule.period"]),
        ("alpha", ["KEY=VALUE"]),
        ("schedule.period=x", ["'x'", "whole number"]),
        ("method=3", ["'method'"]),
    ],
)
def test_a_setting_that_fits_nothing_is_refused(text, words):
    with pytest.raises(ValueError) as caught:
        apply_settings(configure(RAW), [text])
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_the_setting_says_where_the_numbers_come_from():
    specs = ["latte", "latte:vlcs", "latte:vlcs+variant=released", "latte:vlcs+alpha=0.3", "latte:vlcs+alpha=0.31"]
    methods = [configure(with_(methods=[parse_method(spec)])).methods[0] for spec in specs]
    assert [setting_of(m) for m in methods] == ["default", "preset", "preset", "preset", "custom"]


def test_method_specs_and_seeds():
    assert parse_method("mine=tda:dtd+k=4") == {"name": "tda", "preset": "dtd", "label": "mine", "params": {"k": 4}}
    assert parse_method("tda-global")["label"] == "tda-global"
    for bad in ("", "a:b:c", "tda+k", ":x"):
        with pytest.raises(ValueError, match="method"):
            parse_method(bad)
    assert parse_seeds("3") == (3,)
    with pytest.raises(ValueError):
        parse_seeds("1,,2")


LONG = ["9" * 400, "9" * 5000, "0x" + "f" * 6000]


@pytest.mark.parametrize("text", ["0-100000000", "0,1-99999999999999", *LONG, *(f"0-{n}" for n in LONG)], ids=range(8))
def test_more_seeds_than_anybody_wants_are_refused_before_they_are_listed(text):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="seeds") as refused:
            parse_seeds(text)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert len(str(refused.value)) < 600


def test_as_many_seeds_as_allowed_are_quick():
    seeds = parse_seeds(f"0-{MOST_RUNS - 1}")
    assert RunConfig("x", (MethodConfig("clip"),), seeds).seeds == seeds  # each once: in one pass, not in n squared
    with pytest.raises(ValueError, match="200000 runs"):
        RunConfig("x", (MethodConfig("clip"), MethodConfig("tda")), seeds)
    with pytest.raises(ValueError, match="7 twice"):
        RunConfig("x", (MethodConfig("clip"),), (7, *seeds[8:], 7))


@pytest.mark.parametrize("number", LONG, ids=["long", "longer", "hexadecimal"])
@pytest.mark.parametrize(
    "key", ["method.alpha", "method.k_l", "method.k_e", "schedule.period", "schedule.participation",
            "clients_per_domain", "seeds", "order", "engine"],  # a text encoder is any word
)  # fmt: skip
def test_numbers_of_hundreds_of_digits_are_refused_in_one_line(key, number):
    config = RunConfig("x", (MethodConfig("latte"),))
    with pytest.raises(ValueError) as refused:
        apply_settings(config, [f"{key}={number}"])
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1000


@pytest.mark.parametrize("number", [10**400, 10**5000, -(10**400)], ids=["long", "longer", "below"])
@pytest.mark.parametrize("name", ["latte", "tda", "dmn", "tpt", "zero", "vte"])
def test_a_method_refuses_numbers_that_are_no_fraction(name, number):
    for key in parameters(MethodConfig(name)):
        with pytest.raises(ValueError, match=key) as refused:
            MethodConfig(name, params={key: number})
        assert "\n" not in str(refused.value) and len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("name", "key"), [("latte", "k_l"), ("latte", "k_e"), ("tda", "k"), ("tda", "k_negative"), ("dmn", "k")]
)
def test_a_memory_has_a_largest_size(name, key):
    with pytest.raises(ValueError, match=f"{key}: got 1000000000, want a whole number from . to 1000"):
        MethodConfig(name, params={key: 10**9})


def test_a_file_with_odd_numbers_or_a_thousand_brackets(tmp_path):
    path = tmp_path / "odd.toml"
    for value in (LONG[1], "[" * 5000):
        path.write_text(f"seeds = {value}\n")
        with pytest.raises(ValueError, match=r"odd\.toml"):
            read_config(path)
    for value in (LONG[0], LONG[2]):
        for line in (
            f"seeds = [{value}]",
            f"schedule = {{ participation = {value} }}",
            f"clients_per_domain = {value}",
        ):
            path.write_text(f'benchmark = "x"\nmethods = [{{ name = "clip" }}]\n{line}\n')
            with pytest.raises(ValueError) as refused:
                configure(read_config(path))
            assert "\n" not in str(refused.value) and len(str(refused.value)) < 1000


def test_a_late_start_is_bounded():
    with pytest.raises(ValueError, match="starts"):
        Schedule(starts=(10**9,))


@pytest.mark.parametrize("word", ["a\udcff", "a\0b"], ids=["half a surrogate pair", "NUL"])
def test_labels_and_benchmarks_are_text(word):
    """What a run is called is written to files, which hold text."""
    with pytest.raises(ValueError, match=r"^label: got .*, want text$"):
        MethodConfig("clip", word)
    with pytest.raises(ValueError, match=r"^benchmark: got .*, want text$"):
        RunConfig(word, (MethodConfig("clip"),))


def test_a_range_of_seeds_goes_up():
    for text in ("5-2", "0,5-2"):
        with pytest.raises(ValueError, match="seeds: got '5-2', want a range that goes up, such as 2-5"):
            parse_seeds(text)


def test_a_method_in_a_file_may_be_a_text():
    config = configure({"benchmark": "x", "methods": ["clip", "mine=latte:vlcs+alpha=0.5"]})
    assert [method.label for method in config.methods] == ["clip", "mine"]
    assert parameters(config.methods[1])["alpha"] == 0.5 and config.methods[1].preset == "vlcs"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: configure({"benchmark": "x", "methods": [{"name": "latte", "params": "vlcs"}]}), 'preset = "vlcs"'),
        (lambda: RunConfig("x", ("latte:vlcs",)), "MethodConfig('latte', preset='vlcs')"),
        (lambda: MethodConfig("latte", params="vlcs"), "preset='vlcs'"),
    ],
)
def test_a_preset_as_a_text_in_the_wrong_place_says_where_it_belongs(make, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


def test_a_parameter_that_came_later_names_no_other_run_unless_it_is_used():
    plain, used = MethodConfig("latte"), MethodConfig("latte", params={"near_copy": 0.99})
    assert "near_copy" in parameters(plain) and "near_copy" not in recorded_parameters(plain)
    assert recorded_parameters(used)["near_copy"] == 0.99 and setting_of(used) == "custom"
    assert recorded_parameters(MethodConfig("clip")) == {}
