"""What strategies derive from the graph: order, and how fast memory is released.

All are functions of the vertices that can be reached from where one starts. What has not been measured counts as a
microsecond for each element, and as letting all elements through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.graph.vertex import Vertex
from penstock.runtime.envelope import Segment, lower_envelope

UNKNOWN_COST = 1e-6
MOST_PATHS = 4_096
"""More paths are not looked at; a vertex that is on none of them has its own."""


def cost(vertex: Vertex) -> float:
    """Seconds for one element."""
    measured = vertex.stats.cost
    return UNKNOWN_COST if measured is None else measured


def selectivity(vertex: Vertex) -> float:
    """Elements out for one in."""
    measured = vertex.stats.selectivity
    return 1.0 if measured is None else measured


def ordered(start: Iterable[Vertex]) -> list[Vertex]:
    """Everything that can be reached, senders before receivers."""
    done: dict[int, Vertex] = {}
    seen: set[int] = set()
    for root in start:
        stack: list[tuple[Vertex, Iterator[Vertex]]] = []
        if root.id not in seen:
            seen.add(root.id)
            stack.append((root, iter([e.target for e in root.outputs])))
        while stack:
            vertex, targets = stack[-1]
            for target in targets:
                if target.id not in seen:
                    seen.add(target.id)
                    stack.append((target, iter([e.target for e in target.outputs])))
                    break
            else:
                stack.pop()
                done[vertex.id] = vertex
    return list(done.values())[::-1]


def steepness(start: Iterable[Vertex]) -> dict[int, float]:
    """What a vertex releases for each second, as part of its segment of the lower envelope; of several paths through
    it, the best. What comes to a query leaves the graph."""
    found: dict[int, float] = {}
    for path in _paths(ordered(start)):
        for segment in _segments(path):
            for vertex in path[segment.start : segment.stop]:
                found[vertex.id] = max(found.get(vertex.id, segment.steepness), segment.steepness)
    return found


def boundaries(start: Iterable[Vertex]) -> set[tuple[int, int]]:
    """The edges between two segments of the lower envelope, on any path: an operator behind one must not be called by
    the operator before it where Chain decides who works (001, section 4.2)."""
    return {
        (path[segment.start - 1].id, path[segment.start].id)
        for path in _paths(ordered(start))
        for segment in _segments(path)[1:]
    }


def _segments(path: Sequence[Vertex]) -> list[Segment]:
    passed = [0.0 if v.kind == "query" else selectivity(v) for v in path]
    return lower_envelope([cost(v) for v in path], passed)


def _paths(vertices: Sequence[Vertex]) -> Iterator[list[Vertex]]:
    """From where a path can begin to each end of the graph; every vertex is on one at least."""
    members = {v.id for v in vertices}
    covered: set[int] = set()
    budget = MOST_PATHS
    for begin in vertices:
        inner = any(e.source.id in members for e in begin.inputs)
        if begin.id in covered or (inner and budget > 0):
            continue
        stack: list[list[Vertex]] = [[begin]]
        while stack and budget > 0:
            path = stack.pop()
            while outputs := list(path[-1].outputs):  # elsewhere in the graph queries may come
                *others, first = outputs
                stack += [[*path, e.target] for e in others[:budget]]
                path.append(first.target)
            budget -= 1
            covered.update(v.id for v in path)
            yield path
        if begin.id not in covered:
            covered.add(begin.id)
            yield [begin]
