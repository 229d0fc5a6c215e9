"""The bodies of requests: read within a limit, decoded with a schema; and the bodies of answers."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ..coordination.problems import Problem
from ..wire.messages import MEDIA_TYPE, SyncReply, SyncRequest, pack, protocol_of, unpack
from ..wire.versions import HEADER, SPOKEN, UNSUPPORTED, spoken_header

_JSON_BYTES = 16_384  # of a small request in JSON
_ACCEPTED = (MEDIA_TYPE, "application/msgpack", "application/x-msgpack")

T = TypeVar("T", bound=msgspec.Struct)


async def read_body(request: Request, most: int, types: tuple[str, ...]) -> bytes:
    """Return the body; a body that is too long is refused before it is read to the end."""
    headers = request.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(
            "unsupported_media", f"content-encoding {headers['content-encoding'][:40]!r}: send it uncompressed"
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in types:
        raise Problem("unsupported_media", f"content-type {kind[:80]!r}, want {types[0]}")
    declared = headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise Problem("too_large", f"{declared[:20]} bytes, at most {most}")
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise Problem("too_large", f"more than {most} bytes")
            parts.append(part)
    except ClientDisconnect:
        raise Problem("bad_request", "the client went away while it was sending") from None
    return b"".join(parts)


async def read_sync(request: Request, most: int) -> tuple[SyncRequest, int]:
    """Return the message in a request, and how many bytes it had."""
    body = await read_body(request, most, _ACCEPTED)
    try:
        message = unpack(body, SyncRequest)
    except ValueError as error:
        check_protocol(protocol_of(body))  # another version may have other types
        raise Problem("bad_message", str(error)) from None
    check_protocol(message.protocol)
    return message, len(body)


def check_protocol(version: int) -> None:
    """Refuse a version of the protocol that this server does not speak."""
    if version not in SPOKEN:
        detail = f"protocol {version}; this server speaks {spoken_header()}"
        raise Problem(UNSUPPORTED, detail, more={"protocols": list(SPOKEN)})


async def read_json_body(request: Request, kind: type[T]) -> T:
    """Return a small request in JSON."""
    body = await read_body(request, _JSON_BYTES, ("application/json",))
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("bad_message", str(error)[:200]) from None


def sync_response(reply: SyncReply) -> Response:
    """Return an answer to a client."""
    return Response(pack(reply), media_type=MEDIA_TYPE)


def problem_response(problem: Problem) -> Response:
    """Return a refusal: with the scheme for 401, and with the time to wait if the client may try again."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after)))
    headers[HEADER] = spoken_header()
    document: dict[str, Any] = problem.document()
    return JSONResponse(document, problem.status, headers, media_type="application/problem+json")
