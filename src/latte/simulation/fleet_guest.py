"""A device from elsewhere that joins a running fleet demo: one more client, with a stream that nobody else has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.sync import is_due, sync
from ..edge.http_calls import Calls, Connection
from ..edge.http_exchange import HttpExchange
from ..errors import refuse
from ..files.documents import parse_json
from .fleet_client import Pace, SingleTrips, demo_federation, open_client, paced

SEED = 1000  # deals the images in another way than the demo does by default


@dataclass(frozen=True, slots=True)
class GuestTally:
    """How a guest did so far on the ``length`` images of its domain."""

    name: str
    domain: str
    length: int
    images: int
    correct: int
    correct_zero_shot: int


def guest_tallies(server: str, token: str, precision: str, seconds: float) -> Iterator[GuestTally]:
    """Classify and sync, by itself, for about ``seconds``; yield after every image."""
    name = _own_name(server, token)
    federation = demo_federation(SEED)
    with HttpExchange(server, tokens=token, precision=precision) as exchange:
        task = exchange.shared_task
        if task.zero_shot.fingerprint != federation.embeddings.zero_shot.fingerprint:
            raise refuse("server", f"{server}, which serves another task", "the address of a `latte demo --fleet`")
        client = open_client(federation, len(federation) - 1, task)
        link = SingleTrips(exchange, {name: client})
        for images in paced(range(1, len(client.views) + 1), Pace(seconds / len(client.views))):
            client.classify()
            if is_due(task.sync, images, task.period):
                sync([(name, client.method)], link)
            domain = federation.embeddings.domains[client.stream.domain]
            yield GuestTally(name, domain, len(client.views), images, client.correct, client.correct_zero_shot)


def _own_name(server: str, token: str) -> str:
    """Return the name that the token is bound to."""
    calls = Calls(server, token, Connection())
    try:
        name = parse_json(calls.get("/v1/whoami"), f"{server}/v1/whoami").get("client")
    finally:
        calls.close()
    if not isinstance(name, str):
        raise refuse("token", "the token of an admin", "the one that `latte demo --fleet` prints for guests")
    return name
