"""The life of a server: the database, the service and a listener for each protocol; signals; the banner."""

from __future__ import annotations

from typing import Protocol

from penstock.server.service import Service
from penstock.server.settings import Settings


class Listener(Protocol):
    """One protocol. Its module has ``listener()``, which makes it; modules are imported only if their port is on."""

    def start(self, service: Service, settings: Settings) -> str:
        """Listen, in threads of its own, on ``settings.host`` and its port; gives the address, such as
        ``127.0.0.1:7072``. Returns when clients can connect."""

    def stop(self, deadline: float) -> None:
        """Take no more clients, let requests that are under way finish until ``deadline`` (``time.monotonic``), then cut
        the rest off; ends its threads. Called once."""


MODULES = {
    "http": "penstock.server.http.listener", "flight": "penstock.server.flight.listener",
    "postgres": "penstock.server.postgres.listener",
}  # fmt: skip
"""Where ``listener()`` is, for each protocol."""
