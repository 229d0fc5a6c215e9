"""Classes that come and go: what was learnt with a task goes on in its next version, class by class.

A class is known by its name. A new one begins with rows of zeros, the rows of one that has gone are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers, Message, State

YOUNG = 100.0  # images of evidence for a class that joined, up to which zero-shot decides on it
RESIDUALS = ("residual_sums", "residual_counts")  # of an upload: they cancel over the classes


def move_rows(array: NDArray[Any], places: Integers) -> NDArray[Any]:
    """Return the rows of an earlier version (C', ...) at their new places (C, ...).

    >>> move_rows(np.array([1.0, 2.0]), np.array([1, -1, 0]))
    array([2., 0., 1.])
    """
    moved = np.zeros((len(places), *array.shape[1:]), array.dtype)
    moved[places >= 0] = array[places[places >= 0]]
    return moved


def move_labels(arrays: Mapping[str, NDArray[Any]], places: Integers) -> State:
    """Return the labelled images of a state at the places of their classes; those whose class has gone are dropped."""
    state = dict(arrays)
    labels = {name: state.pop(name) for name in arrays if name.startswith("labels.")}
    if labels:
        back = np.full(labels["labels.learnt"].shape[1], -1, np.int64)
        back[places[places >= 0]] = np.flatnonzero(places >= 0)
        kept = back[labels["labels.classes"]] >= 0
        if kept.any():
            state["labels.vectors"] = labels["labels.vectors"][kept]
            state["labels.classes"] = back[labels["labels.classes"][kept]]
            state["labels.learnt"] = np.ascontiguousarray(move_rows(labels["labels.learnt"][kept].T, places).T)
    return state


def move_upload(upload: Message, places: Integers, task: str) -> Any:
    """Return an upload of the earlier version as one of the classifier ``task``; its kind says ``class_fields``."""
    kind: Any = type(upload)
    given = {f.name: getattr(upload, f.name) for f in fields(kind) if f.name in kind.class_fields}
    moved = {name: move_rows(np.asarray(array), places) for name, array in given.items() if array is not None}
    for name in RESIDUALS:  # as if the softmax had not had the classes that have gone, up to a constant
        if name in moved:
            moved[name] -= moved[name].mean(axis=0)
    changed: Any = replace(upload, task=task, **moved)  # type: ignore[type-var]
    return changed
