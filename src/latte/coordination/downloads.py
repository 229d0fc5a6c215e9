"""The downloads of a batch of clients, as blocks: one product per class, and every row is encoded once for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.row_copies import ManyAtOnce, Picked
from ..wire.array_blocks import Block, encode
from ..wire.many_blocks import Blocks, external_blocks, row_form
from ..wire.messages import HeldRows, SyncRequest
from .stopwatch import Stopwatch


def downloads(exchange: Any, requests: Sequence[SyncRequest], dim: int, watch: Stopwatch) -> list[tuple[Block, ...]]:
    """Return the download of each request; every request asks for a download."""
    if not requests:
        return []
    clients = [request.client for request in requests]
    if isinstance(exchange, ManyAtOnce):
        with watch.phase("exchange"):
            picked = exchange.pick(clients)
        with watch.phase("wire"):
            return _picked_blocks(exchange, picked, requests, dim)
    with watch.phase("exchange"):
        messages = exchange.pull_many(clients)
    with watch.phase("wire"):
        pairs = zip(messages, requests, strict=True)
        return [encode(message, request.precision or "", dim, _base(request)) for message, request in pairs]


def _picked_blocks(
    exchange: ManyAtOnce, picked: Picked, requests: Sequence[SyncRequest], dim: int
) -> list[tuple[Block, ...]]:
    """Return the blocks of each request; requests of one precision are encoded together."""
    blocks: dict[int, Blocks] = {}
    for precision in dict.fromkeys(request.precision or "" for request in requests):
        places = [i for i, request in enumerate(requests) if request.precision == precision]
        mine = picked.of(places)
        rows = exchange.picked_vectors(mine, precision, row_form(precision, dim))
        bases = [_base(requests[i]) for i in places]
        blocks.update(zip(places, external_blocks(mine, rows, precision, dim, bases), strict=True))
    return [blocks[i] for i in range(len(requests))]


def _base(request: SyncRequest) -> HeldRows | None:
    return HeldRows(request.have) if request.have else None
