"""From workers to readers: a thread that hands answers to queries under the database's lock."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from penstock.hosts.local.runner import GraphRunner

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.query import Due, Query

_log = logging.getLogger("penstock")


def advance(query: Query) -> list[Due]:
    """Hand a query all that its runner has; gives the calls that are due."""
    due = query._advance()
    while isinstance(query._runner, GraphRunner) and query._runner.has_more:
        due += query._advance()
    return due


class Delivery:
    """Bounded by the number of queries: a query that has been told of and not been looked at is not told of twice.

    The thread is stopped by ``close``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._told: deque[str] = deque()
        self._waiting: set[str] = set()
        self._wake = threading.Event()
        self._closed = False
        self._delivering: int | None = None
        """The thread that is calling subscribers; it holds the database's lock."""
        self._thread = threading.Thread(target=self._keep_delivering, name="penstock-delivery", daemon=True)
        self._thread.start()

    def tell(self, query: str) -> None:
        """A query has something new. Called by workers; takes no lock."""
        if query not in self._waiting:
            self._waiting.add(query)
            self._told.append(query)
            self._wake.set()

    def catch_up(self) -> None:
        """Hand over all that has been told of so far."""
        with self._database._lock:
            before, self._delivering = self._delivering, threading.get_ident()
            try:
                while self._told:
                    name = self._told.popleft()
                    self._waiting.discard(name)
                    query = self._database.queries.get(name)
                    if query is not None:
                        self._database.notify(advance(query))
            finally:
                self._delivering = before

    def _keep_delivering(self) -> None:
        while True:
            self._wake.wait()
            if self._closed:
                return
            self._wake.clear()
            try:
                self.catch_up()
            except BaseException:
                # Also what a subscriber raises to end a program: it ends no thread but its own.
                _log.exception("answers could not be delivered")

    def close(self, *, wait: bool = True) -> None:
        """End the thread; ``wait`` until it has ended, which whoever holds the database's lock must not."""
        self._closed = True
        self._wake.set()
        called_back = self._delivering == threading.get_ident()
        if wait and not called_back and self._thread is not threading.current_thread():
            self._thread.join()
