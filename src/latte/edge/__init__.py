"""One device: from pictures to labels, alone (``classify``) or as a member of a fleet (``device``, ``clients``).

``joining`` gets task and name from a server. Nothing here knows of datasets or experiments.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .classify.classify import (
        Answer,
        classify_pictures,
        create_alone,
        fill_of,
        find_pictures,
        load_memory,
        save_memory,
    )

__all__ = [
    "Answer",
    "classify_pictures",
    "create_alone",
    "fill_of",
    "find_pictures",
    "load_memory",
    "save_memory",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
