"""The bounds: constants, side conditions, forms, and what is wrong in the printed ones."""

from __future__ import annotations

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.paper.theory.bounds import (
    BOUND_FORMS,
    SMALL_ANGLE,
    Setting,
    cap_angle,
    cap_angle_sharp,
    cap_share,
    multi_client,
    poisson_mean,
    samples_needed,
    separable_excess,
    single_client,
    slab_width,
)
from latte.paper.theory.model import World

OVERLAP = World.make(2, 0.8, 1.0, 0.3).setting
APART = World.make(2, 1.13, 1.0, 0.3).setting

settings = st.builds(
    lambda d, norm, cosine, bias: Setting(d, norm, norm * cosine, bias * (norm * cosine + 1)),
    st.integers(2, 40),
    st.floats(0.05, 3),
    st.floats(0.05, 1),
    st.floats(-0.99, 0.99),
)


def chernoff_root(k: int, delta: float) -> float:
    """N p at which 2 exp(-(Np-k)²/(2Np)) = δ."""
    log = math.log(2 / delta)
    return log + k + math.sqrt(log**2 + 2 * log * k)


@given(st.integers(2, 64), st.integers(1, 50), st.floats(1e-6, 0.9), st.integers(3, 12))
def test_the_printed_angle_gives_the_caps_enough_samples(d: int, k: int, delta: float, power: int) -> None:
    n = 10**power
    theta = cap_angle(n, k, d, delta)
    if theta <= math.pi / 2:  # the expected number in a cap is at least what Chernoff asks for
        assert n * float(cap_share(d, theta)) / 2 >= chernoff_root(k, delta) * (1 - 1e-9)


@given(st.integers(1, 30), st.floats(1e-6, 0.9))
def test_chernoff_root_solves_its_equation(k: int, delta: float) -> None:
    mean = chernoff_root(k, delta)
    assert 2 * math.exp(-((mean - k) ** 2) / (2 * mean)) == pytest.approx(delta, rel=1e-6)
    assert mean < 2 * (math.log(2 / delta) + k)


@given(st.integers(2, 30), st.integers(1, 20), st.floats(1e-4, 0.5), st.integers(100, 10**9))
def test_the_sharp_angle_is_never_wider(d: int, k: int, delta: float, n: int) -> None:
    assert cap_angle_sharp(n, k, d, delta) <= cap_angle(n, k, d, delta) + 1e-12


def test_the_sharp_angle_has_the_binomial_tail_it_says() -> None:
    stats = pytest.importorskip("scipy.stats")
    for d, n, k, delta in ((2, 500, 1, 0.1), (5, 20_000, 4, 0.05), (3, 10**8, 12, 0.3)):
        p = float(cap_share(d, cap_angle_sharp(n, k, d, delta))) / 2
        assert stats.binom.cdf(k - 1, n, p) == pytest.approx(delta / 2, rel=1e-5)


def test_the_poisson_mean_is_the_limit_of_the_binomial() -> None:
    special = pytest.importorskip("scipy.special")
    for k, risk in ((1, 0.05), (8, 0.01)):
        assert special.gammaincc(k, poisson_mean(k, risk)) == pytest.approx(risk, rel=1e-9)


def test_too_few_samples_give_no_angle() -> None:
    assert cap_angle_sharp(3, 4, 2, 0.1) == math.pi / 2


@given(settings)
def test_the_converged_classifier_is_no_worse(setting: Setting) -> None:
    assert setting.error_asymptotic <= setting.error_initial + 1e-12
    assert setting.error_initial <= 0.5 + 1e-12
    assert setting.asymptotic_alignment >= setting.alignment - 1e-9
    assert setting.apex > 1
    assert 1 <= setting.reach <= 2


@pytest.mark.parametrize("setting", [OVERLAP, APART, World.make(4, 0.6, 0.7, -0.8).setting])
def test_errors_equal_what_sampling_gives(setting: Setting) -> None:
    world = World.make(setting.d, setting.norm, math.acos(setting.alignment / setting.norm), setting.bias)
    points, y = world.domain.sample(300_000, np.random.default_rng(3))
    initial = np.mean((world.classifier.margins(points) > 0) != y)
    limit = np.mean((points @ world.apexes[1] > 0) != y)
    assert initial == pytest.approx(setting.error_initial, abs=0.003)
    assert limit == pytest.approx(setting.error_asymptotic, abs=0.003)


@given(st.floats(0.001, SMALL_ANGLE), st.floats(1.0, 3.0), st.floats(0.5, 2.0))
def test_the_corrected_slab_is_where_distances_differ_by_two_theta(theta: float, a: float, b: float) -> None:
    def difference(width: float) -> float:
        return math.hypot(b, a + width) - math.hypot(b, a - width)

    corrected, printed = (slab_width(theta, a, b, form) for form in ("corrected", "printed"))
    assert difference(corrected) == pytest.approx(2 * theta, rel=1e-9)
    assert difference(printed) < 2 * theta  # the printed solution of the same equation is too small
    assert printed < corrected < min(3 * theta, 1)  # and the 3θ that the proof uses covers both


def test_the_printed_single_client_bound_fails_where_classes_overlap() -> None:
    """It leaves out ε_asym: with many samples it is below the error that no number of samples removes."""
    setting = World.make(2, 0.4, 1.3).setting
    printed = single_client(setting, 10**7, 1, 0.1, "printed")
    assert printed.holds
    assert not printed.vacuous
    assert printed.value < setting.error_asymptotic
    corrected = single_client(setting, 10**7, 1, 0.1)
    assert corrected.value == pytest.approx(printed.value + setting.error_asymptotic)


def test_constants_are_the_papers() -> None:
    n, k, d, delta = 10**6, 4, 2, 0.1
    inner = 8 / math.sqrt(math.pi) * math.sqrt(2 * d + 4) * (math.log(2 / delta) + k) / n
    theta = math.pi / 2 * inner ** (1 / (d + 1))
    bound = single_client(APART, n, k, delta, "printed")
    assert bound.theta == pytest.approx(theta)
    assert bound.general == pytest.approx(math.sqrt((d + 1) / 2) / math.sqrt(math.pi) * 3 * theta)
    base = math.pi / 2 * math.sqrt(3 * math.pi / 2)
    second = base ** (d + 1) * math.sqrt(inner) / math.sqrt(math.pi * (2 * d + 2))
    assert bound.separable == pytest.approx(second)
    assert bound.value == pytest.approx(min(second, bound.general))


@pytest.mark.parametrize("form", BOUND_FORMS)
def test_many_clients_count_as_one_with_all_their_samples(form: str) -> None:
    several = multi_client(OVERLAP, 50_000, 20, 4, 0.1, form)
    assert several.value == single_client(OVERLAP, 10**6, 4, 0.1, form).value


def test_the_printed_multi_client_conditions_look_at_one_client() -> None:
    assert not multi_client(OVERLAP, 1000, 1000, 4, 0.1, "printed").holds
    assert multi_client(OVERLAP, 1000, 1000, 4, 0.1, "corrected").holds


def test_side_conditions() -> None:
    barely = Setting(3, norm=0.5, alignment=0.001, bias=0.0)
    bound = single_client(barely, 10**6, 1, 0.1)
    assert bound.small_angle
    assert not bound.balls_apart
    assert not bound.holds
    assert bound.vacuous
    lopsided = Setting(3, norm=0.5, alignment=0.4, bias=1.395)
    bound = single_client(lopsided, 10**6, 1, 0.1)
    assert bound.balls_apart
    assert not bound.signs_right


@hypothesis.settings(max_examples=30)
@given(settings, st.integers(1, 12), st.floats(0.01, 0.5))
def test_bounds_fall_with_samples_and_sharp_is_sharper(setting: Setting, k: int, delta: float) -> None:
    for form in BOUND_FORMS:
        values = [single_client(setting, n, k, delta, form).value for n in (10**4, 10**6, 10**8)]
        assert values[0] >= values[1] >= values[2]
    rounded, sharp = (single_client(setting, 10**8, k, delta, form) for form in ("corrected", "sharp"))
    if rounded.holds:
        assert sharp.holds
        assert sharp.value <= rounded.value + 1e-12


def test_samples_needed_is_where_the_bound_turns() -> None:
    for setting in (OVERLAP, APART, World.make(5, 0.8, 1.0, 0.3).setting):
        needed = samples_needed(setting, 8, 0.1)
        for log10, form, level in (
            (needed.general if needed.separable is None else None, "corrected", 0.5),
            (needed.sharp, "sharp", 0.5),
            (needed.improves, "sharp", setting.error_initial),
        ):
            if log10 is not None:
                more, less = (single_client(setting, int(10**log10 * f), 8, 0.1, form) for f in (1.05, 0.95))
                assert more.holds
                assert more.value < level
                assert not (less.holds and less.value < level)


def test_needed_conditions_and_separable_turn_too() -> None:
    needed = samples_needed(APART, 8, 0.1)
    assert single_client(APART, int(1.05 * 10**needed.conditions), 8, 0.1).holds
    assert not single_client(APART, int(0.95 * 10**needed.conditions), 8, 0.1).holds
    assert needed.separable is not None
    theta = cap_angle(10**needed.separable, 8, 2, 0.1)
    assert separable_excess(2, theta) == pytest.approx(0.5)


def test_the_bound_is_vacuous_at_the_size_of_real_embeddings() -> None:
    for norm in (0.8, 1.13):
        needed = samples_needed(World.make(512, norm, 1.0, 0.3).setting, 8, 0.1)
        assert needed.conditions > 400
        assert needed.sharp > 40


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Setting(3, 0.5, 0.6), "alignment"),
        (lambda: Setting(3, 0.5, -0.1), "alignment"),
        (lambda: Setting(3, 0.5, 0.2, 1.3), "bias"),
        (lambda: cap_angle(100, 0, 2, 0.1), "k"),
        (lambda: cap_angle(0, 1, 2, 0.1), "samples"),
        (lambda: cap_angle(100, 1, 2, 1.5), "delta"),
        (lambda: single_client(OVERLAP, 100, 1, 0.1, "exact"), "form"),
        (lambda: slab_width(2.0, 1.0, 1.0), "theta"),
    ],
)
def test_what_cannot_be_is_refused(make: object, name: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=rf"^{name}: got "):
        make()
