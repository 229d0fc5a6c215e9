"""Latte over a whole federation: replay who holds what, window by window, then read in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Reals
from ...data.benchmark import Federation
from ...methods.latte import LatteParams
from ..schedule import Schedule
from .backend import Loops
from .blocks import BlockServer
from .crew import Crew
from .reader import Reader
from .server import Server
from .state import ALWAYS, BOTH, EXTERNAL, LAST, LOCAL, Arrivals, Given, Items, Readout, Uploads
from .streams import Streams, lay_out, near_ties, owners, settle
from .timeline import Window, windows
from .versions import Pool

KEPT = 1 << 30  # bytes of similarities between clients that are kept; with more, each sync compares anew
# Rounds that are replayed before they are read. A client's samples of a window are compared with everything that it
# holds meanwhile: what stays is loaded once per window. Anything from 16 to 64 is as good.
WINDOW = 32
MODES = {"both": BOTH, "local": LOCAL, "external": EXTERNAL}


class Grid(NamedTuple):
    """Labels (alphas, betas, n) of all samples, client after client, and who downloaded how much from whom."""

    labels: Integers
    downloads: Integers | None
    streams: Streams


class Replay:
    """Everything that happens in a run of Latte, except the reading."""

    def __init__(
        self,
        federation: Federation,
        params: LatteParams,
        loops: Loops,
        crew: Crew | None = None,
        server: type[BlockServer] | None = None,
    ) -> None:
        self.loops, self.crew = loops, crew or Crew()
        self.streams = streams = lay_out(federation, loops, self.crew)
        group = owners(streams) * streams.zero_shot.classes + streams.pseudo
        settle(streams, near_ties(group, streams.entropy))
        self.shape = (streams.zero_shot.classes, params.k_l)
        rule = ALWAYS if params.replace == "always" else LAST
        self.slot = loops.fill_queues(
            np.arange(len(streams)), streams.offsets, streams.pseudo, streams.entropy, (*self.shape, rule)
        )
        self.pool = Pool(streams, params, loops, self.crew)
        names = tuple(client.name for client in federation.clients)
        self.server: Server | BlockServer
        if server is None and 4 * len(names) ** 2 * streams.zero_shot.classes <= KEPT:
            self.server = Server(names, streams.zero_shot.classes, streams.zero_shot.dim, params, loops)
            self.pool.beside = np.zeros((0, len(names)), np.float32)
        else:
            self.server = (server or BlockServer)(names, params, self.pool)
        self.pushed = np.zeros(streams.clients, np.int64)
        self.local = np.full((streams.clients, *self.shape), -1, np.int64)

    @property
    def items(self) -> Items:
        """What the loops need to know of samples and prototypes."""
        s, pool = self.streams, self.pool
        known = (len(s), s.entropy, self.slot, s.pseudo, s.rows, s.index, s.norms, s.logits)
        return Items(*known, pool.entropy, pool.exact, pool.vectors, pool.beside, pool.origin)

    def run(self, window: Window) -> Arrivals:
        """Play the syncs of a window; return what each client was given, ordered by client and time."""
        none, slots = np.zeros(0, np.int64), self.server.rules.slots
        parts = [Given(none, none, none, none.reshape(0, slots), none > 0)]
        if len(window.members):
            parts += self.server.play(window, self._uploads(window), self.streams.offsets)
        client, label, sample, items, _ = (np.concatenate(one) for one in zip(*parts, strict=True))
        few = client.astype(np.uint16) if self.streams.clients < 1 << 16 else client  # these are sorted much faster
        order = np.argsort(few, kind="stable")
        bounds = np.searchsorted(client[order], np.arange(self.streams.clients + 1))
        return Arrivals(sample[order], label[order], order, items, bounds)

    def _uploads(self, window: Window) -> Uploads:
        """Compute the prototypes of all syncs together: what a client holds does not depend on the others."""
        s, items = self.streams, self.items
        number, client, label, contents = self.loops.upload(window, self.pushed, s.offsets, items, self.local)
        # the contents of one queue at two syncs are almost the same: one after the other they come from a cache
        by_queue, order = np.lexsort((label, client)), np.lexsort((client, label, number))
        places, seen = np.empty(len(number), np.int64), np.empty(len(number), np.bool_)
        places[by_queue], seen[by_queue] = self.pool.add(contents[by_queue], items)
        starts = np.searchsorted(number, np.arange(len(window.starts)))
        return Uploads(
            client[order],
            label[order],
            self.pool.vectors,
            len(s) + places[order],
            seen[order],
            starts,
            len(s),
            self.pool.beside,
            self.pool.origin,
        )

    def forget(self) -> None:
        """Free the prototypes that neither the server nor anybody's external memory refers to."""
        used = self.server.live()
        self.pool.keep(used[used >= 0] - len(self.streams))


def run_latte(
    federation: Federation,
    params: LatteParams,
    grid: tuple[Reals, Reals],
    schedule: Schedule,
    rng: np.random.Generator,
    loops: Loops,
    threads: int = 1,
) -> Grid:
    """Return the predictions for every alpha and beta of ``grid``."""
    with Crew(threads) as crew:
        return read_all(Replay(federation, params, loops, crew), params, grid, windows_of(schedule, rng))


def windows_of(schedule: Schedule, rng: np.random.Generator) -> Callable[[Replay], Iterator[Window]]:
    """Return what gives the windows of a replay."""
    return lambda replay: windows(replay.streams.lengths, schedule, rng, WINDOW)


def read_all(
    replay: Replay,
    params: LatteParams,
    grid: tuple[Reals, Reals],
    plan: Callable[[Replay], Iterator[Window]],
) -> Grid:
    """Replay the windows and read them."""
    s = replay.streams
    gate = -1.0 if params.gate is None else params.gate
    alphas, betas = grid
    rate = params.readout_rate(s.zero_shot.classes)
    readout = Readout(MODES[params.memory], alphas, betas, rate, gate, s.zero_shot.scale)
    labels = np.full((len(alphas), len(betas), len(s)), -1, np.int64)
    reader = Reader(replay, readout, labels)
    for window in plan(replay):
        reader.submit(window.handled, replay.run(window))
        replay.forget()
    reader.wait()
    return Grid(labels, replay.server.downloads(), s)
