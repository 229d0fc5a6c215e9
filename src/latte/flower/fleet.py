"""The server of a fleet whose nodes decide when to sync.

In Flower the server speaks first, and a node has one message at a time. So every node always has a query: it holds the
query for a short time, until its device has something new, and replies; the answer comes with the next query. A reply
always says which answer the node has, and a query says which upload the server has. So a message that was lost is
repeated, and the versions of uploads make a repetition harmless.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import ServerApp

from ..core.types import TeachingRights
from ..core.validate import choice
from ..edge.clients.folder import FolderAnswer, look_for
from ..errors import InputError
from ..files.atomic import is_locked, write_text
from ..server.hub.check import mended_hub
from ..server.hub.hub import Hub
from ..server.store.sqlite import STORE_FILE
from ..wire.messages import NO_VERSION, Problem, SyncReply, SyncRequest
from ..wire.task import read_task
from .benchmark import Barrier
from .records import NodeQuery, NodeReply, query_content, read_reply
from .settings import BENCHMARK, FLEET, FULL, BenchmarkSettings, FleetSettings, setting

log = logging.getLogger("flwr.latte")
STORE_SECONDS = 120.0  # to wait until another run has released the store
TICK = 0.2  # seconds between two looks at what has come
QUERY_SYNC = "query.sync"
_SLACK = 60.0  # seconds beyond the parking time after which a query counts as lost
_LATER = ("store_full", "store_unavailable")  # problems of the server: the node sends the same again


@dataclass(slots=True)
class Node:
    """A node as the server sees it.

    - ``query``: the message that brought the query it holds, which counts as lost ``until`` then; empty if it has none
    - ``answer``: to its upload, for the next query
    - ``complaint``: what was last wrong with it
    - ``not_before``: a time before which it gets no query, because it replied at once that something is wrong
    """

    query: str = ""
    until: float = 0.0
    answer: FolderAnswer | None = None
    without_task: bool = False
    complaint: str = ""
    not_before: float = 0.0


class Fleet:
    """The nodes of a run, and the next message to each. One thread uses it."""

    def __init__(self, grid: Any, hub: Hub, settings: FleetSettings) -> None:
        self.grid, self.hub, self.settings = grid, hub, settings
        self._nodes: defaultdict[int, Node] = defaultdict(Node)
        self._present: set[int] = set()

    def run(self) -> None:
        """Serve until the time of the run is over."""
        end = time.monotonic() + self.settings.seconds if self.settings.seconds else float("inf")
        while time.monotonic() < end:
            self.step()
            time.sleep(TICK)

    def step(self) -> None:
        """Handle the replies that have come, and send a query to every node without one."""
        present = set(self.grid.get_node_ids())
        for node in sorted(present - self._present):
            log.info("node %s is there; %s", node, self._stored_text(node))
            self._nodes[node].without_task |= self._stored(node) == NO_VERSION
        for node in sorted(self._present - present):
            log.info("node %s has left; %s", node, self._stored_text(node))
            self._nodes[node].query = ""  # it is lost with the node
        self._present = present
        self._take_replies()
        self._forget_stale()
        park, task = self.settings.park_seconds, self.hub.task
        for number in sorted(self._present):
            node = self._nodes[number]
            if node.query or time.monotonic() < node.not_before:
                continue
            task_file = task.to_bytes() if node.without_task else b""
            query = NodeQuery(task.fingerprint, self._stored(number), park, node.answer, task_file)
            message = Message(query_content(query), number, QUERY_SYNC, ttl=park + _SLACK)
            for identity in self.grid.push_messages([message]):
                node.query, node.until = identity, time.monotonic() + park + _SLACK

    # --- what is stored of nodes ------------------------------------------------------------------------------

    def _forget_stale(self) -> None:
        """Remove the uploads of nodes that left long ago."""
        if not self.settings.stale_hours:
            return
        there = {str(node) for node in self._present}
        for client in list(self.hub.updated):
            hours = self._hours_old(client)
            if client not in there and hours > self.settings.stale_hours:
                self.hub.forget(client)
                log.warning("node %s has left, its last upload is %.1f hours old: it is forgotten", client, hours)

    def _hours_old(self, client: str) -> float:
        return (time.time() - self.hub.updated[client]) / 3600

    def _stored(self, node: int) -> int:
        return self.hub.versions.get(str(node), NO_VERSION)

    def _stored_text(self, node: int) -> str:
        version = self._stored(node)
        if version == NO_VERSION:
            return "nothing of it is stored"
        return f"version {version} of its uploads is stored, {self._hours_old(str(node)):.1f} hours old"

    # --- replies --------------------------------------------------------------------------------------------

    def _take_replies(self) -> None:
        """Answer all replies that came together, in one batch."""
        open_messages = {node.query: number for number, node in self._nodes.items() if node.query}
        due: list[tuple[int, SyncRequest]] = []
        for number, reply in self._readable(self.grid.pull_messages(list(open_messages)), open_messages):
            self._nodes[number].answer, self._nodes[number].without_task = None, not reply.task
            if reply.problem:
                self._complain(number, f"problem on the node: {reply.problem}")
            if (request := self._request(number, reply)) is not None:
                due.append((number, request))
        answers = self.hub.run([request for _, request in due]) if due else []
        for (number, request), answer in zip(due, answers, strict=True):
            self._answer(number, request, answer)
        for node in self._nodes.values():
            if node.query and time.monotonic() > node.until:  # its node was killed: ask again
                node.query = ""

    def _readable(self, messages: Iterable[Message], nodes: Mapping[str, int]) -> Iterator[tuple[int, NodeReply]]:
        """Yield the replies by node; an unreadable reply goes to the log, and its node gets another query later."""
        for message in messages:
            number = nodes[message.metadata.reply_to_message_id]
            self._nodes[number].query = ""
            if message.has_error():
                self._complain(number, f"error {message.error.code}: {str(message.error.reason)[:300]}")
                continue
            try:
                yield number, read_reply(message.content)
            except InputError as error:
                self._complain(number, f"bad_message: {error}")

    def _request(self, node: int, reply: NodeReply) -> SyncRequest | None:
        """Return the request of a reply to the hub: with an upload, or only for an answer that the node lacks."""
        if not reply.task or (reply.problem and reply.upload is None):
            return None
        other_task = reply.task != self.hub.task.fingerprint
        if reply.upload is None and not other_task and reply.received >= self._stored(node):
            return None
        return SyncRequest(
            task=reply.task,
            client=str(node),
            version=reply.version,
            key=reply.key,
            upload=reply.upload,
            precision=reply.precision,
            report=reply.report,
        )

    def _answer(self, number: int, request: SyncRequest, answer: SyncReply | Problem) -> None:
        task, node = self.hub.task.fingerprint, self._nodes[number]
        if isinstance(answer, SyncReply):
            node.complaint, node.answer = "", FolderAnswer(task, answer.version, answer.download)
            log.debug("node %s: version %s is stored", number, answer.version)
            return
        self._complain(number, f"refused: {answer}", pause=request.upload is None)
        if request.upload is not None and answer.code not in _LATER:
            stored = int(answer.more.get("stored_version", NO_VERSION))
            node.answer = FolderAnswer(task, request.version, None, answer.code, answer.detail, stored)

    def _complain(self, number: int, what: str, pause: bool = True) -> None:
        """Write to the log what is wrong with a node, once; with ``pause``, send it no query for a while.

        The pause is as long as a healthy node holds a query.
        """
        node = self._nodes[number]
        if node.complaint != what:
            node.complaint = what
            log.warning("node %s: %s", number, what)
        if pause:
            node.not_before = time.monotonic() + self.settings.park_seconds


def make_server_app() -> ServerApp:
    """Return a ServerApp."""
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Context) -> None:
        mode = setting(context.run_config, "mode", FLEET)
        choice("run-config: mode", mode, (FLEET, BENCHMARK))
        if mode == BENCHMARK:
            run_benchmark(grid, BenchmarkSettings.of(context.run_config))
        else:
            run_fleet(grid, FleetSettings.of(context.run_config))

    return app


def run_fleet(grid: Any, settings: FleetSettings) -> None:
    """Serve a fleet; uploads that an earlier run stored are used again."""
    state = Path(settings.state)
    lock = state / f"{STORE_FILE}.lock"
    if is_locked(lock):  # if a SuperLink is killed, the app of its run goes on for a while
        log.warning("another run still has %s: waiting until it has ended", state)
        look_for(lambda: None if is_locked(lock) else True, STORE_SECONDS)
    hub = mended_hub(read_task(Path(settings.task)), state)
    if settings.labels == FULL:
        hub.grant(TeachingRights())
    with closing(hub.store):
        hours = (time.time() - min(hub.updated.values(), default=time.time())) / 3600
        log.info("%r: the uploads of %s nodes are restored, up to %.1f hours old", hub.task, len(hub), hours)
        Fleet(grid, hub, settings).run()


def run_benchmark(grid: Any, settings: BenchmarkSettings) -> None:
    """Walk through a benchmark in step, and log the accuracy of the labels."""
    barrier = Barrier(grid, settings)
    outcome = barrier.run()
    accuracy = 100 * float(np.concatenate(outcome.correct(barrier.federation)).mean())
    log.info("%s on %s: accuracy %.2f %%", settings.method, settings.benchmark, accuracy)
    if settings.out:
        pairs = zip(barrier.federation.clients, outcome.labels, strict=True)
        write_text(Path(settings.out), json.dumps({client.name: labels.tolist() for client, labels in pairs}) + "\n")


app = make_server_app()
