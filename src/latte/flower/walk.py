"""A node of a benchmark: its client walks through its stream, as far as the server says, and replies with an upload.

The memory is in the node's ``Context``, because any process may handle the next message.
"""

from __future__ import annotations

from collections.abc import Sequence
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

LABELS = "latte.labels"
_MEMORY, _PLACE = "latte.memory", "latte.place"


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """The result of a walk: which ``client`` the node is, the ``labels`` of its latest samples, and its upload.

    ``rounding`` is how far encoding can have moved each vector; ``precision`` is that of the download.
    """

    client: int
    labels: tuple[int, ...]
    upload: Any
    rounding: Rounding = 0.0
    precision: str = LOSSLESS


def walk(content: RecordDict, context: Context, privacy: Privacy | None = None) -> RecordDict:
    """Receive the download in a message, classify the samples up to its ``until``, and return the upload.

    The message names the benchmark and the method; a message with ``begin`` starts with an empty memory.
    """
    settings = BenchmarkSettings.of(content[FACTS])
    if content[FACTS]["begin"]:
        context.state = RecordDict()
    zero_shot = _federation(settings).embeddings.zero_shot
    client, stream = _stream(settings, context.node_config)
    method = _restore_method(settings, context, privacy)
    if DOWNLOAD in content:
        kind = describe(settings.method).kind.Download
        method.receive(record_message(content[DOWNLOAD], kind, zero_shot.fingerprint))
    start, until = _place(context), min(int(content[FACTS]["until"]), len(stream))
    labels = [method.predict(needed_views(method, views)).label for views in stream[start:until]]
    upload = method.summary()
    context.state[_MEMORY] = state_record(method.state())  # with the noise of the upload
    context.state[_PLACE] = ConfigRecord({"handled": max(start, until)})
    return _walk_content(Walk(client, tuple(labels), upload), zero_shot.dim)


@lru_cache(2)
def _federation(settings: BenchmarkSettings) -> Federation:
    return settings.federation()


def _stream(settings: BenchmarkSettings, node_config: Any) -> tuple[int, Any]:
    """Return the number of a node's client, and its samples (n, V, D)."""
    federation = _federation(settings)
    client = node_config.get("partition-id")
    if not isinstance(client, int) or not 0 <= client < len(federation):
        raise refuse("node-config: partition-id", client, f"a whole number below {len(federation)}")
    return client, federation.stream(federation.clients[client])


def _restore_method(settings: BenchmarkSettings, context: Context, privacy: Privacy | None) -> Any:
    method = create(settings.method, _federation(settings).embeddings.zero_shot, settings.params)
    if not isinstance(method, Collaborative):
        raise refuse("method", repr(settings.method), "one that collaborates")
    hides = privacy is not None and privacy.hides
    client = PrivateClient(method, privacy) if privacy is not None and hides else method
    if _MEMORY in context.state:
        arrays = record_state(context.state[_MEMORY])
        client.load(arrays if hides else without_noise(arrays))
    return client


def _place(context: Context) -> int:
    return int(context.state[_PLACE]["handled"]) if _PLACE in context.state else 0


# --- records ------------------------------------------------------------------------------------------------


def _walk_content(done: Walk, dim: int) -> RecordDict:
    vectors = list(getattr(type(done.upload), "vector_fields", ()))
    return RecordDict(
        {
            FACTS: ConfigRecord({"client": done.client, "task": done.upload.task, "vectors": vectors}),
            LABELS: ArrayRecord({"labels": Array(np.array(done.labels, np.int64))}),
            UPLOAD: message_record(done.upload, dim),
        }
    )


def read_walk(content: RecordDict, kind: type[Any]) -> Walk:
    """Return the walk in a reply; ``kind`` is the class of its upload."""
    labels: Sequence[int] = record_state(content[LABELS])["labels"].tolist()
    facts, record = content[FACTS], content[UPLOAD]
    upload = record_message(record, kind, str(facts["task"]))
    precision = str(facts.get("precision", LOSSLESS))
    return Walk(int(facts["client"]), tuple(labels), upload, rounding_of(blocks_of(record)), precision)
