"""Gives free memory back to the system.

glibc keeps what a process has freed: an arena for each thread, of which only the end goes back by itself. Windows and
batches of queries that come and go, in threads that come and go, leave gaps in all of them. Measured with batches of
20,000 rows: after 60 rounds 549 MB were resident, of which 200 MB were such gaps; Python had collected everything and
Arrow's pool was empty. ``malloc_trim`` gives the gaps back.

It takes 0.1 ms for each MB that goes back, 1 ms if there is none, and blocks other threads that allocate meanwhile. So
it is called when much may have been freed, and takes at most 1 % of the time. Where the C library has no such call
nothing is done.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import pyarrow as pa

_SECONDS = 1.0
"""At least so long from one call to the next."""
_SHARE = 100
"""And this many times as long as the last one took."""


def _found() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # not glibc
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


class Trimming:
    """All databases of a process share its memory, so there is one for all. Any thread may call it, with no lock."""

    def __init__(
        self, trim: Callable[[int], int] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._trim, self._clock = trim, clock
        self._one = threading.Lock()
        self._not_before = float("-inf")

    def trim(self) -> bool:
        """Give free memory back, unless that was done just now; whether it was."""
        if self._trim is None or self._clock() < self._not_before or not self._one.acquire(blocking=False):
            return False
        try:
            began = self._clock()
            pa.default_memory_pool().release_unused()
            self._trim(0)
            ended = self._clock()
            self._not_before = ended + max(_SECONDS, _SHARE * (ended - began))
        finally:
            self._one.release()
        return True


TRIMMING = Trimming(_found())
"""That of this process."""
