"""The routes of the server: what answers each, the Starlette application, and the OpenAPI document."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeAlias

import msgspec
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ...core.validate import client_name
from ...errors import InputError
from ...version import __version__
from ...wire import messages
from ..dashboard.fleet import STALE_AFTER, STATES, FleetQuery
from ..hub.hub import STORE_RETRY, store_problem
from ..store.base import StoreFullError, StoreUnavailableError
from .limits import Body, header, problem_response, read_json_body, read_sync
from .service import CONTENT_TYPE, Caller, Service, is_loopback

log = logging.getLogger("latte.server")
_POLICY = (  # data: an empty icon
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Handler: TypeAlias = Callable[[Service, Request], Awaitable[Response]]
Schema: TypeAlias = Mapping[str, Any]
TASK_TYPE = "application/vnd.latte.task"
MOST_LISTED = 1000
JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_BINARY: Schema = {"type": "string", "format": "binary"}
_CLIENT: Schema = {"type": "string", "minLength": 1, "description": "The name of a client: 1 to 1024 bytes in UTF-8."}
_LIST_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": 100}

# store_unavailable: tokens cannot be read; forbidden: a foreign name in Host, or not an admin
_CALLER = ("unauthorized", "forbidden", "too_many_requests", "internal", "store_unavailable")
CONNECTION = ("too_slow", "head_too_large")  # of every route, before it is known which
_STORE = ("store_full",)
_BODY = ("bad_message", "bad_request", "too_large", "unsupported_media")
_MESSAGE = (*_CALLER, *_BODY, *_STORE, "unsupported_protocol", "other_task", "busy", "stopping")
_UPLOAD = (*_MESSAGE, "stale_version", "unknown_base", "bad_upload", "key_reused", "too_many_clients")


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter in the query of a request."""

    name: str
    schema: Schema
    required: bool = False


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """A route: what answers it, what it does, takes and gives, and the problems it may answer instead.

    ``takes`` and ``gives`` are media types with a schema; an ``open`` route needs no token.
    """

    name: str
    answer: Handler
    method: str
    path: str
    summary: str
    gives: tuple[str, Schema]
    codes: tuple[str, ...]
    takes: tuple[str, Schema] | None = None
    query: tuple[Query, ...] = ()
    statuses: Mapping[str, str] = field(default_factory=dict)  # further answers without a body
    open: bool = False


class JoinRequest(msgspec.Struct, frozen=True):
    """The client that joins, and the fingerprint of its task."""

    client: messages.Name
    task: messages.Short


class LeaveRequest(msgspec.Struct, frozen=True):
    """The client that leaves."""

    client: messages.Name


def create_app(service: Service) -> ASGIApp:
    """Return the application around a service; it closes the service when it ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(service.follow_others())
        yield
        following.cancel()
        await service.close()

    endpoints = {spec.name: _endpoint(service, spec) for spec in SPECS}
    routes = [Route(spec.path, endpoints[spec.name], methods=[spec.method], name=spec.name) for spec in SPECS]
    handlers = {HTTPException: _http_problem, Exception: _failure}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    app.router.redirect_slashes = False  # a path is a route of the document, or not found
    posts = {spec.path: endpoints[spec.name] for spec in SPECS if spec.name in ("sync", "upload", "download")}

    async def short_way(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer frequent requests past Starlette's layers, which take half of the time that a sync spends in HTTP.

        A request that is cancelled ends in silence: a server that stops waits for nothing more.
        """
        endpoint = posts.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        try:
            if endpoint is None:
                await app(scope, receive, send)
                return
            request = Request(scope, receive, send)
            try:
                response = await endpoint(request)
            except Exception as error:
                response = await _failure(request, error)
            await response(scope, receive, send)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise

    return short_way


def _endpoint(service: Service, spec: RouteSpec) -> Endpoint:
    """Return a handler that counts its requests and turns refusals into problem documents."""
    metrics, name = service.metrics, spec.name
    seconds, well = metrics.seconds.labels(name), metrics.requests.labels(name, "ok")
    failed = metrics.requests.labels(name, "internal")

    async def endpoint(request: Request) -> Response:
        start, counter = time.perf_counter(), failed
        try:
            response, counter = await spec.answer(service, request), well
        except (messages.Problem, StoreFullError, StoreUnavailableError) as error:
            problem = error if isinstance(error, messages.Problem) else store_problem(error)
            response, counter = problem_response(problem), metrics.requests.labels(name, problem.code)
            # frames hold the body, and its whole batch, and the error: they would wait for the garbage collector
            error.__traceback__ = error.__context__ = None
        finally:
            counter.inc()
            seconds.observe(time.perf_counter() - start)
        metrics.sent.inc(len(getattr(response, "body", b"")))  # a stream has none yet
        return response

    return endpoint


async def _http_problem(request: Request, error: HTTPException) -> Response:
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
    response = problem_response(messages.Problem(code, f"{request.method} {request.url.path[:200]}"))
    response.headers.update(error.headers or {})
    return response


async def _failure(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return problem_response(messages.Problem("internal", "the server's log says more"))


# --- clients ------------------------------------------------------------------------------------------------


async def _identify(service: Service, request: Request) -> Caller:
    """Return the sender of a request.

    Where anybody on this machine may do everything, a request to a name that is not this machine's is refused: a page
    from elsewhere can have its own name lead to 127.0.0.1 (DNS rebinding), but it cannot hide that name.
    """
    caller = await service.authenticate(header(request, b"authorization"))
    if caller.open and service.access.local:
        for name, value in request.scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1")
                plain = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]  # no port
                if not is_loopback(plain):
                    detail = f"Host {host[:80]!r} is not this machine: without tokens, use localhost"
                    raise messages.Problem("forbidden", detail)
    return caller


async def _caller(service: Service, request: Request) -> Caller:
    caller = await _identify(service, request)
    if caller.client is not None:
        await service.admit(caller.client)
    return caller


async def _exchange(service: Service, request: Request, **changed: None) -> Response:
    """Answer a sync, an upload (no precision is asked for) or a download (no upload is read)."""
    caller, message = Caller(), None
    try:
        caller = await _caller(service, request)
        with Body(service.held, caller.client) as body:
            message, size = await read_sync(request, service.most_body, body)
            service.metrics.received.inc(size)
            message = msgspec.structs.replace(message, **changed) if changed else message
            return Response(messages.pack(await service.sync(message, caller)), media_type=messages.MEDIA_TYPE)
    except messages.Problem as problem:
        service.note_refusal(caller, "" if message is None else message.client, problem)
        raise


async def _join(service: Service, request: Request) -> Response:
    caller = await _caller(service, request)
    with Body(service.held, caller.client) as body:
        asked = await read_json_body(request, JoinRequest, body)
    try:
        reply = await service.sync(messages.SyncRequest(asked.task, asked.client), caller)
    except messages.Problem as problem:
        service.note_refusal(caller, asked.client, problem)
        raise
    return JSONResponse(
        {"client": asked.client, "task": reply.task, "version": reply.version, "clients": len(service.hub)}
    )


async def _leave(service: Service, request: Request) -> Response:
    caller = await _caller(service, request)
    with Body(service.held, caller.client) as body:
        asked = await read_json_body(request, LeaveRequest, body)
    caller.check_client(asked.client)
    if (refusal := (await service.check_again([caller]))[0]) is not None:
        raise refusal
    return JSONResponse({"client": asked.client, "removed": await service.forget(asked.client, "left")})


async def _task(service: Service, request: Request) -> Response:
    await _caller(service, request)
    tag = f'"{service.hub.task.fingerprint}"'
    headers = {"ETag": tag, messages.HEADER: messages.spoken_header()}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(service.task_bytes, media_type=TASK_TYPE, headers=headers)


async def _whoami(service: Service, request: Request) -> Response:
    caller = await _caller(service, request)
    return JSONResponse(
        {"client": caller.client, "admin": caller.admin or caller.open},
        headers={messages.HEADER: messages.spoken_header()},
    )


# --- admins -------------------------------------------------------------------------------------------------


async def _clients(service: Service, request: Request) -> Response:
    (await _caller(service, request)).check_admin()
    after, limit, hub = request.query_params.get("after", ""), _read_limit(request), service.hub
    names = sorted(name for name in list(hub.versions) if name > after)[:limit]
    rows = [
        {"client": n, "version": hub.versions.get(n, messages.NO_VERSION), "updated": hub.updated.get(n)} for n in names
    ]
    return JSONResponse({"clients": rows, "total": len(hub)})


async def _forget(service: Service, request: Request) -> Response:
    (await _caller(service, request)).check_admin()
    try:
        client = client_name(request.query_params.get("client"))
    except InputError as error:
        raise messages.Problem("bad_request", str(error)) from None
    if not await service.forget(client, "forgotten", by_owner=True):
        raise messages.Problem("unknown_client", f"no client {client!r}")
    return JSONResponse({"client": client, "removed": True})


async def _metrics(service: Service, request: Request) -> Response:
    (await _identify(service, request)).check_admin()
    service.metrics.waiting.set(len(service.batches))
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE)


# --- anybody ------------------------------------------------------------------------------------------------


async def _livez(service: Service, request: Request) -> Response:
    return PlainTextResponse("ok")


async def _readyz(service: Service, request: Request) -> Response:
    if not service.ready:
        raise messages.Problem("stopping", "no new requests")
    if not service.store_answers:
        raise messages.Problem("store_unavailable", "the store does not answer", retry_after=STORE_RETRY)
    return PlainTextResponse("ready", headers={messages.HEADER: messages.spoken_header()})


@functools.cache
def _document() -> bytes:
    return json.dumps(openapi_document(__version__)).encode()


async def _openapi(service: Service, request: Request) -> Response:
    return Response(_document(), media_type=JSON)


# --- the dashboard: the page, the state of the fleet, and a stream of what changes ---------------------------


@functools.cache
def _page_content(name: str) -> bytes:
    return (files("latte.server.dashboard") / "page" / name).read_bytes()


async def _page_file(service: Service, request: Request) -> Response:
    """Return a file of the page; no token is needed, because the page without a token shows no data."""
    name, kind = PAGE_FILES[request.url.path]
    return Response(_page_content(name), media_type=kind, headers=_PAGE_HEADERS)


async def _fleet(service: Service, request: Request) -> Response:
    """Return all parts of the dashboard in one document."""
    (await _identify(service, request)).check_admin()
    parts, _ = await service.board.picture(_fleet_query(request))
    body = b",".join(b'"%s":%s' % (name.encode(), part) for name, part in parts.items())
    return Response(b'{"time":%.3f,%s}' % (time.time(), body), media_type=JSON, headers={"Cache-Control": "no-store"})


async def _fleet_events(service: Service, request: Request) -> Response:
    """Return a stream of server-sent events: each is a part of the dashboard that has changed."""
    (await _identify(service, request)).check_admin()
    query = _fleet_query(request)
    if service.board.full:
        raise messages.Problem("busy", "too many dashboards are open", retry_after=10.0)
    stream = _events(service, request.headers.get("authorization"), query)
    return StreamingResponse(stream, media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def _events(service: Service, authorization: str | None, query: FleetQuery) -> AsyncIterator[bytes]:
    """Yield events until the server stops, or the token is not valid any more."""
    sent: dict[str, bytes] = {}
    with service.board.watching():
        while await _may_look(service, authorization):
            parts, pause = await service.board.picture(query)
            changed = {name: part for name, part in parts.items() if sent.get(name) != part}
            yield b"".join(b"event: %s\ndata: %s\n\n" % (name.encode(), part) for name, part in changed.items())
            yield b"event: beat\ndata: %.3f\n\n" % time.time()
            sent.update(changed)
            # wait, a second at a time, and no longer once the server is stopping; a long pause has comments in it
            end, quiet_until = time.monotonic() + pause, time.monotonic() + QUIET
            while (left := end - time.monotonic()) > 0 and await _may_look(service, authorization):
                await asyncio.sleep(min(left, 1.0))
                if time.monotonic() >= quiet_until:
                    quiet_until = time.monotonic() + QUIET
                    yield b": the fleet is large, and many look at it\n\n"


async def _may_look(service: Service, authorization: str | None) -> bool:
    """Return whether the server goes on, and the token is still an admin's."""
    try:
        (await service.authenticate(authorization)).check_admin()
    except messages.Problem:
        return False
    return service.ready


def _fleet_query(request: Request) -> FleetQuery:
    """Return the query in the parameters of a request; values that are not valid are refused."""
    values = request.query_params
    state, stale = values.get("state", "all"), values.get("stale", str(STALE_AFTER))
    if state not in STATES:
        raise messages.Problem("bad_request", f"state {state[:40]!r}, want one of {', '.join(STATES)}")
    find, client = values.get("find", ""), values.get("client", "")
    if max(len(find), len(client)) > _LONGEST_FIND:
        raise messages.Problem("bad_request", f"find or client of more than {_LONGEST_FIND} characters")
    try:
        seconds = float(stale[:40])
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_STALE:
        raise messages.Problem("bad_request", f"stale {stale[:40]!r}, want a number of seconds above 0")
    return FleetQuery(find, state, seconds, _read_limit(request), client)


def _read_limit(request: Request) -> int:
    """Return how many rows a request asks for."""
    limit = request.query_params.get("limit", "100")
    if not limit.isdecimal() or len(limit) > _LONGEST_LIMIT or not 1 <= int(limit) <= MOST_LISTED:
        raise messages.Problem("bad_request", f"limit {limit[:40]!r}, want a whole number from 1 to {MOST_LISTED}")
    return int(limit)


# --- the table of routes, and the document that is made from it ---------------------------------------------


def _object(**properties: Schema) -> tuple[str, Schema]:
    return JSON, {"type": "object", "properties": properties, "required": list(properties)}


_SYNC = (messages.MEDIA_TYPE, _BINARY)
_REMOVED = _object(client=_CLIENT, removed={"type": "boolean"})

_HELD = ("object", "null")
_FLEET = _object(
    time={"type": "number"},
    task={"type": "object"},
    fleet={"type": "object"},
    load={"type": "object"},
    refusals={"type": "array", "items": {"type": "object"}},
    client={"type": _HELD},
    map={"type": _HELD},
)
_FLEET_QUERY = (
    Query("find", _TEXT),
    Query("state", {"type": "string", "enum": ["all", "fresh", "stale"], "default": "all"}),
    Query("stale", {"type": "number", "exclusiveMinimum": 0, "default": 900}),
    Query("limit", _LIST_LIMIT),
    Query("client", _TEXT),
)
_ADMIN = ("unauthorized", "forbidden", "internal", "store_unavailable")

_SCRIPTS = (
    "board", "board_charts", "board_client", "board_focus",
    "board_link", "board_overview", "board_text", "board_values",
)  # fmt: skip
PAGE_FILES = {  # path -> file and media type
    "/": ("board.html", "text/html"),
    "/board.css": ("board.css", "text/css"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in _SCRIPTS},
}
PAGE_SPECS = tuple(
    RouteSpec(
        f"page_{name.replace('.', '_')}", _page_file, "GET", path, f"The dashboard: {name}.",
        (kind, _TEXT), ("internal",), open=True,
    )
    for path, (name, kind) in PAGE_FILES.items()
)  # fmt: skip

SPECS = (
    RouteSpec(
        "sync", _exchange, "POST", "/v1/sync", "Upload and download in one round trip.",
        _SYNC, (*_UPLOAD, "unknown_client"), takes=_SYNC,
    ),
    RouteSpec(
        "upload", functools.partial(_exchange, precision=None), "POST", "/v1/upload", "Upload a summary.",
        _SYNC, _UPLOAD, takes=_SYNC,
    ),
    RouteSpec(
        "download", functools.partial(_exchange, upload=None), "POST", "/v1/download", "Get what others uploaded.",
        _SYNC, (*_MESSAGE, "unknown_client"), takes=_SYNC,
    ),
    RouteSpec(
        "join", _join, "POST", "/v1/join", "Check task and token, and get the version of the upload that is stored.",
        _object(client=_CLIENT, task=_TEXT, version=_WHOLE, clients=_WHOLE), _MESSAGE,
        takes=_object(client=_CLIENT, task=_TEXT),
    ),
    RouteSpec(
        "leave", _leave, "POST", "/v1/leave", "Remove what the client has uploaded.",
        _REMOVED, _MESSAGE, takes=_object(client=_CLIENT),
    ),
    RouteSpec(
        "task", _task, "GET", "/v1/task", "The task file.",
        (TASK_TYPE, _BINARY), _CALLER, statuses={"304": "The client has this task: If-None-Match is its ETag."},
    ),
    RouteSpec(
        "whoami", _whoami, "GET", "/v1/whoami", "Whose token this is: the client's name, or null.",
        _object(client={"type": ["string", "null"]}, admin={"type": "boolean"}), _CALLER,
    ),
    RouteSpec(
        "clients", _clients, "GET", "/v1/clients", "List clients by name. For admins.",
        _object(clients={"type": "array", "items": {"type": "object"}}, total=_WHOLE),
        (*_CALLER, "bad_request"), query=(Query("after", _TEXT), Query("limit", _LIST_LIMIT)),
    ),
    RouteSpec(
        "forget", _forget, "DELETE", "/v1/clients", "Remove a client. For admins.",
        _REMOVED, (*_CALLER, *_STORE, "bad_request", "unknown_client"),
        query=(Query("client", _CLIENT, required=True),),
    ),
    RouteSpec("openapi", _openapi, "GET", "/v1/openapi.json", "This document.", _object(), ("internal",), open=True),
    RouteSpec("metrics", _metrics, "GET", "/metrics", "Prometheus metrics. For admins.", (TEXT, _TEXT), _ADMIN),
    RouteSpec(
        "fleet", _fleet, "GET", "/v1/fleet", "The state of the fleet, as the dashboard shows it. For admins.",
        _FLEET, (*_ADMIN, "bad_request"), query=_FLEET_QUERY,
    ),
    RouteSpec(
        "fleet_events", _fleet_events, "GET", "/v1/fleet/events",
        "What changes of it, as server-sent events. For admins.",
        (EVENTS, _TEXT), (*_ADMIN, "bad_request", "busy"), query=_FLEET_QUERY,
    ),
    *PAGE_SPECS,
    RouteSpec("livez", _livez, "GET", "/livez", "The process runs.", (TEXT, _TEXT), ("internal",), open=True),
    RouteSpec(
        "readyz", _readyz, "GET", "/readyz", "Requests are accepted, and the store answers.",
        (TEXT, _TEXT), ("stopping", "store_unavailable", "internal"), open=True,
    ),
)  # fmt: skip


_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


_PROBLEM_SCHEMA: Schema = {
    "type": "object",
    "description": "RFC 9457. A code keeps its meaning between versions.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": _WHOLE,
        "detail": _TEXT,
        "code": {"type": "string", "enum": sorted(messages.CODES)},
        "server_task": _TEXT,
        "client_task": _TEXT,
        "differs": _TEXT,
        "stored_version": _WHOLE,
        "protocols": {"type": "array", "items": _WHOLE},
    },
}


def openapi_document(version: str) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, Any] = {}
    for spec in SPECS:
        paths.setdefault(spec.path, {})[spec.method.lower()] = _operation(spec)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Latte coordination service",
            "version": version,
            "description": "Clients upload summaries and get those of similar clients back. docs/protocol.md has more.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM_SCHEMA},
        },
    }


def _operation(spec: RouteSpec) -> dict[str, Any]:
    kind, schema = spec.gives
    responses: dict[str, Any] = {"200": {"description": spec.summary, "content": {kind: {"schema": schema}}}}
    responses |= {status: {"description": text} for status, text in spec.statuses.items()}
    codes = (*spec.codes, *CONNECTION)
    for status in sorted({messages.CODES[code][0] for code in codes}):
        titles = [f"{code}: {messages.CODES[code][1]}." for code in codes if messages.CODES[code][0] == status]
        responses[str(status)] = {"description": " ".join(titles), "content": _PROBLEM}
    operation: dict[str, Any] = {"operationId": spec.name, "summary": spec.summary, "responses": responses}
    if spec.takes is not None:
        kind, schema = spec.takes
        operation["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
    if spec.query:
        operation["parameters"] = [
            {"name": query.name, "in": "query", "required": query.required, "schema": query.schema}
            for query in spec.query
        ]
    return {**operation, "security": []} if spec.open else operation
