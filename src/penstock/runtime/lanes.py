"""Where prioritised rows wait in a buffer, ahead of all others (004, section 4).

One thread puts, one thread takes, at the same time.

Plug-in point: ``LANES`` maps the name of a mode to what makes a ``Lane``. A mode that is added to it can be set like
the others (``db.configure(mode=…)``); those that are there to compare with are in ``experiments``.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.graph.message import Data

Entry = tuple[Data, int, float, int]
"""Rows, their number in order of entry into the runtime, the time of entry, their highest priority."""
NOBODY = (math.inf, math.inf)


class Lane(Protocol):
    """Bounded by the prioritised rows that have been put and not been taken."""

    by_level: bool
    """Whether rows of different priorities are put apart."""

    def put(self, entry: Entry) -> None:
        """Rows that overtake."""

    def take(self) -> Entry:
        """The next ones; there are some."""

    def __bool__(self) -> bool:
        """Whether there are any."""

    def __iter__(self) -> Iterator[Entry]:
        """Those that are there now, in any order. Anybody may ask at any time."""

    @property
    def rank(self) -> int:
        """The highest priority, 0 if there are none."""

    @property
    def oldest(self) -> tuple[float, float]:
        """Number and time of entry of those that came first; infinite where there are none."""

    def ordinary(self, messages: int) -> None:
        """So many messages without priority have been put behind (or, below 0, taken)."""


class Ranks:
    """How many wait of each priority. Bounded by the priorities of what waits."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, int] = {}
        self._lock = threading.Lock()

    def put(self, rank: int) -> None:
        with self._lock:
            self._waiting[rank] = self._waiting.get(rank, 0) + 1

    def take(self, rank: int, left: int = 0) -> None:
        """``left``: the priority of what is left of it."""
        with self._lock:
            if left:
                self._waiting[left] = self._waiting.get(left, 0) + 1
            if self._waiting[rank] == 1:
                del self._waiting[rank]
            else:
                self._waiting[rank] -= 1

    @property
    def highest(self) -> int:
        """0 if there are none."""
        if not self._waiting:
            return 0
        with self._lock:
            return max(self._waiting, default=0)


class LaneBase:
    """What most lanes have in common."""

    by_level = True

    def __iter__(self) -> Iterator[Entry]:
        raise NotImplementedError

    @property
    def oldest(self) -> tuple[float, float]:
        return min((entry[1:3] for entry in self), default=NOBODY)

    def ordinary(self, messages: int) -> None:
        """Most need not know."""


class Levels(LaneBase):
    """First in, first out, for each priority; the highest first. A priority of which nothing waits is forgotten."""

    def __init__(self) -> None:
        self._of: dict[int, deque[Entry]] = {}
        self._heap: list[int] = []  # their priorities; negative, so the highest is the first
        self._lock = threading.Lock()

    def put(self, entry: Entry) -> None:
        rank = entry[3]
        with self._lock:
            level = self._of.get(rank)
            if level is None:
                self._of[rank] = deque((entry,))
                heapq.heappush(self._heap, -rank)
            else:
                level.append(entry)

    def take(self) -> Entry:
        with self._lock:
            rank = -self._heap[0]
            level = self._of[rank]
            entry = level.popleft()
            if not level:
                heapq.heappop(self._heap)
                del self._of[rank]
        return entry

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __iter__(self) -> Iterator[Entry]:
        with self._lock:
            return iter([entry for level in self._of.values() for entry in level])

    @property
    def rank(self) -> int:
        heap = self._heap
        try:
            return -heap[0] if heap else 0
        except IndexError:  # taken meanwhile
            return 0

    @property
    def oldest(self) -> tuple[float, float]:
        with self._lock:
            return min([level[0][1:3] for level in self._of.values()], default=NOBODY)


LANES: dict[str, Callable[[], Lane]] = {"strong": Levels, "direct": Levels, "normal": Levels}
"""By mode. In mode ``normal`` no row begins to overtake, but those that do already go on. In mode ``direct`` they wait
only where they cannot be handed over."""
