"""Giving up a statement that runs in DuckDB, or that waits for rows before it: its client has cancelled it or has gone,
or its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.errors import QueryFailed
from penstock.model.waiting import Look

if TYPE_CHECKING:
    import duckdb

_AGAIN = 0.05
"""Seconds after which a statement is interrupted again: DuckDB forgets an interrupt that comes before it begins."""
_LOOK = 0.1
"""Seconds between two looks at a client that does not say by itself that it has gone."""


class Stop:
    """Tells one statement that nobody waits for it any more. ``set`` may come from any thread, also before the
    statement begins. ``gone``: whether the client has gone, for protocols that have to be asked."""

    def __init__(self, gone: Callable[[], bool] | None = None) -> None:
        self._gone = gone
        self._set = threading.Event()
        self._watching: Callable[[], None] | None = None
        """Wakes the thread that watches the statement. A statement runs at a time."""

    def set(self) -> None:
        self._set.set()
        if (wake := self._watching) is not None:
            wake()

    @property
    def is_set(self) -> bool:
        return self._set.is_set() or (self._gone is not None and self._gone())

    @property
    def look(self) -> float | None:
        """Seconds after which to look at ``is_set``; None: ``set`` tells."""
        return None if self._gone is None else _LOOK

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """``set`` calls this inside the block."""
        self._watching = wake
        try:
            if self._set.is_set():
                wake()
            yield
        finally:
            self._watching = None


@dataclass(frozen=True)
class Patience:
    """How long a statement may take: until ``deadline`` of ``time.monotonic``, ``seconds`` after it began, or until
    ``stop`` is set."""

    deadline: float
    seconds: float
    stop: Stop | None = None

    @classmethod
    def of(cls, seconds: float, stop: Stop | None = None) -> Patience:
        """From now on."""
        return cls(time.monotonic() + seconds, seconds, stop)

    def look(self, why: str, hint: str) -> Look:
        """Raises where a statement should not go on waiting; ``why`` it waits, and what its user can do."""

        def look() -> None:
            if self.stop is not None and self.stop.is_set:
                raise given_up()
            if time.monotonic() >= self.deadline:
                raise QueryFailed(f"the SELECT did not end within {self.seconds:.3g} s: {why}", hint=hint)

        return look

    def for_query(self, name: str) -> Look:
        """While rows that were pushed before the statement are not in the results of a query yet."""
        return self.look(
            f"rows that were pushed before it are not worked on yet by query `{name}`",
            f"try again later; SUBSCRIBE {name} FROM START gives the results that are there",
        )

    def for_database(self) -> Look:
        """While another thread changes the database, or evaluates queries in its place."""
        return self.look("the database is busy with what came before it", "try again later")


def given_up() -> QueryFailed:
    return QueryFailed("the SELECT was given up: its client has cancelled it or has gone")


@contextmanager
def interrupted(connection: duckdb.DuckDBPyConnection, seconds: float, stop: Stop | None = None) -> Iterator[None]:
    """What the connection runs inside ends after ``seconds``, or when ``stop`` says so. A thread watches it, which ends
    with the block."""
    stop = stop or Stop()
    woken, over = threading.Event(), threading.Event()

    def watch() -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not over.is_set() and not stop.is_set:
            woken.wait(left if stop.look is None else min(left, stop.look))
        while not over.is_set():
            connection.interrupt()
            over.wait(_AGAIN)

    watching = threading.Thread(target=watch, name="penstock-select-watch", daemon=True)
    watching.start()
    try:
        with stop.waking(woken.set):
            yield
    finally:
        over.set()
        woken.set()
        watching.join()
