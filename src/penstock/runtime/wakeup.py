"""How a thread that has nothing to do is woken.

Of locks, conditions, queues and eventfd, measured by ``benchmarks/handoff.py``, eventfd hands over fastest: the
system call that wakes lets go of the interpreter while the kernel starts the other thread. Nothing spins.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
from typing import ClassVar, Protocol

_SELECTED = 1024
"""Numbers of files that ``select`` takes are below."""


class Wakeup(Protocol):
    """One thread waits, any thread wakes it. A wake-up before the wait is not lost; several are as good as one."""

    def wake(self) -> None:
        """Let the one who waits, or who will wait next, go on."""

    def wait(self, seconds: float = math.inf) -> None:
        """Return once a thread has called ``wake`` since the last return, at the latest after some ``seconds``."""


class LockWakeup:
    """Works everywhere."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # somebody else has just done it
            self._lock.release()

    def wait(self, seconds: float = math.inf) -> None:
        self._lock.acquire(timeout=-1 if seconds == math.inf else seconds)


class EventWakeup:
    """Linux. The file is closed when nobody refers to the object any more, so nobody can write to a file that has
    taken its number."""

    __slots__ = ("_file",)
    open: ClassVar[int] = 0
    MOST: ClassVar[int] = 128

    def __init__(self) -> None:
        self._file = -1
        self._file = os.eventfd(0)
        EventWakeup.open += 1

    def wake(self) -> None:
        os.eventfd_write(self._file, 1)

    def wait(self, seconds: float = math.inf) -> None:
        if seconds < math.inf and not self._woken(seconds):
            return
        os.eventfd_read(self._file)

    def _woken(self, seconds: float) -> bool:
        """Whether it is, within some seconds."""
        if self._file < _SELECTED:
            return bool(select.select([self._file], [], [], seconds)[0])
        look = select.poll()  # whole milliseconds
        look.register(self._file, select.POLLIN)
        return bool(look.poll(max(1, math.ceil(seconds * 1e3))))

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            EventWakeup.open -= 1


def wakeup() -> Wakeup:
    """The fastest there is. A process may have few files open, so only the first threads get one."""
    if hasattr(os, "eventfd") and EventWakeup.open < EventWakeup.MOST:
        with contextlib.suppress(OSError):
            return EventWakeup()
    return LockWakeup()
