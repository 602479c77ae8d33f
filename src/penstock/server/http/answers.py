"""Results of a query: pages, Arrow and server-sent events; named subscriptions."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

from starlette.responses import Response

from penstock.model.errors import CatalogError
from penstock.server.feeds import Feed, Page
from penstock.server.http.app import Call
from penstock.server.http.events import subscribe
from penstock.server.http.problems import HttpProblem, Told
from penstock.server.http.shapes import (
    ARROW,
    CSV,
    JSON,
    columns_of,
    csv_text,
    facts,
    json_response,
    row_objects,
    wanted,
)
from penstock.server.session import Start
from penstock.storage.packing import packed

PAGE = 1_000
"""Results of a page where the client does not say how many."""
LARGEST = 100_000
LONGEST_WAIT = 60
"""Seconds that a page may wait for its first result."""


async def answers(call: Call) -> Response | None:
    """Events by default; a page for who says so, with ``limit`` or by ``Accept`` or ``format``."""
    call.known("from", "limit", "wait", "format")
    name = call.name("query")
    feed = await call.ask(call.service.feed, name)
    return await _results(call, feed, None)


async def _results(call: Call, feed: Feed, confirmed: int | None) -> Response | None:
    """``confirmed``: where a named subscription is."""
    paged = call.parameter("limit") is not None or call.parameter("wait") is not None
    order = ("json", "events", "csv", "arrow") if paged else ("events", "json", "csv", "arrow")
    format = wanted(call, *order)
    if format == "events":
        if paged:
            raise HttpProblem(400, "`limit` and `wait` are for pages, not for events")
        return await _events(call, feed, confirmed)
    position = _position(call, feed, feed.first if confirmed is None else confirmed)
    limit = call.number("limit", PAGE, 1, LARGEST)
    wait = call.number("wait", 0, 0, LONGEST_WAIT)
    if wait and position >= feed.next:
        await _waiting(call, feed, position, wait)
    return await call.ask(lambda session: _page(feed, feed.read(position, limit, fresh=True), format))


async def _waiting(call: Call, feed: Feed, position: int, seconds: int) -> None:
    """Until there is a result at a position; or the time, the query or the server is over."""
    task = asyncio.ensure_future(feed.wait(position, float(seconds)))
    call.site.streams.add(task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not call.site.closing:
            raise
    finally:
        call.site.streams.discard(task.cancel)


async def _events(call: Call, feed: Feed, confirmed: int | None) -> Response | None:
    last = call.headers.get("last-event-id")
    if last is not None:
        if not last.isascii() or not last.isdigit() or len(last) > 18:
            raise HttpProblem(400, "Last-Event-ID is not a position", hint="it is the `id:` of the last event")
        position = int(last)
    else:
        position = _position(call, feed, feed.next if confirmed is None else confirmed)
    if last is not None and position >= feed.next and feed.ended is not None:
        return Response(status_code=204)  # by which an EventSource knows that it need not come again
    await call.quick(feed.read, position, 1)  # what is wrong with the position is said before the response begins
    if call.site.closing:
        raise HttpProblem(503, "the server ends", headers={"Retry-After": "1"})
    await subscribe(call, feed, position)
    return None


def _position(call: Call, feed: Feed, default: int) -> int:
    text = call.parameter("from")
    if text in (None, "start", "now"):
        return {None: default, "start": feed.first, "now": feed.next}[text]
    return call.number("from", 0, 0, 10**18 - 1)


def _page(feed: Feed, page: Page, format: str) -> Response:
    place = {"Penstock-Start": str(page.start), "Penstock-Next": str(page.stop), "Penstock-First": str(feed.first)}
    if feed.ended is not None:
        place["Penstock-Ended"] = quote(feed.ended)
    if format == "arrow":
        return Response(page.encoded("arrow", lambda table, _: packed(table)), 200, place, ARROW)
    if format == "csv":
        return Response(csv_text(page.table), 200, place, CSV)
    head = json.dumps({
        "query": feed.query, "start": page.start, "next": page.stop, "first": feed.first, "ended": feed.ended,
        "columns": columns_of(feed.schema),
    }, ensure_ascii=False)  # fmt: skip
    rows = page.encoded("json", lambda table, _: ",".join(row_objects(table)))
    return Response(f'{head[:-1]}, "rows": [{rows}]}}'.encode("utf-8", "backslashreplace"), 200, place, JSON)


# -- named subscriptions ------------------------------------------------------------------------------


async def list_subscriptions(call: Call) -> Response:
    call.known()
    return json_response({"subscriptions": facts(await call.ask(call.service.subscriptions))})


async def create_subscription(call: Call) -> Response:
    call.known()
    given = await call.json("name", "query", "start")
    name, query, start = given.get("name"), given.get("query"), given.get("start", "now")
    if not isinstance(name, str) or not name or not isinstance(query, str):
        raise HttpProblem(400, "`name` and `query` are texts")
    await call.ask(call.service.query, query)
    try:
        made = await call.ask(call.service.create_subscription, name, query, _start(start))
    except CatalogError as error:
        raise Told(error, 409) from None
    return json_response(facts(made), 201, {"Location": f"/api/subscriptions/{quote(name, safe='')}"})


def _start(given: object) -> Start:
    if given == "start" or given == "now":
        return "start" if given == "start" else "now"
    if type(given) is int and 0 <= given < 10**18:
        return given
    raise HttpProblem(400, "`start` is neither `start`, `now` nor a position")


async def get_subscription(call: Call) -> Response:
    call.known()
    return json_response(facts(await call.ask(call.service.subscription, call.name("subscription"))))


async def subscription_answers(call: Call) -> Response | None:
    """The results that are not confirmed, as events or pages."""
    call.known("from", "limit", "wait", "format")
    found = await call.ask(call.service.subscription, call.name("subscription"))
    feed = await call.ask(call.service.feed, found.query)
    return await _results(call, feed, found.position)


async def confirm(call: Call) -> Response:
    call.known()
    given = await call.json("position")
    position = given.get("position")
    if type(position) is not int or not 0 <= position < 10**18:
        raise HttpProblem(400, "`position` is not a position", hint="that of the first result you have not had")
    await call.ask(call.service.confirm, call.name("subscription"), position)
    return json_response(facts(await call.ask(call.service.subscription, call.name("subscription"))))


async def drop_subscription(call: Call) -> Response:
    call.known()
    await call.ask(call.service.drop_subscription, call.name("subscription"))
    return Response(status_code=204)
