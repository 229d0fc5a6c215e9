"""The engine against the readable simulator on federations that nobody chose."""

from hypothesis import given, settings
from hypothesis import strategies as st

from experiment.engine_support import compare, made_up
from latte.experiment.schedule import Schedule


@st.composite
def schedules(draw, clients: int) -> Schedule:
    barrier = draw(st.booleans())
    small = st.integers(1, 6)
    periods = None if barrier or draw(st.booleans()) else tuple(draw(small) for _ in range(clients))
    starts = tuple(draw(st.integers(1, 12)) for _ in range(clients)) if draw(st.booleans()) else None
    share = draw(st.sampled_from([1.0, 0.7, 0.3]))
    return Schedule(draw(small), share, barrier, periods, starts)


@st.composite
def cases(draw):
    lengths = draw(st.lists(st.integers(0, 25), min_size=1, max_size=7).filter(any))
    classes = draw(st.integers(2, 8))
    federation = made_up(
        lengths,
        classes,
        draw(st.integers(4, 40)),
        draw(st.integers(0, 10_000)),
        draw(st.sampled_from([0.2, 0.6, 2.0])),
        draw(st.integers(0, classes - 1)),
    )
    released = draw(st.booleans())
    params = {
        "variant": "released" if released else "paper",
        "k_l": draw(st.integers(1, 5)),
        "k_e": draw(st.integers(0, 6)),
        "beta": draw(st.sampled_from([0.0, 5.0, 60.0])),
        "gamma": draw(st.sampled_from([0.0, 1.5, 10.0])),
        "memory": draw(st.sampled_from(["both", "both", "local", "external"])),
        "prototype": draw(st.sampled_from(["exp_weighted", "mean", "min_entropy"])),
        "empty_query": draw(st.sampled_from([None, "none", "released"])),
    }
    return federation, params, draw(schedules(len(lengths)))


@settings(max_examples=60)
@given(case=cases(), backend=st.sampled_from(["auto", "numpy"]))
def test_latte(case, backend):
    federation, params, schedule = case
    outcome = compare(federation, "latte", params, schedule, backend=backend)
    assert outcome.ties <= 1  # a tie is possible, several in so small a run are a mistake
    assert outcome.downloads_equal


@settings(max_examples=30)
@given(case=cases(), name=st.sampled_from(["tda", "tda-global", "dmn", "dmn-global"]), k=st.integers(1, 4))
def test_caches(case, name, k):
    federation, _, schedule = case
    assert compare(federation, name, {"k": k}, schedule).ties <= 1
