"""A task from a classifier and a method: what ``latte task create`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..core.sync import SYNC_TIMES
from ..core.validate import at_least, choice
from ..core.zero_shot import ZeroShot
from ..encoders import Encoder
from ..errors import refuse
from ..methods import describe, resolve
from ..wire.task_file import EncoderIdentity, Task


def make_task(
    zero_shot: ZeroShot,
    method: str = "latte",
    params: Any = None,
    *,
    encoder: EncoderIdentity | None = None,
    templates: Sequence[str] = (),
    sync: str | None = None,
    period: int = 1,
) -> Task:
    """Return the task of clients that use ``method``; ``sync`` and ``period`` say when a client syncs.

    ``params`` is the method's dataclass, or a mapping of the fields that differ from its defaults.

    >>> import numpy as np
    >>> make_task(ZeroShot(np.eye(2), ("cat", "dog")), "latte", {"alpha": 0.5})
    Task(latte, ZeroShot(cat, dog: C=2, D=2, scale=100, ...))
    """
    info = describe(method)
    if not info.collaborative:
        raise refuse("method", repr(method), "one that collaborates, such as latte or ristretto")
    kind = info.sync if sync is None else sync
    choice("sync", kind, SYNC_TIMES)
    at_least("period", period, 1)
    single = ZeroShot(zero_shot.text, zero_shot.classnames, zero_shot.scale)  # a task has text in single precision
    chosen = asdict(resolve(method, params))
    return Task(single, method, chosen, kind, period, tuple(templates), encoder)


def identify(encoder: Encoder) -> EncoderIdentity:
    """Return the identity of an encoder, for a task."""
    return EncoderIdentity(encoder.name, encoder.fingerprint, asdict(encoder.preprocess))
