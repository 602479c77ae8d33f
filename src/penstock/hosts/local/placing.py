"""From what was measured of operators to virtual operators: where the graph of a database gets its buffers.

Before the first measurement a cost model says what an operator is likely to need, so that a slow one does not stall the
others until it has been seen to be slow.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from penstock.graph.graph import Graph
from penstock.graph.operators import Stateless
from penstock.graph.sources import Source, Ticks
from penstock.graph.vertex import Vertex
from penstock.graph.vertices import OperatorVertex
from penstock.model.errors import CatalogError, InputError, suggest
from penstock.runtime import paths
from penstock.runtime.placement import Node, Placement, PlacementGraph, placed
from penstock.runtime.settings import Settings

COLUMNAR, BY_ROW, PYTHON = 2e-6, 5e-5, 0.1
"""Seconds that an operator is taken to need for an element: one that works on columns, one that goes row by row, and
one that calls a function of the user's, which is taken to be slow: until it is measured, it stalls nothing else."""
BY_ROWS = frozenset({"Join", "SemiJoin", "Aggregate", "Distinct", "SetOp", "TopN"})
"""The operators that go row by row; see ``operators/build.py``."""
INTERARRIVAL = 0.1
"""Seconds from one element of a stream to the next, of a stream of which none has come."""


_NUMBERS = "db.graph() shows the operators and edges that there are"


class Placing:
    """Computes placements from what has been measured lately (``graph.statistics``).

    Bounded by the operators of the graph: of each a few numbers.
    """

    def __init__(self) -> None:
        self._last: Placement = {}
        self._wanted: set[frozenset[int]] = set()

    def partitions(
        self, vertices: Sequence[OperatorVertex], settings: Settings, own: Mapping[int, Settings]
    ) -> Placement:
        """The virtual operator of each operator. One that is as it was keeps its number, and with it its worker.
        ``own``: the operators for which other settings hold."""
        self._last = _numbered(_computed(vertices, settings, own), self._last)
        return self._last

    def changes(self, vertices: Sequence[OperatorVertex], settings: Settings, own: Mapping[int, Settings]) -> bool:
        """Whether the virtual operators would be others now, and would have been the same others the last time that
        this was asked: to move buffers pauses workers for a moment, which a passing change is not worth."""
        now = _groups(_computed(vertices, settings, own))
        lasting, self._wanted = now == self._wanted, now
        return lasting and now != _groups(self._last)

    def differs(self, vertices: Sequence[OperatorVertex], settings: Settings, own: Mapping[int, Settings]) -> bool:
        """Whether the virtual operators would be others now, since operators have other priorities."""
        return _groups(_computed(vertices, settings, own)) != _groups(self._last)


def _computed(vertices: Sequence[OperatorVertex], settings: Settings, own: Mapping[int, Settings]) -> Placement:
    of = {v.id: own.get(v.id, settings) for v in vertices}
    mine = [v for v in vertices if of[v.id].threading == "hybrid"]
    inside = {v.id for v in mine}
    nodes = tuple(
        Node(v.id, cost(v), _interarrival(v, inside), v.stats.selectivity, v.priority, of[v.id].worker) for v in mine
    )
    edges = tuple((e.source.id, v.id) for v in mine for e in v.inputs if e.source.id in inside)
    asked = {edge: settings.edges.get(edge) for edge in edges}
    apart = {edge for edge, there in asked.items() if there}
    chained = [v for v in mine if of[v.id].strategy.startswith("chain")]
    if chained:
        known = {v.id for v in chained}
        inner = {(s, t) for s, t in paths.boundaries(chained) if s in known and t in known}
        apart |= {edge for edge in inner if asked.get(edge) is None}
    together = frozenset(edge for edge, there in asked.items() if there is False)
    return placed(PlacementGraph(nodes, edges, frozenset(apart & set(edges)), together), settings.placement)


def check_partitions(settings: Settings, graph: Graph) -> None:
    """Refuse partitions and queues of queries and operators that are not there, or that cannot be."""
    if (settings.members or settings.edges) and not settings.has_partitions:
        raise InputError(
            "there are no partitions and no buffers to choose without workers",
            hint="set it with them: db.configure(threading='hybrid', …)",
        )
    for name, of in settings.members.items():
        for query in of.queries:
            if query not in graph.members:
                hint = suggest(query, graph.members) or "none is registered"
                raise CatalogError(f"in the partition `{name}`: no query `{query}`", hint=hint)
        for id in of.operators:
            if id not in graph.vertices:
                raise CatalogError(f"in the partition `{name}`: there is no operator {id}", hint=_NUMBERS)
    for (source, target), there in settings.edges.items():
        vertex = graph.vertices.get(target)
        if vertex is None or source not in {e.source.id for e in vertex.inputs}:
            raise CatalogError(f"in queues: no edge leads from operator {source} to {target}", hint=_NUMBERS)
        sender = graph.vertices[source]
        one, other = (settings.partition_of(v.id, v.users) for v in (sender, vertex))
        if not there and one != other and not isinstance(sender, Source | Ticks):
            raise InputError(
                f"in queues: {_place(source, one)} and {_place(target, other)}, so a buffer is between them",
                hint="put both operators into one partition",
            )


def _place(operator: int, partition: str | None) -> str:
    return f"operator {operator} is in {'no partition' if partition is None else f'the partition `{partition}`'}"


def cost(vertex: OperatorVertex) -> float:
    """Seconds for an element: as measured, or as the model has it.

    >>> from penstock.graph.vertices import OperatorVertex
    >>> cost(OperatorVertex("window", "[ROWS 10]", ())) == COLUMNAR
    True
    """
    measured = vertex.stats.cost
    if measured is not None and (measured or vertex.stats.elements_out):  # during the first call it is 0
        return measured
    if isinstance(vertex, Stateless) and vertex.chain.calls_functions:
        return PYTHON
    return BY_ROW if vertex.name in BY_ROWS else COLUMNAR


def _interarrival(vertex: OperatorVertex, inside: set[int]) -> float | None:
    """Seconds from one element to the next, as measured or as those that read the same stream have it; None: it follows
    from the operators before."""
    measured = vertex.stats.interarrival
    if measured is not None or all(e.source.id in inside for e in vertex.inputs):
        return measured
    return min((found for e in vertex.inputs for found in _of_readers(e.source)), default=INTERARRIVAL)


def _of_readers(source: Vertex) -> list[float]:
    found = (edge.target.stats.interarrival for edge in source.outputs)
    return [seconds for seconds in found if seconds is not None]


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
