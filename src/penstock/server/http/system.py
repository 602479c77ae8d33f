"""The server itself: health, metrics, the graph, settings, tables of ``sys``, and the pages for people."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib.resources import files

from starlette.responses import Response

from penstock.model.errors import AccessDenied
from penstock.server.http.app import Call
from penstock.server.http.problems import HttpProblem
from penstock.server.http.shapes import JSON, facts, json_response, table_response, wanted
from penstock.server.session import Session
from penstock.server.watching import CONTENT_TYPE, exposition

SYS = (
    "streams", "relations", "queries", "operators", "buffers", "parts", "sessions", "batches", "late", "failed",
    "subscriptions",
)  # fmt: skip
GRAPH = {"json": JSON, "svg": "image/svg+xml", "mermaid": "text/plain", "text": "text/plain"}
_SECRET = ("spark", "tls_key")
"""Settings that may hold what is nobody's business."""


async def health(call: Call) -> Response:
    """Whether the process answers at all."""
    found = call.service.health()
    return json_response({"status": found.status, "version": found.version})


async def ready(call: Call) -> Response:
    """Whether it takes requests."""
    found = call.service.health()
    return json_response({"status": found.status, "ready": found.ready}, 200 if found.ready else 503)


async def whoami(call: Call) -> Response:
    call.known()
    session = call.session
    told = {"user": session.user, "admin": session.admin, "expires": session.expires}
    found, ports = call.service.health(), {name: call.service.ports.get(name) for name in ("flight", "postgres")}
    about = call.service.about()
    return json_response({**told, "version": found.version, "status": found.status, "ports": ports, **facts(about)})


async def settle(call: Call) -> Response:
    """Until what was pushed before has been worked on."""
    call.known()
    query = (await call.json("query")).get("query")
    if not isinstance(query, str | None):
        raise HttpProblem(400, "`query` is not a name")
    await call.ask_while_there(call.service.settle, query)
    return Response(status_code=204)


async def create_function(call: Call) -> Response:
    call.known()
    given = await call.json("name", "source", "args", "returns")
    name, source, args, returns = (given.get(key) for key in ("name", "source", "args", "returns"))
    if not (isinstance(name, str) and isinstance(source, str) and isinstance(returns, str) and isinstance(args, list)):
        raise HttpProblem(400, "`name`, `source` and `returns` are texts, `args` an array of them")
    if not all(isinstance(each, str) for each in args):
        raise HttpProblem(400, "`args` is not an array of texts")
    await call.ask(lambda session: call.service.create_function(session, name, source, args=args, returns=returns))
    return Response(status_code=204)


async def prometheus(call: Call) -> Response:
    call.known()
    text = await call.ask(lambda session: exposition(call.service, session, call.site.requests))
    return Response(text, 200, {"Content-Type": CONTENT_TYPE})


async def metrics(call: Call) -> Response:
    call.known("of", "format")
    of, format = call.choice("of", ("work", "queries"), "work"), wanted(call, "json", "csv", "arrow")

    def found(session: Session) -> Response:
        return table_response(call.service.metrics(session, "work" if of == "work" else "queries"), format)

    return await call.ask(found)


async def graph(call: Call) -> Response:
    call.known("format")
    format = call.choice("format", tuple(GRAPH), "json")
    picture = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
    headers = picture if format == "svg" else None  # its style is in it
    return Response(await call.ask(call.service.graph, format), 200, headers, GRAPH[format])


async def settings(call: Call) -> Response:
    call.known()
    await call.ask(call.service.check)
    if not call.session.admin:
        raise AccessDenied("settings are for administrators")
    found = {f.name: getattr(call.settings, f.name) for f in fields(call.settings) if f.name not in _SECRET}
    return json_response(facts({key: str(v) if key == "tls_cert" and v else v for key, v in found.items()}))


async def configure(call: Call) -> Response:
    call.known()
    given = await call.json("query", "settings")
    query, changed = given.get("query"), given.get("settings")
    if not isinstance(query, str | None) or not isinstance(changed, dict) or not changed:
        raise HttpProblem(400, "`settings` is not an object of settings", hint='{"settings": {"workers": 4}}')
    if "query" in changed or not all(key.isidentifier() for key in changed):
        raise HttpProblem(400, "`settings` has a name that no setting has")
    await call.ask(lambda session: call.service.configure(session, query=query, **changed))
    return Response(status_code=204)


async def sys_table(call: Call) -> Response:
    call.known("format")
    format, name = wanted(call, "json", "csv", "arrow"), call.name("table")
    if name not in SYS:
        raise HttpProblem(404, "there is no such table of sys", hint=", ".join(SYS))
    return await call.ask(lambda session: table_response(call.service.sys_table(session, name), format))


async def log_out(call: Call) -> Response:
    call.known()
    await call.ask(call.service.logout)
    return Response(status_code=204)


# -- pages --------------------------------------------------------------------------------------------


@cache
def _file(name: str) -> bytes:
    return files("penstock.server.http").joinpath("pages", name).read_bytes()


async def index(call: Call) -> Response:
    return Response(_file("index.html"), 200, None, "text/html")


async def reference(call: Call) -> Response:
    return Response(_file("reference.html"), 200, None, "text/html")


async def style(call: Call) -> Response:
    return Response(_file("penstock.css"), 200, None, "text/css")


async def index_script(call: Call) -> Response:
    return Response(_file("index.js"), 200, None, "text/javascript")


async def reference_script(call: Call) -> Response:
    return Response(_file("reference.js"), 200, None, "text/javascript")
