"""Everything that crosses machines: the task that clients share, and messages in typed msgpack around raw arrays.

``rows`` are embeddings as bytes, in five precisions; ``blocks`` messages of any method, whole or without what the
receiver has; ``messages`` requests and replies; ``task`` the task as a file. They need msgspec:
``pip install ".[http]"``.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .messages import DeviceReport, SyncReply, SyncRequest
    from .rows import PRECISIONS
    from .task import Task, read_task, write_task

__all__ = ["PRECISIONS", "DeviceReport", "SyncReply", "SyncRequest", "Task", "read_task", "write_task"]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
