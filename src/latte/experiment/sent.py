"""How much a client sends in a run: the closed form of a sync, times the number of its syncs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data.benchmark import Federation
from ..methods import describe, resolve
from ..methods.traffic import traffic_of
from ..simulation.schedule import Schedule, count_syncs


def sent_per_client(
    federation: Federation, name: str, params: Mapping[str, Any], schedule: Schedule, rng: np.random.Generator
) -> float | None:
    """Return the bytes that a client sends and receives, the mean over the clients; None where it sends nothing.

    Vectors are counted in half precision. The global form of a memory sends for every image.
    """
    text = federation.embeddings.zero_shot.text
    bytes_per_sync = traffic_of(name, resolve(name, dict(params)), *text.shape)
    if bytes_per_sync is None:
        return None
    info, lengths = describe(name), list(map(len, federation.clients))
    syncs = lengths if info.shared else count_syncs(lengths, schedule.for_method(info.sync), rng)
    return bytes_per_sync.vectors * sum(syncs) / len(syncs)
