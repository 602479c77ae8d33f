"""Where the rows of a portal or a cursor come from: a table that is there, or the results of a query as they come."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import pyarrow as pa

from penstock.model.errors import ResultsGone
from penstock.server.feeds import Feed, Page
from penstock.server.holding import Hold

PAGE = 1_000
"""Results that are read at once."""
Call = Callable[..., Awaitable[Page]]
Wait = Callable[[Awaitable[bool]], Awaitable[bool]]


class Source(Protocol):
    """Rows, forward only."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""

    async def fetch(self, most: int | None, seconds: float | None) -> tuple[pa.Table, bool]:
        """The next rows, and whether more may come. ``seconds``: how long to wait for the first; None: for ever."""


class Held:
    """A table that is there as a whole; ``hold``: the memory that it counts for."""

    def __init__(self, table: pa.Table, hold: Hold | None = None) -> None:
        self._table, self._at, self._hold = table, 0, hold

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    async def fetch(self, most: int | None, seconds: float | None) -> tuple[pa.Table, bool]:
        """The next rows; there is nothing to wait for."""
        left = self._table.num_rows - self._at
        count = left if most is None else min(most, left)
        found = self._table.slice(self._at, count)
        self._at += count
        return found, self._at < self._table.num_rows


def with_position(schema: pa.Schema) -> pa.Schema:
    """The columns of SUBSCRIBE: the position of a result, then ts, op and the columns of the query."""
    return schema.insert(0, pa.field("position", pa.int64(), nullable=False))


def positioned(table: pa.Table, start: int) -> pa.Table:
    """Results with their positions."""
    numbers = pa.array(range(start, start + table.num_rows), pa.int64())
    return table.add_column(0, pa.field("position", pa.int64(), nullable=False), numbers)


class Following:
    """The results of a query from a position on. Holds nothing of them."""

    def __init__(self, feed: Feed, position: int, call: Call, wait: Wait) -> None:
        self._feed, self.position = feed, position
        self._call, self._wait = call, wait

    @property
    def schema(self) -> pa.Schema:
        return with_position(self._feed.schema)

    async def page(self, seconds: float | None) -> Page | None:
        """The next results when there are some; None when the query has ended, or after ``seconds``."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            page = await self._read(PAGE)
            if len(page):
                self.position = page.stop
                return page
            if self._feed.ended is not None and self._feed.next <= self.position:
                return None
            left = 30.0 if end is None else min(30.0, end - time.monotonic())
            if left <= 0:
                return None
            await self._wait(self._feed.wait(self.position, left))

    async def fetch(self, most: int | None, seconds: float | None) -> tuple[pa.Table, bool]:
        """What is there at once, at most ``most``; where nothing is, the first that comes within ``seconds``."""
        parts: list[pa.Table] = []
        count = 0
        stop = self._feed.next
        if stop <= self.position and (most is None or most > 0):
            page = await self.page(seconds)
            if page is None:
                return self.schema.empty_table(), self._feed.ended is None
            self.position, stop = page.start, self._feed.next
        while self.position < stop and (most is None or count < most):
            page = await self._read(PAGE if most is None else min(PAGE, most - count))
            if not len(page):
                break
            parts.append(positioned(page.table, page.start))
            count += len(page)
            self.position = page.stop
        more = self._feed.ended is None or self.position < self._feed.next
        return (pa.concat_tables(parts) if parts else self.schema.empty_table()), more

    async def _read(self, most: int) -> Page:
        try:
            return await self._call(self._feed.read, self.position, most)
        except ResultsGone:
            self.position = self._feed.first  # the error is said once; the next call goes on
            raise
