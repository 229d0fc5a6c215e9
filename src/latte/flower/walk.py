"""A node of a benchmark: its clients walk through their streams, as far as the server says; it replies with uploads.

A message names the clients of its node, and the reply has those of all of them: a node handles several messages at the
same time, and each would overwrite what another has stored. Memories are in the node's ``Context``, because any process
may handle the next message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from ..core.contracts import Collaborative
from ..core.predict_many import needed_views
from ..core.privacy import Privacy
from ..core.private_client import PrivateClient, without_noise
from ..core.types import Rounding
from ..data.benchmark import Federation
from ..errors import refuse
from ..methods import create, describe
from ..wire.array_blocks import rounding_of
from ..wire.rows import LOSSLESS
from .message_records import blocks_of, message_record, record_message, record_state, state_record
from .settings import BenchmarkSettings
from .sync_records import DOWNLOAD, FACTS, UPLOAD

LABELS, _MEMORY = "latte.labels", "latte.memory"
CLIENTS, STARTS, ENDS = "clients", "starts", "ends"  # of a message: its clients, and between which samples each walks


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """The result of a walk: the ``labels`` of a ``client``'s latest samples, and its upload.

    ``rounding`` is how far encoding can have moved each vector; ``precision`` is that of the download.
    """

    client: int
    labels: tuple[int, ...]
    upload: Any
    rounding: Rounding = 0.0
    precision: str = LOSSLESS


def name_of(record: str, client: int) -> str:
    """Return the name of a client's own record in a message.

    >>> name_of("latte.upload", 3)
    'latte.upload.3'
    """
    return f"{record}.{client}"


def walk(content: RecordDict, context: Context, privacy: Privacy | None = None) -> RecordDict:
    """Let the clients of a message receive their downloads and classify their samples; return their uploads.

    The message names the benchmark and the method. A walk that starts at the first sample starts with an empty memory.
    """
    facts = content[FACTS]
    settings = BenchmarkSettings.of(facts)
    zero_shot = _federation(settings).embeddings.zero_shot
    reply, vectors = RecordDict(), list[str]()
    kind = describe(settings.method).kind.Download
    for client, start, end in zip(facts[CLIENTS], facts[STARTS], facts[ENDS], strict=True):
        method = _restore_method(settings, context, client, start, privacy)
        if (download := content.get(name_of(DOWNLOAD, client))) is not None:
            method.receive(record_message(download, kind, zero_shot.fingerprint))
        stream = _stream(settings, client)[start:end]
        labels = [method.predict(needed_views(method, views)).label for views in stream]
        upload = method.summary()
        context.state[name_of(_MEMORY, client)] = state_record(method.state())  # with the noise of the upload
        vectors = list(getattr(type(upload), "vector_fields", ()))
        reply[name_of(LABELS, client)] = ArrayRecord({"labels": Array(np.array(labels, np.int64))})
        reply[name_of(UPLOAD, client)] = message_record(upload, zero_shot.dim)
    reply[FACTS] = ConfigRecord({CLIENTS: facts[CLIENTS], "task": zero_shot.fingerprint, "vectors": vectors})
    return reply


@lru_cache(2)
def _federation(settings: BenchmarkSettings) -> Federation:
    return settings.federation()


def _stream(settings: BenchmarkSettings, client: int) -> Any:
    """Return the samples of a client (n, V, D)."""
    federation = _federation(settings)
    if not 0 <= client < len(federation):
        raise refuse("message: client", client, f"a whole number below {len(federation)}")
    return federation.stream(federation.clients[client])


def _restore_method(
    settings: BenchmarkSettings, context: Context, client: int, start: int, privacy: Privacy | None
) -> Any:
    method = create(settings.method, _federation(settings).embeddings.zero_shot, settings.params)
    if not isinstance(method, Collaborative):
        raise refuse("method", repr(settings.method), "one that collaborates")
    hides = privacy is not None and privacy.hides
    member = PrivateClient(method, privacy) if privacy is not None and hides else method
    if start:
        memory = context.state.get(name_of(_MEMORY, client))
        if memory is None:
            raise refuse(f"memory of client {client}", "none", "what it had learnt (has the node been restarted?)")
        arrays = record_state(memory)
        member.load(arrays if hides else without_noise(arrays))
    return member


def read_walks(content: RecordDict, kind: type[Any]) -> Iterator[Walk]:
    """Yield the walks in a reply; ``kind`` is the class of their uploads."""
    facts: Mapping[str, Any] = content[FACTS]
    precision = str(facts.get("precision", LOSSLESS))
    for client in facts[CLIENTS]:
        labels: Sequence[int] = record_state(content[name_of(LABELS, client)])["labels"].tolist()
        record = content[name_of(UPLOAD, client)]
        upload = record_message(record, kind, str(facts["task"]))
        yield Walk(client, tuple(labels), upload, rounding_of(blocks_of(record)), precision)
