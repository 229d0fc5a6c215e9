"""The routes of the server, as a Starlette application."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..coordination.hub import STORE_RETRY, store_problem
from ..coordination.problems import Problem
from ..coordination.upload_records import StoreFullError, StoreUnavailableError
from ..core.names import client_name
from ..errors import InputError
from ..version import __version__
from ..wire.messages import NO_VERSION, Name, Short, SyncRequest
from ..wire.versions import HEADER, spoken_header
from .board_routes import fleet, fleet_events, identify, page_file, read_limit
from .bodies import Body, problem_response, read_json_body, read_sync, sync_response
from .openapi import openapi_document
from .routes import JSON, PAGE_SPECS, SPECS, TASK_TYPE
from .server_metrics import CONTENT_TYPE
from .service import Caller, Service
from .short_way import ShortWay

log = logging.getLogger("latte.serve")

FREQUENT = ("sync", "upload", "download")
Handler: TypeAlias = Callable[[Service, Request], Awaitable[Response]]


class JoinRequest(msgspec.Struct, frozen=True):
    """The client that joins, and the fingerprint of its task."""

    client: Name
    task: Short


class LeaveRequest(msgspec.Struct, frozen=True):
    """The client that leaves."""

    client: Name


def create_app(service: Service) -> ASGIApp:
    """Return the application around a service; it closes the service when it ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(service.follow_others())
        yield
        following.cancel()
        await service.close()

    endpoints = {spec.name: _endpoint(service, spec.name, HANDLERS[spec.name]) for spec in SPECS}
    routes = [Route(spec.path, endpoints[spec.name], methods=[spec.method], name=spec.name) for spec in SPECS]
    handlers = {HTTPException: _http_problem, Exception: _failure}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    app.router.redirect_slashes = False  # a path is a route of the document, or not found
    return ShortWay(app, {spec.path: endpoints[spec.name] for spec in SPECS if spec.name in FREQUENT}, _failure)


def _endpoint(service: Service, name: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that counts its requests and turns refusals into problem documents."""
    metrics = service.metrics
    seconds, well = metrics.seconds.labels(name), metrics.requests.labels(name, "ok")
    failed = metrics.requests.labels(name, "internal")

    async def endpoint(request: Request) -> Response:
        start, counter = time.perf_counter(), failed
        try:
            response, counter = await handler(service, request), well
        except (Problem, StoreFullError, StoreUnavailableError) as error:
            problem = error if isinstance(error, Problem) else store_problem(error)
            response, counter = problem_response(problem), metrics.requests.labels(name, problem.code)
        finally:
            counter.inc()
            seconds.observe(time.perf_counter() - start)
        metrics.sent.inc(len(getattr(response, "body", b"")))  # a stream has none yet
        return response

    return endpoint


async def _http_problem(request: Request, error: HTTPException) -> Response:
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
    response = problem_response(Problem(code, f"{request.method} {request.url.path[:200]}"))
    response.headers.update(error.headers or {})
    return response


async def _failure(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return problem_response(Problem("internal", "the server's log says more"))


# --- clients ------------------------------------------------------------------------------------------------


async def _caller(service: Service, request: Request) -> Caller:
    caller = await identify(service, request)
    if caller.client is not None:
        await service.admit(caller.client)
    return caller


async def _exchange(service: Service, request: Request, change: Callable[[SyncRequest], SyncRequest]) -> Response:
    caller, message = Caller(), None
    try:
        caller = await _caller(service, request)
        with Body(service.held, caller.client) as body:
            message, size = await read_sync(request, service.most_body, body)
            service.metrics.received.inc(size)
            return sync_response(await service.sync(change(message), caller))
    except Problem as problem:
        service.note_refusal(caller, "" if message is None else message.client, problem)
        raise


async def _sync(service: Service, request: Request) -> Response:
    return await _exchange(service, request, lambda message: message)


async def _upload(service: Service, request: Request) -> Response:
    return await _exchange(service, request, lambda message: msgspec.structs.replace(message, precision=None))


async def _download(service: Service, request: Request) -> Response:
    return await _exchange(service, request, lambda message: msgspec.structs.replace(message, upload=None))


async def _join(service: Service, request: Request) -> Response:
    caller = await _caller(service, request)
    with Body(service.held, caller.client) as body:
        asked = await read_json_body(request, JoinRequest, body)
    try:
        reply = await service.sync(SyncRequest(asked.task, asked.client), caller)
    except Problem as problem:
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
    headers = {"ETag": tag, HEADER: spoken_header()}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(service.task_bytes, media_type=TASK_TYPE, headers=headers)


async def _whoami(service: Service, request: Request) -> Response:
    caller = await _caller(service, request)
    return JSONResponse(
        {"client": caller.client, "admin": caller.admin or caller.open}, headers={HEADER: spoken_header()}
    )


# --- admins -------------------------------------------------------------------------------------------------


async def _clients(service: Service, request: Request) -> Response:
    (await _caller(service, request)).check_admin()
    after, limit, hub = request.query_params.get("after", ""), read_limit(request), service.hub
    names = sorted(name for name in list(hub.versions) if name > after)[:limit]
    rows = [{"client": n, "version": hub.versions.get(n, NO_VERSION), "updated": hub.updated.get(n)} for n in names]
    return JSONResponse({"clients": rows, "total": len(hub)})


async def _forget(service: Service, request: Request) -> Response:
    (await _caller(service, request)).check_admin()
    try:
        client = client_name(request.query_params.get("client"))
    except InputError as error:
        raise Problem("bad_request", str(error)) from None
    if not await service.forget(client, "forgotten", by_owner=True):
        raise Problem("unknown_client", f"no client {client!r}")
    return JSONResponse({"client": client, "removed": True})


async def _metrics(service: Service, request: Request) -> Response:
    (await identify(service, request)).check_admin()
    service.metrics.waiting.set(len(service.batches))
    return Response(service.metrics.page(), media_type=CONTENT_TYPE)


# --- anybody ------------------------------------------------------------------------------------------------


async def _livez(service: Service, request: Request) -> Response:
    return PlainTextResponse("ok")


async def _readyz(service: Service, request: Request) -> Response:
    if not service.ready:
        raise Problem("stopping", "no new requests")
    if not service.store_answers:
        raise Problem("store_unavailable", "the store does not answer", retry_after=STORE_RETRY)
    return PlainTextResponse("ready", headers={HEADER: spoken_header()})


@functools.cache
def _document() -> bytes:
    return json.dumps(openapi_document(__version__)).encode()


async def _openapi(service: Service, request: Request) -> Response:
    return Response(_document(), media_type=JSON)


HANDLERS: dict[str, Handler] = {
    "sync": _sync,
    "upload": _upload,
    "download": _download,
    "join": _join,
    "leave": _leave,
    "task": _task,
    "whoami": _whoami,
    "clients": _clients,
    "forget": _forget,
    "openapi": _openapi,
    "metrics": _metrics,
    "fleet": fleet,
    "fleet_events": fleet_events,
    **{spec.name: page_file for spec in PAGE_SPECS},
    "livez": _livez,
    "readyz": _readyz,
}
