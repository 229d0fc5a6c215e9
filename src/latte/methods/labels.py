"""Labels that teach: what corrections by a person add to a client, to its upload, and to what an exchange answers.

One additive statistic carries everything, the **residual sum** R = Σ (onehot(y) - p₀) f' over labelled images, where p₀
is the softmax of the zero-shot logits. The label head is one long Newton step of logistic regression around zero-shot
(Böhning's bound of the Hessian), in the whitened space, where R is the gradient. The formulas are in
benchmarks/results/labels.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.exchange import WholeCopy
from ..core.maths import softmax
from ..core.privacy import Privacy
from ..core.types import Arrays, Integers, Mask, Reals, State, TeachingRights
from ..core.validate import (
    NORM_TOLERANCE,
    at_least,
    exactly,
    finite_array,
    numbers,
    pack_names,
    precise_unit_rows,
    require,
    unpack_names,
)
from ..core.zero_shot import ZeroShot
from ..errors import refuse

# Chosen on development sets, once, and the same for every dataset.
OMEGA = 80.0  # the length of the Newton step
RHO_L = 3.0  # its ridge, in units of the mean eigenvalue of the covariance
M0 = 64.0  # labels at which the step is a quarter as long: by then the gradient has grown
LEAST_VARIANCE = 0.02  # of images around their mean, which the step is divided by
# Labels of a client without the right to teach that count in full, and from how large a share of all labels on they do.
FREE, SHARE = 3.0, 0.1
MOST_LABELS = 1e7  # of a client: whole numbers that travel in single precision
ROUNDING = 1e-6  # of sums in single precision, relative
COARSEST = 0.25  # of a row in four bits, relative; rows that do not cancel do no harm, because heads are centred

STORED = ("labels.vectors", "labels.classes", "labels.learnt")


class LabelSums(NamedTuple):
    """What a client knows from labels: ``residual_sums`` (C, D), ``residual_counts`` (C,), and how many ``labels`` ().

    The fields of the messages have the same names.
    """

    residual_sums: Reals
    residual_counts: Reals
    labels: Reals


# --- a client -------------------------------------------------------------------------------------------------


class LabelledImages(WholeCopy):
    """The images of one client whose true class became known, by embedding.

    They are stored, not added up: so a label that is withdrawn leaves nothing behind, and the order in which labels
    came leaves no trace either, to the last bit.

    >>> labelled = LabelledImages(ZeroShot(np.eye(2), ("cat", "dog")))
    >>> labelled.give(np.array([0.6, 0.8]), 0)
    >>> len(labelled), labelled.sums().residual_counts.round(3)
    (1, array([ 1., -1.]))
    """

    def __init__(self, zero_shot: ZeroShot) -> None:
        self._zero_shot = zero_shot
        self._images: dict[bytes, tuple[Reals, int, Reals]] = {}  # by the image as float32: vector, class, learnt

    def __len__(self) -> int:
        return len(self._images)

    def give(self, vector: NDArray[Any], label: int, learnt: ArrayLike | None = None) -> int | None:
        """Take over the true class of an image (D,), and the soft label (C,) with which it was added up, if any.

        Return the class that the image had by an earlier label.
        """
        classes, key = self._zero_shot.classes, _key(vector)
        at_least("label", label, 0, classes - 1)
        before = self._images.get(key)
        soft = np.zeros(classes) if before is None else before[2]
        if before is None and learnt is not None:
            soft = numbers("learnt", learnt, f"({classes},) probabilities").astype(np.float64)
            if soft.shape != (classes,) or not (soft.min() >= 0 and abs(soft.sum() - 1) < 1e-3):
                raise refuse("learnt", f"shape {soft.shape}, or no soft label", f"({classes},) what predict() returned")
        self._images[key] = vector.astype(np.float64), int(label), soft
        return None if before is None else before[1]

    def take_back(self, vector: NDArray[Any]) -> int:
        """Forget the label of an image (D,), and return it."""
        if _key(vector) not in self._images:
            raise refuse("image", "an image without a label", "one that was given to correct(), the same embedding")
        return self._images.pop(_key(vector))[1]

    @property
    def vectors(self) -> Reals:
        """The images (l, D), in an order that depends on nothing but their content."""
        rows = [self._images[key][0] for key in sorted(self._images)]
        return np.array(rows).reshape(-1, self._zero_shot.dim)

    @property
    def classes(self) -> Integers:
        """Their classes (l,)."""
        return np.array([self._images[key][1] for key in sorted(self._images)], np.int64)

    @property
    def learnt(self) -> Reals:
        """The soft labels (l, C) with which they were added up before their class was known; zeros: they were not."""
        rows = [self._images[key][2] for key in sorted(self._images)]
        return np.array(rows).reshape(-1, self._zero_shot.classes)

    def sums(self) -> LabelSums:
        """Return R = Σ e f', r = Σ e and l, with e = onehot(y) - softmax(z₀): zero-shot's, not the answer's."""
        vectors = self.vectors
        residuals = -softmax(vectors @ self._zero_shot.precise_scaled.T)
        residuals[np.arange(len(vectors)), self.classes] += 1.0
        return LabelSums(residuals.T @ vectors, residuals.sum(axis=0), np.array(float(len(vectors))))

    def are_shared(self, privacy: Privacy | None) -> bool:
        """Return whether sums of labels may leave the client: enough of them, and no noise unless its owner says so."""
        if not self._images or privacy is None:
            return bool(self._images)
        return len(self) >= privacy.least_images and (privacy.labels or not privacy.noise)

    def find(self, vectors: NDArray[Any]) -> Mask:
        """Return which of ``vectors`` (n, D) are images with a label."""
        return np.array([_key(row) in self._images for row in vectors], np.bool_)

    def state(self) -> State:
        """Return everything as arrays; nothing where there is no label."""
        values = self.vectors, self.classes, self.learnt
        return dict(zip(STORED, values, strict=True)) if self._images else {}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        self._images = self._loaded(arrays)

    def checked(self, arrays: Arrays) -> LabelledImages:
        """Return what :meth:`load` would make of the arrays, or refuse them."""
        other = LabelledImages(self._zero_shot)
        other.load(arrays)
        return other

    def _loaded(self, arrays: Arrays) -> dict[bytes, tuple[Reals, int, Reals]]:
        if not arrays:
            return {}
        require(arrays, STORED)
        count = len(arrays["labels.classes"]) if np.ndim(arrays["labels.classes"]) else 0
        shapes = (count, self._zero_shot.dim), (count,), (count, self._zero_shot.classes)
        types = np.float64, np.int64, np.float64
        vectors, classes, learnt = (
            exactly(name, arrays[name], dtype, shape) for name, dtype, shape in zip(STORED, types, shapes, strict=True)
        )
        if not count:
            raise refuse("labels.classes", "no labels", "at least one, or no array")
        vectors = precise_unit_rows("labels.vectors", vectors)
        if not (np.isfinite(learnt).all() and learnt.min() >= 0 and learnt.max() <= 1 + ROUNDING):
            raise refuse("labels.learnt", "values that are no soft labels", "probabilities")
        for label in classes.tolist():
            at_least("labels.classes", label, 0, self._zero_shot.classes - 1)
        rows = zip(vectors, classes.tolist(), learnt, strict=True)
        images = {_key(vector): (vector.copy(), label, soft.copy()) for vector, label, soft in rows}
        if len(images) < count:
            raise refuse("labels.vectors", "the same image twice", "a row of its own for every image")
        return images


def _key(vector: NDArray[Any]) -> bytes:
    return vector.astype(np.float32).tobytes()


def split_state(arrays: Arrays, *prefixes: str) -> tuple[Arrays, Arrays]:
    """Return the arrays of a state that have none of the ``prefixes``, and those that have one."""
    if not isinstance(arrays, Mapping):
        raise refuse("arrays", type(arrays).__name__, "a mapping of names to arrays, as state() returns")
    own = {name: array for name, array in arrays.items() if not str(name).startswith(prefixes)}
    return own, {name: array for name, array in arrays.items() if name not in own}


# --- an exchange ----------------------------------------------------------------------------------------------


def checked_labels(upload: Any, zero_shot: ZeroShot) -> LabelSums | None:
    """Return copies of the label sums of an upload, None if it has none; refuse sums that no labels can have given.

    A residual (onehot(y) - p₀) is at most √2 long and sums to 0, an embedding is 1 long.
    """
    values = upload.residual_sums, upload.residual_counts, upload.labels
    there = [value is not None for value in values]
    if not any(there):
        return None
    if not all(there):
        raise refuse("upload", "a part of what labels add up to", "residual_sums, residual_counts and labels, or none")
    shapes = label_fields(zero_shot)
    sums = LabelSums._make(
        finite_array(f"upload.{name}", value, shapes[name])
        for name, value in zip(LabelSums._fields, values, strict=True)
    )
    count = float(sums.labels)
    if not 1 <= count <= MOST_LABELS or count != round(count):
        raise refuse("upload.labels", count, f"a whole number from 1 to {MOST_LABELS:g}")
    size = float(np.sqrt((sums.residual_sums**2).sum()))
    if size > np.sqrt(2) * count * (1 + NORM_TOLERANCE):
        raise refuse("upload.residual_sums", f"a length of {size:.6g}", f"at most √2 for each of {count:g} labels")
    apart = float(np.sqrt((sums.residual_sums.sum(axis=0) ** 2).sum()))
    if apart > COARSEST * size + ROUNDING:
        raise refuse("upload.residual_sums", "rows that do not cancel", "residuals, which sum to 0 over the classes")
    if np.abs(sums.residual_counts).max() > count * (1 + ROUNDING):
        raise refuse("upload.residual_counts", "a value that is too large", f"at most {count:g}, the labels")
    if abs(sums.residual_counts.sum()) > ROUNDING * count * zero_shot.classes:
        raise refuse("upload.residual_counts", "values that do not cancel", "residuals, which sum to 0")
    return sums


class LabelTable(WholeCopy):
    """The label sums of the clients of an exchange, and whose of them count.

    ``fields`` are their arrays with the shapes; one of them is ``labels`` (), how many labels they stand for.

    >>> table = LabelTable({"labels": ()})
    >>> table.put("ann", {"labels": np.array(20.0)})
    >>> table.put("bob", {"labels": np.array(2.0)})
    >>> table.grant(TeachingRights(frozenset()))
    >>> dict(table.labels), table.capped()[1]["labels"]
    ({'ann': 20, 'bob': 2}, array([2., 3.]))
    """

    def __init__(self, fields: Mapping[str, tuple[int, ...]]) -> None:
        self._fields = fields
        self._sums: dict[str, Mapping[str, Reals]] = {}
        self._counts: dict[str, int] = {}
        self.rights = TeachingRights()

    def __bool__(self) -> bool:
        return bool(self._sums)

    @property
    def labels(self) -> Mapping[str, int]:
        """How many labels the latest upload of each client stands for; clients without are left out."""
        return MappingProxyType(self._counts)

    def put(self, client: str, sums: Mapping[str, Reals] | None) -> None:
        """Store the checked sums of a client; None: it has none."""
        if sums is None:
            self._sums.pop(client, None)
            self._counts.pop(client, None)
        else:
            self._sums[client], self._counts[client] = sums, round(float(sums["labels"]))

    def grant(self, rights: TeachingRights) -> None:
        """Replace the rights to teach."""
        self.rights = rights

    def capped(self) -> tuple[list[str], dict[str, Reals]]:
        """Return the clients whose labels count, and their arrays (k, ...), in an order that depends on content only.

        Whoever has no right to teach counts for three labels, or for a tenth of all labels, at most.
        """
        names = [name for name in self._sums if name not in self.rights.muted]
        if not names:
            return [], {field: np.zeros((0, *shape)) for field, shape in self._fields.items()}
        stacked = {field: np.stack([self._sums[name][field] for name in names]) for field in self._fields}
        labels, teachers = stacked["labels"], self.rights.teachers
        if teachers is not None:
            most = np.maximum(FREE, SHARE * labels.sum())
            free = np.array([name in teachers for name in names])
            factors = np.where(free, 1.0, np.minimum(1.0, most / labels))
            stacked = {field: array * factors.reshape(-1, *(1,) * (array.ndim - 1)) for field, array in stacked.items()}
        keys = [array.reshape(len(names), -1) for array in stacked.values()]
        order = np.lexsort(np.concatenate([key[:, :64] for key in keys], axis=1).T)
        return [names[i] for i in order], {field: array[order] for field, array in stacked.items()}

    def replace(self, sums: Mapping[str, Mapping[str, Reals]]) -> None:
        """Store checked sums in the place of everything; rights stay."""
        self._sums, self._counts = {}, {}
        for client, own in sums.items():
            self.put(client, own)

    def __deepcopy__(self, memo: object) -> LabelTable:
        other = LabelTable(self._fields)  # sums are never changed, only replaced
        other.replace(self._sums)
        other.grant(self.rights)
        return other

    def state(self) -> State:
        """Return everything but the rights as arrays; nothing where there is no label."""
        if not self._sums:
            return {}
        names = {f"labels.{name}": array for name, array in pack_names(list(self._sums)).items()}
        rows = {f"labels.{name}": np.stack([s[name] for s in self._sums.values()]) for name in self._fields}
        return {**names, **rows}

    def rows(self, arrays: Arrays) -> dict[str, dict[str, Reals]]:
        """Return the arrays of each client in what :meth:`state` returned, unchecked but for their shapes."""
        if not arrays:
            return {}
        require(arrays, (*(f"labels.{name}" for name in ("names", "name_lengths", *self._fields)),))
        names = unpack_names(arrays["labels.names"], arrays["labels.name_lengths"])
        if not names:
            raise refuse("labels.names", "no clients", "at least one, or no array")
        columns = {
            name: exactly(f"labels.{name}", arrays[f"labels.{name}"], np.float64, (len(names), *shape))
            for name, shape in self._fields.items()
        }
        return {
            client: {name: np.array(column[i]) for name, column in columns.items()} for i, client in enumerate(names)
        }


def label_fields(zero_shot: ZeroShot) -> dict[str, tuple[int, ...]]:
    """Return the shapes of :class:`LabelSums`."""
    return dict(zip(LabelSums._fields, (zero_shot.text.shape, zero_shot.text.shape[:1], ()), strict=True))


def label_head(gradient: Reals, labels: Reals, variance: float, inverse: Reals) -> Reals:
    """Return V (m, C, D) = ω / (v (1 + √(l / m₀))²) G (Σ + ρ_L I)⁻¹, less its mean over the classes.

    ``gradient`` G (m, C, D) are residual sums, centred where the labels were taken; ``labels`` l (m,) how many they
    are; ``variance`` v that of images around their mean, which is 1 - |m|² for unit vectors.
    """
    step = OMEGA / (max(variance, LEAST_VARIANCE) * (1.0 + np.sqrt(labels / M0)) ** 2)
    weights = step[:, None, None] * (gradient.reshape(-1, len(inverse)) @ inverse).reshape(gradient.shape)
    weights -= weights.mean(axis=1, keepdims=True)
    return weights


def label_inverse(covariance: Reals) -> Reals:
    """Return (Σ + ρ_L I)⁻¹ (D, D)."""
    inverse: Reals = np.linalg.inv(covariance + RHO_L * np.eye(len(covariance))).astype(np.float64, copy=False)
    return inverse
