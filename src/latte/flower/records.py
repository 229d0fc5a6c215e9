"""Messages of any method as Flower's records, and back.

An array of a message becomes an ``Array`` of an ``ArrayRecord``, under the name of its field. At full precision it is a
plain numpy array, which any program of Flower can read; in another precision its ``stype`` is ``latte.`` and the coding
of :mod:`latte.wire.blocks`, its ``data`` are those bytes. Both are checked against their own lengths before
memory is taken, and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Annotated, Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from ..core.types import Arrays, Message
from ..edge.clients.folder import FolderAnswer
from ..errors import refuse
from ..files.arrays import read_npy_header
from ..files.documents import structure
from ..wire.blocks import AtMost, Block, array_of, complete, decode, encode, number_block
from ..wire.messages import NO_VERSION, DeviceReport, Key, Version
from ..wire.rows import LOSSLESS

NUMPY = "numpy.ndarray"  # the stype of a plain array
CODED = "latte."  # what the stype of a coded array begins with
MOST_BYTES = 1 << 30  # of one array
FACTS, UPLOAD, DOWNLOAD, REPORT, PRIVACY = "latte", "latte.upload", "latte.download", "latte.report", "latte.privacy"
_NUMBERS = tuple(name for name in DeviceReport.__struct_fields__ if name != "software")

Text = Annotated[str, msgspec.Meta(max_length=1024)]  # from another machine


def record_of(blocks: Sequence[Block]) -> ArrayRecord:
    """Return blocks without left-out rows as a record: numpy arrays if nothing was rounded, coded arrays otherwise."""
    arrays = {}
    for block in complete(blocks, AtMost(MOST_BYTES), {}):  # rows of zeros come back
        plain = block.coding in (LOSSLESS, "raw", "bits")
        coded = block.dtype, block.shape, CODED + block.coding, bytes(block.data)
        arrays[block.name] = Array(array_of(block)) if plain else Array(*coded)
    return ArrayRecord(arrays)


def blocks_of(record: ArrayRecord) -> tuple[Block, ...]:
    """Return the arrays of a record as complete blocks."""
    blocks = []
    for name, array in record.items():
        stype, shape = str(array.stype), tuple(int(length) for length in array.shape)
        if stype == NUMPY:
            blocks.append(number_block(name, array_of_bytes(name, array.data), LOSSLESS))
        elif stype.startswith(CODED):
            blocks.append(Block(name, str(array.dtype), shape, stype.removeprefix(CODED), array.data))
        else:
            raise refuse(f"array {name[:80]!r}", f"stype {stype[:40]!r}", f"{NUMPY!r}, or {CODED!r} and a precision")
    return tuple(blocks)


def array_of_bytes(name: str, data: bytes) -> NDArray[Any]:
    """Return the array in the bytes of a .npy file, which its header has to describe exactly."""
    header = read_npy_header(BytesIO(data), f"array {name[:80]!r}")
    if header.nbytes != len(data) - header.offset or header.dtype.kind not in "fiub":
        raise refuse(f"array {name[:80]!r}", f"{len(data):,} bytes", f"numbers of shape {header.shape}")
    return header.arrange(np.frombuffer(data, header.dtype, offset=header.offset))


def message_record(message: Message, dim: int, precision: str = LOSSLESS) -> ArrayRecord:
    """Return a message as a record; ``dim`` is that of the embeddings."""
    return record_of(encode(message, precision, dim))


def record_message(record: ArrayRecord, kind: type[Any], task: str) -> Any:
    """Return the message of ``kind`` in a record, for the classifier with the fingerprint ``task``."""
    return decode(complete(blocks_of(record), AtMost(MOST_BYTES), {}), kind, task)


def state_record(arrays: Arrays) -> ArrayRecord:
    """Return the state of a method as a record."""
    return ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in arrays.items()})


def record_state(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the state of a method in a record."""
    return {name: array_of_bytes(name, array.data).copy() for name, array in record.items()}


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


class QueryFacts(msgspec.Struct, rename="kebab"):
    """A query without its arrays: ``answered`` is the version of the upload that is answered, if one is."""

    task: Text
    stored: Version = NO_VERSION
    park: float = 0.0
    task_file: bytes = b""
    answered: Version = NO_VERSION
    code: Text = ""
    detail: Text = ""
    refused: Version = NO_VERSION


@dataclass(frozen=True, slots=True)
class NodeReply:
    """What a node replies: its upload, if it has a new one, and ``received``, the version of the last answer it has.

    ``task`` is empty if the node has none. ``problem`` is what is wrong on the node. ``vectors`` names the arrays of
    embeddings, for mods.
    """

    task: Text
    received: Version = NO_VERSION
    version: Version = NO_VERSION
    key: Key = b""
    upload: tuple[Block, ...] | None = None
    vectors: tuple[str, ...] = ()
    precision: Text = "exact"
    problem: Text = ""
    report: DeviceReport = field(default_factory=DeviceReport)


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
    facts, answer = structure(_facts(content), QueryFacts, "message", extra=True), None
    if facts.answered != NO_VERSION:
        download = blocks_of(content[DOWNLOAD]) if isinstance(content.get(DOWNLOAD), ArrayRecord) else None
        answer = FolderAnswer(facts.task, facts.answered, download, facts.code, facts.detail, facts.refused)
    return NodeQuery(facts.task, facts.stored, facts.park, answer, facts.task_file)


def reply_content(reply: NodeReply) -> RecordDict:
    """Return a reply as records."""
    facts: dict[str, str | int | bytes | list[str]] = {
        "task": reply.task,
        "received": reply.received,
        "precision": reply.precision,
        "problem": reply.problem,
    }
    numbers = {name: getattr(reply.report, name) for name in _NUMBERS}  # a metric cannot be unset: it gets no place
    numbers = {name: value for name, value in numbers.items() if value is not msgspec.UNSET}
    content = RecordDict({REPORT: MetricRecord(numbers)})
    if reply.upload is not None:
        facts |= {"version": reply.version, "key": reply.key, "vectors": list(reply.vectors)}
        content[UPLOAD] = record_of(reply.upload)
    content[FACTS] = ConfigRecord(facts)
    return content


def read_reply(content: RecordDict) -> NodeReply:
    """Return the reply in records; anything else is refused, but for a report, on which nothing depends."""
    reply, upload = structure(_facts(content), NodeReply, "message", extra=True), content.get(UPLOAD)
    if upload is not None and not isinstance(upload, ArrayRecord):
        raise refuse(UPLOAD, type(upload).__name__, "arrays")
    metrics, report = content.get(REPORT), DeviceReport()
    if isinstance(metrics, MetricRecord):
        with suppress(msgspec.ValidationError):
            report = msgspec.convert({name: metrics[name] for name in _NUMBERS if name in metrics}, DeviceReport)
    return replace(reply, upload=None if upload is None else blocks_of(upload), report=report)


def _facts(content: RecordDict) -> dict[str, Any]:
    facts = content.get(FACTS)
    if not isinstance(facts, ConfigRecord):
        raise refuse("message", f"the records {', '.join(map(str, content))[:200] or 'none'}", f"{FACTS!r} among them")
    return dict(facts)
