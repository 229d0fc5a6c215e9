"""What the checks are made of: a small classifier, images, uploads, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np

from ..core.sync import sync
from ..core.types import (
    Collaborative,
    Exchange,
    External,
    Method,
    Prediction,
    Prototypes,
    State,
    Teachable,
    Vectors,
    array_fields,
)
from ..core.zero_shot import ZeroShot
from ..errors import InputError

MakeMethod = Callable[[ZeroShot], Method]
MakeExchange = Callable[[ZeroShot], Any]  # an Exchange, perhaps with state() and load()
MakeUpload = Callable[[int], Any]  # from a seed

CLASSES, DIM, SLOTS = 4, 8, 2
NAMED = ("a", "b")  # clients that an exchange knows before their first upload


def unit(rng: np.random.Generator, *shape: int) -> Vectors:
    """Return random unit rows."""
    rows = rng.normal(size=shape)
    result: Vectors = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return result


def a_zero_shot(scale: float = 20.0) -> ZeroShot:
    """Return a classifier of CLASSES classes; another scale makes it another task."""
    text = np.eye(CLASSES, DIM, dtype=np.float32) + 0.1
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    return ZeroShot(text, tuple(f"class {y}" for y in range(CLASSES)), scale=scale)


def images(count: int = 30, views: int = 1, seed: int = 0) -> Vectors:
    """Return (count, views, D) unit rows."""
    return unit(np.random.default_rng(seed), count, views, DIM)


def used(make: MakeMethod, count: int = 30, synced: bool = True) -> Method:
    """Return a method with a past: it has predicted and, if it can and ``synced``, received."""
    method = make(a_zero_shot())
    for image in images(count):
        method.predict(image)
    if synced and isinstance(method, Collaborative):
        method.receive(a_download(method, make))
    return method


# --- messages ---------------------------------------------------------------------------------------------


def a_download(method: Collaborative[Any, Any], make: MakeMethod) -> Any:
    """Return what a collaborative method can receive: of Latte's kind with free slots, else from its own exchange."""
    if class_attribute(method, "Download") is External:
        return an_external(np.random.default_rng(1), SLOTS)
    exchange = exchange_of(method)
    members = [(name, _trained(make, seed)) for seed, name in enumerate("abc")]
    sync(members, exchange)
    return exchange.pull("a")


def exchange_of(method: Collaborative[Any, Any]) -> Exchange[Any, Any]:
    """Return the exchange that the class of a method names."""
    make, params = class_attribute(method, "exchange_for"), getattr(method, "params", None)
    try:
        exchange: Exchange[Any, Any] = make(a_zero_shot(), params, NAMED)
    except TypeError as error:
        want = "exchange_for takes (zero_shot, params, clients), clients the names of those known from the start"
        raise AssertionError(f"{want}; got {error!r}") from error
    assert isinstance(exchange, Exchange), "exchange_for returns an Exchange: task, push, pull, pull_many"
    return exchange


def class_attribute(method: object, name: str) -> Any:
    """Return what the class of a collaborative method has to name."""
    value = getattr(type(method), name, None)
    assert value is not None, f"a class with summary() and receive() names its {name}"
    return value


def _trained(make: MakeMethod, seed: int) -> Any:
    method = make(a_zero_shot())
    for image in images(20, seed=seed):
        method.predict(image)
    return method


def uploads_of(make: MakeMethod) -> MakeUpload:
    """Return what makes uploads: the summary of a method that has seen the images of a seed.

    With an odd seed, some of them have labels, if the method learns from these.
    """

    def upload(seed: int) -> Any:
        method = _trained(make, seed)
        if seed % 2 and isinstance(method, Teachable):
            for place, image in enumerate(images(20, seed=seed)[:: 3 + seed % 4]):
                method.correct(image, (place + seed) % CLASSES)
        return method.summary()

    return upload


def an_external(rng: np.random.Generator, slots: int) -> External:
    """Return an external memory with some slots free."""
    valid = rng.random((CLASSES, slots)) < 0.7
    vectors = np.where(valid[:, :, None], unit(rng, CLASSES, slots, DIM), np.float32(0))
    return External(vectors, np.where(valid, rng.random((CLASSES, slots)), 1.0), valid, a_zero_shot().fingerprint)


def an_upload(seed: int, seen: tuple[bool, ...] = (True,) * CLASSES) -> Prototypes:
    """Return the prototypes of one client, each of which zero-shot classifies as its own class."""
    rng, zero_shot = np.random.default_rng(seed), a_zero_shot()
    mask = np.array(seen)
    near = zero_shot.text + unit(rng, CLASSES, DIM) / 2  # two texts are 1.2 apart, and their cosine is 0.2
    vectors = np.where(mask[:, None], near / np.linalg.norm(near, axis=1, keepdims=True), np.float32(0))
    return Prototypes(vectors.astype(np.float32), mask, zero_shot.fingerprint)


def arrays_of(message: Any) -> State:
    """Return the arrays of a message by name, without the task."""
    assert is_dataclass(message) and not isinstance(message, type), "a message is a frozen dataclass"
    names = array_fields(message)
    assert all(isinstance(getattr(message, name), np.ndarray) for name in names), "its fields are arrays, and the task"
    return {name: getattr(message, name) for name in names}


def with_arrays(message: Any, arrays: State) -> Any:
    """Return a message with other arrays."""
    return replace(message, **arrays)


# --- comparisons ------------------------------------------------------------------------------------------


def same(first: State, second: State) -> bool:
    """Say whether two states are the same, bit for bit."""
    return first.keys() == second.keys() and all(
        first[k].dtype == second[k].dtype and np.array_equal(first[k], second[k]) for k in first
    )


def equal(first: Prediction, second: Prediction) -> bool:
    """Say whether two predictions are the same, bit for bit."""
    return first.label == second.label and bool(np.array_equal(first.scores, second.scores))


def same_message(first: Any, second: Any) -> bool:
    """Say whether two messages are the same, bit for bit."""
    return bool(first.task == second.task) and same(arrays_of(first), arrays_of(second))


def refuses(call: Callable[[], object], what: str) -> None:
    """Fail unless ``call`` raises an InputError with a message."""
    try:
        call()
    except InputError as error:
        assert str(error), f"{what}: the InputError should say what it got and what it wants"
        return
    except Exception as error:
        raise AssertionError(f"{what} should be refused with an InputError (latte.refuse), not {error!r}") from error
    raise AssertionError(f"{what} should be refused with an InputError (latte.refuse)")
