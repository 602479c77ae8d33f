"""The clock of a database: who says that it is time to look at it."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from penstock.hosts.subscribers import in_callback

_log = logging.getLogger("penstock")
_SHARE = 40
"""To find out when to look next takes at most one part in so many of a core, however many queries there are."""
_STEP, _LONGEST = 0.05, 60.0
"""Seconds between looks at a clock of the user's while something waits for it, which may go as it likes; and at the
wall's, which may be set."""
_FIRST, _LAST = 0.1, 30.0
"""Seconds before a look that failed is tried again, the first time and at most."""


@runtime_checkable
class Told(Protocol):
    """A clock that says when it has moved. With such a clock there is no timer: nothing moves unless it does."""

    def tells(self, moved: Callable[[], object]) -> None:
        """Call this method whenever the clock has moved, as long as its object is there."""


class Looking(Protocol):
    """Who looks at the clock."""

    @property
    def pace(self) -> float:
        """Seconds between two looks at least."""

    def look(self) -> None:
        """Move on what is due."""

    def left(self) -> float:
        """In how many ticks something is due; infinite: nothing waits."""


class Timer:
    """One thread that looks at the clock when something may be due, and else sleeps.

    It begins with the first ``poke`` and ends with ``close``, or when nobody has the database any more: it knows it
    weakly while it sleeps.
    """

    def __init__(self, core: Looking, *, is_wall: bool) -> None:
        self._core = weakref.ref(core, lambda _: self._end())
        self._longest = _LONGEST if is_wall else _STEP
        self._poked, self._over = threading.Event(), threading.Event()
        self._guard = threading.Lock()
        """Guards that there is one thread. Nothing is waited for with it."""
        self._thread: threading.Thread | None = None

    def poke(self) -> None:
        """Something may wait for the clock that did not before. Anybody may call it."""
        if self._poked.is_set():
            return
        self._poked.set()
        if self._thread is None:
            with self._guard:
                if self._thread is None and not self._over.is_set():
                    self._thread = threading.Thread(target=self._run, name="penstock-clock", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """End the thread. The caller waits for that, unless a callback calls."""
        self._end()
        with self._guard:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread() and not in_callback():
            thread.join()

    def _end(self) -> None:
        self._over.set()
        self._poked.set()

    def _run(self) -> None:
        left, failed = 0.0, _FIRST
        while True:
            self._poked.wait(None if left == math.inf else left)
            if self._over.is_set():
                return
            self._poked.clear()
            core = self._core()
            if core is None:
                return
            rest = core.pace
            try:
                core.look()
                began = time.thread_time()
                left = core.left() / 1e6
                rest = max(rest, _SHARE * (time.thread_time() - began))
                left, failed = left if left == math.inf else min(left, self._longest), _FIRST
            except BaseException as error:
                # Also what a callback or a user's clock raises to end a program: it ends no thread but its own.
                _log.warning("streams could not move on with the clock, it is tried again", exc_info=error)
                left, failed = failed, min(2 * failed, _LAST)
                rest = left
            del core
            if self._over.wait(rest):
                return
