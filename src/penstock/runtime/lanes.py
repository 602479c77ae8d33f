"""Where prioritised rows wait in a buffer, ahead of all others (004, section 4).

One thread puts, one thread takes, at the same time.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from penstock.graph.message import Data

Entry = tuple[Data, int, float, int]
"""Rows, their number in order of entry into the runtime, the time of entry, their highest priority."""


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

    def ordinary(self, messages: int) -> None:
        """So many messages without priority have been put behind (or, below 0, taken)."""


class _Lane:
    by_level = True

    def __iter__(self) -> Iterator[Entry]:
        raise NotImplementedError

    @property
    def rank(self) -> int:
        return max((entry[3] for entry in self), default=0)

    def ordinary(self, messages: int) -> None:
        """Most need not know."""


class Weak(_Lane):
    """The last first, whatever its priority."""

    by_level = False

    def __init__(self) -> None:
        self._stack: deque[Entry] = deque()

    def put(self, entry: Entry) -> None:
        self._stack.append(entry)

    def take(self) -> Entry:
        return self._stack.pop()

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


def _rank_and_age(entry: Entry) -> tuple[int, int]:
    return entry[3], -entry[1]


class Levels(_Lane):
    """First in, first out, for each priority; the highest first. Bounded by the number of priorities besides."""

    def __init__(self) -> None:
        self._levels: Sequence[tuple[int, deque[Entry]]] = ()  # highest first; replaced, never changed
        self._of: dict[int, deque[Entry]] = {}

    def put(self, entry: Entry) -> None:
        rank = entry[3]
        level = self._of.get(rank)
        if level is None:
            level = self._of[rank] = deque()
            self._levels = sorted([*self._levels, (rank, level)], key=lambda known: -known[0])
        level.append(entry)

    def take(self) -> Entry:
        for _, level in self._levels:
            if level:
                return level.popleft()
        raise IndexError("there is nothing")

    def __bool__(self) -> bool:
        return any(level for _, level in self._levels)

    def __iter__(self) -> Iterator[Entry]:
        return iter([entry for _, level in self._levels for entry in level.copy()])

    @property
    def rank(self) -> int:
        for rank, level in self._levels:
            if level:
                return rank
        return 0


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
