"""Where prioritised rows wait in a buffer, ahead of all others (004, section 4).

One thread puts, one thread takes, at the same time.
"""

from __future__ import annotations

import heapq
import math
import threading
from bisect import insort
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


class _Lane:
    by_level = True

    def __iter__(self) -> Iterator[Entry]:
        raise NotImplementedError

    @property
    def oldest(self) -> tuple[float, float]:
        return min((entry[1:3] for entry in self), default=NOBODY)

    def ordinary(self, messages: int) -> None:
        """Most need not know."""


class Weak(_Lane):
    """The last first, whatever its priority."""

    by_level = False

    def __init__(self) -> None:
        self._stack: deque[Entry] = deque()
        self._ranks = Ranks()

    def put(self, entry: Entry) -> None:
        self._ranks.put(entry[3])
        self._stack.append(entry)

    def take(self) -> Entry:
        entry = self._stack.pop()
        self._ranks.take(entry[3])
        return entry

    @property
    def rank(self) -> int:
        return self._ranks.highest

    @property
    def oldest(self) -> tuple[float, float]:
        try:
            return self._stack[0][1:3]
        except IndexError:  # taken meanwhile
            return NOBODY

    def __bool__(self) -> bool:
        return bool(self._stack)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._stack.copy())


class OneList(_Lane):
    """Everything in one list, prioritised rows in front, each put where it belongs: the highest first, of equals the
    first that came. Of what has no priority only the place is here."""

    def __init__(self) -> None:
        self._list: list[Entry | None] = []
        self._lock = threading.Lock()

    def put(self, entry: Entry) -> None:
        rank = entry[3]
        with self._lock:
            place = 0
            for other in self._list:
                if other is None or other[3] < rank:
                    break
                place += 1
            self._list.insert(place, entry)

    def take(self) -> Entry:
        with self._lock:
            entry = self._list.pop(0)
        assert entry is not None, "it was asked whether there are any"
        return entry

    def __bool__(self) -> bool:
        with self._lock:
            return bool(self._list) and self._list[0] is not None

    def __iter__(self) -> Iterator[Entry]:
        with self._lock:
            return iter([entry for entry in self._list if entry is not None])

    @property
    def rank(self) -> int:
        with self._lock:
            first = self._list[0] if self._list else None
        return 0 if first is None else first[3]

    def ordinary(self, messages: int) -> None:
        with self._lock:
            if messages > 0:
                self._list += [None] * messages
            else:
                del self._list[len(self._list) + messages :]


class TwoLists(_Lane):
    """A list of prioritised rows alone: the highest first, of equals the first that came."""

    def __init__(self) -> None:
        self._list: list[Entry] = []  # the next one is the last
        self._lock = threading.Lock()

    def put(self, entry: Entry) -> None:
        with self._lock:
            insort(self._list, entry, lo=0, key=_rank_and_age)

    def take(self) -> Entry:
        with self._lock:
            return self._list.pop()

    def __bool__(self) -> bool:
        return bool(self._list)

    def __iter__(self) -> Iterator[Entry]:
        with self._lock:
            return iter(self._list.copy())

    @property
    def rank(self) -> int:
        with self._lock:
            return self._list[-1][3] if self._list else 0


def _rank_and_age(entry: Entry) -> tuple[int, int]:
    return entry[3], -entry[1]


class Levels(_Lane):
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


LANES: dict[str, Callable[[], Lane]] = {
    "normal": Levels,
    "direct": Levels,
    "weak": Weak,
    "strong": Levels,
    "strong1": OneList,
    "strong2": TwoLists,
}
"""By mode. In mode ``normal`` no row begins to overtake, but those that do already go on. In mode ``direct`` they wait
only where they cannot be handed over."""
MODES = tuple(LANES)
