"""Listens for PostgreSQL's clients: one asyncio loop in a thread of its own, and a pool for calls of the service."""

from __future__ import annotations

import asyncio
import hmac
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count
from typing import Any, TypeVar

from penstock.server import tls
from penstock.server.postgres import errors, messages
from penstock.server.postgres.catalog import Catalog
from penstock.server.postgres.connection import Connection
from penstock.server.postgres.errors import Refused
from penstock.server.postgres.messages import Incoming
from penstock.server.service import Service
from penstock.server.settings import Settings

T = TypeVar("T")
THREADS = 16
"""Calls of the service that run at a time for all PostgreSQL clients."""
_BUFFERED = 256 * 1024
"""Bytes that wait in a transport before its writer waits, too."""


class PostgresListener:
    """The listener. ``stop`` ends its thread, its pool and all connections. Bounded by: ``Settings.sessions``
    connections and a tenth more that have not said who they are."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self._numbers = count(1)
        self._tasks: dict[asyncio.Task[None], Connection] = {}
        self._known: dict[int, Connection] = {}
        self._calls: set[Future[Any]] = set()
        """Calls that wait or run, also those that their client has given up."""

    def start(self, service: Service, settings: Settings) -> str:
        """Listen; the address, when clients can connect."""
        self.service, self._settings = service, settings
        self._tls = tls.context(settings)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-postgres-call")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="penstock-postgres", daemon=True)
        self._thread.start()
        try:
            address = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except BaseException:
            self._end_thread()
            raise
        return address

    def stop(self, deadline: float) -> None:
        """Take no more clients; end connections, at the latest at the deadline."""
        asyncio.run_coroutine_threadsafe(self._close(deadline), self._loop).result()
        wait(list(self._calls), max(0.0, deadline - time.monotonic()))
        self._end_thread()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.catalog.close()

    async def _listen(self) -> str:
        host, port = self._settings.host, self._settings.postgres or 0
        self._server = await self._loop.create_server(
            lambda: asyncio.StreamReaderProtocol(Incoming(), self._connected), host, port, backlog=256
        )
        name = self._server.sockets[0].getsockname()
        return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    async def _close(self, deadline: float) -> None:
        self._server.close()
        for task, connection in list(self._tasks.items()):
            connection.end()
            if connection.idle:
                task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=max(0.0, deadline - time.monotonic()))
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=2)

    # -- what connections need ------------------------------------------------------------------------

    async def call(self, function: Callable[..., T], *args: object, **named: object) -> T:
        """Call the service in the pool."""
        future = self._pool.submit(function, *args, **named)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return await asyncio.wrap_future(future)

    @property
    def has_tls(self) -> bool:
        """Whether TLS is there."""
        return self._tls is not None

    async def encrypt(self, writer: asyncio.StreamWriter) -> None:
        """Go on with TLS."""
        assert self._tls is not None, "TLS was promised"
        await writer.start_tls(self._tls)

    def enter(self, connection: Connection) -> int:
        """A number for a connection that is logged in."""
        number = next(self._numbers)
        self._known[number] = connection
        return number

    def cancel(self, number: int, secret: int) -> None:
        """Cancel what runs in a connection; nobody hears whether there was one."""
        connection = self._known.get(number)
        if connection is not None and hmac.compare_digest(_four(connection.secret), _four(secret)):
            connection.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client has come."""
        assert isinstance(reader, Incoming)
        task = asyncio.current_task()
        assert task is not None
        _keep_alive(writer)
        writer.transport.set_write_buffer_limits(_BUFFERED)
        connection = Connection(self, reader, writer)
        most = self._settings.sessions
        if len(self._tasks) >= most + max(10, most // 10):
            refusal = Refused("53300", "too many clients are connected already", fatal=True)
            writer.write(messages.notice(b"E", errors.fields(refusal)))
            writer.close()
            return
        self._tasks[task] = connection
        try:
            await connection.run()
        finally:
            self._known.pop(connection.number, None)
            del self._tasks[task]
            writer.close()
            if connection.stuck:
                writer.transport.abort()


def _four(secret: int) -> bytes:
    return (secret & 0xFFFFFFFF).to_bytes(4, "big")


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """The system asks a silent client every minute whether it is there, so one that lost its power is noticed."""
    held = writer.get_extra_info("socket")
    held.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            held.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def listener() -> PostgresListener:
    """A listener for ``life``."""
    return PostgresListener()
