"""Streams and relations: declare, list, drop, rows in, rows that came too late or do not fit."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from penstock.cql.declarations import parse_type
from penstock.cql.names import quoted
from penstock.model.errors import CatalogError
from penstock.server.http.app import Call
from penstock.server.http.problems import HttpProblem, Told
from penstock.server.http.shapes import ARROW, CSV, JSON, NDJSON, facts, json_response, table_response, wanted
from penstock.server.texts import RowsFormat

_FORMATS: dict[str, RowsFormat] = {
    JSON: "json", "": "json", NDJSON: "ndjson", "application/ndjson": "ndjson", "application/jsonl": "ndjson",
    CSV: "csv", ARROW: "arrow", "application/vnd.apache.arrow": "arrow",
}  # fmt: skip
_OPTION = re.compile(r"[a-z_]{1,32}")
_KEY = re.compile(r"(.{1,200}):([0-9]{1,18})", re.DOTALL)


async def list_streams(call: Call) -> Response:
    call.known()
    return json_response({"streams": facts(await call.ask(call.service.streams))})


async def get_stream(call: Call) -> Response:
    call.known()
    return json_response(facts(await call.ask(call.service.stream, call.name("stream"))))


async def create_stream(call: Call) -> Response:
    call.known()
    given = await call.json("name", "columns", "timestamp_by", "slack", "options")
    name, text = _declared("STREAM", given)
    if given.get("timestamp_by") is not None:
        text += f" TIMESTAMP BY {quoted(_text(given, 'timestamp_by'))}"
    if given.get("slack") is not None:
        slack = given["slack"]
        text += f" SLACK {slack if type(slack) is int else _literal('slack', slack)}"
    text += _options(given.get("options"))
    await _create(call, text)
    return _made(facts(await call.ask(call.service.stream, name)), "streams", name)


async def drop_stream(call: Call) -> Response:
    call.known()
    name = call.name("stream")
    await call.ask(call.service.stream, name)  # it is a stream that the user knows of
    await call.ask(call.service.execute, f"DROP STREAM {quoted(name)}")
    return Response(status_code=204)


async def push_to_stream(call: Call) -> Response:
    return await _push(call, call.name("stream"))


async def heartbeat(call: Call) -> Response:
    call.known()
    given = await call.json("at")
    if not isinstance(given.get("at"), str | int) or isinstance(given["at"], bool):
        raise HttpProblem(400, "key `at` is missing", hint="a whole number of ticks, or a time in ISO 8601")
    await call.ask(call.service.heartbeat, call.name("stream"), given["at"])
    return json_response(facts(await call.ask(call.service.stream, call.name("stream"))))


async def close_stream(call: Call) -> Response:
    call.known()
    await call.ask(call.service.close_stream, call.name("stream"))
    return json_response(facts(await call.ask(call.service.stream, call.name("stream"))))


async def late(call: Call) -> Response:
    return await _taken(call, call.service.late)


async def apart(call: Call) -> Response:
    return await _taken(call, call.service.apart)


async def _taken(call: Call, take: Any) -> Response:
    call.known("format")
    format = wanted(call, "json", "csv", "arrow")
    name = call.name("stream")
    return await call.ask(lambda session: table_response(take(session, name), format))


# -- relations ----------------------------------------------------------------------------------------


async def list_relations(call: Call) -> Response:
    call.known()
    return json_response({"relations": facts(await call.ask(call.service.relations))})


async def get_relation(call: Call) -> Response:
    call.known()
    return json_response(facts(await call.ask(call.service.relation, call.name("relation"))))


async def create_relation(call: Call) -> Response:
    call.known()
    given = await call.json("name", "columns", "key")
    key = given.get("key") or []
    if not isinstance(key, list) or not all(isinstance(each, str) for each in key):
        raise HttpProblem(400, "`key` is not an array of names")
    name, text = _declared("RELATION", given)
    if key:
        text += f" KEY ({', '.join(map(quoted, key))})"
    await _create(call, text)
    return _made(facts(await call.ask(call.service.relation, name)), "relations", name)


async def drop_relation(call: Call) -> Response:
    call.known()
    name = call.name("relation")
    await call.ask(call.service.relation, name)
    await call.ask(call.service.execute, f"DROP RELATION {quoted(name)}")
    return Response(status_code=204)


async def relation_rows(call: Call) -> Response:
    call.known("format")
    format = wanted(call, "json", "csv", "arrow")
    name = call.name("relation")
    return await call.ask(lambda session: table_response(call.service.rows(session, name), format))


async def push_to_relation(call: Call) -> Response:
    return await _push(call, call.name("relation"), "at")


# -- rows in ------------------------------------------------------------------------------------------


async def _push(call: Call, name: str, *parameters: str) -> Response:
    call.known(*parameters)
    format = _FORMATS.get(call.media_type)
    if format is None:
        kinds = ", ".join((JSON, NDJSON, CSV, ARROW))
        raise HttpProblem(415, f"rows are not taken as {call.media_type}", hint=f"Content-Type is one of {kinds}")
    key = idempotency_key(call.headers.get("idempotency-key"))
    at: object = call.parameter("at") if "at" in parameters else None
    if isinstance(at, str) and re.fullmatch(r"-?[0-9]{1,18}", at):
        at = int(at)
    data = await call.body()
    pushed = await call.ask(call.service.push_text, name, format, data, at=at, key=key)
    return json_response(facts(pushed))


def idempotency_key(text: str | None) -> tuple[str, int] | None:
    """``producer:sequence`` as a push has it."""
    if text is None:
        return None
    try:
        text = text.encode("latin-1").decode().strip()
    except UnicodeError:
        raise HttpProblem(400, "the Idempotency-Key is not UTF-8") from None
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    found = _KEY.fullmatch(text[1:-1] if quoted else text)
    if found is None:
        hint = "a producer, a colon and a whole number that grows, such as sensor-7:41"
        raise HttpProblem(400, "the Idempotency-Key cannot be read", hint=hint)
    return found[1], int(found[2])


# -- declarations from objects ------------------------------------------------------------------------


def _declared(kind: str, given: dict[str, Any]) -> tuple[str, str]:
    """The name, and the statement up to its columns."""
    name, columns = _text(given, "name"), given.get("columns")
    if not isinstance(columns, list) or not columns:
        raise HttpProblem(400, "`columns` is not an array", hint='[{"name": "at", "type": "TIMESTAMP"}, …]')
    written = []
    for i, column in enumerate(columns):
        if not isinstance(column, dict) or set(column) != {"name", "type"}:
            raise HttpProblem(400, f"column {i + 1} is not an object with `name` and `type`")
        dtype = parse_type(_text(column, "type"))
        written.append(f"{quoted(_text(column, 'name'))} {dtype}")
    return name, f"CREATE {kind} {quoted(name)} ({', '.join(written)})"


def _text(given: dict[str, Any], key: str) -> str:
    found = given.get(key)
    if not isinstance(found, str) or not found.strip() or "\0" in found:
        raise HttpProblem(400, f"key `{key}` is missing, or not a text")
    return found


def _literal(key: str, value: object) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            return repr(value)
        case str() if "\0" not in value:
            return "'" + value.replace("'", "''") + "'"
        case _:
            raise HttpProblem(400, f"`{key}` is not a text, a number or true or false")


def _options(given: object) -> str:
    if given is None or given == {}:
        return ""
    if not isinstance(given, dict) or not all(_OPTION.fullmatch(key) for key in given):
        raise HttpProblem(400, "`options` is not an object of options", hint='{"retain": "1 hour"}')
    return f" WITH ({', '.join(f'{key} = {_literal(key, value)}' for key, value in given.items())})"


async def _create(call: Call, text: str) -> None:
    try:
        await call.ask(call.service.execute, text)
    except CatalogError as error:
        raise Told(error, 409) from None


def _made(told: Any, kind: str, name: str) -> Response:
    return json_response(told, 201, {"Location": f"/api/{kind}/{quote(name, safe='')}"})
