"""Constructions of virtual operators that 001 compares with, and how well a placement uses the time there is.

Importing this module adds ``segment`` and ``chain`` to ``penstock.runtime.placement.PLACEMENTS``. Both cut paths of
operators where less memory is released.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.runtime.envelope import lower_envelope, steepness
from penstock.runtime.placement import PLACEMENTS, Node, Placement, PlacementGraph, capacity, numbered

SIMILAR = 0.75
"""``segments``: how much of its predecessor's release rate an operator must have to go with it."""


def segments(graph: PlacementGraph) -> Placement:
    """The simplified segment strategy of Jiang and Chakravarthy: each path is by itself, and cut at most once.

    The first segment begins with the path and goes on as long as each operator releases memory at ``SIMILAR`` times
    the rate of the one before it, or faster. What remains of the path is the second segment.
    """
    owner: dict[int, int] = {}
    for path in _paths(graph):
        rates = [_release(graph.known[id]) for id in path]
        end = next((i for i in range(1, len(path)) if rates[i] < SIMILAR * rates[i - 1]), len(path))
        owner |= dict.fromkeys(path[:end], path[0]) | dict.fromkeys(path[end:], path[-1])
    return numbered(graph, owner)


def chains(graph: PlacementGraph) -> Placement:
    """Each path is cut between the segments of its lower envelope, as Chain needs it; each path is by itself."""
    owner: dict[int, int] = {}
    for path in _paths(graph):
        nodes = [graph.known[id] for id in path]
        for part in lower_envelope([node.cost or 0.0 for node in nodes], [node.selectivity or 0.0 for node in nodes]):
            owner |= dict.fromkeys(path[part.start : part.stop], path[part.start])
    return numbered(graph, owner)


@dataclass(frozen=True)
class AverageCapacities:
    """How partitions are used: the average capacity of those that fall behind, and of the others.

    Zero where there are none. Partitions to which nothing comes are left out.
    """

    negative: float
    positive: float
    negatives: int
    positives: int

    @property
    def shortfall(self) -> float:
        """The sum of the negative capacities."""
        return self.negative * self.negatives


def average_capacities(graph: PlacementGraph, placement: Mapping[int, int]) -> AverageCapacities:
    """The capacities of a placement's partitions, negative and positive ones apart."""
    partitions: dict[int, list[Node]] = {}
    for id, node in graph.known.items():
        partitions.setdefault(placement[id], []).append(node)
    capacities = [c for c in map(capacity, partitions.values()) if c != math.inf]
    negative, positive = [c for c in capacities if c < 0], [c for c in capacities if c >= 0]
    return AverageCapacities(_mean(negative), _mean(positive), len(negative), len(positive))


def _mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


def _release(node: Node) -> float:
    """Elements that vanish in a second while the operator works."""
    return steepness(node.cost or 0.0, 1 - (node.selectivity or 0.0))


def _paths(graph: PlacementGraph) -> list[list[int]]:
    """Paths of operators such that each operator is on one: an operator that several share is on the first of them.

    A path goes on with the first receiver that is on none yet.
    """
    taken: set[int] = set()
    paths = []
    for id in graph.order:
        path: list[int] = []
        following: int | None = id if id not in taken else None
        while following is not None:
            taken.add(following)
            path.append(following)
            following = next((target for target in graph.outputs[following] if target not in taken), None)
        if path:
            paths.append(path)
    return paths


PLACEMENTS.update({"segment": segments, "chain": chains})
