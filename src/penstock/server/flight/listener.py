"""What ``life`` starts and ends."""

from __future__ import annotations

import threading
import time

import pyarrow as pa

from penstock.model.errors import InputError
from penstock.server.flight.server import Server
from penstock.server.service import Service
from penstock.server.settings import Settings


class FlightListener:
    """One server of Flight. It answers as soon as it is made, in threads of gRPC, which end with it. Its ``serve`` is
    not called: that takes SIGTERM and Ctrl-C for itself, in whatever thread it runs."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._of: tuple[Service, Settings] | None = None

    def start(self, service: Service, settings: Settings) -> str:
        """Listen; gives the address."""
        self._of = (service, settings)
        return self._listen(settings.flight or 0)

    def _listen(self, port: int) -> str:
        assert self._of is not None
        service, settings = self._of
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        certificates, scheme = None, "grpc"
        if settings.tls_cert is not None and settings.tls_key is not None:
            certificates, scheme = [(settings.tls_cert.read_bytes(), settings.tls_key.read_bytes())], "grpc+tls"
        try:
            self._server = Server(service, f"{scheme}://{host}:{port}", certificates)
        except (pa.ArrowException, OSError) as problem:
            hint = "name another port: --flight 0 takes a free one"
            raise InputError(f"Flight cannot listen on {host}:{port}: {problem}", hint=hint) from None
        return f"{host}:{self._server.port}"

    def reload(self) -> None:
        """Listen anew with the certificate that there is now: gRPC cannot exchange it. Endless streams begin again."""
        if self._server is not None and self._of is not None and self._of[1].tls_cert is not None:
            port = self._server.port
            self.stop(time.monotonic() + self._of[1].grace)
            self._listen(port)

    def stop(self, deadline: float) -> None:
        """Endless streams end at once, other calls finish until the deadline."""
        if self._server is None:
            return
        self._server.end()
        closing = threading.Thread(target=self._server.shutdown, name="penstock-flight-stop", daemon=True)
        closing.start()
        closing.join(max(0.0, deadline - time.monotonic()))
        self._server.give_up()
        self._server.close()
        self._server = None


def listener() -> FlightListener:
    return FlightListener()
