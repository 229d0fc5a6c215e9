"""The streams of a federation laid end to end, with everything that the zero-shot classifier says about them.

Samples are numbered client by client in stream order: sample k of the federation belongs to client i with
``offsets[i] <= k < offsets[i + 1]``. Vectors stay where the federation has them; :meth:`Streams.vectors` normalises
a few of them.

Many samples are classified together, where the readable method forms a matrix-vector product per sample. The two may
differ in the last bit, which matters where a decision compares two nearly equal numbers. Such samples are computed
again as the readable method computes them, so that every decision of the memories is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.maths import entropy_of_one
from ...core.types import Integers, Mask, Reals, Vectors
from ...core.validate import NORM_TOLERANCE, lengths_of, unit_rows
from ...core.zero_shot import ZeroShot
from ...data.benchmark import Federation
from .crew import Crew
from .loop_arrays import ZeroShotResults
from .tolerances import ENTROPY_NOISE, NEAR_ENTROPY, NEAR_LOGIT

SAMPLES_AT_ONCE = 1024  # that are classified together
Scalar = TypeVar("Scalar", bound=np.generic)


class BatchClassifier(Protocol):
    """The zero-shot classifier on many rows: ``plain_classify`` in numpy, ``loops_classify`` compiled."""

    def squares(self, rows: Vectors, index: Integers, out: Vectors) -> None:
        """Write the squared lengths (n,) of the rows ``index``."""

    def classify(
        self,
        rows: Vectors,
        index: Integers,
        norms: Vectors,
        text: Reals,
        near: float,
        room: Reals,
        out: ZeroShotResults,
    ) -> None:
        """Classify the rows ``index``, divided by ``norms``, with ``text``; logits closer than ``near`` are close."""


@dataclass(frozen=True, eq=False)
class Streams:
    """All samples (n,) of all clients, in stream order, client after client."""

    zero_shot: ZeroShot
    rows: Vectors  # (m, D) plain views, read-only; the federation's own array where that is one view of float32
    index: Integers  # (n,) which row a sample is
    offsets: Integers  # (N + 1,)
    norms: Vectors  # (n,) lengths before normalisation
    logits: Reals  # (n, C) of the zero-shot classifier
    pseudo: Integers  # (n,) their argmax
    entropy: Reals  # (n,) of the zero-shot prediction, divided by ln C

    def __len__(self) -> int:
        return len(self.index)

    @property
    def clients(self) -> int:
        """N."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> list[int]:
        """How many samples each client has."""
        lengths: list[int] = np.diff(self.offsets).tolist()
        return lengths

    def vectors(self, samples: Integers) -> Vectors:
        """Return the plain views of ``samples`` (...,) as unit rows (..., D)."""
        rows = self.rows[self.index[samples]]
        rows /= self.norms[samples][..., None]  # indexing gave a copy
        return rows


def lay_out(federation: Federation, classifier: BatchClassifier, crew: Crew | None = None) -> Streams:
    """Return the streams of ``federation`` with their zero-shot predictions."""
    zero_shot = federation.embeddings.zero_shot
    plain, index = _plain_rows(federation)
    offsets = np.cumsum([0, *map(len, federation.clients)])
    n, text, near = len(index), read_only(zero_shot.scaled), NEAR_LOGIT * zero_shot.scale
    norms, results = np.empty(n, np.float32), ZeroShotResults.empty(n, zero_shot.classes)

    def classify(part: slice) -> None:
        norms[part] = _lengths(plain, index[part], classifier)
        room = np.empty((2, zero_shot.dim))
        classifier.classify(plain, index[part], norms[part], text, near, room, results.of(part))

    parts = (slice(start, start + SAMPLES_AT_ONCE) for start in range(0, n, SAMPLES_AT_ONCE))
    (crew or Crew()).share(classify, parts)
    streams = Streams(zero_shot, plain, index, offsets, norms, results.logits, results.pseudo, results.entropy)
    settle(streams, results.close)
    return streams


def _lengths(rows: Vectors, index: Integers, classifier: BatchClassifier) -> Vectors:
    """Return by what some rows are divided, as :func:`unit_rows` has it."""
    squares = np.empty(len(index), np.float32)
    classifier.squares(rows, index, squares)
    lengths: Vectors = lengths_of(squares)
    if not np.abs(lengths - 1).max() < NORM_TOLERANCE / 2:  # NaN is refused here, too
        unit_rows("views", rows[index])
    return lengths


def _plain_rows(federation: Federation) -> tuple[Vectors, Integers]:
    """Return rows (m, D) and which of them each sample is; copies only what is not there as float32."""
    views = federation.embeddings.views
    index = np.concatenate([client.samples for client in federation.clients]).astype(np.int64)
    if views.dtype == np.float32 and views.shape[1] == 1 and views.flags.c_contiguous:
        return read_only(np.asarray(views).reshape(len(views), -1)), index
    return read_only(np.ascontiguousarray(views[index, 0], np.float32)), np.arange(len(index))


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return a view that cannot be written to: a loop is compiled for each kind, so every array always is of one."""
    view = array.view()
    view.flags.writeable = False
    return view


def owners_of(streams: Streams) -> Integers:
    """Return the client of every sample (n,)."""
    return np.repeat(np.arange(streams.clients), streams.lengths)


def settle(streams: Streams, doubtful: Mask) -> None:
    """Compute the ``doubtful`` samples (n,) again, one by one, as the readable method does."""
    for k in np.flatnonzero(doubtful):
        logits = streams.zero_shot.logits(streams.vectors(np.array([k]))[0])
        streams.logits[k] = logits
        streams.pseudo[k], streams.entropy[k] = logits.argmax(), entropy_of_one(logits)


def find_near_ties(groups: Integers, values: Reals, margin: float = 1.0) -> Mask:
    """Return the samples whose value is too close to that of another sample of the same group; ``margin`` widens that.

    >>> find_near_ties(np.array([0, 0, 1, 1]), np.array([0.5, 0.500001, 0.5, 0.7]))
    array([ True,  True, False, False])
    """
    order = np.lexsort((values, groups))
    group, value = groups[order], values[order]
    near = margin * (NEAR_ENTROPY * np.abs(value[1:]) + ENTROPY_NOISE)
    close = (group[1:] == group[:-1]) & (value[1:] - value[:-1] <= near)
    tied = np.zeros(len(values), np.bool_)
    tied[order[1:]] |= close
    tied[order[:-1]] |= close
    return tied
