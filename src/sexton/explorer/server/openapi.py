"""The OpenAPI 3.1 description of the API, generated from `api.ENDPOINTS`.

Schemas list the fields that are guaranteed, with their types; fields may be added.
"""

from __future__ import annotations

from typing import Any

from sexton import __version__
from sexton.explorer.server.api import ENDPOINTS, Endpoint
from sexton.explorer.server.query import Parameter

Schema = dict[str, Any]

_NUMBER: Schema = {"type": "number"}
_MAYBE: Schema = {"type": ["number", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_BASE64: Schema = {"type": "string", "contentEncoding": "base64"}


def _list(of: Schema, **more: int) -> Schema:
    return {"type": "array", "items": of, **more}


def _record(**fields: Schema) -> Schema:
    """An object with at least these fields."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def _named(schema: str, **fields: Schema) -> Schema:
    return _record(schema={"const": schema}, **fields)


_SPAN = _list(_NUMBER, minItems=2, maxItems=2)
_LANE = _record(
    id=_TEXT,
    title=_TEXT,
    kind={"enum": ["heat", "lines", "marks", "stacks"]},
    unit=_TEXT,
    about=_TEXT,
    series=_list(_TEXT),
    levels=_list({"type": "integer"}, minItems=2, maxItems=2),
    limit=_MAYBE,
    most_tiles={"type": "integer", "minimum": 1},
)
_MARK = _record(
    time=_NUMBER,
    end=_MAYBE,
    kind=_TEXT,
    text=_TEXT,
    severity={"enum": ["info", "warning", "critical"]},
    entity=_TEXT,
    lane=_TEXT,
)
_FUNCTION = _record(name=_TEXT, module=_TEXT, kind=_TEXT, self=_COUNT, total=_COUNT, share=_MAYBE)
_NODES = _record(
    parent=_list({"type": "integer", "minimum": -1}),
    name=_list(_COUNT),
    samples=_list(_COUNT),
    own=_list(_COUNT),
    kind=_list(_TEXT),
    module=_list(_COUNT),
)

SCHEMAS: dict[str, Schema] = {
    "Error": _record(error=_TEXT),
    "Recording": _named(
        "sexton.view/1",
        node={"type": ["object", "null"]},
        start=_MAYBE,
        end=_MAYBE,
        live=_FLAG,
        lanes=_list(_LANE),
        finding_lanes={"type": "object", "additionalProperties": _list(_TEXT)},
        gaps=_list(_SPAN),
        tour=_FLAG,
        id=_TEXT,
    ),
    "Strip": _named(
        "sexton.strip/1",
        lane=_TEXT,
        level={"type": "integer"},
        first=_COUNT,
        count={"type": "integer", "minimum": 1},
        columns=_COUNT,
        names=_list(_TEXT),
        rows_left_out=_COUNT,
        dtype={"enum": ["uint8", "uint16", "float32"]},
        channels=_list(_TEXT),
        planes={"type": "object", "additionalProperties": _BASE64},
    ),
    "Marks": _named("sexton.marks/1", marks=_list(_MARK), left_out=_COUNT),
    "Table": _named(
        "sexton.table/1", headings=_list(_TEXT), rows=_list(_list(_TEXT)), left_out=_COUNT
    ),
    "Flame": _named(
        "sexton.flame/1",
        event=_TEXT,
        names=_list(_TEXT),
        modules=_list(_TEXT),
        nodes=_NODES,
        total=_COUNT,
        before={"type": ["integer", "null"]},
        core_seconds=_MAYBE,
        pruned=_COUNT,
        note=_TEXT,
        settled={"type": "boolean"},
    ),
    "Functions": _named(
        "sexton.functions/1", rows=_list(_FUNCTION), samples=_COUNT, left_out=_COUNT, note=_TEXT
    ),
    "Diagnosis": _named(
        "sexton.diagnosis/1",
        exit={"type": "integer"},
        word=_TEXT,
        findings=_list({"type": "object"}),
        chains=_list({"type": "object"}),
        story=_list(_TEXT),
        marks=_list(_MARK),
    ),
    "Why": _named(
        "sexton.why/1",
        exit={"type": "integer"},
        about={"type": "object"},
        chains=_list({"type": "object"}),
        story=_list(_TEXT),
    ),
    "Next": _named("sexton.next/1", time=_MAYBE, text=_TEXT, mark={"type": ["object", "null"]}),
    "Tour": {"type": "object"},
}
_ERRORS = {
    401: "Token required",
    403: "Cross-site request, or unknown Host header",
    404: "Not found, or nothing recorded at that time",
    405: "Only GET and HEAD are allowed",
    409: "The tiles belong to another server process",
    422: "A parameter is missing, unknown, repeated or out of range",
    503: "Too many requests in progress: retry after a second",
}


def description() -> dict[str, Any]:
    """The OpenAPI document."""
    paths = {endpoint.path: {"get": _operation(endpoint)} for endpoint in ENDPOINTS}
    paths["/api/live"] = {
        "get": {
            "operationId": "live",
            "summary": 'Server-sent events, {"end": s} whenever a live recording grows',
            "responses": _responses("text/event-stream", _TEXT),
        }
    }
    paths["/openapi.json"] = {
        "get": {
            "operationId": "openapi",
            "summary": "This document",
            "responses": _responses("application/json", {"type": "object"}),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sexton's explorer",
            "version": __version__,
            "summary": "A recorded node over time. Read-only.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # No token is required on loopback.
        "security": [{}, {"token": []}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "operationId": endpoint.path.split("/")[2],
        "summary": endpoint.about,
        "parameters": [_parameter(parameter) for parameter in endpoint.parameters],
        "responses": _responses("application/json", _ref(endpoint.schema)),
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.about,
        "schema": parameter.schema(),
    }


def _responses(kind: str, schema: Schema) -> dict[str, Any]:
    errors = {
        str(status): {
            "description": words,
            "content": {"application/json": {"schema": _ref("Error")}},
        }
        for status, words in _ERRORS.items()
    }
    good = {"description": "OK", "content": {kind: {"schema": schema}}}
    return {"200": good, "304": {"description": "Not modified"}, **errors}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
