"""From workers to readers: a thread that takes over what operators have left, under the database's lock."""

from __future__ import annotations

import logging
import threading
from collections import deque

from penstock.hosts.core import Core
from penstock.model.waiting import Look, taken

_log = logging.getLogger("penstock")


class Delivery:
    """Bounded by the number of queries: a query that has been told of and not been looked at is not told of twice.

    The thread is stopped by ``close``. It runs nothing that users have written.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told: deque[str] = deque()
        self._waiting: set[str] = set()
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._keep_delivering, name="penstock-delivery", daemon=True)
        self._thread.start()

    def tell(self, query: str) -> None:
        """A query has something new. Called by workers; takes no lock."""
        if query not in self._waiting:
            self._waiting.add(query)
            self._told.append(query)
            self._wake.set()

    def catch_up(self, look: Look | None = None) -> None:
        """Take over all that has been told of so far."""
        with taken(self._core.lock, look):
            while self._told:
                name = self._told.popleft()
                self._waiting.discard(name)
                query = self._core.queries.get(name)
                if query is not None:
                    self._core.advance(query)

    def _keep_delivering(self) -> None:
        while True:
            self._wake.wait()
            if self._closed:
                return
            self._wake.clear()
            try:
                self.catch_up()
            except Exception:
                _log.exception("results could not be taken over")

    def close(self, *, wait: bool = True) -> None:
        """End the thread; ``wait`` until it has ended, which whoever holds the database's lock must not."""
        self._closed = True
        self._wake.set()
        if wait and self._thread is not threading.current_thread():
            self._thread.join()
