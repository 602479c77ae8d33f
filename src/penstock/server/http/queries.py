"""Queries: register, list, stop, suspend, resume, alter, explain; what stands now."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response

from penstock.model.errors import CatalogError
from penstock.server.http.app import Call
from penstock.server.http.problems import HttpProblem, Told
from penstock.server.http.shapes import JSON, facts, json_response, table_response, wanted
from penstock.server.session import Session
from penstock.server.stop import Stop

EXPLAIN = ("text", "json", "mermaid")


async def list_queries(call: Call) -> Response:
    call.known("ended")
    ended = call.choice("ended", ("true", "false"), "true") == "true"
    return json_response({"queries": facts(await call.ask(call.service.queries, ended=ended))})


async def get_query(call: Call) -> Response:
    call.known()
    return json_response(facts(await call.ask(call.service.query, call.name("query"))))


async def create_query(call: Call) -> Response:
    call.known()
    given = await call.json("cql", "plan", "name", "options")
    text, plan, name, options = (given.get(key) for key in ("cql", "plan", "name", "options"))
    if (text is None) == (plan is None):
        raise HttpProblem(400, "a query has either `cql` or `plan`")
    if not isinstance(text, str | None) or not isinstance(name, str | None) or name == "":
        raise HttpProblem(400, "`cql` and `name` are texts")
    if not isinstance(options, dict | None) or not isinstance(plan, dict | None):
        raise HttpProblem(400, "`plan` and `options` are objects")
    try:
        made = await call.ask(call.service.create_query, text=text, plan=plan, name=name, options=options or {})
    except CatalogError as error:
        raise Told(error, 409 if error.position is None else 400) from None
    return json_response(facts(made), 201, {"Location": f"/api/queries/{quote(made.name, safe='')}"})


async def stop_query(call: Call) -> Response:
    call.known()
    return json_response(facts(await call.ask(call.service.stop, call.name("query"))))


async def alter_query(call: Call) -> Response:
    call.known()
    options = await call.json()  # the service knows which there are
    return json_response(facts(await call.ask(call.service.alter, call.name("query"), options)))


async def suspend_query(call: Call) -> Response:
    call.known()
    return json_response(facts(await call.ask(call.service.suspend, call.name("query"))))


async def resume_query(call: Call) -> Response:
    call.known()
    return json_response(facts(await call.ask(call.service.resume, call.name("query"))))


async def current(call: Call) -> Response:
    call.known("format")
    format, name = wanted(call, "json", "csv", "arrow"), call.name("query")

    def run(session: Session, stop: Stop) -> Response:
        return table_response(call.service.current(session, name, stop=stop), format)

    return await call.ask_while_there(run)


async def explain_query(call: Call) -> Response:
    call.known("format")
    format, name = call.choice("format", EXPLAIN, "text"), call.name("query")
    await call.ask(call.service.query, name)  # a name, and not a text
    return _explained(await call.ask(call.service.explain, name, format), format)


async def explain_text(call: Call) -> Response:
    call.known()
    given = await call.json("cql", "format")
    text, format = given.get("cql"), given.get("format", "text")
    if not isinstance(text, str) or format not in EXPLAIN:
        raise HttpProblem(400, "`cql` is a text", hint=f"`format` is one of {', '.join(EXPLAIN)}")
    return _explained(await call.ask(call.service.explain, text, format), format)


def _explained(text: str, format: str) -> Response:
    return Response(text, 200, None, JSON if format == "json" else "text/plain")
