"""The OpenAPI 3.1 document, made from the entries of the endpoints; and the schemas that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from penstock.model.version import VERSION
from penstock.server.http.routing import Endpoint

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
POSITION: Schema = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def array(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def maybe(of: Schema) -> Schema:
    return {"anyOf": [of, {"type": "null"}]}


def struct(required: Sequence[str] = (), /, *, no_more: bool = False, **properties: Schema) -> Schema:
    """An object. ``no_more``: other keys are refused."""
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    if no_more:
        found["additionalProperties"] = False
    return found


def everything(**properties: Schema) -> Schema:
    """An object that always has all of its keys."""
    return struct(list(properties), no_more=False, **properties)


_INSTANT = {**WHOLE, "description": "An instant in ticks: microseconds since 1970, or what the stream counts"}
_COLUMNS = array(ref("Column"))
SCHEMAS: Mapping[str, Schema] = {
    "Problem": {
        **struct(
            ["type", "title", "status", "detail", "code"],
            type=TEXT, title=TEXT, status=WHOLE, detail=TEXT,
            code={**TEXT, "description": "Stable: PS101 …, or HTTP and the status"},
            error=TEXT, hint={**TEXT, "description": "What would have been right"},
            position=everything(line=WHOLE, column=WHOLE, length=WHOLE), text=TEXT,
            first={**WHOLE, "description": "Of results that are gone: the oldest position that is there"},
            row=everything(number=WHOLE, place=TEXT, column=maybe(TEXT), reason=TEXT), request=TEXT,
        ),
        "description": "RFC 9457; `request` is the number of the request in the server's log",
    },
    "Column": everything(name=TEXT, type={**TEXT, "description": "As CQL writes it"}),
    "Stream": everything(
        name=TEXT, columns=_COLUMNS, derived=FLAG, clock={"enum": ["timestamp", "ticks"]}, timestamp_by=maybe(TEXT),
        progress=maybe(_INSTANT), closed=FLAG, newest=maybe(_INSTANT), given=WHOLE, late=WHOLE, apart=WHOLE,
        source=maybe(TEXT), definition=maybe(TEXT), owner=maybe(TEXT), may_write=FLAG,
    ),
    "NewStream": struct(
        ["name", "columns"], no_more=True,
        name={**TEXT, "minLength": 1}, columns={**_COLUMNS, "minItems": 1}, timestamp_by=maybe(TEXT),
        slack={"type": ["string", "integer", "null"]},
        options=maybe({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
    ),
    "Relation": everything(
        name=TEXT, columns=_COLUMNS, key=array(TEXT), rows=WHOLE, definition=maybe(TEXT), owner=maybe(TEXT),
        may_write=FLAG,
    ),
    "NewRelation": struct(
        ["name", "columns"], no_more=True,
        name={**TEXT, "minLength": 1}, columns={**_COLUMNS, "minItems": 1}, key=array(TEXT),
    ),
    "Pushed": everything(rows=WHOLE, apart=WHOLE, late=WHOLE),
    "Rows": {
        "description": "Objects by column name, or arrays in the order of columns",
        "anyOf": [array({"type": ["object", "array"]}), {"type": "object"}],
    },
    "Query": everything(
        name=TEXT, status={"enum": ["running", "suspended", "ended", "stopped", "failed"]}, columns=_COLUMNS,
        text=maybe(TEXT), reads=array(TEXT), options={"type": "object"}, stands=FLAG, first=POSITION, next=POSITION,
        ended=maybe(WHOLE), how=maybe(TEXT), note=maybe(TEXT), failures=WHOLE, latency={"type": "object"},
        subscriptions=WHOLE, owner=maybe(TEXT), may_change=FLAG,
    ),
    "NewQuery": {
        **struct(
            no_more=True, cql=TEXT, plan={"type": "object"}, name={**TEXT, "minLength": 1}, options={"type": "object"}
        ),
        "oneOf": [{"required": ["cql"]}, {"required": ["plan"]}],
    },
    "QueryOptions": struct(
        no_more=True, priority=maybe(WHOLE), latency=maybe(TEXT), lag={"type": ["string", "integer", "null"]},
        on_lag=maybe({"enum": ["suspend", "stop"]}), results=maybe(TEXT),
    ),
    "Page": everything(
        query=TEXT, start=POSITION, next=POSITION, first=POSITION, ended=maybe(TEXT), columns=_COLUMNS,
        rows=array({"type": "object"}),
    ),
    "Table": everything(columns=_COLUMNS, rows=array({"type": "array"})),
    "Subscription": everything(
        name=TEXT, query=TEXT, position=POSITION, owner=TEXT, lag=maybe(WHOLE), gone=maybe(WHOLE),
    ),
    "NewSubscription": struct(
        ["name", "query"], no_more=True, name={**TEXT, "minLength": 1}, query=TEXT,
        start={"anyOf": [{"enum": ["start", "now"]}, POSITION]},
    ),
    "Statements": struct(
        ["sql"], no_more=True, sql=TEXT,
        parameters=array({"type": ["string", "number", "boolean", "null"]}),
        seconds={"type": "number", "exclusiveMinimum": 0},
    ),
    "Results": everything(results=array(struct(
        ["tag", "message"], tag=TEXT, message=TEXT, query=TEXT, note=TEXT, columns=_COLUMNS,
        rows=array({"type": "array"}), subscribe={"type": "object"},
    ))),
    "Health": everything(status={"enum": ["starting", "ready", "stopping"]}, version=TEXT),
    "Ready": everything(status={"enum": ["starting", "ready", "stopping"]}, ready=FLAG),
    "User": everything(
        user=TEXT, admin=FLAG, expires=maybe(WHOLE), version=TEXT, status=TEXT,
        ports=everything(flight=maybe(WHOLE), postgres=maybe(WHOLE)),
    ),
}  # fmt: skip

_PROBLEM = {"application/problem+json": {"schema": ref("Problem")}}
_ALWAYS = {
    400: "The request cannot be read, or says something that makes no sense",
    401: "No credential was given, or it is wrong, expired or withdrawn",
    403: "The user may not do this",
    404: "There is no such thing for this user",
    405: "The method is not for this path",
    406: "Nothing here is of a type that the client accepts",
    408: "The body did not come in time",
    409: "It makes no sense now: there is one already, it is closed, or it has ended",
    410: "Results that were asked for are not retained any more: `first` says which are",
    413: "The body is too large",
    415: "The body has a type that is not taken here",
    429: "A limit of the settings is reached",
    500: "The server failed; its log says why",
    501: "The engine cannot run this",
    503: "Not now: buffers are full, or the server starts or ends",
    507: "The directory of the database cannot be written to",
}
_OPEN = (405,)
_NAME = re.compile(r"\{(\w+)\}")


def content(schema: Schema, *kinds: str) -> dict[str, Any]:
    """A body of JSON of this schema; ``kinds``: other media types that it may have."""
    found: dict[str, Any] = {"application/json": {"schema": schema}}
    return found | {kind: {"schema": {}} for kind in kinds}


def parameter(name: str, schema: Schema, description: str, place: str = "query") -> Mapping[str, Any]:
    return {"name": name, "in": place, "required": False, "schema": schema, "description": description}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """All of it."""
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": VERSION,
            "description": "Continuous queries over streams. Names in paths are percent-encoded.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}, {"password": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _operation(each: Endpoint) -> dict[str, Any]:
    names = [
        {"name": name, "in": "path", "required": True, "schema": {**TEXT, "minLength": 1}}
        for name in _NAME.findall(each.path)
    ]
    problems = {str(status): {"description": text, "content": _PROBLEM} for status, text in _ALWAYS.items()
                if not each.open or status in _OPEN}  # fmt: skip
    good = {str(status): _response(told) for status, told in each.responses.items()}
    found: dict[str, Any] = {"operationId": each.id, "summary": each.summary, "responses": {**problems, **good}}
    if each.description:
        found["description"] = each.description
    if names or each.parameters:
        found["parameters"] = [*names, *each.parameters]
    if each.body is not None:
        found["requestBody"] = {"required": True, "content": each.body}
    if each.open:
        found["security"] = []
    return found


def _response(told: Any) -> dict[str, Any]:
    if isinstance(told, str):
        return {"description": told}
    description, body = told
    return {"description": description, "content": body}


@cache
def written(endpoints: tuple[Endpoint, ...]) -> bytes:
    """The document as it is sent."""
    return json.dumps(document(endpoints), ensure_ascii=False).encode()
