"""The OpenAPI document of the server, made from the table of routes."""

from __future__ import annotations

from typing import Any

from ..coordination.problems import CODES
from .routes import CONNECTION, SPECS, RouteSpec

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


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
            "schemas": {"Problem": _problem_schema()},
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


def _problem_schema() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "description": "RFC 9457. A code keeps its meaning between versions.",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": text,
            "title": text,
            "status": {"type": "integer"},
            "detail": text,
            "code": {"type": "string", "enum": sorted(CODES)},
            "server_task": text,
            "client_task": text,
            "differs": text,
            "stored_version": {"type": "integer"},
            "protocols": {"type": "array", "items": {"type": "integer"}},
        },
    }
