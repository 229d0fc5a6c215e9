"""One sync: everyone uploads, then everyone downloads. The simulator, a device and Flower all call this."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .types import Collaborative, Exchange

DOUBLINGS = 16  # the last power of two of ``doubling``, and its period where none is given


def sync(members: Iterable[tuple[str, Collaborative[Any, Any]]], exchange: Exchange[Any, Any]) -> None:
    """Let the ``members``, each a client's name and method, upload; then let each download.

    All upload before anyone downloads, so that nobody gets what is already out of date. A device syncs alone, with one
    member. A member whose upload says that it is ``empty`` is left out: it has nothing to share yet.
    """
    ready = []
    for name, method in members:
        upload = method.summary()
        if not getattr(upload, "empty", False):
            exchange.push(name, upload)
            ready.append((name, method))
    downloads = exchange.pull_many([name for name, _ in ready])
    for (_, method), download in zip(ready, downloads, strict=True):
        method.receive(download)


def is_due(kind: str, images: int, period: int = 1) -> bool:
    """Say whether a client syncs after its ``images``-th image: ``kind`` is "every", "doubling" or "powers".

    >>> [images for images in range(1, 50) if is_due("doubling", images)]
    [1, 2, 4, 8, 16, 32, 48]
    """
    if kind == "every":
        return images % period == 0
    if kind == "powers" or images <= DOUBLINGS:
        return images & (images - 1) == 0
    return (images - DOUBLINGS) % (period if period > 1 else DOUBLINGS) == 0
