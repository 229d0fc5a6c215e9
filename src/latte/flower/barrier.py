"""A benchmark in step: every node is a client, all upload, then all download. The labels equal the simulator's."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from ..core.contracts import Verifying
from ..core.sync import sync
from ..core.types import Rounding
from ..data.benchmark import Federation
from ..data.partition import generators
from ..errors import refuse
from ..files.atomic import write_text
from ..methods import create_exchange, describe
from ..simulation.outcome import Outcome
from ..simulation.schedule import rounds
from ..wire.rows import LOSSLESS
from .message_records import message_record
from .settings import BenchmarkSettings
from .sync_records import DOWNLOAD, FACTS
from .walk import Walk, read_walk

log = logging.getLogger("flwr.latte")
QUERY_WALK = "query.walk"
_TICK = 0.05  # seconds between two looks at what has come
_TTL = 3600.0  # seconds that a node has for its samples up to the next sync


@dataclass(slots=True)
class Member:
    """A client as the server sees it: the labels that came, the latest upload, the download that goes out next."""

    node: int
    labels: list[int] = field(default_factory=list)
    upload: Any = None
    download: Any = None
    precision: str = LOSSLESS

    def summary(self) -> Any:
        """Return the upload that the node has sent."""
        return self.upload

    def receive(self, download: Any) -> None:
        """Store a download; the next message brings it to the node."""
        self.download = download


class CheckedExchange:
    """The exchange of a method, behind the checks of a service."""

    def __init__(self, exchange: Any) -> None:
        self._exchange, self.task = _require_checks(exchange), exchange.task
        self.pull, self.pull_many = exchange.pull, exchange.pull_many
        self.rounding: dict[str, Rounding] = {}  # of the uploads of every client, on their way here

    def push(self, client: str, upload: Any) -> None:
        """Check and store an upload."""
        self._exchange.store(client, self._exchange.prepare(upload, self.rounding.get(client, 0.0)))


def _require_checks(exchange: Any) -> Verifying:
    if not isinstance(exchange, Verifying):
        raise refuse("exchange", type(exchange).__name__, "one with prepare and store, as latte.BaseExchange has")
    return exchange


class Barrier:
    """A run over a benchmark."""

    def __init__(self, grid: Any, settings: BenchmarkSettings) -> None:
        self.grid, self.settings = grid, settings
        self.federation = settings.federation()
        self.info = describe(settings.method)
        names = [client.name for client in self.federation.clients]
        zero_shot = self.federation.embeddings.zero_shot
        self.exchange = CheckedExchange(create_exchange(settings.method, zero_shot, settings.params, clients=names))
        self.members = self._find_members()

    def run(self) -> Outcome:
        """Walk through all streams and return the labels."""
        lengths = [len(client) for client in self.federation.clients]
        handled = [0] * len(lengths)
        schedule = self.settings.schedule.for_method(self.info.sync)
        for turn in rounds(lengths, schedule, generators(self.settings.seed).cohort):
            for i in turn.active:
                handled[i] += 1
            if turn.members:
                self._sync({i: handled[i] for i in turn.members})
        self._walk(dict(enumerate(lengths)))
        return Outcome(tuple(np.array(member.labels, np.int64) for member in self.members))

    def _sync(self, places: Mapping[int, int]) -> None:
        """Let clients walk to their places; then all upload, and all download."""
        self._walk(places)
        names = self.federation.clients
        members: list[tuple[str, Any]] = [(names[i].name, self.members[i]) for i in places]
        sync(members, self.exchange)

    def _walk(self, places: Mapping[int, int]) -> None:
        """Let clients walk to their places, and store the labels and uploads that they reply with."""
        messages = [self._message(self.members[i], until) for i, until in places.items()]
        for walked in self._replies(messages).values():
            member = self.members[walked.client]
            member.labels += walked.labels
            member.upload, member.precision = walked.upload, walked.precision
            self.exchange.rounding[self.federation.clients[walked.client].name] = walked.rounding

    def _message(self, member: Member, until: int) -> Message:
        content = self._content(until)
        if member.download is not None:
            dim = self.federation.embeddings.zero_shot.dim
            content[DOWNLOAD] = message_record(member.download, dim, member.precision)
            member.download = None
        return Message(content, member.node, QUERY_WALK, ttl=_TTL)

    def _content(self, until: int, begin: bool = False) -> RecordDict:
        return RecordDict({FACTS: ConfigRecord({**self.settings.facts(), "until": until, "begin": begin})})

    def _replies(self, messages: Sequence[Message]) -> dict[int, Walk]:
        """Send messages and return the reply of each node; the first failure ends the run."""
        missing = [identity for message in messages for identity in self.grid.push_messages([message])]
        walks: dict[int, Walk] = {}
        while missing:
            for reply in self.grid.pull_messages(missing):
                missing.remove(reply.metadata.reply_to_message_id)
                node = reply.metadata.src_node_id
                if reply.has_error():
                    raise RuntimeError(f"node {node}: {reply.error.reason}")
                walks[node] = read_walk(reply.content, self.info.kind.Upload)
            time.sleep(_TICK)
        return walks

    def _find_members(self) -> list[Member]:
        """Wait until every client has a node, and ask each which client it is."""
        count = len(self.federation)
        while len(nodes := sorted(self.grid.get_node_ids())) < count:
            log.info("%s of %s nodes are there: --federation-config num-supernodes=%s", len(nodes), count, count)
            time.sleep(1.0)
        starts = [Message(self._content(0, begin=True), node, QUERY_WALK, ttl=_TTL) for node in nodes]
        walks = self._replies(starts)
        node_of = {walked.client: node for node, walked in walks.items()}
        if len(node_of) != count:
            raise refuse("nodes", f"{len(nodes)} nodes, {len(node_of)} clients", f"a node for each of {count} clients")
        return [Member(node_of[client]) for client in range(count)]


def write_labels(path: Path, federation: Federation, outcome: Outcome) -> None:
    """Write the labels of every client as JSON, by its name."""
    pairs = zip(federation.clients, outcome.labels, strict=True)
    write_text(path, json.dumps({client.name: labels.tolist() for client, labels in pairs}) + "\n")
