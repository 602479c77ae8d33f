"""The time on the wall, as a test wants it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta

from penstock.model.durations import parse_duration
from penstock.model.errors import InputError
from penstock.rows.times import to_instant

Duration = str | int | timedelta
"""A length of time: a text like ``'5 seconds'``, microseconds, or a timedelta."""


class Clock:
    """A clock that stands still until it is told to move: ``connect(clock=clock)``.

    Streams without ``TIMESTAMP BY`` take their instants from it. It never goes back. Databases with this clock move on
    whenever it has moved, in the thread that moves it, and at no other time; those that have been forgotten elsewhere
    are forgotten here too.
    """

    def __init__(self, start: object = "2024-01-01") -> None:
        self._ticks = to_instant(start)
        self._told: list[weakref.WeakMethod[Callable[[], object]]] = []
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """The time in microseconds since 1970-01-01, as ``connect`` wants it."""
        return self._ticks

    def seconds(self) -> float:
        """The same in seconds: what latencies of its databases are measured by."""
        return self._ticks / 1_000_000

    @property
    def now(self) -> datetime:
        """The time, in UTC and without a zone, as answers have it; a datetime has the years 1 to 9999."""
        ticks = self._ticks
        try:
            return datetime(1970, 1, 1) + timedelta(microseconds=ticks)
        except OverflowError:
            raise InputError(
                f"the clock is at {ticks}, and a datetime has the years 1 to 9999", hint="clock() gives microseconds"
            ) from None

    def advance(self, by: Duration) -> None:
        """Let so much time pass."""
        length = to_ticks(by)
        with self._lock:
            told = self._move(self._ticks + length)
        _tell(told)

    def set(self, at: object) -> None:
        """Let time pass until then: a datetime, ISO text, or microseconds since 1970."""
        ticks = to_instant(at)
        with self._lock:
            told = self._move(ticks)
        _tell(told)

    def tells(self, moved: Callable[[], object]) -> None:
        """Call this method whenever the clock has moved. ``connect`` does it."""
        with self._lock:
            self._told.append(weakref.WeakMethod(moved))

    def __repr__(self) -> str:
        return f"<Clock {shown(self._ticks)}>"

    def _move(self, ticks: int) -> list[Callable[[], object]]:
        """Be at another time, under the lock; gives what is to be called then, without the lock."""
        if ticks < self._ticks:
            raise InputError(f"the clock is at {shown(self._ticks)} and does not go back")
        self._ticks = to_instant(ticks)
        self._told = [method for method in self._told if method() is not None]
        return [found for method in self._told if (found := method()) is not None]


def _tell(methods: list[Callable[[], object]]) -> None:
    for moved in methods:
        moved()


def shown(ticks: int) -> str:
    """An instant for people: a date and time, or where there is none the microseconds."""
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=ticks)).isoformat(" ")
    except OverflowError:
        return f"{ticks} microseconds since 1970"


def to_ticks(length: Duration) -> int:
    """The microseconds of a length of time."""
    if isinstance(length, str):
        return parse_duration(length)
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if isinstance(length, int) and not isinstance(length, bool):
        return length
    raise InputError(f"{length!r} is not a length of time", hint="write '5 seconds', a timedelta, or microseconds")
