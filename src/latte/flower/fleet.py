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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import ServerApp

from ..core.types import TeachingRights
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
from .settings import BENCHMARK, FULL, BenchmarkSettings, FleetSettings, mode_of

log = logging.getLogger("flwr.latte")
STORE_SECONDS = 120.0  # to wait until another run has released the store
TICK = 0.2  # seconds between two looks at what has come
QUERY_SYNC = "query.sync"
_SLACK = 60.0  # seconds beyond the parking time after which a query counts as lost
_LATER = ("store_full", "store_unavailable")  # problems of the server: the node sends the same again


class Fleet:
    """The nodes of a run, and the next message to each. One thread uses it."""

    def __init__(self, grid: Any, hub: Hub, settings: FleetSettings) -> None:
        self.grid, self.hub, self.settings = grid, hub, settings
        # by node, the message that brought the query it holds, and the time at which that counts as lost
        self._waiting: dict[int, tuple[str, float]] = {}
        self._answers: dict[int, FolderAnswer] = {}
        self._without_task: set[int] = set()
        self._complaints: dict[int, str] = {}
        self._present: set[int] = set()
        self._not_before: dict[int, float] = {}  # nodes that reply at once because something is wrong with them

    def run(self) -> None:
        """Serve until the time of the run is over."""
        end = time.monotonic() + self.settings.seconds if self.settings.seconds else float("inf")
        while time.monotonic() < end:
            self.step()
            time.sleep(TICK)

    def step(self) -> None:
        """Handle the replies that have come, and send a query to every node without one."""
        self._note_present(set(self.grid.get_node_ids()))
        self._take_replies()
        self._forget_stale()
        now = time.monotonic()
        free = [node for node in sorted(self._present) if node not in self._waiting]
        self._ask([node for node in free if now >= self._not_before.get(node, now)])

    # --- the nodes ------------------------------------------------------------------------------------------

    def _note_present(self, nodes: set[int]) -> None:
        for node in sorted(nodes - self._present):
            log.info("node %s is there; %s", node, self._stored_text(node))
            if self._stored(node) == NO_VERSION:
                self._without_task.add(node)
        for node in sorted(self._present - nodes):
            log.info("node %s has left; %s", node, self._stored_text(node))
            self._waiting.pop(node, None)  # with the node its query is lost
        self._present = nodes

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
        now = time.monotonic()
        open_messages = {message: node for node, (message, _) in self._waiting.items()}
        replies = dict(self._readable(self.grid.pull_messages(list(open_messages)), open_messages))
        for node, reply in replies.items():
            self._answers.pop(node, None)
            self._without_task.discard(node)
            if not reply.task:
                self._without_task.add(node)
            if reply.problem:
                self._complain(node, f"problem on the node: {reply.problem}")
                self._pause(node)
        due = [(node, request) for node, reply in replies.items() if (request := self._request(node, reply))]
        answers = self.hub.run([request for _, request in due]) if due else []
        for (node, request), answer in zip(due, answers, strict=True):
            self._answer(node, request, answer)
        for node, (_, until) in list(self._waiting.items()):
            if now > until:  # its node was killed: ask again
                del self._waiting[node]

    def _readable(self, messages: Iterable[Message], nodes: Mapping[str, int]) -> Iterator[tuple[int, NodeReply]]:
        """Yield the replies by node; an unreadable reply goes to the log, and its node gets another query later."""
        for message in messages:
            node = nodes[message.metadata.reply_to_message_id]
            self._waiting.pop(node, None)
            if message.has_error():
                self._complain(node, f"error {message.error.code}: {str(message.error.reason)[:300]}")
                self._pause(node)
                continue
            try:
                yield node, read_reply(message.content)
            except InputError as error:
                self._complain(node, f"bad_message: {error}")
                self._pause(node)

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

    def _answer(self, node: int, request: SyncRequest, answer: SyncReply | Problem) -> None:
        task = self.hub.task.fingerprint
        if isinstance(answer, SyncReply):
            self._complaints.pop(node, None)
            self._answers[node] = FolderAnswer(task, answer.version, answer.download)
            log.debug("node %s: version %s is stored", node, answer.version)
            return
        self._complain(node, f"refused: {answer}")
        if request.upload is None:
            self._pause(node)
        elif answer.code not in _LATER:
            stored = int(answer.more.get("stored_version", NO_VERSION))
            self._answers[node] = FolderAnswer(task, request.version, None, answer.code, answer.detail, stored)

    def _complain(self, node: int, what: str) -> None:
        """Write to the log what is wrong with a node, once."""
        if self._complaints.get(node) != what:
            self._complaints[node] = what
            log.warning("node %s: %s", node, what)

    def _pause(self, node: int) -> None:
        """Send no query to a node for a while: it replied at once, because something is wrong with it.

        The pause is as long as a healthy node holds a query.
        """
        self._not_before[node] = time.monotonic() + self.settings.park_seconds

    # --- queries --------------------------------------------------------------------------------------------

    def _ask(self, nodes: Sequence[int]) -> None:
        """Send a query to each of the nodes."""
        park, task = self.settings.park_seconds, self.hub.task
        until = time.monotonic() + park + _SLACK
        for node in nodes:
            task_file = task.to_bytes() if node in self._without_task else b""
            query = NodeQuery(task.fingerprint, self._stored(node), park, self._answers.get(node), task_file)
            message = Message(query_content(query), node, QUERY_SYNC, ttl=park + _SLACK)
            for identity in self.grid.push_messages([message]):
                self._waiting[node] = identity, until


def make_server_app() -> ServerApp:
    """Return a ServerApp."""
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Context) -> None:
        if mode_of(context.run_config) == BENCHMARK:
            run_benchmark(grid, BenchmarkSettings.of(context.run_config))
        else:
            run_fleet(grid, FleetSettings.of(context.run_config))

    return app


def run_fleet(grid: Any, settings: FleetSettings) -> None:
    """Serve a fleet; uploads that an earlier run stored are used again."""
    lock = settings.state / f"{STORE_FILE}.lock"
    if is_locked(lock):  # if a SuperLink is killed, the app of its run goes on for a while
        log.warning("another run still has %s: waiting until it has ended", settings.state)
        look_for(lambda: None if is_locked(lock) else True, STORE_SECONDS)
    hub = mended_hub(read_task(settings.task), settings.state)
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
