"""What responses are made of: tables and facts as JSON, CSV or Arrow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc
from starlette.responses import Response

from penstock.io.writers import CsvText, JsonText
from penstock.model.types import from_arrow
from penstock.rows.text import as_json, jsonable
from penstock.server.http.problems import HttpProblem
from penstock.storage.packing import packed

if TYPE_CHECKING:
    from penstock.server.http.app import Call

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"
FORMATS = {"json": JSON, "csv": CSV, "arrow": ARROW, "events": EVENTS}
"""Names of formats in the parameter ``format``, and what they are in ``Accept``."""


def json_response(told: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumped(told), status, headers, JSON)


def dumped(told: object) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace")


def facts(info: Any) -> Any:
    """A dataclass of the service as an object of JSON, without what only programs of Python can use."""
    if is_dataclass(info):
        return {f.name: facts(getattr(info, f.name)) for f in fields(info) if f.name != "schema"}
    if isinstance(info, Mapping):
        return {str(key): facts(value) for key, value in info.items()}
    if isinstance(info, list | tuple):
        return [facts(each) for each in info]
    return jsonable(info)


def columns_of(schema: pa.Schema) -> list[dict[str, str]]:
    """Names and types; types as CQL writes them where it has them."""
    return [{"name": f.name, "type": str(from_arrow(f.type) or f.type)} for f in schema]


def row_arrays(table: pa.Table) -> str:
    """Rows as arrays of JSON: a result may have two columns of one name."""
    columns = [as_json(column) for column in table.columns]
    return "[" + ",".join("[" + ",".join(row) + "]" for row in zip(*columns, strict=True)) + "]"


def row_objects(table: pa.Table) -> list[str]:
    """Rows as texts of JSON objects; no text has a line break."""
    return JsonText(table.schema).body(table).split("\n")[:-1]


def csv_text(table: pa.Table) -> bytes:
    text = CsvText(table.schema)
    return (text.head() + text.body(table)).encode("utf-8", "backslashreplace")


def table_json(table: pa.Table) -> bytes:
    """A table by itself: its columns, and its rows as arrays."""
    columns = json.dumps(columns_of(table.schema), ensure_ascii=False)
    return f'{{"columns":{columns},"rows":{row_arrays(table)}}}'.encode("utf-8", "backslashreplace")


def table_response(table: pa.Table, format: str, headers: Mapping[str, str] | None = None) -> Response:
    """A table in the format that the client wants. To be made in a thread for work."""
    match format:
        case "arrow":
            return Response(packed(table), 200, headers, ARROW)
        case "csv":
            return Response(csv_text(table), 200, headers, CSV)
        case _:
            return Response(table_json(table), 200, headers, JSON)


def wanted(call: Call, *formats: str) -> str:
    """The format that a client wants, by the parameter ``format`` or by ``Accept``; else the first."""
    if call.parameter("format") is not None:
        return call.choice("format", formats, formats[0])
    best, found = 0.0, ""
    accepted = call.headers.get("accept", "*/*")
    for each in accepted.split(","):
        kind, *options = (part.strip() for part in each.lower().split(";"))
        weight = _weight(options)
        for format in formats:
            whole = FORMATS[format]
            if weight > best and kind in (whole, f"{whole.partition('/')[0]}/*", "*/*"):
                best, found = weight, format
    if not found:
        kinds = ", ".join(FORMATS[format] for format in formats)
        raise HttpProblem(406, "there is nothing here that the client accepts", hint=f"there are {kinds}")
    return found


def _weight(options: list[str]) -> float:
    for option in options:
        if option.startswith("q="):
            try:
                return float(option[2:])
            except ValueError:
                return 0.0
    return 1.0
