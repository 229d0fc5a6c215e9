"""A grid that calls the app of its nodes directly, in this process: for tests and measurements.

Messages and records are Flower's own. Flower gives a message its identity from the task of a process; here it is set by
hand. This is the only place that uses Flower's internals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity


class DirectGrid:
    """Nodes by number, each with its own configuration, and one ``app`` for all of them.

    A ``dead`` node gets messages and never replies; a node that is ``away`` is not listed. ``sent`` counts the bytes of
    the arrays in ``replies``.
    """

    def __init__(
        self, app: Any, nodes: Mapping[int, Mapping[str, Any]], run_config: Mapping[str, Any] | None = None
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        config = dict(run_config or {})
        self._contexts = {node: Context(1, node, dict(own), RecordDict(), config) for node, own in nodes.items()}
        self._app, self._numbers, self._replies = app, itertools.count(1), dict[str, Any]()
        self.dead, self.away = set[int](), set[int]()
        self.sent = self.replies = 0

    def get_node_ids(self) -> list[int]:
        """Return the nodes that are there."""
        return [node for node in self._contexts if node not in self.away]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let the app handle messages; return their identities."""
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        identity = str(next(self._numbers))
        message.metadata.__dict__["_message_id"] = identity
        node = message.metadata.dst_node_id
        if node not in self.dead:
            reply = self._app(message, self._contexts[node])
            reply.metadata.__dict__["_src_node_id"] = node
            records = reply.content.array_records.values() if reply.has_content() else ()
            self.sent += sum(len(array.data) for record in records for array in record.values())
            self._replies[identity] = reply
            self.replies += 1
        return identity

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have come, each once."""
        return [self._replies.pop(identity) for identity in list(message_ids) if identity in self._replies]
