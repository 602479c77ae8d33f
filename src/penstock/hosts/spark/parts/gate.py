"""How many parts work at once, and who is next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_AGING = 10
"""Priorities that a second of waiting is worth: nobody waits for ever."""


@dataclass(frozen=True, eq=False)
class Waiter:
    """A part that waits since an instant."""

    priority: int
    since: float


def chosen(waiters: Sequence[Waiter]) -> Waiter:
    """Who is next: the most urgent, where waiting makes all more urgent alike; of equals who waits longest."""
    return max(waiters, key=lambda w: (w.priority - _AGING * w.since, -w.since))


class Gate:
    """Lets at most ``limit`` parts work at once (None: all). Bounded by: the parts of the database, each waits once."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._inside = 0
        self._waiting: list[Waiter] = []
        self._changed = threading.Condition()

    def let(self, limit: int | None) -> None:
        """From now on let this many work."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def wake(self) -> None:
        """Somebody may give up."""
        with self._changed:
            self._changed.notify_all()

    def enter(self, priority: int, gives_up: Callable[[], bool]) -> bool:
        """Wait for a turn; False if the caller has given up. Who is in must ``leave``."""
        me = Waiter(priority, time.monotonic())
        with self._changed:
            self._waiting.append(me)
            try:
                while not gives_up() and not self._is_next(me):
                    self._changed.wait()
            finally:
                self._waiting.remove(me)
            is_in = not gives_up()
            self._inside += is_in
            self._changed.notify_all()
        return is_in

    def leave(self) -> None:
        """Let another work."""
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def _is_next(self, me: Waiter) -> bool:
        if self._limit is None:
            return True
        return self._inside < self._limit and chosen(self._waiting) is me
