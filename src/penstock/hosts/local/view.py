"""The graph of a database as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.graph.graph import Graph
from penstock.graph.memory import memory_view
from penstock.graph.vertices import OperatorVertex
from penstock.graph.view import EdgeView, GraphView, OperatorView, QueryView
from penstock.runtime.run import PUSHED, Runtime

if TYPE_CHECKING:
    from penstock.query import Query


def graph_view(graph: Graph, runtime: Runtime, queries: Mapping[str, Query]) -> GraphView:
    """All of it as it is now; numbers of operators that workers run may be a call apart from each other."""
    partition_of, buffers = runtime.partition_of, runtime.buffers
    vertices = list(graph.vertices.values())
    edges = [
        EdgeView(e.source.id, e.target.id, e.port, buffers.get(e)) for v in vertices for e in v.outputs
    ]  # fmt: skip
    found = []
    for name, query in queries.items():
        member = graph.members.get(name)
        if member is not None:
            found.append(QueryView(
                name, query.text, member.sink.id, query.options.priority, query.status, query.answered,
            ))  # fmt: skip
    return GraphView(
        "local", runtime.settings.threading, runtime.threads,
        tuple(_operator(v, partition_of.get(v.id, PUSHED)) for v in vertices),
        tuple(edges), runtime.partitions(), tuple(found), memory_view(vertices),
    )  # fmt: skip


def _operator(vertex: OperatorVertex, partition: int) -> OperatorView:
    stats, size = vertex.stats, vertex.size()
    return OperatorView(
        vertex.id, vertex.kind, vertex.label, tuple(sorted(vertex.users)), vertex.state, vertex.priority, partition,
        stats.calls, stats.elements_in, stats.elements_out, stats.selectivity, stats.cost, stats.interarrival,
        size.rows, size.bytes, vertex.saved(),
    )  # fmt: skip
