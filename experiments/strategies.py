"""Strategies that the papers compare and that no user needs; each also with ``+`` for trains.

Importing this module adds them to ``penstock.runtime.strategies.STRATEGIES``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from penstock.graph.vertex import Vertex
from penstock.runtime.paths import cost, ordered
from penstock.runtime.station import Station
from penstock.runtime.strategies import STRATEGIES as KNOWN
from penstock.runtime.strategies import ByLook, Chain, RoundRobin, vertices
from penstock.runtime.strategy import ByKey, ByPlan, Quantum, Strategy


def positions(start: Iterable[Vertex]) -> dict[int, int]:
    """The place of each vertex in an order in which senders come before receivers."""
    return {vertex.id: i for i, vertex in enumerate(ordered(start))}


def latencies(start: Iterable[Vertex]) -> dict[int, float]:
    """Seconds from the arrival of an element at a vertex to the nearest end of the graph."""
    found: dict[int, float] = {}
    for vertex in reversed(ordered(start)):
        found[vertex.id] = cost(vertex) + min((found[e.target.id] for e in vertex.outputs), default=0.0)
    return found


class Flow(RoundRobin):
    """Work on arrival, until nothing is left; then the operator is *suspended* rather than *ready*."""

    def available(self, station: Station) -> None:
        if station.vertex.state == "suspended":
            station.vertex.state = "ready"
        super().available(station)

    def served(self, station: Station, rows: int, more: bool) -> None:
        if more:
            self._turn.appendleft(station)
        elif station.vertex.state == "ready":
            station.vertex.state = "suspended"


class MinCost(ByKey):
    """In sweeps from the sources to the answers, so that each operator finds all that its senders had to give."""

    def __init__(self, name: str, train: bool, quantum: Quantum | None, latency: float) -> None:
        super().__init__(name, train, quantum, latency)
        self._at: tuple[float, ...] = (0, -1)

    def assign(self, stations: Sequence[Station]) -> None:
        self._place = positions(vertices(stations))

    def key(self, station: Station) -> tuple[float, ...]:
        sweep, place = self._at
        own = self._place[station.vertex.id]
        return (sweep if own > place else sweep + 1, own)

    def choose(self, now: float) -> Station | None:
        if self._heap:
            self._at = self._heap[0][0]
        return super().choose(now)


class MinLatency(ByPlan):
    """Along whole paths: nearest to an answer first."""

    _latency: Mapping[int, float] = MappingProxyType({})

    def plan(self, stations: Sequence[Station]) -> None:
        self._latency = latencies(vertices(stations))

    def key(self, station: Station) -> tuple[float, ...]:
        return (self._latency.get(station.vertex.id, 0.0), station.oldest[0])


class BiggestQueue(ByLook):
    """Where the most elements wait."""

    def key(self, station: Station) -> tuple[float, ...]:
        return (station.waiting, -station.oldest[0])


STRATEGIES: Mapping[str, type[Strategy]] = {
    "round-robin": RoundRobin,
    "chain": Chain,
    "min-cost": MinCost,
    "min-latency": MinLatency,
    "biggest-queue": BiggestQueue,
    "flow": Flow,
}
KNOWN.update(STRATEGIES)
