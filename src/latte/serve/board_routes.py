"""The routes of the dashboard: the page, the state of the fleet, and a stream of what changes."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..coordination.problems import Problem
from .fleet_view import STALE_AFTER, STATES, FleetQuery
from .routes import EVENTS, JSON, MOST_LISTED, PAGE_FILES
from .service import Caller, Service

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",  # an empty icon
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_LONGEST_FIND = 1024  # characters
_LONGEST_LIMIT = 9  # digits: a long number takes long to read
_LONGEST_STALE = 10.0**9  # seconds
QUIET = 8.0  # seconds after which a stream says something: a page takes a connection for lost after 20


async def identify(service: Service, request: Request) -> Caller:
    """Return the sender of a request."""
    caller = await service.authenticate(request.headers.get("authorization"))
    if caller.open:
        service.check_host(request.headers.getlist("host"))
    return caller


@functools.cache
def _page_content(name: str) -> bytes:
    return (files("latte.serve") / "page" / name).read_bytes()


async def page_file(service: Service, request: Request) -> Response:
    """Return a file of the page; no token is needed, because the page without a token shows no data."""
    name, kind = PAGE_FILES[request.url.path]
    return Response(_page_content(name), media_type=kind, headers=_PAGE_HEADERS)


async def fleet(service: Service, request: Request) -> Response:
    """Return all parts of the dashboard in one document."""
    (await identify(service, request)).check_admin()
    picture = await service.board.picture(fleet_query(request))
    body = b",".join(b'"%s":%s' % (name.encode(), part) for name, part in picture.parts.items())
    return Response(b'{"time":%.3f,%s}' % (time.time(), body), media_type=JSON, headers={"Cache-Control": "no-store"})


async def fleet_events(service: Service, request: Request) -> Response:
    """Return a stream of server-sent events: each is a part of the dashboard that has changed."""
    (await identify(service, request)).check_admin()
    query = fleet_query(request)
    if service.board.full:
        raise Problem("busy", "too many dashboards are open", retry_after=10.0)
    stream = _events(service, request.headers.get("authorization"), query)
    return StreamingResponse(stream, media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def _events(service: Service, authorization: str | None, query: FleetQuery) -> AsyncIterator[bytes]:
    """Yield events until the server stops, or the token is not valid any more."""
    sent: dict[str, bytes] = {}
    with service.board.watching():
        while await _may_look(service, authorization):
            picture = await service.board.picture(query)
            changed = {name: part for name, part in picture.parts.items() if sent.get(name) != part}
            yield b"".join(b"event: %s\ndata: %s\n\n" % (name.encode(), part) for name, part in changed.items())
            yield b"event: beat\ndata: %.3f\n\n" % time.time()
            sent.update(changed)
            async for comment in _pause(service, authorization, picture.pause):
                yield comment


async def _may_look(service: Service, authorization: str | None) -> bool:
    """Return whether the server goes on, and the token is still an admin's."""
    try:
        (await service.authenticate(authorization)).check_admin()
    except Problem:
        return False
    return service.ready


async def _pause(service: Service, authorization: str | None, seconds: float) -> AsyncIterator[bytes]:
    """Wait, a second at a time, and no longer once the server is stopping; a long pause has comments in it."""
    end = time.monotonic() + seconds
    quiet_until = time.monotonic() + QUIET
    while (left := end - time.monotonic()) > 0 and await _may_look(service, authorization):
        await asyncio.sleep(min(left, 1.0))
        if time.monotonic() >= quiet_until:
            quiet_until = time.monotonic() + QUIET
            yield b": the fleet is large, and many look at it\n\n"


def fleet_query(request: Request) -> FleetQuery:
    """Return the query in the parameters of a request; values that are not valid are refused."""
    values = request.query_params
    state, stale = values.get("state", "all"), values.get("stale", str(STALE_AFTER))
    if state not in STATES:
        raise Problem("bad_request", f"state {state[:40]!r}, want one of {', '.join(STATES)}")
    find, client = values.get("find", ""), values.get("client", "")
    if max(len(find), len(client)) > _LONGEST_FIND:
        raise Problem("bad_request", f"find or client of more than {_LONGEST_FIND} characters")
    return FleetQuery(find, state, _seconds(stale), read_limit(request), client)


def read_limit(request: Request) -> int:
    """Return how many rows a request asks for."""
    limit = request.query_params.get("limit", "100")
    if not limit.isdecimal() or len(limit) > _LONGEST_LIMIT or not 1 <= int(limit) <= MOST_LISTED:
        raise Problem("bad_request", f"limit {limit[:40]!r}, want a whole number from 1 to {MOST_LISTED}")
    return int(limit)


def _seconds(text: str) -> float:
    try:
        value = float(text[:40])
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST_STALE:
        raise Problem("bad_request", f"stale {text[:40]!r}, want a number of seconds above 0")
    return value
