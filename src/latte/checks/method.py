"""The contract of a Method, check by check."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from importlib import import_module
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.sync import SYNC_TIMES, sync
from ..core.types import (
    Collaborative,
    External,
    Mask,
    Method,
    Prediction,
    Prototypes,
    State,
    Teachable,
    optional_fields,
)
from .material import (
    CLASSES,
    DIM,
    SLOTS,
    MakeMethod,
    a_download,
    a_zero_shot,
    an_external,
    arrays_of,
    class_attribute,
    equal,
    exchange_of,
    images,
    refuses,
    same,
    used,
    with_arrays,
)

SEPARATORS = ",:=+"  # of a method on the command line: NAME:PRESET+KEY=VALUE,...


def can_be_registered(make: MakeMethod) -> None:
    """Check the class attributes and the constructor; a function that makes methods says nothing of itself."""
    if not isinstance(make, type):
        return
    kind: Any = make
    params = _checked_params(kind)
    sync = getattr(kind, "sync", "every")
    assert sync in SYNC_TIMES, f"sync is one of {', '.join(map(repr, SYNC_TIMES))}: got {sync!r}"
    if (target := vars(kind).get("engine")) is not None:
        want = f"engine is the 'module:Name' of a MethodEngine, or None: got {target!r}"
        assert isinstance(target, str), want
        module, _, name = target.partition(":")
        _call(lambda: getattr(import_module(module), name), want)
    if hasattr(kind, "messages"):  # counted by ``latte paper cost`` and ``latte run``
        want = (
            "messages(params, classes) is a static method that returns two Contents: what goes up, and what comes down"
        )
        parts = _call(lambda: tuple(kind.messages(params, CLASSES)), want)
        assert len(parts) == 2, f"{want}; got {len(parts)}"
        sound = _call(lambda: [part.whole(DIM, "fp16") >= part.counted(DIM, "fp16") >= 0 for part in parts], want)
        assert all(sound), want
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
    for values in (default, *presets.values()):  # records are files: what they hold has to come back as it was
        for field in fields(values):
            value = getattr(values, field.name)
            plain = isinstance(value, (bool, int, str, NoneType)) or (isinstance(value, float) and math.isfinite(value))
            want = "a number, a word, a bool or None (make several fields of a tuple or a list)"
            assert plain, f"Params.{field.name} is {want}: got {value!r:.80}"
    return default


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


def _call(function: Callable[[], Any], want: str) -> Any:
    """Return what ``function`` returns; fail with ``want`` if it raises."""
    try:
        return function()
    except Exception as error:
        raise AssertionError(f"{want}; got {error!r}") from error


# --- states: the content of free slots does not matter, and a damaged state is refused as a whole --------------


MASKS = ("valid", "seen")


def check_refusals(stateful: Any, good: State) -> None:
    """Fail unless damaged versions of a state are refused and change nothing."""
    before = stateful.state()
    for what, arrays in damaged(good):
        refuses(partial(stateful.load, arrays), f"a state with {what}")
        assert same(before, stateful.state()), f"after a state with {what} everything must be exactly as before"


def damaged(good: State) -> Iterator[tuple[str, State]]:
    """Yield states that ``state()`` cannot have returned, each with what is wrong."""
    yield "one array more", {**good, "one more": np.zeros(3)}
    for name, array in good.items():
        yield f"no {name}", {key: value for key, value in good.items() if key != name}
        yield f"complex {name}", {**good, name: array.astype(np.complex128)}
        yield f"one axis more in {name}", {**good, name: array[None]}
        used = in_use(good, name)
        if array.dtype.kind == "f" and used.any():
            yield f"NaN in {name}", {**good, name: overwritten(array, used, np.nan)}
            yield f"infinite values in {name}", {**good, name: overwritten(array, used, np.inf)}


def with_rubbish(good: State) -> State:
    """Return a state with NaN in every free slot.

    The mask of an array is called ``valid`` or ``seen`` and has the array's prefix: ``x.valid`` beside ``x.vectors``.
    """
    return {
        name: overwritten(array, ~in_use(good, name), np.nan) if array.dtype.kind == "f" else array
        for name, array in good.items()
    }


def in_use(state: State, name: str) -> Mask:
    """Return which entries of an array mean something: all, or where the mask beside it says so."""
    array, prefix = state[name], name.rpartition(".")[0]
    for mask in (state.get(f"{prefix}.{kind}" if prefix else kind) for kind in MASKS):
        if mask is not None and array.shape[: mask.ndim] == mask.shape:
            wide: Mask = np.broadcast_to(mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)), array.shape)
            return wide
    return np.ones(array.shape, np.bool_)


def overwritten(array: NDArray[Any], where: Mask, value: float) -> NDArray[Any]:
    """Return a copy with ``value`` in some places."""
    return np.where(where, array.dtype.type(value), array)


# --- collaboration --------------------------------------------------------------------------------------------


def _if_collaborative(check: Callable[[MakeMethod], None]) -> Callable[[MakeMethod], None]:
    return lambda make: check(make) if isinstance(make(a_zero_shot()), Collaborative) else None


def _summaries_are_messages(make: MakeMethod) -> None:
    method = used(make, synced=False)
    upload = method.summary()
    assert isinstance(upload, class_attribute(method, "Upload")), "summary() returns the Upload of the class"
    assert upload.task == a_zero_shot().fingerprint, "an upload names the task: the fingerprint of the classifier"
    arrays = arrays_of(upload)
    before = {name: array.copy() for name, array in arrays.items()}
    for image in images(seed=3):
        method.predict(image)
    assert same(before, arrays), "what summary() returned must not change with later predictions"


def _syncs_with_its_exchange(make: MakeMethod) -> None:
    method = used(make)
    exchange, other = exchange_of(method), used(make)
    sync([("a", method), ("b", other)], exchange)
    download = exchange.pull("a")
    assert isinstance(download, class_attribute(method, "Download")), "the exchange returns the Download of the class"
    before = method.state()
    method.receive(download)
    assert same(before, method.state()), "the same download twice is the download once"
    method.predict(images(1)[0])


def _refuses_other_tasks(make: MakeMethod) -> None:
    method = used(make)
    exchange, other = exchange_of(method), a_zero_shot(scale=30.0).fingerprint
    refuses(lambda: exchange.push("a", replace(method.summary(), task=other)), "an upload of another task")
    before, download = method.state(), a_download(method, make)
    refuses(lambda: method.receive(replace(download, task=other)), "a download of another task")
    if class_attribute(method, "Upload") is not class_attribute(method, "Download"):
        refuses(lambda: method.receive(method.summary()), "an upload in place of a download")
    assert same(before, method.state()), "after a download of another task the memory must be exactly as before"


def _keeps_nothing_of_a_bad_download(make: MakeMethod) -> None:
    method = used(make)
    before, good = method.state(), a_download(method, make)
    for what, bad in _bad_downloads(good):
        refuses(partial(method.receive, bad), f"a download with {what}")
        assert same(before, method.state()), f"after a download with {what} the memory must be exactly as before"


def _bad_downloads(good: Any) -> list[tuple[str, Any]]:
    arrays = arrays_of(good)
    bad = [(what, with_arrays(good, state)) for what, state in damaged(arrays) if state.keys() == arrays.keys()]
    if isinstance(good, External):
        everywhere = np.ones_like(good.valid)
        bad += [
            ("another C", External(good.vectors[1:], good.entropy[1:], good.valid[1:], good.task)),
            ("another D", replace(good, vectors=good.vectors[:, :, 1:])),
            ("zero vectors marked valid", replace(good, vectors=np.zeros_like(good.vectors), valid=everywhere)),
            ("an entropy of 2", replace(good, entropy=good.entropy + 2)),
        ]
    return bad


def _free_slots_of_a_download_mean_nothing(make: MakeMethod) -> None:
    method = used(make)
    clean = used(make)
    download = a_download(method, make)
    clean.receive(download)
    method.receive(with_arrays(download, with_rubbish(arrays_of(download))))
    for image in images(seed=6):
        got, want = method.predict(image), clean.predict(image)
        assert equal(got, want) and np.isfinite(got.scores).all(), "NaN in a free slot must not matter"


# --- labels that teach: all pass for a method that does not learn from them -----------------------------------


ROUNDING = 1e-9  # of sums that were added up in another order
GIVEN = ((3, 1), (8, 0), (15, 2), (21, 1), (28, 3))  # the place of an image in ``images()``, and its class


def _taught(make: MakeMethod, given: Sequence[tuple[int, int]] = GIVEN, synced: bool = True) -> Any:
    """Return a method with labels, None if it cannot be taught; each image's soft label is that of its prediction."""
    method = make(a_zero_shot())
    if not isinstance(method, Teachable):
        return None
    learnt = [method.predict(image).learnt for image in images()]
    if synced and isinstance(method, Collaborative):
        method.receive(a_download(method, make))
    for place, label in given:
        method.correct(images()[place], label, learnt[place])
    assert method.labels == len(given), "labels is the number of images that have one"
    return method


def _says_nothing_of_labels_without_one(make: MakeMethod) -> None:
    method = _taught(make, ())
    if isinstance(method, Collaborative):
        upload = method.summary()
        extra = set(arrays_of(upload)) & set(optional_fields(type(upload)))
        assert not extra, f"without a label, an upload has none of the arrays that are there for labels: got {extra}"
    if method is not None:
        assert same(method.state(), used(make).state()), "without a label, a method is as if it could not be taught"


def _a_withdrawn_label_was_never_given(make: MakeMethod) -> None:
    for synced in (False, True):
        method, never = _taught(make, synced=synced), _taught(make, (), synced=synced)
        if method is None:
            return
        method.correct(images()[3], 2)  # another class than before, which counts once
        _check_alike(method, _taught(make, ((3, 2), *GIVEN[1:]), synced), "a label that replaces another one")
        for place, _ in GIVEN:
            method.withdraw(images()[place])
        _check_alike(method, never, "a label that was withdrawn")
        before = method.state()
        refuses(partial(method.withdraw, images()[3]), "to withdraw a label twice")
        assert same(before, method.state()), "after a refusal everything must be exactly as before"


def _labels_have_no_order(make: MakeMethod) -> None:
    if (method := _taught(make)) is not None:
        _check_alike(method, _taught(make, GIVEN[::-1]), "labels in another order")


def _check_alike(first: Any, second: Any, what: str) -> None:
    """Fail unless two methods know the same, up to rounding, and send the same."""
    pairs = [(first.state(), second.state())]
    if isinstance(first, Collaborative):
        pairs.append((arrays_of(first.summary()), arrays_of(second.summary())))
    for one, other in pairs:
        assert one.keys() == other.keys(), f"{what}: other arrays, {sorted(one.keys() ^ other.keys())}"
        for name, array in one.items():
            alike = np.allclose(array, other[name], ROUNDING, ROUNDING)
            assert alike, f"{what}: {name} must be the same up to rounding"
    for image in images(seed=6):
        one, other = (copy.deepcopy(method).predict(image).scores for method in (first, second))
        assert np.allclose(one, other, ROUNDING, ROUNDING), f"{what}: predictions must be the same up to rounding"


def _refuses_odd_labels(make: MakeMethod) -> None:
    if (method := _taught(make)) is None:
        return
    before, image = method.state(), images()[5]
    for label in (-1, CLASSES, 0.5, "class 1", None):
        refuses(partial(method.correct, image, label), f"the label {label!r}")
    refuses(partial(method.correct, image, 0, np.ones(CLASSES + 1)), "a soft label of another number of classes")
    for what, views in _bad_views().items():
        refuses(partial(method.correct, views, 0), f"views with {what}")
        refuses(partial(method.withdraw, views), f"views with {what}")
    assert same(before, method.state()), "after a refusal everything must be exactly as before"


def _labels_are_part_of_a_state(make: MakeMethod) -> None:
    if (method := _taught(make)) is None:
        return
    other = used(make, 3)
    other.load(method.state())
    assert same(method.state(), other.state()), "load(state()) restores labels, bit for bit"
    assert other.labels == method.labels, "load(state()) restores labels: state() has them"
    if isinstance(method, Collaborative):
        assert same(arrays_of(method.summary()), arrays_of(other.summary())), "and what they add to an upload"
    check_refusals(used(make, 5), method.state())
    for duplicate in (other, *_copies(method)):
        for image in images(seed=3):
            twin = copy.deepcopy(method)
            assert equal(twin.predict(image), copy.deepcopy(duplicate).predict(image)), (
                "and the predictions that follow"
            )
    method.reset()
    assert method.labels == 0, "reset() forgets labels, too"


# --- Latte's own kinds of messages ------------------------------------------------------------------------


def _prototypes_are_unit_rows(make: MakeMethod) -> None:
    method = used(make)
    if class_attribute(method, "Upload") is not Prototypes:
        return
    p = method.summary()
    assert p.vectors.shape == (CLASSES, DIM) and p.seen.shape == (CLASSES,), "(C, D), (C,)"
    norms = np.linalg.norm(p.vectors[p.seen], axis=1)
    assert p.seen.any() and np.allclose(norms, 1, atol=1e-5), "a seen class has a prototype of length 1"


def _receives_any_number_of_slots(make: MakeMethod) -> None:
    method = used(make)
    if class_attribute(method, "Download") is not External:
        return
    for slots in (0, 1, SLOTS + 5):
        method.receive(an_external(np.random.default_rng(slots), slots))
        method.predict(images(1)[0])


# --- predictions and memory -------------------------------------------------------------------------------------


def method_checks() -> dict[str, Callable[[MakeMethod], None]]:
    """Return the checks of a Method by name; a method that does not collaborate passes those of collaboration."""
    checks = {
        "predicts": _predicts,
        "is deterministic": _is_deterministic,
        "accepts several views": _accepts_several_views,
        "accepts a single vector": _accepts_a_single_vector,
        "a dry prediction remembers nothing": _a_dry_prediction_remembers_nothing,
        "leaves its input alone": _leaves_its_input_alone,
        "accepts nearly unit rows": _accepts_nearly_unit_rows,
        "remembers nothing after bad input": _remembers_nothing_after_bad_input,
        "reset forgets everything": _reset_forgets_everything,
        "state round-trips": _state_round_trips,
        "state is a copy": _state_is_a_copy,
        "refuses damaged states": _refuses_damaged_states,
        "free slots mean nothing": _free_slots_mean_nothing,
        "a copy behaves the same": _a_copy_behaves_the_same,
        "can be registered": can_be_registered,
    }
    of_collaboration = {
        "summaries are messages": _summaries_are_messages,
        "syncs with its exchange": _syncs_with_its_exchange,
        "refuses other tasks": _refuses_other_tasks,
        "keeps nothing of a bad download": _keeps_nothing_of_a_bad_download,
        "free slots of a download mean nothing": _free_slots_of_a_download_mean_nothing,
        "says nothing of labels without one": _says_nothing_of_labels_without_one,
        "a withdrawn label was never given": _a_withdrawn_label_was_never_given,
        "labels have no order": _labels_have_no_order,
        "refuses odd labels": _refuses_odd_labels,
        "labels are part of a state": _labels_are_part_of_a_state,
        "prototypes are unit rows": _prototypes_are_unit_rows,
        "receives any number of slots": _receives_any_number_of_slots,
    }
    return {**checks, **{name: _if_collaborative(check) for name, check in of_collaboration.items()}}


def _predicts(make: MakeMethod) -> None:
    method = make(a_zero_shot())
    assert isinstance(method, Method), "a Method has predict, reset, state and load"
    for image in images():
        p = method.predict(image)
        assert isinstance(p, Prediction) and isinstance(p.label, int), "predict returns a Prediction with an int label"
        assert p.scores.shape == (CLASSES,) and np.isfinite(p.scores).all(), "scores are (C,) and finite"
        assert p.label == int(p.scores.argmax()), "the label is the argmax of the scores"
        assert 0 <= p.entropy <= 1, "the entropy is divided by ln C, in [0, 1]"


def _is_deterministic(make: MakeMethod) -> None:
    first, second = make(a_zero_shot()), make(a_zero_shot())
    for image in images():
        assert equal(first.predict(image), second.predict(image)), "the same stream gives the same predictions"


def _accepts_several_views(make: MakeMethod) -> None:
    method = make(a_zero_shot())
    for image in images(count=5, views=16):
        assert 0 <= method.predict(image).label < CLASSES


def _accepts_a_single_vector(make: MakeMethod) -> None:
    first, second = make(a_zero_shot()), make(a_zero_shot())
    for image in images(count=10):
        assert equal(first.predict(image[0]), second.predict(image)), "(D,) is the plain view alone, as (1, D)"


def _a_dry_prediction_remembers_nothing(make: MakeMethod) -> None:
    for image in images(count=5, seed=8):
        method = used(make)
        before = method.state()
        dry = method.predict(image, remember=False)
        assert same(before, method.state()), "predict(remember=False) leaves the memory exactly as it was"
        assert equal(dry, method.predict(image)), "and answers as predict() does"


def _leaves_its_input_alone(make: MakeMethod) -> None:
    method = make(a_zero_shot())
    for image in images(count=5, views=3):
        before = image.copy()
        method.predict(image)
        assert np.array_equal(image, before), "predict must not write into its argument"


def _accepts_nearly_unit_rows(make: MakeMethod) -> None:
    method, image = make(a_zero_shot()), images(1)[0]
    label = method.predict(image * np.float32(1.0005)).label
    assert label == make(a_zero_shot()).predict(image).label, "rows within 1e-3 of unit length are normalised"


def _bad_views() -> dict[str, Any]:
    good = images(1)[0]
    poisoned = [good.copy() for _ in range(2)]
    poisoned[0][0, 3], poisoned[1][0, 3] = np.nan, np.inf
    return {
        "NaN": poisoned[0],
        "infinity": poisoned[1],
        "no axes": good[0, 0],
        "three axes": good[None],
        "another D": np.ones((1, DIM + 1), np.float32) / np.sqrt(DIM + 1),
        "a zero vector": np.zeros((1, DIM), np.float32),
        "V = 0": np.zeros((0, DIM), np.float32),
        "a row of length 2": 2 * good,
        "text": np.array([["x"] * DIM]),
    }


def _remembers_nothing_after_bad_input(make: MakeMethod) -> None:
    method = used(make)
    before = method.state()
    for what, views in _bad_views().items():
        refuses(partial(method.predict, views), f"views with {what}")
        assert same(before, method.state()), f"after views with {what} the memory must be exactly as before"


def _reset_forgets_everything(make: MakeMethod) -> None:
    method, fresh = used(make), make(a_zero_shot())
    method.reset()
    for image in images(seed=2):
        assert equal(method.predict(image), fresh.predict(image)), "after reset() it predicts as a new one"


def _state_round_trips(make: MakeMethod) -> None:
    for count in (0, 1, 5, 30):
        for synced in (False, True):
            method, other = used(make, count, synced), used(make, 3)
            other.load(method.state())
            assert same(method.state(), other.state()), "load(state()) restores the state bit for bit"
            for image in images(seed=3):
                assert equal(method.predict(image), other.predict(image)), "and the predictions that follow"


def _state_is_a_copy(make: MakeMethod) -> None:
    method = used(make)
    state = method.state()
    before = copy.deepcopy(state)
    for image in images(seed=4):
        method.predict(image)
    assert same(state, before), "what state() returned must not change with later predictions"


def _refuses_damaged_states(make: MakeMethod) -> None:
    check_refusals(used(make, 5), used(make).state())


def _free_slots_mean_nothing(make: MakeMethod) -> None:
    for count in (0, 3, 30):
        method, clean = used(make, count), used(make, count)
        state = method.state()
        method.load(with_rubbish(state))
        assert same(method.state(), state), "what stands in a free slot of a state does not come back"
        for image in images(seed=6):
            got, want = method.predict(image), clean.predict(image)
            assert equal(got, want) and np.isfinite(got.scores).all(), "NaN in a free slot must not matter"


def _a_copy_behaves_the_same(make: MakeMethod) -> None:
    for count in (0, 30):
        method, twin = used(make, count), used(make, count)
        answers = [twin.predict(image) for image in images(seed=7)]
        before = method.state()
        for duplicate in _copies(method):
            for image, answer in zip(images(seed=7), answers, strict=True):
                assert equal(duplicate.predict(image), answer), "a copy predicts and remembers as the original does"
            assert same(method.state(), before), "and what it remembers is its own"
        for image, answer in zip(images(seed=7), answers, strict=True):
            assert equal(method.predict(image), answer), "the original goes on as if it had not been copied"


def _copies(method: Method) -> Iterator[Method]:
    """Yield a deep copy and, if the class can be pickled, what comes back from a pickle."""
    yield copy.deepcopy(method)
    try:
        pickled = pickle.dumps(method)
    except (pickle.PicklingError, AttributeError, TypeError):  # a class inside a function, say
        return
    yield pickle.loads(pickled)
