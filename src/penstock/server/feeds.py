"""Results of queries for any number of readers, each at a position of its own.

A page is made once for all readers that ask for the same position, and so are the bytes that a protocol makes of it
(``Page.encoded``). Nobody is registered as a reader of the query, so nobody who lags holds anything: results are
retained up to the query's ``results`` bound, and a reader that is behind that is told which are gone.

Waiting takes no thread: a query calls its feed when there is news, and the feed wakes the asyncio loops and threads
that wait for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

import pyarrow as pa

from penstock.database.query import Query, listen
from penstock.model import tracing

_NOTHING = nullcontext()
_PAGES = 64
"""Pages of a query that are kept for other readers."""
_PAGE_BYTES = 4_000_000
"""Bytes of them, about."""

T = TypeVar("T")


class Page:
    """Results of the positions from ``start`` to before ``stop``; ``table``: ts, op, then the columns."""

    def __init__(self, start: int, table: pa.Table) -> None:
        self.start, self.table = start, table
        self.stop: int = start + table.num_rows
        self._encoded: dict[str, object] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.stop - self.start

    def encoded(self, kind: str, make: Callable[[pa.Table, int], T]) -> T:
        """What ``make(table, start)`` gives: made once for each kind, and shared by all who have this page."""
        with self._lock:
            if kind not in self._encoded:
                self._encoded[kind] = make(self.table, self.start)
            found: T = self._encoded[kind]  # type: ignore[assignment]
            return found


class SharedFeed:
    """The results of one query, for all its readers. Bounded by: ``_PAGES`` pages and ``_PAGE_BYTES``; one entry for
    each reader that waits."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self._lock = threading.Lock()
        self._pages: OrderedDict[int, Page] = OrderedDict()
        self._bytes = 0
        self._threads = threading.Condition()
        self._waiters: dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]] = {}
        self._pending: set[asyncio.AbstractEventLoop] = set()
        """Loops that have been told and have not looked yet: they are told once."""
        self._span: tracing.Context | None = None
        """Where the newest results were computed, if somebody watches."""
        self._cancel = listen(query, self._news)

    def close(self) -> None:
        """Hear of no more news; readers that wait look once more."""
        self._cancel()
        self._news()

    @property
    def retained(self) -> tuple[int, int]:
        return self.query.retained

    @property
    def ended(self) -> str | None:
        match self.query.status:
            case "running" | "suspended":
                return None
            case "failed":
                return f"failed: {self.query.error.one_line if self.query.error is not None else ''}"
            case other:
                return other

    def read(self, position: int, most: int, *, fresh: bool) -> Page:
        with self._lock:
            page = self._pages.get(position)
            if page is not None and 0 < len(page) <= most:
                full = len(page) == most or page.stop == self.query.answered
                if (full or not fresh) and page.start >= self.query.retained[0]:
                    self._pages.move_to_end(position)
                    return page
        there = self.query.answered > position  # a reader that looks in vain adds nothing to a trace
        with tracing.span("answer", parent=self._span, query=self.query.name, position=position) if there else _NOTHING:
            made = Page(position, self.query.read(position, most))
        if len(made):
            self._keep(made)
        return made

    def _keep(self, page: Page) -> None:
        with self._lock:
            before = self._pages.pop(page.start, None)
            self._bytes += page.table.nbytes - (0 if before is None else before.table.nbytes)
            self._pages[page.start] = page
            while len(self._pages) > _PAGES or (self._bytes > _PAGE_BYTES and len(self._pages) > 1):
                _, oldest = self._pages.popitem(last=False)
                self._bytes -= oldest.table.nbytes

    # -- waiting --------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many coroutines wait."""
        with self._threads:
            return sum(map(len, self._waiters.values()))

    def is_there(self, position: int) -> bool:
        """Whether a reader at this position has something to do: to read, or to hear of the end."""
        return self.query.answered > position or self.ended is not None

    def _news(self) -> None:
        """Results have come, or the query has ended. Called by any thread, under the query's lock: it waits for
        nobody."""
        self._span = tracing.current()
        with self._threads:
            self._threads.notify_all()
            loops = [loop for loop in self._waiters if loop not in self._pending]
            self._pending.update(loops)
        for loop in loops:
            try:
                loop.call_soon_threadsafe(self._wake, loop)
            except RuntimeError:  # it is closed
                with self._threads:
                    self._waiters.pop(loop, None)
                    self._pending.discard(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the loop: let those go on who wait in it."""
        with self._threads:
            self._pending.discard(loop)
            waiting = self._waiters.pop(loop, set())
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, position: int, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self.is_there(position):
            left = end - loop.time()
            if left <= 0:
                return False
            future = loop.create_future()
            with self._threads:
                self._waiters.setdefault(loop, set()).add(future)
            try:
                if self.is_there(position):  # it came in between
                    return True
                await asyncio.wait_for(future, left)
            except TimeoutError:
                return self.is_there(position)
            finally:
                with self._threads:
                    waiting = self._waiters.get(loop)
                    if waiting is not None:
                        waiting.discard(future)
                        if not waiting:
                            del self._waiters[loop]
        return True

    def wait_blocking(self, position: int, seconds: float) -> bool:
        end = time.monotonic() + seconds
        with self._threads:
            while not self.is_there(position):
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._threads.wait(left)
            return True


class Feed:
    """The results of one query, as one session may read them: ``check`` refuses once it may not any more."""

    def __init__(self, shared: SharedFeed, check: Callable[[], None]) -> None:
        self._shared, self._check = shared, check

    @property
    def shared(self) -> SharedFeed:
        """What all feeds of the query share."""
        return self._shared

    def check(self) -> None:
        """Refuse (AccessDenied) once the user may not read the query any more."""
        self._check()

    @property
    def query(self) -> str:
        """The name of the query."""
        return self._shared.query.name

    @property
    def schema(self) -> pa.Schema:
        """Of the results: ts, op, then the columns."""
        return self._shared.query.schema

    @property
    def first(self) -> int:
        """The position of the oldest result that is retained."""
        return self._shared.retained[0]

    @property
    def next(self) -> int:
        """The position that the next result gets."""
        return self._shared.retained[1]

    @property
    def ended(self) -> str | None:
        """``stopped``, ``ended`` or ``failed: …`` when no more will come; what is retained can still be read."""
        return self._shared.ended

    def read(self, position: int, most: int = 10_000, *, fresh: bool = False) -> Page:
        """What is there from a position on, at most ``most`` results; perhaps none. ``ResultsGone`` (with ``first``) if
        the first of them is not retained any more, AccessDenied if the user may not read the query any more.

        A page that another reader has had is given again, though more may have come since. ``fresh``: all that is
        there.
        """
        self._check()
        return self._shared.read(position, most, fresh=fresh)

    async def wait(self, position: int, seconds: float) -> bool:
        """Return True when there is a result at this position or the query has ended, False after ``seconds``."""
        return await self._shared.wait(position, seconds)

    def wait_blocking(self, position: int, seconds: float) -> bool:
        """The same for a thread that may wait."""
        return self._shared.wait_blocking(position, seconds)
