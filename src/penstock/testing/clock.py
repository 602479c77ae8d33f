"""The time on the wall, as a test wants it."""

from __future__ import annotations

import threading
import weakref
from datetime import datetime, timedelta

from penstock.cql.durations import parse_duration
from penstock.database import Database
from penstock.errors import InputError
from penstock.values import to_instant

Duration = str | int | timedelta
"""A length of time: a text like ``'5 seconds'``, microseconds, or a timedelta."""


class Clock:
    """A clock that stands still until it is told to move: ``connect(clock=clock)``.

    Streams without ``TIMESTAMP BY`` take their instants from it. It never goes back. Databases that it ``drives`` are
    told whenever it has moved; those that have been forgotten elsewhere are forgotten here too.
    """

    def __init__(self, start: object = "2024-01-01") -> None:
        self._ticks = to_instant(start)
        self._driven: weakref.WeakSet[Database] = weakref.WeakSet()
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """The time in microseconds since 1970-01-01, as ``connect`` wants it."""
        return self._ticks

    @property
    def now(self) -> datetime:
        """The time, in UTC and without a zone, as answers have it."""
        return datetime(1970, 1, 1) + timedelta(microseconds=self._ticks)

    def advance(self, by: Duration) -> None:
        """Let so much time pass."""
        self._move(self._ticks + to_ticks(by))

    def set(self, at: object) -> None:
        """Let time pass until then: a datetime, ISO text, or microseconds since 1970."""
        self._move(to_instant(at))

    def drives(self, *databases: Database) -> None:
        """Call ``tick`` of these databases whenever the clock has moved, so that subscribers hear what time alone
        changes. They must have this clock."""
        for database in databases:
            if database.clock is not self:
                raise InputError("the database has another clock", hint="open it with connect(clock=clock)")
            self._driven.add(database)

    def __repr__(self) -> str:
        return f"<Clock {self.now.isoformat(' ')}>"

    def _move(self, ticks: int) -> None:
        with self._lock:
            if ticks < self._ticks:
                raise InputError(f"the clock is at {self.now.isoformat(' ')} and does not go back")
            self._ticks = ticks
        for database in list(self._driven):
            database.tick()


def to_ticks(length: Duration) -> int:
    """The microseconds of a length of time."""
    if isinstance(length, str):
        return parse_duration(length)
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if isinstance(length, int) and not isinstance(length, bool):
        return length
    raise InputError(f"{length!r} is not a length of time", hint="write '5 seconds', a timedelta, or microseconds")
