"""A benchmark in step: clients are shared out over nodes; all upload, then all download.

The labels equal the simulator's, whatever the number of nodes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from ..core.privacy import Privacy, PrivateClient, without_noise
from ..core.sync import sync
from ..core.types import Collaborative, Rounding, Verifying
from ..data.federation import Federation, generators
from ..errors import refuse
from ..methods import create, create_exchange, describe
from ..methods.base import needed_views
from ..simulation.results import Outcome
from ..simulation.simulator import rounds
from ..wire.blocks import rounding_of
from ..wire.rows import LOSSLESS
from .records import DOWNLOAD, FACTS, UPLOAD, blocks_of, message_record, record_message, record_state, state_record
from .settings import BenchmarkSettings

log = logging.getLogger("flwr.latte")
QUERY_WALK = "query.walk"
_TICK = 0.05  # seconds between two looks at what has come
_SETTLE = 0.5  # seconds without another node, after which the nodes are those of the run
_NODES_SECONDS = 60.0  # to wait for the first node
_TTL = 3600.0  # seconds that a node has for the samples of its clients up to the next sync
LABELS, _MEMORY = "latte.labels", "latte.memory"
CLIENTS, STARTS, ENDS = "clients", "starts", "ends"  # of a message: its clients, and between which samples each walks


def name_of(record: str, client: int) -> str:
    """Return the name of a client's own record in a message.

    >>> name_of("latte.upload", 3)
    'latte.upload.3'
    """
    return f"{record}.{client}"


def walk(content: RecordDict, context: Context, privacy: Privacy | None = None) -> RecordDict:
    """Let the clients of a message receive their downloads and classify their samples; return their uploads.

    The message names the benchmark and the method. A walk that starts at the first sample starts with an empty memory.
    """
    facts = content[FACTS]
    settings = BenchmarkSettings.of(facts)
    federation = _federation(settings)
    zero_shot = federation.embeddings.zero_shot
    reply, vectors = RecordDict(), list[str]()
    kind = describe(settings.method).kind.Download
    for client, start, end in zip(facts[CLIENTS], facts[STARTS], facts[ENDS], strict=True):
        if not 0 <= client < len(federation):
            raise refuse("message: client", client, f"a whole number below {len(federation)}")
        method = _restore_method(settings, context, client, start, privacy)
        if (download := content.get(name_of(DOWNLOAD, client))) is not None:
            method.receive(record_message(download, kind, zero_shot.fingerprint))
        stream = federation.stream(federation.clients[client])[start:end]  # (n, V, D)
        labels = [method.predict(needed_views(method, views)).label for views in stream]
        upload = method.summary()
        context.state[name_of(_MEMORY, client)] = state_record(method.state())  # with the noise of the upload
        vectors = list(getattr(type(upload), "vector_fields", ()))
        reply[name_of(LABELS, client)] = ArrayRecord({"labels": Array(np.array(labels, np.int64))})
        reply[name_of(UPLOAD, client)] = message_record(upload, zero_shot.dim)
    reply[FACTS] = ConfigRecord({CLIENTS: facts[CLIENTS], "task": zero_shot.fingerprint, "vectors": vectors})
    return reply


@lru_cache(2)
def _federation(settings: BenchmarkSettings) -> Federation:
    return settings.federation()


def _restore_method(
    settings: BenchmarkSettings, context: Context, client: int, start: int, privacy: Privacy | None
) -> Any:
    method = create(settings.method, _federation(settings).embeddings.zero_shot, settings.params)
    if not isinstance(method, Collaborative):
        raise refuse("method", repr(settings.method), "one that collaborates")
    hides = privacy is not None and privacy.hides
    member = PrivateClient(method, privacy) if privacy is not None and hides else method
    if start:
        memory = context.state.get(name_of(_MEMORY, client))
        if memory is None:
            raise refuse(f"memory of client {client}", "none", "what it had learnt (has the node been restarted?)")
        arrays = record_state(memory)
        member.load(arrays if hides else without_noise(arrays))
    return member


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
        self._exchange, self.task = exchange, exchange.task
        self.pull, self.pull_many = exchange.pull, exchange.pull_many
        if not isinstance(exchange, Verifying):
            raise refuse("exchange", type(exchange).__name__, "one with prepare and store, as latte.BaseExchange has")
        self.rounding: dict[str, Rounding] = {}  # of the uploads of every client, on their way here

    def push(self, client: str, upload: Any) -> None:
        """Check and store an upload."""
        self._exchange.store(client, self._exchange.prepare(upload, self.rounding.get(client, 0.0)))


class Barrier:
    """A run over a benchmark."""

    def __init__(self, grid: Any, settings: BenchmarkSettings) -> None:
        self.grid, self.settings = grid, settings
        self.federation = settings.federation()
        self.info = describe(settings.method)
        names = [client.name for client in self.federation.clients]
        zero_shot = self.federation.embeddings.zero_shot
        self.exchange = CheckedExchange(create_exchange(settings.method, zero_shot, settings.params, clients=names))
        nodes = self._find_nodes()  # over which the clients are shared out
        log.info("%s clients on %s", len(names), "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes")
        self.members = [Member(nodes[client % len(nodes)]) for client in range(len(names))]

    def run(self) -> Outcome:
        """Walk through all streams and return the labels."""
        lengths = [len(client) for client in self.federation.clients]
        handled = [0] * len(lengths)
        schedule = self.settings.schedule.for_method(self.info.sync)
        for turn in rounds(lengths, schedule, generators(self.settings.seed).cohort):
            for i in turn.active:
                handled[i] += 1
            if turn.members:  # these walk to their places; then all upload, and all download
                self._walk({i: handled[i] for i in turn.members})
                clients = self.federation.clients
                members: list[tuple[str, Any]] = [(clients[i].name, self.members[i]) for i in turn.members]
                sync(members, self.exchange)
        self._walk(dict(enumerate(lengths)))
        return Outcome(tuple(np.array(member.labels, np.int64) for member in self.members))

    def _walk(self, places: Mapping[int, int]) -> None:
        """Let clients walk to their places, and store the labels and uploads that their nodes reply with."""
        by_node: dict[int, list[int]] = {}
        for client in places:
            by_node.setdefault(self.members[client].node, []).append(client)
        messages = [self._message(node, {i: places[i] for i in clients}) for node, clients in by_node.items()]
        for content in self._replies(messages):
            facts = content[FACTS]
            for client in facts[CLIENTS]:
                member, record = self.members[client], content[name_of(UPLOAD, client)]
                member.labels += record_state(content[name_of(LABELS, client)])["labels"].tolist()
                member.upload = record_message(record, self.info.kind.Upload, str(facts["task"]))
                member.precision = str(facts.get("precision", LOSSLESS))
                self.exchange.rounding[self.federation.clients[client].name] = rounding_of(blocks_of(record))

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

    def _replies(self, messages: Sequence[Message]) -> Iterator[Any]:
        """Send messages and yield all replies; the first failure ends the run."""
        missing = [identity for message in messages for identity in self.grid.push_messages([message])]
        while missing:
            for reply in self.grid.pull_messages(missing):
                missing.remove(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    raise RuntimeError(f"node {reply.metadata.src_node_id}: {reply.error.reason}")
                yield reply.content
            time.sleep(_TICK)

    def _find_nodes(self) -> list[int]:
        """Return the nodes as soon as their number grows no more: a simulation registers them while this runs."""
        end, nodes = time.monotonic() + _NODES_SECONDS, list[int]()
        while not nodes or len(nodes) < len(self.grid.get_node_ids()):
            if time.monotonic() > end:
                raise refuse("nodes", f"none in {_NODES_SECONDS:g} seconds", "a node or more: start a SuperNode first")
            nodes = sorted(self.grid.get_node_ids())
            time.sleep(_SETTLE)
        return nodes
