"""What crosses machines: the task that clients share, and messages in typed msgpack around raw arrays.

=================== ==================================================================================
module              contents
=================== ==================================================================================
``rows``            embeddings as bytes, in five precisions
``rotation``        the rotation of rows before they are rounded to whole numbers
``hashes``          short numbers that stand for rows
``array_blocks``    messages of any method as blocks, whole or without what the receiver has
``many_blocks``     the blocks of many clients, decoded and encoded together
``expected_arrays`` the arrays that a receiver expects
``messages``        requests and replies
``task_file``       the task, as a file
``versions``        which versions of the protocol are spoken
=================== ==================================================================================

``array_blocks`` and ``messages`` need msgspec: ``pip install ".[http]"``.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .messages import DeviceReport, SyncReply, SyncRequest
    from .rows import PRECISIONS
    from .task_file import Task, read_task, write_task

_HOMES = {
    ".messages": ("DeviceReport", "SyncReply", "SyncRequest"),
    ".rows": ("PRECISIONS",),
    ".task_file": ("Task", "read_task", "write_task"),
}

__all__ = ["PRECISIONS", "DeviceReport", "SyncReply", "SyncRequest", "Task", "read_task", "write_task"]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
