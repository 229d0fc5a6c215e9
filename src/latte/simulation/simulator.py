"""The readable simulator: it walks streams with any Method and any Exchange, one sample at a time.

A schedule says who handles a sample in a round, and who syncs after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.sync import SYNC_TIMES, is_due, sync
from ..core.types import Collaborative, Exchange, Integers, Method, Prediction, Teachable
from ..core.validate import at_least, choice, real
from ..data.federation import Embeddings, Federation
from ..errors import refuse
from ..methods import create_exchange, create_federation, describe
from ..methods.base import ParameterChoice, needed_views
from .results import Outcome
from .wrapped import CountingExchange

MOST_ROUNDS = 1_000_000  # before a client starts: rounds without clients are walked, too
SYNCS = ("method", *SYNC_TIMES)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a federation proceeds.

    ``sync`` says when a client syncs:

    - ``every``: after every ``period``-th image, the paper's T. With the barrier, all sync after every T-th round;
      without it, each client syncs on its own after every T of its images, and ``periods`` may give each its own T.
    - ``doubling``: after its own 1st, 2nd, 4th, 8th and 16th image, then after every ``period`` (16, if that is 1).
      A sync is worth most to a client that has seen little.
    - ``powers``: after its own 1st, 2nd, 4th, 8th, ... image.
    - ``method``: as the method has it by default. (:meth:`for_method` puts that in place.)

    The two in the middle are counted per client, without a common clock; all clients that are due after a round upload,
    then all download. There is no sync after the last round (B13).

    period: the paper's T
    participation: the share of the clients that is there in a round: one cohort per round, which handles its samples
        and syncs (B11)
    barrier: all push, then all pull, as in the released code (B12); client-initiated is what the paper says
    periods: T of each client
    starts: the first round of each client; everyone starts in round 1 without it
    sync: see above
    """

    period: int = 1
    participation: float = 1.0
    barrier: bool = True
    periods: tuple[int, ...] | None = None
    starts: tuple[int, ...] | None = None
    sync: str = "method"

    def __post_init__(self) -> None:
        at_least("period", self.period, 1)
        choice("sync", self.sync, SYNCS)
        if self.sync in ("doubling", "powers") and not self.barrier:
            raise refuse("sync", f"{self.sync!r} with barrier=False", "'every', or barrier=True")
        if not 0 < real("participation", self.participation) <= 1:
            raise refuse("participation", self.participation, "a share in (0, 1]")
        if self.periods is not None and self.barrier:
            raise refuse("periods", "one period per client with barrier=True", "barrier=False, or one period")
        for name in ("periods", "starts"):
            for value in getattr(self, name) or ():
                at_least(name, value, 1, MOST_ROUNDS)

    def check(self, clients: int) -> None:
        """Refuse a schedule that was made for another number of clients."""
        for name in ("periods", "starts"):
            values = getattr(self, name)
            if values is not None and len(values) != clients:
                raise refuse(name, f"{len(values)} entries", f"{clients}, one per client")

    def for_method(self, default: str) -> Schedule:
        """Return this schedule; if it leaves ``sync`` to the method, with ``default``, that of the method."""
        if self.sync != "method":
            return self
        return replace(self, sync="every" if not self.barrier else default)

    def is_due(self, images: int) -> bool:
        """Say whether a client syncs after its ``images``-th image, if syncs are counted per client."""
        return is_due(self.sync, images, self.period)


@dataclass(frozen=True, slots=True)
class Round:
    """One round.

    number: from 1
    cohort: the clients that are there
    active: those of them that handle a sample
    members: the clients that sync after it: all upload, then all download
    alone: the active clients that sync on their own, each right after its sample
    """

    number: int
    cohort: tuple[int, ...]
    active: tuple[int, ...]
    members: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()


def rounds(lengths: Sequence[int], schedule: Schedule, rng: np.random.Generator) -> Iterator[Round]:
    """Yield the rounds that it takes until every client has handled its ``lengths[i]`` samples."""
    schedule.check(len(lengths))
    left, starts, number = list(lengths), schedule.starts or (1,) * len(lengths), 0
    while any(left):
        number += 1
        cohort = tuple(i for i, start in enumerate(starts) if start <= number)
        if schedule.participation < 1 and cohort:
            size = max(1, round(schedule.participation * len(cohort)))
            cohort = tuple(sorted(rng.choice(cohort, size, replace=False).tolist()))
        active = tuple(i for i in cohort if left[i])
        for i in active:
            left[i] -= 1
        members: tuple[int, ...] = ()
        alone: tuple[int, ...] = ()
        if not schedule.barrier:
            periods = schedule.periods or (schedule.period,) * len(lengths)
            alone = tuple(i for i in active if (lengths[i] - left[i]) % periods[i] == 0)
        elif any(left) and schedule.sync in ("doubling", "powers"):
            members = tuple(i for i in active if schedule.is_due(lengths[i] - left[i]))
        elif any(left) and number % schedule.period == 0:
            members = cohort  # clients that have finished still sync
        yield Round(number, cohort, active, members, alone)


def count_syncs(lengths: Sequence[int], schedule: Schedule, rng: np.random.Generator) -> list[int]:
    """Return how often each client syncs until it has handled its ``lengths[i]`` samples.

    >>> count_syncs([60, 61, 4], Schedule(sync="doubling"), np.random.default_rng(0))
    [7, 7, 3]
    """
    counts = Counter(i for turn in rounds(lengths, schedule, rng) for i in (*turn.members, *turn.alone))
    return [counts[i] for i in range(len(lengths))]


def secret_of(rng: np.random.Generator | None) -> int:
    """Return 128 bits that follow from the seed of ``rng``, not from what was drawn of it: nothing is drawn here.

    >>> secret_of(np.random.default_rng(7)) == secret_of(np.random.default_rng(7)) != secret_of(None)
    True
    """
    seed = getattr((rng or np.random.default_rng(0)).bit_generator, "seed_seq", None)
    return 0 if seed is None else int.from_bytes(seed.generate_state(4).astype("<u4").tobytes(), "little")


@dataclass(frozen=True, slots=True)
class Step:
    """One client handled one sample in a round; ``sample`` is its position in the client's stream."""

    round: int
    client: int
    sample: int
    prediction: Prediction


@dataclass(frozen=True, slots=True, repr=False)
class Client:
    """A name, a method of its own, and the stream that it sees: (n, V, D).

    ``told`` (n,) is the class that somebody names right after the answer to an image, -1 where nobody does; None: of no
    image. The method is one that learns from labels.
    """

    name: str
    method: Method
    stream: Any
    told: Integers | None = None

    def __repr__(self) -> str:
        return f"Client({self.name!r}, {self.method!r}, {len(self.stream)} images)"


def simulate(
    clients: Sequence[Client],
    exchange: Exchange[Any, Any] | None = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
) -> Iterator[Step]:
    """Yield one :class:`Step` per sample.

    Each round, every client of the cohort handles its next sample, in a fixed order; then those whose turn it is
    sync. Without an ``exchange``, or with methods that do not collaborate, nobody syncs. ``rng`` draws the cohorts
    and is needed only when fewer than all participate.
    """
    schedule = (schedule or Schedule()).for_method("every")
    if not clients:
        raise refuse("clients", "none", "at least one")
    if len({client.name for client in clients}) < len(clients):
        raise refuse("clients", "the same name twice", "a name of its own for every client")
    if schedule.participation < 1 and rng is None:
        raise refuse("rng", None, "a numpy Generator: participation below 1 draws cohorts")

    def sync_some(members: Iterable[int]) -> None:
        some = ((clients[i].name, clients[i].method) for i in members)
        if exchange is not None:
            sync([(name, method) for name, method in some if isinstance(method, Collaborative)], exchange)

    handled = [0] * len(clients)
    for turn in rounds([len(client.stream) for client in clients], schedule, rng or np.random.default_rng(0)):
        for i in turn.active:
            method, told = clients[i].method, clients[i].told
            views = needed_views(method, clients[i].stream[handled[i]])
            prediction = method.predict(views)
            yield Step(turn.number, i, handled[i], prediction)
            if told is not None and told[handled[i]] >= 0:
                _teachable(method).correct(views, int(told[handled[i]]), prediction.learnt)
            handled[i] += 1
            if i in turn.alone:
                sync_some([i])
        if turn.members:
            sync_some(turn.members)


def _teachable(method: Method) -> Teachable:
    if not isinstance(method, Teachable):
        raise refuse("method", type(method).__name__, "one that learns from labels, as Latte and Ristretto do")
    return method


def run_readable(
    federation: Federation,
    name: str,
    params: ParameterChoice = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    *,
    text_encoder: Any = None,
    calibration: bool = True,
    told: Sequence[Integers] | None = None,
) -> Outcome:
    """Walk the federation sample by sample; clients that exchange nothing one after the other, one memory at a time.

    ``text_encoder`` is for the methods that tune a prompt. Without ``calibration``, the outcome has no confidences.
    ``told`` is for the methods that learn from labels: see :class:`Client`, one for each.

    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> round(run_readable(federation, "clip").result(federation, "clip", {}, "default", 0).micro, 2)
    35.57
    """
    check_data_views(name, federation.embeddings)
    info = describe(name)
    schedule = (schedule or Schedule()).for_method(info.sync)
    if not info.collaborative and not info.shared and len(federation) > 1:
        schedule.check(len(federation))
        options: dict[str, Any] = {"text_encoder": text_encoder, "calibration": calibration}
        every = [
            run_readable(replace(federation, clients=(client,)), name, params, told=told and told[i : i + 1], **options)
            for i, client in enumerate(federation.clients)
        ]
        together = tuple(part for one in every for part in one.confidences or ()) if calibration else None
        return Outcome(tuple(one.labels[0] for one in every), confidences=together)
    clients, exchange = set_up(federation, name, params, text_encoder, rng)
    if told is not None:
        clients = [replace(client, told=mine) for client, mine in zip(clients, told, strict=True)]
    labels = [np.full(len(client), -1, np.int64) for client in federation.clients]
    confidences = [np.zeros(len(client)) for client in federation.clients]
    for step in simulate(clients, exchange, schedule, rng):
        labels[step.client][step.sample] = step.prediction.label
        if calibration:
            confidences[step.client][step.sample] = step.prediction.probabilities[step.prediction.label]
    recorded = tuple(confidences) if calibration else None
    if exchange is None:
        return Outcome(tuple(labels), confidences=recorded)
    return Outcome(tuple(labels), exchange.downloads, "readable", recorded, exchange.approximation)


def check_data_views(name: str, embeddings: Embeddings) -> None:
    """Refuse data with one view for a method that looks at several: it would only repeat zero-shot."""
    if describe(name).uses_views and embeddings.views.shape[1] < 2:
        want = f"several views of each image for {name} (latte embed --views)"
        raise refuse(f"benchmark {embeddings.name}", "one view of each image", want)


def set_up(
    federation: Federation,
    name: str,
    params: ParameterChoice = None,
    text_encoder: Any = None,
    rng: np.random.Generator | None = None,
) -> tuple[list[Client], CountingExchange | None]:
    """Return the clients of a federation, each with its method and stream, and the exchange that they need.

    What an exchange draws follows from the seed of ``rng``.
    """
    zero_shot, names = federation.embeddings.zero_shot, tuple(client.name for client in federation.clients)
    methods = create_federation(name, zero_shot, params, clients=len(federation), text_encoder=text_encoder)
    pairs = zip(federation.clients, methods, strict=True)
    clients = [Client(stream.name, method, federation.stream(stream)) for stream, method in pairs]
    for client in clients:  # some methods ask how many images will come: a client's, or everyone's if they share
        shared = getattr(client.method, "method", None)
        if expect := getattr(shared or client.method, "expect", None):
            expect(sum(map(len, federation.clients)) if shared else len(client.stream))
    if not describe(name).collaborative:
        return clients, None
    exchange = create_exchange(name, zero_shot, params, clients=names)
    if hasattr(exchange, "use_secret"):
        exchange.use_secret(secret_of(rng))
    return clients, CountingExchange(exchange, names)
