"""One thread with one asyncio loop, in which uvicorn serves HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import uvicorn

from penstock.model.errors import StateError
from penstock.server import tls
from penstock.server.http.app import Site, app
from penstock.server.http.protocol import KEEP_ALIVE_SECONDS, PatientProtocol, listening
from penstock.server.http.routes import ENDPOINTS
from penstock.server.http.routing import Router
from penstock.server.service import Service
from penstock.server.settings import Settings
from penstock.server.watching import Requests

LOG = logging.getLogger("penstock.server.http")
_SPARE = 64
"""Connections beyond one for each session."""


class HttpListener:
    """HTTP on one port. ``stop`` ends its thread, and the pools of the site."""

    def __init__(self) -> None:
        self._site: Site | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed: BaseException | None = None

    def start(self, service: Service, settings: Settings) -> str:
        """Listen; gives the address."""
        socket = listening(settings.host, settings.http or 0)
        address: tuple[str, int] = socket.getsockname()[:2]
        self._site = Site(service, settings, Router(ENDPOINTS), Requests())
        config = uvicorn.Config(
            app(self._site), http=PatientProtocol, ws="none", loop="asyncio", lifespan="off", log_config=None,
            access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
            limit_concurrency=settings.sessions + _SPARE, timeout_graceful_shutdown=1,
        )  # fmt: skip
        config.load()
        config.ssl = tls.context(settings)
        self._server = uvicorn.Server(config)
        ready = threading.Event()

        async def run() -> None:
            assert self._server is not None
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(ready.set)
            await self._server.serve(sockets=[socket])

        def work() -> None:
            try:
                asyncio.run(run())
            except BaseException as error:
                self._failed = error
                LOG.exception("HTTP has ended")
            finally:
                ready.set()

        self._thread = threading.Thread(target=work, name="penstock-http-loop", daemon=True)
        self._thread.start()
        ready.wait()
        if self._failed is not None:
            raise StateError(f"HTTP cannot begin: {self._failed}")
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        return f"{host}:{address[1]}"

    def stop(self, deadline: float) -> None:
        """End responses that have no end, let the others finish until the deadline, and cut the rest off."""
        assert self._server is not None, "it has begun"
        assert self._site is not None
        assert self._thread is not None
        self._server.config.timeout_graceful_shutdown = max(1, int(deadline - time.monotonic()))
        self._server.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._site.close_streams)
        self._thread.join(max(0.0, deadline - time.monotonic()) + 1.0)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(2.0)
        self._site.close()


def listener() -> HttpListener:
    """A listener that has not begun."""
    return HttpListener()
