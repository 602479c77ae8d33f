"""Modes of overtaking that 004 compares: ``weak``, and the order of ``strong`` in one list or in two.

Importing this module adds them to ``penstock.runtime.lanes.LANES``.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from penstock.runtime.lanes import LANES, NOBODY, Entry, Lane, LaneBase, Ranks


class Weak(LaneBase):
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


class OneList(LaneBase):
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


class TwoLists(LaneBase):
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


MODES: Mapping[str, Callable[[], Lane]] = {"weak": Weak, "strong1": OneList, "strong2": TwoLists}
LANES.update(MODES)
