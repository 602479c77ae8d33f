"""What every strategy is: which station works next, and on how much.

A strategy has no threads and no clock. It is told which stations became available, gives one away with ``choose``,
and gets it back with ``served``, which says whether there is more to do.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.runtime.station import Station

PROBE = 64
"""Elements of the first turn, where the quantum is a time and nobody has measured yet."""
BRIEF = 0.01
"""Seconds of a turn of an operator that is less urgent than another, where no quantum is given."""
REFRESH = 1.0
"""Seconds after which costs and selectivities are looked at again."""


@dataclass(frozen=True)
class Quantum:
    """How much at once: elements, or seconds. One of them is given."""

    elements: int | None = None
    seconds: float | None = None


class Strategy(ABC):
    """``train``: several messages at once. ``quantum`` None: a whole message, or a train of all that wait."""

    apart = False
    """Whether a turn is over with the prioritised rows that overtake, even as a train."""

    def __init__(self, name: str, train: bool, quantum: Quantum | None, latency: float) -> None:
        self.name, self.train, self.quantum, self.latency = name, train, quantum, latency

    def assign(self, stations: Sequence[Station]) -> None:  # noqa: B027 - most need not know
        """These are all it will ever be told of."""

    @abstractmethod
    def available(self, station: Station) -> None:
        """There is something to do; the station is not here yet."""

    @abstractmethod
    def choose(self, now: float) -> Station | None:
        """The next to work; it is away until ``served``."""

    @abstractmethod
    def served(self, station: Station, rows: int, more: bool) -> None:
        """It has worked on so many elements; ``more``: and there is more to do."""

    @abstractmethod
    def __len__(self) -> int:
        """How many are available and not away."""

    def reordered(self) -> None:  # noqa: B027 - most look when they choose
        """Operators have other priorities than when they became available."""

    def limit(self, station: Station) -> int | None:
        """How many elements at most."""
        quantum = self.quantum
        if quantum is not None and quantum.elements is not None:
            return quantum.elements
        seconds = self.seconds(station)
        if seconds is None:
            return station.turn
        cost = station.cost if station.cost is not None else station.vertex.stats.cost
        if cost is None:
            return PROBE
        bound = station.turn if quantum is None else None
        return max(1, int(min(seconds / cost, bound or 1e9))) if cost > 0 else bound

    def seconds(self, station: Station) -> float | None:
        """How long a turn is to last, if that is given: turns are measured then."""
        if self.quantum is not None:
            return self.quantum.seconds
        return BRIEF if station.brief else None


class ByKey(Strategy):
    """Least key first. The key of a station changes only while it is away, or when all are refreshed."""

    def __init__(self, name: str, train: bool, quantum: Quantum | None, latency: float) -> None:
        super().__init__(name, train, quantum, latency)
        self._heap: list[tuple[tuple[float, ...], int, Station]] = []
        self._count = 0

    @abstractmethod
    def key(self, station: Station) -> tuple[float, ...]:
        """What orders the stations."""

    def available(self, station: Station) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.key(station), self._count, station))

    def choose(self, now: float) -> Station | None:
        return heapq.heappop(self._heap)[2] if self._heap else None

    def served(self, station: Station, rows: int, more: bool) -> None:
        if more:
            self.available(station)

    def reordered(self) -> None:
        self._heap = [(self.key(station), count, station) for _, count, station in self._heap]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)


class ByPlan(ByKey):
    """By numbers derived from the graph and its statistics, which are looked at again from time to time."""

    def __init__(self, name: str, train: bool, quantum: Quantum | None, latency: float) -> None:
        super().__init__(name, train, quantum, latency)
        self._stations: Sequence[Station] = ()
        self._due: float | None = None

    def assign(self, stations: Sequence[Station]) -> None:
        if len(stations) > 1:  # else there is nothing to choose
            self._stations = stations
            self.plan(stations)

    @abstractmethod
    def plan(self, stations: Sequence[Station]) -> None:
        """Work the numbers out."""

    def choose(self, now: float) -> Station | None:
        if self._due is None:
            self._due = now + REFRESH
        elif now >= self._due and self._stations:
            self._due = now + REFRESH
            self.plan(self._stations)
            self.reordered()
        return super().choose(now)
