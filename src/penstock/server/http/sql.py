"""Statements: what clients send as text, and what each gave."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from typing import Any

from starlette.responses import Response

from penstock.server.http.app import Call, object_of
from penstock.server.http.problems import HttpProblem
from penstock.server.http.shapes import JSON, columns_of, facts, row_arrays, table_response, wanted
from penstock.server.session import Outcome, Session
from penstock.server.stop import Stop
from penstock.storage.packing import packed

_TEXTS = ("text/plain", "application/sql", "application/cql")


async def sql(call: Call) -> Response:
    """Run the statements of a text. As CSV or Arrow the table of the last one that has one."""
    call.known("format", "tables")
    encoded = call.choice("tables", ("rows", "arrow"), "rows") == "arrow"
    format = wanted(call, "json", "csv", "arrow")
    text, parameters, seconds = await _asked(call)

    def run(session: Session, stop: Stop) -> Response:
        deadline = None if seconds is None else time.monotonic() + seconds
        outcomes = call.service.execute(session, text, parameters, deadline=deadline, stop=stop)
        if format == "json":
            return Response(_told(outcomes, encoded), 200, None, JSON)
        tables = [each.table for each in outcomes if each.table is not None]
        if not tables:
            raise HttpProblem(406, "the statements gave no table", hint="ask for JSON, which tells what each gave")
        return table_response(tables[-1], format)

    return await call.ask_while_there(run)


async def _asked(call: Call) -> tuple[str, list[Any], float | None]:
    if call.media_type in _TEXTS:
        try:
            return (await call.body()).decode(), [], None
        except UnicodeDecodeError:
            raise HttpProblem(400, "the text is not UTF-8") from None
    if call.media_type not in (JSON, ""):
        raise HttpProblem(415, f"statements are not taken as {call.media_type}", hint=f"{JSON}, or {_TEXTS[0]}")
    given = object_of(await call.body(), ("sql", "parameters", "seconds"))
    text, parameters, seconds = given.get("sql"), given.get("parameters", []), given.get("seconds")
    if not isinstance(text, str):
        raise HttpProblem(400, "`sql` is missing, or not a text")
    if not isinstance(parameters, list) or any(isinstance(each, list | dict) for each in parameters):
        raise HttpProblem(400, "`parameters` is not an array of plain values")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0):
        raise HttpProblem(400, "`seconds` is not a positive number")
    return text, parameters, seconds


def _told(outcomes: list[Outcome], encoded: bool) -> bytes:
    """``encoded``: tables as Arrow in base64, with their exact types."""
    results = []
    for each in outcomes:
        told: dict[str, Any] = {"tag": each.tag, "message": each.message}
        if each.query is not None:
            told["query"] = each.query
        if each.note is not None:
            told["note"] = each.note
        if each.subscribe is not None:
            told["subscribe"] = facts(each.subscribe)
        if encoded and each.table is not None:
            told["arrow"] = b64encode(packed(each.table)).decode()
        elif each.table is not None:
            told["columns"] = columns_of(each.table.schema)
        text = json.dumps(told, ensure_ascii=False)
        results.append(text if each.table is None or encoded else f'{text[:-1]}, "rows": {row_arrays(each.table)}}}')
    return f'{{"results": [{", ".join(results)}]}}'.encode("utf-8", "backslashreplace")
