"""One sync: everyone uploads, then everyone downloads. The simulator, a device and Flower all call this."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from ..errors import refuse
from .contracts import Collaborative, Exchange

SYNC_TIMES = ("every", "doubling", "powers")
DOUBLINGS = 16  # the last power of two of ``doubling``, and its period unless another is set


@runtime_checkable
class OneTrip(Protocol):
    """An exchange that uploads and downloads for one client in one round trip."""

    def push_pull(self, client: str, upload: Any) -> Any:
        """Store the latest summary of ``client`` and return what it gets from the others."""


def sync(members: Iterable[tuple[str, Collaborative[Any, Any]]], exchange: Exchange[Any, Any]) -> None:
    """Let the ``members``, each a client's name and method, upload; then let each download.

    All upload before anyone downloads, so that no member gets summaries that are out of date. A device syncs alone,
    with one member. A member whose upload is ``empty`` is left out: it has nothing to share yet.
    """
    everyone = [_pair(member) for member in members]
    if len(everyone) == 1 and isinstance(exchange, OneTrip):
        _sync_alone(*everyone[0], exchange)
        return
    ready = []
    for name, method in everyone:
        upload = method.summary()
        if not getattr(upload, "empty", False):
            exchange.push(name, upload)
            ready.append((name, method))
    downloads = exchange.pull_many([name for name, _ in ready])
    for (_, method), download in zip(ready, downloads, strict=True):
        method.receive(download)


def _pair(member: tuple[str, Collaborative[Any, Any]]) -> tuple[str, Collaborative[Any, Any]]:
    """Return a member as it is; refuse anything but a pair, such as a method without its name."""
    try:
        name, method = member
    except (TypeError, ValueError):
        want = 'pairs of a name and a method: sync([("camera 7", method)], exchange)'
        raise refuse("members", f"a {type(member).__name__}", want) from None
    return name, method


def _sync_alone(name: str, method: Collaborative[Any, Any], exchange: OneTrip) -> None:
    upload = method.summary()
    if not getattr(upload, "empty", False):
        method.receive(exchange.push_pull(name, upload))


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
