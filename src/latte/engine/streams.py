"""The streams of a federation laid end to end, with everything that the zero-shot classifier says about them.

Samples are numbered client by client in stream order: sample k of the federation belongs to client i with
``offsets[i] <= k < offsets[i + 1]``. Vectors stay where the federation has them; :meth:`Streams.vectors` normalises
a few of them.

Many samples are classified together, where the readable method forms a matrix-vector product per sample. The two may
differ in the last bit, which matters where a decision compares two nearly equal numbers. Such samples are computed
again as the readable method computes them, so that every decision of the memories is the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.maths import entropy, entropy_of_one
from ..core.types import Integers, Mask, Reals, Vectors
from ..core.validate import NORM_TOLERANCE, lengths_of, unit_rows
from ..core.zero_shot import ZeroShot
from ..data.federation import Federation
from ..methods.clip import ClipParams
from ..simulation.results import Outcome, confidences_of
from ..simulation.simulator import Schedule, rounds
from .api import MethodEngine, ReplayOptions
from .loops.arrays import ENTROPY_NOISE, NEAR_ENTROPY, NEAR_LOGIT, Window, ZeroShotResults

Part = TypeVar("Part")
Scalar = TypeVar("Scalar", bound=np.generic)

SAMPLES_AT_ONCE = 1024  # that are classified together

# Rounds that are replayed before they are read. The samples of a client in a window are compared with everything that
# it holds meanwhile: what stays is loaded once per window. Anything from 16 to 64 is as good.
WINDOW = 32


class SharedJob(Generic[Part]):
    """Some parts to do in any order; the thread that calls :meth:`finish` helps.

    The compiled loops release Python's lock, so that several cores work.
    """

    def __init__(self, work: Callable[[Part], None], parts: Iterable[Part]) -> None:
        self.work, self.parts = work, deque(parts)
        self.helpers: list[Future[None]] = []

    def drain(self) -> None:
        """Take parts until there are none left."""
        while True:
            try:
                part = self.parts.popleft()
            except IndexError:
                return
            self.work(part)

    def finish(self) -> None:
        """Return when all parts are done; raise what any of them raised."""
        self.drain()
        for helper in self.helpers:
            if not helper.cancel():  # a helper that is busy elsewhere has nothing to do here any more
                helper.result()


class Crew:
    """This thread and ``threads - 1`` helpers.

    >>> done = []
    >>> with Crew(2) as crew:
    ...     crew.share(done.append, range(5))
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._helpers = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def start(self, work: Callable[[Part], None], parts: Iterable[Part]) -> SharedJob[Part]:
        """Let the helpers begin; the caller does something else and finishes the job later."""
        job = SharedJob(work, parts)
        if self._helpers:
            job.helpers = [self._helpers.submit(job.drain) for _ in range(self.threads - 1)]
        return job

    def share(self, work: Callable[[Part], None], parts: Iterable[Part]) -> None:
        """Do all parts, together with helpers that have nothing else to do."""
        self.start(work, parts).finish()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._helpers:
            self._helpers.shutdown(cancel_futures=True)


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


def lay_out(federation: Federation, crew: Crew | None = None, compiled: bool = False) -> Streams:
    """Return the streams of ``federation`` with their zero-shot predictions; ``compiled``: with numba."""
    squares, classify = plain_squares, plain_classify
    if compiled:
        from .loops.classify import classify, squares
    zero_shot, views = federation.embeddings.zero_shot, federation.embeddings.views
    index = np.concatenate([client.samples for client in federation.clients]).astype(np.int64)
    if views.dtype == np.float32 and views.shape[1] == 1 and views.flags.c_contiguous:
        plain = read_only(np.asarray(views).reshape(len(views), -1))
    else:  # only what is not there as float32 is copied
        plain, index = read_only(np.ascontiguousarray(views[index, 0], np.float32)), np.arange(len(index))
    offsets = np.cumsum([0, *map(len, federation.clients)])
    n, text, near = len(index), read_only(zero_shot.scaled), NEAR_LOGIT * zero_shot.scale
    norms, results = np.empty(n, np.float32), ZeroShotResults.empty(n, zero_shot.classes)

    def work(part: slice) -> None:
        square = np.empty(len(index[part]), np.float32)
        squares(plain, index[part], square)
        norms[part] = lengths_of(square)  # by what unit_rows would divide
        if not np.abs(norms[part] - 1).max() < NORM_TOLERANCE / 2:  # NaN is refused here, too
            unit_rows("views", plain[index[part]])
        room = np.empty((2, zero_shot.dim))
        out = ZeroShotResults._make(array[part] for array in results)
        classify(plain, index[part], norms[part], text, near, room, out)

    parts = (slice(start, start + SAMPLES_AT_ONCE) for start in range(0, n, SAMPLES_AT_ONCE))
    (crew or Crew()).share(work, parts)
    streams = Streams(zero_shot, plain, index, offsets, norms, results.logits, results.pseudo, results.entropy)
    settle(streams, results.close)
    return streams


def plain_squares(rows: Vectors, index: Integers, out: Vectors) -> None:
    """Write the squared lengths (n,) of the rows ``index``."""
    chosen = rows[index]
    out[:] = np.einsum("nd,nd->n", chosen, chosen)


def plain_classify(
    rows: Vectors, index: Integers, norms: Vectors, text: Reals, near: float, room: Reals, out: ZeroShotResults
) -> None:
    """Do in numpy what :func:`loops.classify.classify` does, for the methods that need no compiled loops."""
    np.matmul((rows[index] / norms[:, None]).astype(np.float64), text.T, out=out.logits)
    out.pseudo[:], out.entropy[:] = out.logits.argmax(axis=1), entropy(out.logits)
    two = np.partition(out.logits, out.logits.shape[1] - 2, axis=1)[:, -2:]
    out.close[:] = two[:, 1] - two[:, 0] < near


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return a view that cannot be written to: a loop is compiled for each kind, so every array always is of one."""
    view = array.view()
    view.flags.writeable = False
    return view


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


class ClipEngine(MethodEngine[ClipParams]):
    """Zero-shot logits of all samples in one pass. There is no memory, so sharing it changes nothing."""

    serves_shared: ClassVar[bool] = True

    def run(self, federation: Federation, params: ClipParams, options: ReplayOptions) -> Outcome:
        """Return what the readable simulator would return."""
        streams = lay_out(federation)
        return Outcome.fast(streams.pseudo, confidences_of(streams.logits), streams.offsets)


def windows(lengths: list[int], schedule: Schedule, rng: np.random.Generator, size: int) -> Iterator[Window]:
    """Yield the windows of a run of ``size`` rounds; the generator gives the cohorts of the readable simulator."""
    schedule.check(len(lengths))
    if schedule.barrier and schedule.participation == 1:
        yield from _everyone(np.array(lengths, np.int64), schedule, size)
    else:
        yield from _round_by_round(lengths, schedule, rng, size)


def _round_by_round(lengths: list[int], schedule: Schedule, rng: np.random.Generator, size: int) -> Iterator[Window]:
    handled, number = np.zeros(len(lengths), np.int64), 0
    syncs: list[tuple[Integers, Integers]] = []  # members, and what each has handled

    def window() -> Window:
        none = np.zeros(0, np.int64)
        members, at = (np.concatenate([none, *parts]) for parts in (zip(*syncs, strict=True) if syncs else ((), ())))
        return Window(handled.copy(), members, at, np.cumsum([0, *(len(part) for part, _ in syncs)]))

    for turn in rounds(lengths, schedule, rng):
        number = turn.number
        for i in turn.active:
            handled[i] += 1
            if i in turn.alone:
                syncs.append((np.array([i]), handled[i : i + 1].copy()))
        if turn.members:
            members = np.array(turn.members, np.int64)
            syncs.append((members, handled[members]))
        if number % size == 0:
            yield window()
            syncs.clear()
    if number % size:
        yield window()


def _everyone(length: Integers, schedule: Schedule, size: int) -> Iterator[Window]:
    """Yield the windows where all clients that have started take part in every round, and no generator is needed."""
    start = np.ones(len(length), np.int64) if schedule.starts is None else np.array(schedule.starts)
    final = int((start + length - 1)[length > 0].max(initial=0))
    by_images = schedule.sync in ("doubling", "powers")  # a client syncs after certain images of its own
    due = np.array([by_images and schedule.is_due(images) for images in range(int(length.max(initial=0)) + 1)])
    for first in range(1, final + 1, size):
        number = np.arange(first, min(first + size, final + 1))[:, None]  # (rounds, 1)
        handled = np.clip(number + 1 - start, 0, length)  # (rounds, N)
        there = (start <= number) & (number < final)
        there &= due[handled] & (number < start + length) if by_images else number % schedule.period == 0
        starts = np.cumsum([0, *there.sum(axis=1)[there.any(axis=1)]])
        members = np.ascontiguousarray(np.nonzero(there)[1])  # else the loops were compiled for strided arrays, too
        yield Window(handled[-1], members, handled[there], starts)
