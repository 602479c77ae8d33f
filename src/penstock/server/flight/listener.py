"""What ``life`` starts and ends."""

from __future__ import annotations

import threading
import time

import pyarrow.flight as flight

from penstock.model.errors import InputError
from penstock.server.flight.server import Server
from penstock.server.service import Service
from penstock.server.settings import Settings


class FlightListener:
    """One server of Flight and the thread that waits for it; gRPC has its own threads, which end with it."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, service: Service, settings: Settings) -> str:
        """Listen; gives the address."""
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        certificates = None
        scheme = "grpc"
        if settings.tls_cert is not None and settings.tls_key is not None:
            certificates, scheme = [(settings.tls_cert.read_bytes(), settings.tls_key.read_bytes())], "grpc+tls"
        try:
            self._server = Server(service, f"{scheme}://{host}:{settings.flight or 0}", certificates)
        except (flight.FlightError, OSError) as problem:
            hint = "name another port: --flight 0 takes a free one"
            raise InputError(f"Flight cannot listen on {host}:{settings.flight}: {problem}", hint=hint) from None
        self._thread = threading.Thread(target=self._server.serve, name="penstock-flight", daemon=True)
        self._thread.start()
        return f"{host}:{self._server.port}"

    def stop(self, deadline: float) -> None:
        """Endless streams end at once, other calls finish until the deadline."""
        if self._server is None or self._thread is None:
            return
        self._server.end()
        closing = threading.Thread(target=self._server.shutdown, name="penstock-flight-stop", daemon=True)
        closing.start()
        closing.join(max(0.0, deadline - time.monotonic()))
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._server.close()
        self._server = None


def listener() -> FlightListener:
    return FlightListener()
