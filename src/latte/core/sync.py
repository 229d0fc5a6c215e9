"""One sync: everyone uploads, then everyone downloads. The simulator, a device and Flower all call this."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .types import Collaborative, Exchange


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
