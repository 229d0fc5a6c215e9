"""The messages of Ristretto: soft class sums go up, a linear head comes down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...core.types import Mask, Reals
from ...core.validate import NORM_TOLERANCE, boolean, check_lengths, finite_array, message, real_array
from ...core.zero_shot import ZeroShot
from ...errors import refuse
from ..labels import checked_labels

EPS = 1e-9  # guards divisions by a count of zero
LIVE = 1e-6  # a class whose soft count is not above this was not seen
MOST_IMAGES = 1e12  # that a client can have seen: no square of a count overflows or drowns everyone else's digits
LARGEST_WEIGHT = 1e100  # of a head: no product of it with an embedding overflows


@dataclass(frozen=True, slots=True, eq=False)
class ClassSums:
    """What a client of Ristretto uploads.

    ``counts`` (C,) are sums of soft labels, ``means`` (C, D) the mean embedding of each class weighted by them. The
    soft labels of an image sum to 1, so the sum of the counts is the number of images that the client claims to have
    seen. A client with labels adds ``residual_sums`` (C, D), ``residual_counts`` (C,) and the number of its ``labels``
    () (see ``latte.methods.labels``); the counts are then those of the other images.
    """

    vector_fields: ClassVar[tuple[str, ...]] = ("means",)
    class_fields: ClassVar[tuple[str, ...]] = ("counts", "means", "residual_sums", "residual_counts")

    counts: Reals
    means: Reals
    task: str = ""
    residual_sums: Reals | None = None
    residual_counts: Reals | None = None
    labels: Reals | None = None

    @property
    def empty(self) -> bool:
        """Whether the client has not seen an image yet: such an upload is refused, and a sync leaves it out."""
        return self.labels is None and not np.any(self.counts)

    def __repr__(self) -> str:
        return f"ClassSums({np.sum(self.counts):.0f} images, {len(self.counts)} classes, task={self.task[:8]!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What a client of Ristretto gets back: the logits ``weights`` (C, D) f + ``bias`` (C,) to add to zero-shot's.

    ``trust`` () in [0, 1] is the share of evidence: how far soft labels follow the head. ``young`` (C,) are classes
    that joined the task and have little evidence yet: on images that zero-shot puts there, zero-shot answers.
    """

    vector_fields: ClassVar[tuple[str, ...]] = ("weights",)

    weights: Reals
    bias: Reals
    trust: Reals
    task: str = ""
    young: Mask | None = None

    @classmethod
    def empty(cls, zero_shot: ZeroShot) -> Head:
        """Return the head of a client that has received nothing: the answer is zero-shot's."""
        classes, dim = zero_shot.text.shape
        return cls(np.zeros((classes, dim)), np.zeros(classes), np.zeros(()), zero_shot.fingerprint)

    def __repr__(self) -> str:
        return f"Head(trust {float(self.trust):.3f}, {len(self.bias)} classes, task={self.task[:8]!r})"


def checked_sums(upload: object, zero_shot: ZeroShot) -> ClassSums:
    """Return a copy of an upload in float64; refuse an upload that no client can have made."""
    message("upload", upload, ClassSums, zero_shot.fingerprint)
    assert isinstance(upload, ClassSums)
    classes, dim = zero_shot.text.shape
    counts = real_array("upload.counts", upload.counts, (classes,))
    means = real_array("upload.means", upload.means, (classes, dim))
    labels = checked_labels(upload, zero_shot)
    if not _is_sound(counts, means):  # the slow checks say what is wrong
        finite_array("upload.counts", counts, counts.shape)
        finite_array("upload.means", means, means.shape)
        check_counts("upload.counts", counts, 1 - NORM_TOLERANCE if labels is None else 0.0)
        check_lengths("upload.means", means, np.ones(classes))
    if labels is None:
        return ClassSums(counts, means, zero_shot.fingerprint)
    if counts.sum() <= LIVE:  # all its images have labels
        counts, means = np.zeros_like(counts), np.zeros_like(means)
    return ClassSums(counts, means, zero_shot.fingerprint, *labels)


def _is_sound(counts: Reals, means: Reals) -> bool:
    """Return whether an upload is certainly valid: a fast check, which NaN fails."""
    longest = np.maximum.reduce(np.einsum("cd,cd->c", means, means))
    images = np.add.reduce(counts)
    return bool(np.minimum.reduce(counts) >= 0 and 1 <= images <= MOST_IMAGES and longest <= 1)


def checked_head(download: object, zero_shot: ZeroShot) -> Head:
    """Return a copy of a download in float64; refuse a download that no exchange can have made."""
    message("download", download, Head, zero_shot.fingerprint)
    assert isinstance(download, Head)
    return sound_head(download, zero_shot, "download.")


def sound_head(value: Head, zero_shot: ZeroShot, prefix: str = "") -> Head:
    """Return a copy of a head, in float64; ``prefix`` names its arrays in a refusal."""
    head = Head(
        finite_array(f"{prefix}weights", value.weights, zero_shot.text.shape),
        finite_array(f"{prefix}bias", value.bias, zero_shot.text.shape[:1]),
        finite_array(f"{prefix}trust", value.trust, ()),
        zero_shot.fingerprint,
        None if value.young is None else boolean(f"{prefix}young", value.young, zero_shot.text.shape[:1]).copy(),
    )
    if not 0 <= head.trust <= 1:
        raise refuse(f"{prefix}trust", float(head.trust), "a share from 0 to 1")
    if max(np.abs(head.weights).max(), np.abs(head.bias).max()) > LARGEST_WEIGHT:
        raise refuse(f"{prefix}weights", "a value that is too large", f"values up to {LARGEST_WEIGHT:g}")
    return head


def check_counts(name: str, counts: Reals, least: float = 1 - NORM_TOLERANCE) -> None:
    """Refuse counts (C,) that are not sums of soft labels of at least one image."""
    images = float(counts.sum())
    if counts.min() < 0:
        raise refuse(name, "a negative value", "sums of probabilities")
    if not least <= images <= MOST_IMAGES:
        raise refuse(name, f"{images:g} images", f"1 to {MOST_IMAGES:g}: a client syncs after its first image")
