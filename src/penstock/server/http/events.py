"""Server-sent events: results of a query as they come, for many subscribers.

    a subscriber that is behind     reads pages by itself and waits until its client takes them
    one that has had everything     is a member of the query's ``Broadcast``: one task waits for news, the bytes of an
                                    event are made once, and written to the connection of each member

A member whose client does not take what was written (the transport is above its high-water mark) leaves the broadcast
and goes on by itself when the client does: so it slows nobody, and what waits for it is bounded. When the results that
it needs are not retained any more, it is told so and its response ends: nothing is skipped silently.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

import pyarrow as pa

from penstock.model.errors import PenstockError
from penstock.server.feeds import Feed, Page
from penstock.server.http.app import Call, Site
from penstock.server.http.problems import problem_of
from penstock.server.http.protocol import PatientProtocol
from penstock.server.http.shapes import EVENTS, dumped, row_objects

KEEP_ALIVE = 15.0
"""Seconds without a result after which a comment is sent, so that nobody on the way takes the connection for dead."""
MOST = 1_000
"""Results of one page."""
_FEW = 64
"""Up to this many results are read in the loop: a thread would take longer than they do."""
_BEGIN = b"retry: 1000\n\n"
_COMMENT = b":\n\n"


def events(table: pa.Table, start: int) -> bytes:
    """One event for each result; its id is the position of the next one."""
    rows = enumerate(row_objects(table), start + 1)
    return "".join(f"id: {next}\ndata: {row}\n\n" for next, row in rows).encode("utf-8", "backslashreplace")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _chunks(table: pa.Table, start: int) -> bytes:
    return _chunk(events(table, start))


def _special(name: str, told: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumped(told))


class _Connection:
    """The client's side of a response that has begun and goes on until one of the two ends it.

    Bytes go to the transport as they are, in chunks that were framed once for all; uvicorn has written the head and
    writes the end.
    """

    def __init__(self, call: Call) -> None:
        self._protocol: PatientProtocol = call.scope["state"]["connection"]
        self.chunked = call.scope["http_version"] != "1.0"
        self._send = call.send
        self.lost = False

    async def begin(self, on_lost: Callable[[], None]) -> None:
        headers = [(b"content-type", EVENTS.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

        def lost() -> None:
            self.lost = True
            on_lost()

        if self._protocol.transport.is_closing():
            lost()
        self._protocol.on_lost = lost

    @property
    def is_full(self) -> bool:
        """Whether the client has not taken enough of what was written."""
        return self._protocol.flow.write_paused

    def write(self, data: bytes) -> None:
        """Bytes of events."""
        self.write_framed(_chunk(data) if self.chunked else data)

    def write_framed(self, data: bytes) -> None:
        if not self.lost:
            self._protocol.transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken enough, or is gone."""
        if self.is_full and not self.lost:
            await self._protocol.flow.drain()

    async def end(self) -> None:
        self._protocol.on_lost = None
        if not self.lost:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class _Subscriber:
    """One response, at a position of its own."""

    def __init__(self, call: Call, feed: Feed, position: int) -> None:
        self.feed, self.position = feed, position
        self.connection = _Connection(call)
        self.over = False
        """The client is gone, or the server ends."""
        self._woken: asyncio.Future[None] | None = None

    def end(self) -> None:
        self.over = True
        self.wake()

    def wake(self) -> None:
        """Let it look by itself."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def sleep(self) -> None:
        """Until something wakes it."""
        self._woken = asyncio.get_running_loop().create_future()
        try:
            if not self.over:
                await self._woken
        finally:
            self._woken = None

    def take(self, page: Page) -> bool:
        """Write a page that all members get; False: it has to go on by itself."""
        if self.position >= page.stop:
            return True
        if self.position != page.start or self.connection.is_full:
            return False
        self._write(page)
        return True

    def _write(self, page: Page) -> None:
        if self.connection.chunked:
            self.connection.write_framed(page.encoded("events in chunks", _chunks))
        else:
            self.connection.write(page.encoded("events", events))
        self.position = page.stop

    async def run(self, site: Site) -> None:
        """Until the query or the client or the server ends."""
        await self.connection.begin(self.end)
        site.streams.add(self.end)
        try:
            self.connection.write(_BEGIN)
            while not self.over:
                await self.connection.drain()
                page = await _read(site, self.feed, self.position)
                if len(page):
                    self._write(page)
                elif self.feed.ended is not None:
                    if self.position >= self.feed.next:
                        self.connection.write(_special("end", {"how": self.feed.ended, "next": self.position}))
                        break
                elif not self.over:
                    await broadcast(site, self.feed).stay(self)
        except PenstockError as error:
            self.connection.write(_special("problem", problem_of(error)))
        finally:
            site.streams.discard(self.end)
        await self.connection.end()


async def _read(site: Site, feed: Feed, position: int) -> Page:
    """What is there for a reader; many results in a thread."""
    if feed.next - position <= _FEW:
        return feed.read(position, MOST)

    def read() -> Page:
        page = feed.read(position, MOST)
        page.encoded("events in chunks", _chunks)
        return page

    return await asyncio.get_running_loop().run_in_executor(site.quick, read)


class Broadcast:
    """The members of one query. Its task ends with the last of them."""

    def __init__(self, site: Site, position: int) -> None:
        self._site = site
        self._members: set[_Subscriber] = set()
        self._position = position
        self._task: asyncio.Task[None] | None = None

    async def stay(self, member: _Subscriber) -> None:
        """Be a member until there is something that it has to do by itself."""
        if member.position < self._position and self._members:
            await asyncio.sleep(0)
            return  # there is more to read
        if not self._members:
            self._position = member.position
        self._members.add(member)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            await member.sleep()
        finally:
            self._members.discard(member)

    async def _run(self) -> None:
        try:
            while self._members:
                member = next(iter(self._members))
                await self._step(member)
        finally:
            self._task = None
            for member in list(self._members):
                member.wake()

    async def _step(self, reader: _Subscriber) -> None:
        """Wait for the next page, with one member's right to read it, and give it to all whose right stands."""
        feed = reader.feed
        if not await feed.wait(self._position, KEEP_ALIVE):
            self._keep_alive()
            return
        try:
            page = await _read(self._site, feed, self._position)
        except PenstockError:
            self._leave(reader)  # it finds out by itself what is wrong
            return
        if not len(page):  # the query has ended
            for member in list(self._members):
                self._leave(member)
            return
        self._position = page.stop
        for member in list(self._members):
            if not (_may(member) and member.take(page)):
                self._leave(member)
        await asyncio.sleep(0)

    def _keep_alive(self) -> None:
        for member in list(self._members):
            if not _may(member):
                self._leave(member)
            elif not member.connection.is_full:
                member.connection.write(_COMMENT)

    def _leave(self, member: _Subscriber) -> None:
        self._members.discard(member)
        member.wake()


def _may(member: _Subscriber) -> bool:
    try:
        member.feed.check()
    except PenstockError:
        return False
    return not member.over


_broadcasts: weakref.WeakKeyDictionary[object, Broadcast] = weakref.WeakKeyDictionary()
"""By what all feeds of a query share; gone with it."""


def broadcast(site: Site, feed: Feed) -> Broadcast:
    """The broadcast of a feed's query."""
    found = _broadcasts.get(feed.shared)
    if found is None:
        found = _broadcasts[feed.shared] = Broadcast(site, feed.next)
    return found


async def subscribe(call: Call, feed: Feed, position: int) -> None:
    """Send events from a position on, until the client, the query or the server ends."""
    await _Subscriber(call, feed, position).run(call.site)
