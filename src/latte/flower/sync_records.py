"""One sync with a node as Flower's records: what the server asks and answers, what the node replies.

========================= ============================================================================
record                    contents
========================= ============================================================================
``latte`` (config)        the fingerprint of the task, versions, the code of a problem
``latte.download`` (arrays) what the node gets from the others
``latte.upload`` (arrays) what the node has learnt
``latte.report`` (metrics) the report of the node
========================= ============================================================================

Records from another machine are checked here: a field of another type is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from ..edge.exchange_folder import FolderAnswer
from ..errors import refuse
from ..wire.array_blocks import Block
from ..wire.messages import NO_VERSION, DeviceReport
from .message_records import blocks_of, record_of

FACTS, UPLOAD, DOWNLOAD, REPORT, PRIVACY = "latte", "latte.upload", "latte.download", "latte.report", "latte.privacy"
_LONGEST = 1024  # characters of a text from another machine
_LARGEST = 2**63 - 1
_NUMBERS = tuple(name for name in DeviceReport.__struct_fields__ if name != "software")

T = TypeVar("T", str, int, float, bytes)


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """What the server sends: ``stored`` is the version of the node's upload that it has.

    ``answer`` is the answer to an earlier upload. ``task_file`` is sent if the node had no task. The node may hold the
    query for ``park`` seconds until it has an upload.
    """

    task: str
    stored: int = NO_VERSION
    park: float = 0.0
    answer: FolderAnswer | None = None
    task_file: bytes = b""


@dataclass(frozen=True, slots=True)
class NodeReply:
    """What a node replies: its upload, if it has a new one, and ``received``, the version of the last answer it has.

    ``task`` is empty if the node has none. ``problem`` is what is wrong on the node. ``vectors`` names the arrays of
    embeddings, for mods.
    """

    task: str
    received: int = NO_VERSION
    version: int = NO_VERSION
    key: bytes = b""
    upload: tuple[Block, ...] | None = None
    vectors: tuple[str, ...] = ()
    precision: str = "exact"
    problem: str = ""
    report: DeviceReport = field(default_factory=DeviceReport)


# --- queries ------------------------------------------------------------------------------------------------


def query_content(query: NodeQuery) -> RecordDict:
    """Return a query as records."""
    facts: dict[str, str | int | float | bytes] = {"task": query.task, "stored": query.stored, "park": query.park}
    content = RecordDict()
    if query.task_file:
        facts["task-file"] = query.task_file
    if query.answer is not None:
        answer = query.answer
        facts |= {"answered": answer.version, "code": answer.code, "detail": answer.detail, "refused": answer.stored}
        if answer.download is not None:
            content[DOWNLOAD] = record_of(answer.download)
    content[FACTS] = ConfigRecord(facts)
    return content


def read_query(content: RecordDict) -> NodeQuery:
    """Return the query in records; anything else is refused."""
    facts = _facts(content)
    task, answered = _fact(facts, "task", ""), _number(facts, "answered")
    answer = None
    if answered != NO_VERSION:
        download = blocks_of(content[DOWNLOAD]) if isinstance(content.get(DOWNLOAD), ArrayRecord) else None
        code, detail = _fact(facts, "code", ""), _fact(facts, "detail", "")
        answer = FolderAnswer(task, answered, download, code, detail, _number(facts, "refused"))
    park, task_file = _fact(facts, "park", 0.0), _fact(facts, "task-file", b"", most=1 << 30)
    return NodeQuery(task, _number(facts, "stored"), park, answer, task_file)


# --- replies ------------------------------------------------------------------------------------------------


def reply_content(reply: NodeReply) -> RecordDict:
    """Return a reply as records."""
    facts: dict[str, str | int | bytes | list[str]] = {
        "task": reply.task,
        "received": reply.received,
        "precision": reply.precision,
        "problem": reply.problem,
    }
    content = RecordDict({REPORT: _metrics(reply.report)})
    if reply.upload is not None:
        facts |= {"version": reply.version, "key": reply.key, "vectors": list(reply.vectors)}
        content[UPLOAD] = record_of(reply.upload)
    content[FACTS] = ConfigRecord(facts)
    return content


def read_reply(content: RecordDict) -> NodeReply:
    """Return the reply in records; anything else is refused."""
    facts = _facts(content)
    upload = content.get(UPLOAD)
    if upload is not None and not isinstance(upload, ArrayRecord):
        raise refuse(UPLOAD, type(upload).__name__, "arrays")
    return NodeReply(
        task=_fact(facts, "task", ""),
        received=_number(facts, "received"),
        version=_number(facts, "version"),
        key=_fact(facts, "key", b"", most=64),
        upload=None if upload is None else blocks_of(upload),
        precision=_fact(facts, "precision", "exact"),
        problem=_fact(facts, "problem", ""),
        report=_report(content),
    )


def _metrics(report: DeviceReport) -> MetricRecord:
    """Return the numbers of a report; a metric cannot be unset, so those that are get no place."""
    values = {name: getattr(report, name) for name in _NUMBERS}
    return MetricRecord({name: value for name, value in values.items() if value is not msgspec.UNSET})


def _report(content: RecordDict) -> DeviceReport:
    """Return the report of a node; an empty report if it is missing or not valid. Nothing depends on it."""
    metrics = content.get(REPORT)
    if not isinstance(metrics, MetricRecord):
        return DeviceReport()
    try:
        return msgspec.convert({name: metrics[name] for name in _NUMBERS if name in metrics}, DeviceReport)
    except msgspec.ValidationError:
        return DeviceReport()


# --- fields -------------------------------------------------------------------------------------------------


def _facts(content: RecordDict) -> ConfigRecord:
    facts = content.get(FACTS)
    if not isinstance(facts, ConfigRecord):
        raise refuse("message", f"the records {', '.join(map(str, content))[:200] or 'none'}", f"{FACTS!r} among them")
    return facts


def _fact(facts: ConfigRecord, name: str, default: T, most: int = _LONGEST) -> T:
    """Return a field, or its default if it is missing; a field of another type, or a too long one, is refused."""
    value = facts.get(name, default)
    if type(value) is int and isinstance(default, float):
        value = float(value)
    if type(value) is not type(default):
        raise refuse(f"message: {name}", type(value).__name__, type(default).__name__)
    if isinstance(value, (str, bytes)) and len(value) > most:
        raise refuse(f"message: {name}", f"a length of {len(value):,}", f"at most {most:,}")
    return value


def _number(facts: ConfigRecord, name: str) -> int:
    value = _fact(facts, name, NO_VERSION)
    if not 0 <= value <= _LARGEST:
        raise refuse(f"message: {name}", value, "a version: 0 or more")
    return value
