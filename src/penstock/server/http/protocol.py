"""uvicorn's HTTP/1.1 connection, with an end to clients that are slow or gone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEAD_SECONDS = 20.0
"""From the connection, or the first byte of a further request, until its headers are complete."""
STUCK_SECONDS = 60.0
"""For which a client may take nothing of what waits for it."""
PART_SECONDS = 0.3
"""Between two looks whether a client of a server that ends has what it asked for."""
KEEP_ALIVE_SECONDS = 30
"""For which a connection without a request stays open."""


class PatientProtocol(H11Protocol):
    """Ends a connection whose headers do not come, and one whose client takes nothing of a response.

    What waits for a client is bounded by the transport's high-water mark: ``send`` waits above it.
    """

    on_lost: Callable[[], None] | None = None
    """Hears that the client is gone: for responses that write to the transport themselves."""
    _head: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _parting: asyncio.TimerHandle | None = None

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._off("_head")
        self._off("_stuck")
        self._off("_parting")
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._off("_stuck")
        self._taking(self.transport.get_write_buffer_size() + 1)

    def _taking(self, before: int) -> None:
        """Look whether the client has taken something of what waits for it: it may be slow, but not still."""
        waiting = self.transport.get_write_buffer_size()
        if waiting < before:
            self._stuck = self.loop.call_later(STUCK_SECONDS, self._taking, waiting)
        else:
            self.transport.abort()

    def shutdown(self) -> None:
        super().shutdown()
        self._part()

    def _part(self) -> None:
        """The server ends: what the client has asked for is sent. Nobody waits for its goodbye, as TLS would."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._parting is not None and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self._parting = self.loop.call_later(PART_SECONDS, self._part)

    def resume_writing(self) -> None:
        self._off("_stuck")
        super().resume_writing()

    def _watch(self) -> None:
        """The client has to complete the headers in time, if that is what is waited for."""
        waiting = self.cycle is None or self.cycle.response_complete
        if not waiting or self.transport.is_closing():
            self._off("_head")
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._off("_head")  # until the first byte of the next request the keep-alive time runs

    def _off(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Connections of clients that are gone without a word end after a minute."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol said, asyncio lets nothing small wait for an acknowledgement (TCP_NODELAY).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    options: list[tuple[int, str, Any]] = [
        (socket.SOL_SOCKET, "SO_REUSEADDR", 1), (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30), (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3), (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 60_000),
        # A response is sent in two writes; without this the second one waits 40 ms for the client's acknowledgement.
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    ]  # fmt: skip
    try:
        for level, option, value in options:
            if hasattr(socket, option):  # those that the system has; accepted connections inherit them
                found.setsockopt(level, getattr(socket, option), value)
        found.bind((host, port))
        found.listen(1024)
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found
