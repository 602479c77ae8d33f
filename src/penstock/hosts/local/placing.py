"""From what was measured of operators to partitions: where the graph of a database gets its buffers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.graph.vertices import OperatorVertex
from penstock.runtime.placement import PLACEMENTS, Node, Placement, PlacementGraph


class Placing:
    """Computes placements from what happened since the last one, or since the beginning where nothing has happened.

    Bounded by the operators of the graph: of each a few numbers.
    """

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int, int]] = {}
        self._since = time.perf_counter_ns()
        self._last: Placement = {}
        self._wanted: set[frozenset[int]] = set()

    def partitions(self, vertices: Sequence[OperatorVertex], placement: str) -> Placement:
        """The partition of each operator."""
        self._last = self._computed(vertices, placement)
        self._before = {v.id: _counts(v) for v in vertices}
        self._since = time.perf_counter_ns()
        return self._last

    def changes(self, vertices: Sequence[OperatorVertex], placement: str) -> bool:
        """Whether the partitions would be others now, and would have been the same others the last time that this was
        asked: to move buffers stops all workers for a moment, which a passing change is not worth."""
        now = _groups(self._computed(vertices, placement))
        lasting, self._wanted = now == self._wanted, now
        return lasting and now != _groups(self._last)

    def differs(self, vertices: Sequence[OperatorVertex], placement: str) -> bool:
        """Whether the partitions would be others now, since operators have other priorities."""
        return _groups(self._computed(vertices, placement)) != _groups(self._last)

    def _computed(self, vertices: Sequence[OperatorVertex], placement: str) -> Placement:
        inside = {v.id for v in vertices}
        now = time.perf_counter_ns()
        nodes = tuple(self._node(v, now) for v in vertices)
        edges = tuple((e.source.id, v.id) for v in vertices for e in v.inputs if e.source.id in inside)
        return PLACEMENTS[placement](PlacementGraph(nodes, edges))

    def _node(self, vertex: OperatorVertex, now: int) -> Node:
        came, left, busy = _counts(vertex)
        came_before, left_before, busy_before = self._before.get(vertex.id, (0, 0, 0))
        count = came - came_before
        if count <= 0:
            stats = vertex.stats
            return Node(vertex.id, stats.cost, stats.interarrival, stats.selectivity, vertex.priority)
        began = max(self._since, vertex.stats.since)
        return Node(
            vertex.id, (busy - busy_before) / count / 1e9, max(now - began, 1) / count / 1e9,
            max(left - left_before, 0) / count, vertex.priority,
        )  # fmt: skip


def _counts(vertex: OperatorVertex) -> tuple[int, int, int]:
    stats = vertex.stats
    return stats.elements_in, stats.elements_out, stats.busy


def _groups(placement: Placement) -> set[frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for vertex, partition in placement.items():
        groups.setdefault(partition, set()).add(vertex)
    return {frozenset(group) for group in groups.values()}
