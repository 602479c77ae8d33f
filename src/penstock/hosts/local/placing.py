"""From what was measured of operators to partitions: where the graph of a database gets its buffers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from penstock.graph.vertices import OperatorVertex
from penstock.runtime.placement import PLACEMENTS, Node, Placement, PlacementGraph


class Placing:
    """Computes placements from what has been measured lately (``graph.statistics``).

    Bounded by the operators of the graph: of each a few numbers.
    """

    def __init__(self) -> None:
        self._last: Placement = {}
        self._wanted: set[frozenset[int]] = set()

    def partitions(self, vertices: Sequence[OperatorVertex], placement: str) -> Placement:
        """The partition of each operator. One that is as it was keeps its number, and with it its worker."""
        self._last = _numbered(_computed(vertices, placement), self._last)
        return self._last

    def changes(self, vertices: Sequence[OperatorVertex], placement: str) -> bool:
        """Whether the partitions would be others now, and would have been the same others the last time that this was
        asked: to move buffers stops workers for a moment, which a passing change is not worth."""
        now = _groups(_computed(vertices, placement))
        lasting, self._wanted = now == self._wanted, now
        return lasting and now != _groups(self._last)

    def differs(self, vertices: Sequence[OperatorVertex], placement: str) -> bool:
        """Whether the partitions would be others now, since operators have other priorities."""
        return _groups(_computed(vertices, placement)) != _groups(self._last)


def _computed(vertices: Sequence[OperatorVertex], placement: str) -> Placement:
    inside = {v.id for v in vertices}
    nodes = tuple(Node(v.id, v.stats.cost, v.stats.interarrival, v.stats.selectivity, v.priority) for v in vertices)
    edges = tuple((e.source.id, v.id) for v in vertices for e in v.inputs if e.source.id in inside)
    return PLACEMENTS[placement](PlacementGraph(nodes, edges))


def _numbered(placement: Placement, before: Placement) -> Placement:
    groups, known = _groups(placement), _groups(before)
    numbers = {group: before[min(group)] for group in groups & known}
    taken = set(numbers.values())
    free = (number for number in itertools.count() if number not in taken)
    numbers |= zip(sorted(groups - known, key=min), free, strict=False)
    return {id: number for group, number in numbers.items() for id in group}


def _groups(placement: Placement) -> set[frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for vertex, partition in placement.items():
        groups.setdefault(partition, set()).add(vertex)
    return {frozenset(group) for group in groups.values()}
