"""Sync: everyone uploads, then everyone downloads. The simulator, a device and Flower all call this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import refuse
from .types import Collaborative, Exchange

SYNC_TIMES = ("every", "doubling", "powers")
DOUBLINGS = 16  # the last power of two of ``doubling``, and its period unless another is set


def upload_of(method: Collaborative[Any, Any]) -> Any | None:
    """Return what a client uploads: its summary; None if that is ``empty``, because it has nothing to share yet.

    This is the first half of a sync, ``receive`` the second: a device and Flower do other things in between.
    """
    upload = method.summary()
    return None if getattr(upload, "empty", False) else upload


def sync(members: Iterable[tuple[str, Collaborative[Any, Any]]], exchange: Exchange[Any, Any]) -> None:
    """Let the ``members``, each a client's name and method, upload; then let each download.

    All upload before anyone downloads, so that no member gets summaries that are out of date. A device syncs alone,
    with one member: an exchange with ``push_pull(client, upload)`` then does both in one round trip. A member whose
    upload is ``empty`` is left out.
    """
    everyone: list[Any] = list(members)
    for member in everyone:
        if not isinstance(member, Sequence) or isinstance(member, str) or len(member) != 2:
            want = 'pairs of a name and a method: sync([("camera 7", method)], exchange)'
            raise refuse("members", f"a {type(member).__name__}", want)
    round_trip = getattr(exchange, "push_pull", None) if len(everyone) == 1 else None
    ready, downloads = [], list[Any]()
    for name, method in everyone:
        upload = upload_of(method)
        if upload is None:
            continue
        ready.append((name, method))
        if round_trip:
            downloads.append(round_trip(name, upload))
        else:
            exchange.push(name, upload)
    if not round_trip:
        downloads += exchange.pull_many([name for name, _ in ready])
    for (_, method), download in zip(ready, downloads, strict=True):
        method.receive(download)


def is_due(kind: str, images: int, period: int = 1) -> bool:
    """Return whether a client syncs after its ``images``-th image; ``kind`` is "every", "doubling" or "powers".

    >>> [images for images in range(1, 50) if is_due("doubling", images)]
    [1, 2, 4, 8, 16, 32, 48]
    """
    if kind == "every":
        return images % period == 0
    if kind == "powers" or images <= DOUBLINGS:
        return images & (images - 1) == 0
    return (images - DOUBLINGS) % (period if period > 1 else DOUBLINGS) == 0
