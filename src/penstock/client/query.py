"""A registered query of a server, as its user holds it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import pyarrow as pa

from penstock.catalog import QueryOptions
from penstock.client.flight import Page, Unreachable
from penstock.client.transport import Transport, path
from penstock.graph.latency import Latency
from penstock.model import shown
from penstock.model.amounts import parse_bound
from penstock.model.errors import EngineError, LimitExceeded, PenstockError, QueryFailed, ResultsGone
from penstock.plan.explanation import Explanation

if TYPE_CHECKING:
    from penstock.client.database import RemoteDatabase

_PAGE = 50_000
"""Results that are asked for at once."""
_WAIT = 20
"""Seconds that the server lets a request wait for results."""


class RemoteSubscription:
    """A callback that is called with every batch of results, until ``cancel``. A thread of its own reads for it; the
    thread ends with the query, with ``cancel`` and when the database is closed."""

    def __init__(self, query: RemoteQuery, callback: Callable[[pa.Table], object], position: int | str) -> None:
        self._query, self._callback = query, callback
        self._over = threading.Event()
        self.position: int | str = position
        """That of the first result of the next batch."""
        self.error: PenstockError | None = None
        """What ended it, other than ``cancel`` and the end of the query."""
        self._transport = query.transport
        self._thread = threading.Thread(target=self._run, name=f"penstock-subscription-{query.name}", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Call it no more. A call that is under way goes on."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set() and not self._transport.closed:
            try:
                page = self._query.page(self.position, wait=_WAIT)
            except ResultsGone as gone:
                self._query.complain(gone)
                self.position = "start" if gone.first is None else gone.first
                continue
            except (EngineError, LimitExceeded) as error:  # the server is away for longer than a request tries, or full
                self._query.complain(error)
                self._over.wait(1)
                continue
            except PenstockError as error:
                if not self._transport.closed:
                    self.error = error
                    self._query.complain(error)
                return
            if self._over.is_set():
                return
            if page.table.num_rows:
                try:
                    self._callback(page.table)
                except Exception as error:
                    self._query.complain(error)
            self.position = page.start + page.table.num_rows
            if not page.table.num_rows and page.ended is not None:
                return


class RemoteQuery:
    """A continuous query of a server: fetch its results, iterate over them, or subscribe to them.

    Results have positions. This object is a reader of its own, which begins with the oldest result that the server
    retains; it takes nothing from other readers. A named subscription (``CREATE SUBSCRIPTION``) survives its client.
    """

    def __init__(self, db: RemoteDatabase, name: str) -> None:
        self._db, self._name = db, name
        self._reading = threading.Lock()
        """One at a time fetches."""
        self._position: int | str = "start"
        self._schema: pa.Schema | None = None
        self._trouble: str | None = None

    @property
    def transport(self) -> Transport:
        """The way to the server."""
        return self._db.transport

    def _info(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.transport.get(path("queries", self._name)).json()
        return found

    def page(self, position: int | str, *, wait: int = 0, limit: int = _PAGE) -> Page:
        """Results from a position on, ``start`` or ``now``. ``wait``: seconds in which the first of them may come."""
        with suppress(Unreachable):
            if not self.transport.closed:
                return self._db.flight.page(self._name, position, limit, wait)
        asked = {"from": position, "wait": wait or None, "limit": limit, "format": "arrow"}
        where = path("queries", self._name, "answers")
        reply = self.transport.ask("GET", where, parameters=asked, wait=wait, again=True)
        ended = reply.headers.get("penstock-ended")
        return Page(int(reply.headers["penstock-start"]), reply.table(), None if ended is None else unquote(ended))

    def complain(self, error: Exception) -> None:
        """Something went wrong that nobody can be told but by ``trouble``."""
        self._trouble = f"{type(error).__name__}: {error}"

    # -- what it is -----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name in the database."""
        return self._name

    @property
    def schema(self) -> pa.Schema:
        """Of its results: ts, op, then the columns."""
        if self._schema is None:
            self._schema = self.page("now", limit=1).table.schema
        return self._schema

    @property
    def text(self) -> str:
        """The CQL that it was registered with; empty for a plan object, and where the user may not see it."""
        return str(self._info()["text"] or "")

    @property
    def options(self) -> QueryOptions:
        """What stands in ``WITH (…)``."""
        told = dict(self._info()["options"])
        if "results" in told:
            told["results"] = parse_bound("results", told["results"])
        return QueryOptions(**told)

    @property
    def reads(self) -> frozenset[str]:
        """The names that its text reads, as far as the user may know them."""
        return frozenset(self._info()["reads"])

    @property
    def status(self) -> str:
        """Whether it runs or is suspended, or how it ended."""
        return str(self._info()["status"])

    @property
    def error(self) -> PenstockError | None:
        """What stopped a query that failed."""
        return _failure(self._name, self._info())

    @property
    def answered(self) -> int:
        """How many results it has given: the position of the next one."""
        return int(self._info()["next"])

    @property
    def failures(self) -> int:
        """How many values became NULL because computing them failed."""
        return int(self._info()["failures"])

    @property
    def latency(self) -> Latency:
        """How long its results took; see ``penstock.Query.latency``."""
        return Latency(**self._info()["latency"])

    @property
    def note(self) -> str | None:
        """What people should know."""
        found = self._info()["note"]
        return None if found is None else str(found)

    @property
    def trouble(self) -> str | None:
        """What stopped a query that failed. Of one that goes on, what a subscriber of this process raised last."""
        error = self.error
        return self._trouble if error is None else str(error)

    # -- results --------------------------------------------------------------------------------------

    def fetch(self, *, wait: bool = True) -> pa.Table:
        """The results since the last fetch of this object: ts, op, then the columns.

        Waits until what was pushed before has been worked on; with ``wait=False`` it takes what is there.
        """
        if wait:
            self.transport.post("/api/settle", {"query": self._name}, again=True)
        tables: list[pa.Table] = []
        with self._reading:
            while True:
                try:
                    page = self.page(self._position)
                except ResultsGone as gone:
                    if tables:
                        break  # the next call tells
                    self._position = "start" if gone.first is None else gone.first
                    raise
                tables.append(page.table)
                self._position = page.start + page.table.num_rows
                if page.table.num_rows < _PAGE:
                    break
        results = pa.concat_tables(tables)
        if not results.num_rows:
            self._raise_failure(page)
        return results

    def _raise_failure(self, page: Page) -> None:
        if (page.ended or "").startswith("failed"):
            error = self.error
            if error is not None:
                raise error

    def seek(self, position: int | Literal["start", "now"]) -> None:
        """Let the next ``fetch`` or iteration begin at a position, with the oldest result that is retained, or with the
        next that comes."""
        with self._reading:
            self._position = self.page(position, limit=1).start

    def current(self) -> pa.Table:
        """The rows of the answer as it stands now, without ts and op."""
        return self.transport.get(path("queries", self._name, "current"), format="arrow").table()

    def __iter__(self) -> Iterator[pa.Table]:
        """Batches of results as they come; ends with the query."""
        while True:
            with self._reading:
                page = self.page(self._position, wait=_WAIT)
                self._position = page.start + page.table.num_rows
            if page.table.num_rows:
                yield page.table
            elif page.ended is not None:
                self._raise_failure(page)
                return

    def subscribe(self, callback: Callable[[pa.Table], object], *, position: int | None = None) -> RemoteSubscription:
        """Call back with every batch of results from now on, or from a position that is still there, in a thread of its
        own. When the connection breaks, or the server starts again, it goes on where it was."""
        page = self.page("now" if position is None else position, limit=1)
        return RemoteSubscription(self, callback, page.start)

    def wait(self, seconds: float) -> bool:
        """Return when there are new results or the query has ended, at the latest after ``seconds``; False then."""
        end, position = time.monotonic() + seconds, self.answered
        while (left := end - time.monotonic()) > 0:
            page = self.page(position, wait=max(1, min(_WAIT, int(left))), limit=1)
            if page.table.num_rows or page.ended is not None:
                return True
        return False

    # -- orders ---------------------------------------------------------------------------------------

    def alter(self, **options: object) -> None:
        """Change options while the query runs: ``priority``, ``latency``, ``lag``, ``on_lag``, ``results``."""
        self._db.request("PATCH", path("queries", self._name), options)

    def suspend(self) -> None:
        """Let the query rest until ``resume``."""
        self.transport.post(path("queries", self._name, "suspend"), again=True)

    def resume(self) -> None:
        """Let a suspended query go on where it is."""
        self.transport.post(path("queries", self._name, "resume"), again=True)

    def stop(self) -> None:
        """End the query."""
        self._db.request("DELETE", path("queries", self._name))

    def explain(self) -> str:
        """The plan as text."""
        return Explanation(self.transport.get(path("queries", self._name, "explain")).body.decode())

    def confirm(self, subscription: str, position: int) -> None:
        """A named subscription has every result before a position."""
        self.transport.post(path("subscriptions", subscription, "confirm"), {"position": position}, again=True)

    _repr_html_ = shown.as_html
    _repr_pretty_ = shown.as_text

    def __repr__(self) -> str:
        try:
            info = self._info()
        except PenstockError as error:
            return f"<Query {self._name} of {self.transport.url}: {error.one_line}>"
        return f"<Query {self._name} of {self.transport.url}: {info['status']}, {info['next']} answers>"


def _failure(name: str, info: Mapping[str, Any]) -> PenstockError | None:
    if info["status"] != "failed":
        return None
    return QueryFailed(str(info["how"] or f"query `{name}` failed"))


