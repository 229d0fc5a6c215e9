"""A benchmark in step: clients are shared out over nodes; all upload, then all download.

The labels equal the simulator's, whatever the number of nodes.
"""

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
from .walk import CLIENTS, ENDS, STARTS, Walk, name_of, read_walks

log = logging.getLogger("flwr.latte")
QUERY_WALK = "query.walk"
_TICK = 0.05  # seconds between two looks at what has come
_SETTLE = 0.5  # seconds without another node, after which the nodes are those of the run
_NODES_SECONDS = 60.0  # to wait for the first node
_TTL = 3600.0  # seconds that a node has for the samples of its clients up to the next sync


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
        """Let clients walk to their places, and store the labels and uploads that their nodes reply with."""
        by_node: dict[int, list[int]] = {}
        for client in places:
            by_node.setdefault(self.members[client].node, []).append(client)
        messages = [self._message(node, {i: places[i] for i in clients}) for node, clients in by_node.items()]
        for walked in self._replies(messages):
            member = self.members[walked.client]
            member.labels += walked.labels
            member.upload, member.precision = walked.upload, walked.precision
            self.exchange.rounding[self.federation.clients[walked.client].name] = walked.rounding

    def _message(self, node: int, places: Mapping[int, int]) -> Message:
        """Return the message to a node: how far each of its clients walks, and what each has to receive before."""
        content, dim = RecordDict(), self.federation.embeddings.zero_shot.dim
        for client in places:
            member = self.members[client]
            if member.download is not None:
                content[name_of(DOWNLOAD, client)] = message_record(member.download, dim, member.precision)
                member.download = None
        starts = [len(self.members[client].labels) for client in places]
        walks = {CLIENTS: list(places), STARTS: starts, ENDS: list(places.values())}
        content[FACTS] = ConfigRecord({**self.settings.facts(), **walks})
        return Message(content, node, QUERY_WALK, ttl=_TTL)

    def _replies(self, messages: Sequence[Message]) -> list[Walk]:
        """Send messages and return the walks of all replies; the first failure ends the run."""
        missing = [identity for message in messages for identity in self.grid.push_messages([message])]
        walks: list[Walk] = []
        while missing:
            for reply in self.grid.pull_messages(missing):
                missing.remove(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    raise RuntimeError(f"node {reply.metadata.src_node_id}: {reply.error.reason}")
                walks += read_walks(reply.content, self.info.kind.Upload)
            time.sleep(_TICK)
        return walks

    def _find_members(self) -> list[Member]:
        """Share out the clients over the nodes that are there."""
        nodes, count = self._find_nodes(), len(self.federation)
        log.info("%s clients on %s", count, "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes")
        return [Member(nodes[client % len(nodes)]) for client in range(count)]

    def _find_nodes(self) -> list[int]:
        """Return the nodes as soon as their number grows no more: a simulation registers them while this runs."""
        end, nodes = time.monotonic() + _NODES_SECONDS, list[int]()
        while not nodes or len(nodes) < len(self.grid.get_node_ids()):
            if time.monotonic() > end:
                raise refuse("nodes", f"none in {_NODES_SECONDS:g} seconds", "a node or more: start a SuperNode first")
            nodes = sorted(self.grid.get_node_ids())
            time.sleep(_SETTLE)
        return nodes


def write_labels(path: Path, federation: Federation, outcome: Outcome) -> None:
    """Write the labels of every client as JSON, by its name."""
    pairs = zip(federation.clients, outcome.labels, strict=True)
    write_text(path, json.dumps({client.name: labels.tolist() for client, labels in pairs}) + "\n")
