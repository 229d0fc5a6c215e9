"""What the checks are made of: a small classifier, images, uploads, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from ..core.types import Collaborative, Exchange, External, Method, Prediction, Prototypes, State, Vectors
from ..core.zero_shot import ZeroShot

MakeMethod = Callable[[ZeroShot], Method]
MakeExchange = Callable[[int, int, int], Exchange]

CLASSES, DIM, SLOTS = 4, 8, 2


def unit(rng: np.random.Generator, *shape: int) -> Vectors:
    """Return random unit rows."""
    rows = rng.normal(size=shape)
    result: Vectors = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return result


def a_zero_shot() -> ZeroShot:
    """Return a classifier of CLASSES classes."""
    text = np.eye(CLASSES, DIM, dtype=np.float32) + 0.1
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    return ZeroShot(text, tuple(f"class {y}" for y in range(CLASSES)), scale=20.0)


def images(count: int = 30, views: int = 1, seed: int = 0) -> Vectors:
    """Return (count, views, D) unit rows."""
    return unit(np.random.default_rng(seed), count, views, DIM)


def used(make: MakeMethod, count: int = 30, synced: bool = True) -> Method:
    """Return a method with a past: it has predicted and, if it can and ``synced``, received."""
    method = make(a_zero_shot())
    for image in images(count):
        method.predict(image)
    if synced and isinstance(method, Collaborative):
        method.receive(an_external(np.random.default_rng(1), SLOTS))
    return method


def an_external(rng: np.random.Generator, slots: int) -> External:
    """Return an external memory with some slots free."""
    valid = rng.random((CLASSES, slots)) < 0.7
    vectors = np.where(valid[:, :, None], unit(rng, CLASSES, slots, DIM), np.float32(0))
    return External(vectors, np.where(valid, rng.random((CLASSES, slots)), 1.0), valid)


def an_upload(seed: int, seen: tuple[bool, ...] = (True,) * CLASSES) -> Prototypes:
    """Return the prototypes of one client."""
    rng = np.random.default_rng(seed)
    mask = np.array(seen)
    vectors = np.where(mask[:, None], unit(rng, CLASSES, DIM), np.float32(0))
    return Prototypes(vectors, np.where(mask, rng.random(CLASSES), 1.0), mask)


def same(one: State, other: State) -> bool:
    """Are two states the same, bit for bit?"""
    return one.keys() == other.keys() and all(
        one[k].dtype == other[k].dtype and np.array_equal(one[k], other[k]) for k in one
    )


def equal(one: Prediction, other: Prediction) -> bool:
    """Are two predictions the same, bit for bit?"""
    return one.label == other.label and bool(np.array_equal(one.logits, other.logits))


def same_download(one: External, other: External) -> bool:
    """Are two downloads the same, bit for bit?"""
    return same(asdict(one), asdict(other))


def refuses(call: Callable[[], object], what: str) -> None:
    """Fail unless ``call`` raises a ValueError with a message."""
    try:
        call()
    except ValueError as error:
        assert str(error), f"{what}: the ValueError should say what it got and what it wants"
        return
    except Exception as error:
        raise AssertionError(f"{what} should be refused with a ValueError, not {error!r}") from error
    raise AssertionError(f"{what} should be refused with a ValueError")
