"""The messages of Ristretto: soft class sums go up, a linear head comes down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...core.types import Reals
from ...core.validate import NORM_TOLERANCE, message, numbers
from ...core.zero_shot import ZeroShot
from ...errors import refuse

EPS = 1e-9  # guards divisions by a count of zero
MOST_IMAGES = 1e12  # that a client can have seen: no square of a count overflows or drowns everyone else's digits
LARGEST_WEIGHT = 1e100  # of a head: no product of it with an embedding overflows


@dataclass(frozen=True, slots=True, eq=False)
class ClassSums:
    """What a client of Ristretto uploads.

    ``counts`` (C,) are sums of soft labels, ``means`` (C, D) the mean embedding of each class weighted by them. The
    soft labels of an image sum to 1, so the sum of the counts is the number of images that the client claims to have
    seen.
    """

    vector_fields: ClassVar[tuple[str, ...]] = ("means",)

    counts: Reals
    means: Reals
    task: str = ""

    @property
    def empty(self) -> bool:
        """Whether the client has not seen an image yet: such an upload is refused, and a sync leaves it out."""
        return not np.any(self.counts)

    def __repr__(self) -> str:
        return f"ClassSums({np.sum(self.counts):.0f} images, {len(self.counts)} classes, task={self.task[:8]!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What a client of Ristretto gets back: the logits ``weights`` (C, D) f + ``bias`` (C,) to add to zero-shot's.

    ``trust`` () in [0, 1] is the share of evidence: how far soft labels follow the head.
    """

    vector_fields: ClassVar[tuple[str, ...]] = ("weights",)

    weights: Reals
    bias: Reals
    trust: Reals
    task: str = ""

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
    counts = _numbers_of("upload.counts", upload.counts, (classes,))
    means = _numbers_of("upload.means", upload.means, (classes, dim))
    if not _is_sound(counts, means):  # the slow checks say what is wrong
        finite("upload.counts", counts, counts.shape)
        finite("upload.means", means, means.shape)
        check_counts("upload.counts", counts)
        check_lengths("upload.means", means, np.ones(classes))
    return ClassSums(counts, means, zero_shot.fingerprint)


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
        finite(f"{prefix}weights", value.weights, zero_shot.text.shape),
        finite(f"{prefix}bias", value.bias, zero_shot.text.shape[:1]),
        finite(f"{prefix}trust", value.trust, ()),
        zero_shot.fingerprint,
    )
    if not 0 <= head.trust <= 1:
        raise refuse(f"{prefix}trust", float(head.trust), "a share from 0 to 1")
    if max(np.abs(head.weights).max(), np.abs(head.bias).max()) > LARGEST_WEIGHT:
        raise refuse(f"{prefix}weights", "a value that is too large", f"values up to {LARGEST_WEIGHT:g}")
    return head


def finite(name: str, value: object, shape: tuple[int, ...]) -> Reals:
    """Return a float64 copy of an array of finite numbers of this ``shape``."""
    array = _numbers_of(name, value, shape)
    if not np.isfinite(array).all():
        raise refuse(name, "NaN or infinite values", "finite values")
    return array


def _numbers_of(name: str, value: object, shape: tuple[int, ...]) -> Reals:
    """Return a float64 copy of an array of real numbers of this ``shape``."""
    array = numbers(name, value, f"real numbers of shape {shape}") if isinstance(value, np.ndarray) else None
    if array is None or array.shape != shape:
        shown = f"shape {array.shape}" if array is not None else type(value).__name__
        raise refuse(name, shown, f"an array of shape {shape}")
    return array.astype(np.float64)


def check_counts(name: str, counts: Reals, least: float = 1 - NORM_TOLERANCE) -> None:
    """Refuse counts (C,) that are not sums of soft labels of at least one image."""
    images = float(counts.sum())
    if counts.min() < 0:
        raise refuse(name, "a negative value", "sums of probabilities")
    if not least <= images <= MOST_IMAGES:
        raise refuse(name, f"{images:g} images", f"1 to {MOST_IMAGES:g}: a client syncs after its first image")


def check_lengths(name: str, rows: Reals, most: Reals) -> None:
    """Refuse rows (C, D) that are longer than ``most`` (C,), which no means (or sums) of unit vectors are."""
    lengths = np.sqrt(np.einsum("cd,cd->c", rows, rows))
    if not (lengths <= most * (1 + NORM_TOLERANCE)).all():
        worst = int((lengths - most).argmax())
        raise refuse(name, f"row {worst} of length {lengths[worst]:.6g}", f"at most {most[worst]:.6g}")
