"""What a server of a federation does with requests, whatever carries them: check, store, exchange, answer.

================== ================================================================================
module             contents
================== ================================================================================
``hub``            one task, its exchange and its store; answers a batch of requests
``upload_reader``  what is read from an upload before it is stored, and the checks
``downloads``      the answers to all syncs of a batch
``problems``       what is refused, and how that is said
``upload_records`` the interface of a store, and what it stores
``sqlite_store``   the embedded store
``upload_check``   whether stored uploads can be used; a hub without damaged uploads
``stopwatch``      what processor time was spent on
================== ================================================================================

The service (``latte.serve``) and the Flower app (``latte.flower``) use it. It needs msgspec: ``pip install ".[http]"``.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .hub import Hub, Limits
    from .problems import Problem
    from .sqlite_store import SqliteStore
    from .upload_check import mended_hub

_HOMES = {
    ".hub": ("Hub", "Limits"),
    ".problems": ("Problem",),
    ".sqlite_store": ("SqliteStore",),
    ".upload_check": ("mended_hub",),
}

__all__ = ["Hub", "Limits", "Problem", "SqliteStore", "mended_hub"]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
