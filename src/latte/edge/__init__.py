"""One device: from pictures to labels with a memory that adapts, and the file that preserves it between runs.

=================== ==================================================================================
module              contents
=================== ==================================================================================
``alone``           a device without others: it leaves near copies out of its memory, and syncs with itself
``classify``        from pictures to ``Answer``
``tally``           counters of a session
``evidence``        whether adapting helped: agreement and entropy over time, accuracies with intervals
``label_file``      labels that somebody gave
``answer_file``     a CSV file with a row per answer
``memory_file``     the memory of a method in a file
``learning``        such a file, kept up to date while pictures are classified
``device``          a member of a fleet: pictures in, answers out, syncs in between; ``encoded_pictures`` are a group
``device_record``   what a device has done; ``device_file`` is the file, for every program that reads it
``group_commits``   its transactions, written by a thread
``self_report``     what a device says of itself, here and to its server
``device_summary``  that file in short; ``answer_log`` is a file of JSON lines that follows it
``feeds``           where pictures come from: files; ``watch_folder`` for a folder, ``latest_frames`` for a camera
``handover``        from the thread that reads pictures to the one that classifies them
``joining``         task and name from the server, and the way to sync
``background_sync`` syncs that nobody waits for; ``sync_times`` says when
``http_exchange``   the exchange of a federation over HTTP; ``http_calls`` are the calls of the server's routes
``folder_exchange`` the same through a folder in which a Flower node carries messages: ``exchange_folder``
``make_task``       what the clients of a federation share
=================== ==================================================================================

Nothing here knows of datasets or experiments.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .alone import Alone, create_alone, fill_of
    from .answer_file import AnswerFile, locked_answers
    from .classify import Answer, classify_pictures, find_pictures
    from .learning import Learning, locked_memory
    from .memory_file import load_memory, save_memory
    from .tally import SessionCounts, Tally

_HOMES = {
    ".alone": ("Alone", "create_alone", "fill_of"),
    ".answer_file": ("AnswerFile", "locked_answers"),
    ".classify": ("Answer", "classify_pictures", "find_pictures"),
    ".learning": ("Learning", "locked_memory"),
    ".memory_file": ("load_memory", "save_memory"),
    ".tally": ("SessionCounts", "Tally"),
}

__all__ = [
    "Alone",
    "Answer",
    "AnswerFile",
    "Learning",
    "SessionCounts",
    "Tally",
    "classify_pictures",
    "create_alone",
    "fill_of",
    "find_pictures",
    "load_memory",
    "locked_answers",
    "locked_memory",
    "save_memory",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
