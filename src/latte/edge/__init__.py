"""One device: pictures to labels with a memory that adapts, and the file that preserves it between runs.

=============== ==================================================================================
module          contents
=============== ==================================================================================
``alone``       a device without others: it syncs with itself
``classify``    from pictures to ``Answer``
``memory_file`` the memory of a method in a file
``learning``    such a file, kept up to date while pictures are classified
=============== ==================================================================================

Nothing here knows of datasets or experiments.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .alone import Alone, create_alone
    from .classify import Answer, classify_pictures, find_pictures
    from .learning import Learning, locked_memory
    from .memory_file import load_memory, save_memory

_HOMES = {
    ".alone": ("Alone", "create_alone"),
    ".classify": ("Answer", "classify_pictures", "find_pictures"),
    ".learning": ("Learning", "locked_memory"),
    ".memory_file": ("load_memory", "save_memory"),
}

__all__ = [
    "Alone",
    "Answer",
    "Learning",
    "classify_pictures",
    "create_alone",
    "find_pictures",
    "load_memory",
    "locked_memory",
    "save_memory",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
