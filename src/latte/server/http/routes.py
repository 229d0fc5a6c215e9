"""The routes of the server as data: the application and the OpenAPI document are both made from this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...wire.messages import CODES, MEDIA_TYPE

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
    """A route: what it does, what it takes and answers, and the problems it may answer instead.

    ``takes`` and ``gives`` are media types with a schema; an ``open`` route needs no token.
    """

    name: str
    method: str
    path: str
    summary: str
    gives: tuple[str, Schema]
    codes: tuple[str, ...]
    takes: tuple[str, Schema] | None = None
    query: tuple[Query, ...] = ()
    statuses: Mapping[str, str] = field(default_factory=dict)  # further answers without a body
    open: bool = False


def _object(**properties: Schema) -> tuple[str, Schema]:
    return JSON, {"type": "object", "properties": properties, "required": list(properties)}


_SYNC = (MEDIA_TYPE, _BINARY)
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
        f"page_{name.replace('.', '_')}", "GET", path, f"The dashboard: {name}.",
        (kind, _TEXT), ("internal",), open=True,
    )
    for path, (name, kind) in PAGE_FILES.items()
)  # fmt: skip

SPECS = (
    RouteSpec(
        "sync", "POST", "/v1/sync", "Upload and download in one round trip.",
        _SYNC, (*_UPLOAD, "unknown_client"), takes=_SYNC,
    ),
    RouteSpec("upload", "POST", "/v1/upload", "Upload a summary.", _SYNC, _UPLOAD, takes=_SYNC),
    RouteSpec(
        "download", "POST", "/v1/download", "Get what others uploaded.",
        _SYNC, (*_MESSAGE, "unknown_client"), takes=_SYNC,
    ),
    RouteSpec(
        "join", "POST", "/v1/join", "Check task and token, and get the version of the upload that is stored.",
        _object(client=_CLIENT, task=_TEXT, version=_WHOLE, clients=_WHOLE), _MESSAGE,
        takes=_object(client=_CLIENT, task=_TEXT),
    ),
    RouteSpec(
        "leave", "POST", "/v1/leave", "Remove what the client has uploaded.",
        _REMOVED, _MESSAGE, takes=_object(client=_CLIENT),
    ),
    RouteSpec(
        "task", "GET", "/v1/task", "The task file.",
        (TASK_TYPE, _BINARY), _CALLER, statuses={"304": "The client has this task: If-None-Match is its ETag."},
    ),
    RouteSpec(
        "whoami", "GET", "/v1/whoami", "Whose token this is: the client's name, or null.",
        _object(client={"type": ["string", "null"]}, admin={"type": "boolean"}), _CALLER,
    ),
    RouteSpec(
        "clients", "GET", "/v1/clients", "List clients by name. For admins.",
        _object(clients={"type": "array", "items": {"type": "object"}}, total=_WHOLE),
        (*_CALLER, "bad_request"), query=(Query("after", _TEXT), Query("limit", _LIST_LIMIT)),
    ),
    RouteSpec(
        "forget", "DELETE", "/v1/clients", "Remove a client. For admins.",
        _REMOVED, (*_CALLER, *_STORE, "bad_request", "unknown_client"),
        query=(Query("client", _CLIENT, required=True),),
    ),
    RouteSpec("openapi", "GET", "/v1/openapi.json", "This document.", _object(), ("internal",), open=True),
    RouteSpec("metrics", "GET", "/metrics", "Prometheus metrics. For admins.", (TEXT, _TEXT), _ADMIN),
    RouteSpec(
        "fleet", "GET", "/v1/fleet", "The state of the fleet, as the dashboard shows it. For admins.",
        _FLEET, (*_ADMIN, "bad_request"), query=_FLEET_QUERY,
    ),
    RouteSpec(
        "fleet_events", "GET", "/v1/fleet/events", "What changes of it, as server-sent events. For admins.",
        (EVENTS, _TEXT), (*_ADMIN, "bad_request", "busy"), query=_FLEET_QUERY,
    ),
    *PAGE_SPECS,
    RouteSpec("livez", "GET", "/livez", "The process runs.", (TEXT, _TEXT), ("internal",), open=True),
    RouteSpec(
        "readyz", "GET", "/readyz", "Requests are accepted, and the store answers.",
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
        "code": {"type": "string", "enum": sorted(CODES)},
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
    for status in sorted({CODES[code][0] for code in codes}):
        titles = [f"{code}: {CODES[code][1]}." for code in codes if CODES[code][0] == status]
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
