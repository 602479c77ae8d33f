"""What ``life`` starts and ends."""

from __future__ import annotations

import math
import threading
import time

import pyarrow as pa

from penstock.model.errors import InputError
from penstock.server.flight.server import Server
from penstock.server.service import Service
from penstock.server.settings import Settings

_LOOK = 0.1
"""Seconds between two looks of a reload whether the server ends."""
_LAST = 0.8
"""Seconds for plain SELECTs to end that were given up."""


class FlightListener:
    """One server of Flight. It answers as soon as it is made, in threads of gRPC, which end with it. Its ``serve`` is
    not called: that takes SIGTERM and Ctrl-C for itself, in whatever thread it runs."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._of: tuple[Service, Settings] | None = None
        self._port = 0
        self._changing = threading.Lock()
        """Of who begins or ends the server."""
        self._until = math.inf
        """When the last call ends: ``stop`` says so, also to a reload that runs, which begins no server then."""

    def start(self, service: Service, settings: Settings) -> str:
        """Listen; gives the address."""
        self._of, self._port = (service, settings), settings.flight or 0
        with self._changing:
            return self._listen()

    def _listen(self) -> str:
        assert self._of is not None
        (service, settings), port = self._of, self._port
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        certificates, scheme = None, "grpc"
        try:
            if settings.tls_cert is not None and settings.tls_key is not None:
                certificates, scheme = [(settings.tls_cert.read_bytes(), settings.tls_key.read_bytes())], "grpc+tls"
            self._server = Server(service, f"{scheme}://{host}:{port}", certificates)
        except (pa.ArrowException, OSError) as problem:
            hint = "name another port: --flight 0 takes a free one"
            raise InputError(f"Flight cannot listen on {host}:{port}: {problem}", hint=hint) from None
        self._port = self._server.port
        return f"{host}:{self._port}"

    def reload(self) -> None:
        """Listen anew with the certificate that there is now: gRPC cannot exchange it. Endless streams begin again.
        InputError where it cannot; the next call tries again."""
        with self._changing:
            if self._of is not None and self._of[1].tls_cert is not None and self._until == math.inf:
                self._end(time.monotonic() + self._of[1].grace)
                if self._until == math.inf:
                    self._listen()

    def stop(self, deadline: float) -> None:
        """Endless streams end at once, other calls finish until the deadline."""
        self._until = deadline
        with self._changing:
            self._end(deadline)

    def _end(self, deadline: float) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.end()
        closing = threading.Thread(target=server.shutdown, name="penstock-flight-stop", daemon=True)
        closing.start()
        while closing.is_alive() and (left := min(deadline, self._until) - time.monotonic()) > 0:
            closing.join(min(left, _LOOK))
        server.give_up()
        closing.join(_LAST)
        server.close()


def listener() -> FlightListener:
    return FlightListener()
