"""Time for the demo: that of the machine or, in tests, one that passes only when somebody waits."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds from somewhere on."""

    def now(self) -> float:
        """How many."""

    def sleep(self, seconds: float) -> None:
        """Let so many pass."""

    def join(self, thread: threading.Thread, seconds: float) -> None:
        """Wait for the end of a thread, so long at most."""


class RealClock:
    """That of the machine."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def join(self, thread: threading.Thread, seconds: float) -> None:
        thread.join(seconds)


class SimulatedClock:
    """Passes as fast as somebody sleeps; what is done by others takes no time, and is waited for however long."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def join(self, thread: threading.Thread, seconds: float) -> None:
        thread.join()
