"""The strategies by name; with ``+`` behind the name they work in trains.

Plug-in point: ``STRATEGIES`` maps a name to a subclass of ``Strategy``. A strategy that is added to it can be set like
the others (``db.configure(strategy=…)``). Those of the papers that exist for comparison are in ``experiments``.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from penstock.graph.vertex import Vertex
from penstock.model.errors import InputError, suggest
from penstock.runtime import paths
from penstock.runtime.station import Station
from penstock.runtime.strategy import ByKey, ByPlan, Quantum, Strategy

TURN = 1_000
"""Elements of a turn of weighted round robin at priority 5, where no quantum is given."""


class RoundRobin(Strategy):
    """In turn, whoever became available first."""

    def __init__(self, name: str, train: bool, quantum: Quantum | None, latency: float) -> None:
        super().__init__(name, train, quantum, latency)
        self._turn: deque[Station] = deque()

    def available(self, station: Station) -> None:
        self._turn.append(station)

    def choose(self, now: float) -> Station | None:
        return self._turn.popleft() if self._turn else None

    def served(self, station: Station, rows: int, more: bool) -> None:
        if more:
            self._turn.append(station)

    def __len__(self) -> int:
        return len(self._turn)


class WeightedRoundRobin(RoundRobin):
    """In turn, but a turn lasts longer the higher the priority of the operator: from a sixth of the quantum at
    priority 0 over the quantum at 5 to ten sixths at 9."""

    def __init__(self, name: str, train: bool, quantum: Quantum | None, latency: float) -> None:
        super().__init__(name, train, quantum, latency)
        self._left: dict[Station, int] = {}  # of the turns that are not over

    def limit(self, station: Station) -> int | None:
        left = self._left.get(station)
        if left is None:
            left = max(1, (super().limit(station) or TURN) * (station.vertex.priority + 1) // 6)
            self._left[station] = left
        return left

    def served(self, station: Station, rows: int, more: bool) -> None:
        left = self._left.pop(station, 0) - max(rows, 1)
        if more and left > 0:
            self._left[station] = left
            self._turn.appendleft(station)
        elif more:
            self._turn.append(station)


class Fifo(ByKey):
    """What entered first is worked on first, all the way to the answers; what urgent queries need, as if it had entered
    earlier (``Station.urgency``)."""

    def key(self, station: Station) -> tuple[float, ...]:
        return station.urgency


class Chain(ByPlan):
    """Where the most memory is released in the least time: steepest segment of the lower envelope first. What a segment
    releases counts more the higher the priority of the operator, as turns do in weighted round robin."""

    _steep: Mapping[int, float] = MappingProxyType({})

    def plan(self, stations: Sequence[Station]) -> None:
        self._steep = paths.steepness(vertices(stations))

    def key(self, station: Station) -> tuple[float, ...]:
        return (-self._steep.get(station.vertex.id, 0.0) * (station.vertex.priority + 1), station.oldest[0])


class ChainFlush(Chain):
    """Chain, but what has been in the system for longer than the limit goes first: that of the strategy, or of a query
    that asks for less."""

    def __init__(self, name: str, train: bool, quantum: Quantum | None, latency: float) -> None:
        super().__init__(name, train, quantum, latency)
        self._here: dict[Station, int] = {}
        self._old: list[tuple[float, int, Station]] = []  # some are no longer here

    def available(self, station: Station) -> None:
        super().available(station)
        self._here[station] = self._count
        due = station.oldest[1] + min(self.latency, station.latency)
        heapq.heappush(self._old, (due, self._count, station))

    def choose(self, now: float) -> Station | None:
        while self._old and self._here.get(self._old[0][2]) != self._old[0][1]:
            heapq.heappop(self._old)
        if self._old and now > self._old[0][0]:
            station = heapq.heappop(self._old)[2]
        else:
            while self._heap and self._here.get(self._heap[0][2]) != self._heap[0][1]:
                heapq.heappop(self._heap)
            chosen = super().choose(now)
            if chosen is None:
                return None
            station = chosen
        del self._here[station]
        if len(self._heap) + len(self._old) > 4 * len(self._here) + 64:
            self._heap = [e for e in self._heap if self._here.get(e[2]) == e[1]]
            heapq.heapify(self._heap)
            self._old = [e for e in self._old if self._here.get(e[2]) == e[1]]
            heapq.heapify(self._old)
        return station

    def __len__(self) -> int:
        return len(self._here)


class ByLook(Strategy):
    """All are looked at for every choice, since what waits in front of them changes."""

    def __init__(self, name: str, train: bool, quantum: Quantum | None, latency: float) -> None:
        super().__init__(name, train, quantum, latency)
        self._here: dict[Station, None] = {}

    def available(self, station: Station) -> None:
        self._here[station] = None

    def key(self, station: Station) -> tuple[float, ...]:
        """The most of this goes first."""
        raise NotImplementedError

    def choose(self, now: float) -> Station | None:
        if not self._here:
            return None
        station = max(self._here, key=self.key)
        del self._here[station]
        return station

    def served(self, station: Station, rows: int, more: bool) -> None:
        if more:
            self._here[station] = None

    def __len__(self) -> int:
        return len(self._here)


class HighestPriority(ByLook):
    """Where the element of the highest priority waits; of equals, the operator of the highest priority, unless another
    has waited long (``Station.urgency``). Elements that wait to be given a priority may have any, so they come before
    all."""

    apart = True

    def key(self, station: Station) -> tuple[float, ...]:
        entered, number = station.urgency
        return (-entered, -number)

    def choose(self, now: float) -> Station | None:
        found = [station for station in self._here if station.unknown]
        highest = -math.inf
        for station in () if found else self._here:
            rank = station.rank
            if rank > highest:
                found, highest = [station], rank
            elif rank == highest:
                found.append(station)
        if not found:
            return None
        station = found[0] if len(found) == 1 else max(found, key=self.key)
        del self._here[station]
        return station


def vertices(stations: Sequence[Station]) -> list[Vertex]:
    """The operators of stations."""
    return [s.vertex for s in stations]


STRATEGIES: dict[str, type[Strategy]] = {
    "fifo": Fifo,
    "chain-flush": ChainFlush,
    "weighted-round-robin": WeightedRoundRobin,
    "highest-priority": HighestPriority,
}


def names() -> tuple[str, ...]:
    """All names that can be set."""
    return tuple(name + train for name in STRATEGIES for train in ("", "+"))


def check_name(name: object) -> str:
    """The name of a strategy, or an error that lists them."""
    valid = names()
    if name in valid:
        return str(name)
    close = suggest(str(name), valid) or ""
    every = f"the strategies are {', '.join(STRATEGIES)}, each also with + for trains"
    raise InputError(f"unknown strategy {name!r}", hint=f"{close} {every}" if close.startswith("did") else every)


def strategy(name: str, quantum: Quantum | None = None, latency: float = 0.1) -> Strategy:
    """A new strategy. ``latency``: the limit of chain-flush in seconds."""
    check_name(name)
    return STRATEGIES[name.removesuffix("+")](name, name.endswith("+"), quantum, latency)
