"""The graph of a database as plain data."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.graph.graph import Graph
from penstock.graph.memory import memory_view
from penstock.graph.sources import Intake, Source
from penstock.graph.vertex import Vertex
from penstock.graph.vertices import OperatorVertex
from penstock.graph.view import DropView, EdgeView, GraphView, OperatorView, QueryView
from penstock.hosts.local.lags import suspended
from penstock.hosts.registered import Registered
from penstock.runtime.run import PUSHED, Runtime

_METRICS = pa.schema([
    ("sender", pa.int64()), ("reader", pa.int64()), ("queries", pa.list_(pa.string())), ("stream", pa.string()),
    ("rows", pa.int64()), ("bytes", pa.int64()), ("spilled_rows", pa.int64()), ("spilled_bytes", pa.int64()),
    ("peak", pa.int64()), ("messages", pa.int64()), ("dropped", pa.int64()), ("lag", pa.float64()),
    ("apart", pa.int64()),
])  # fmt: skip


def graph_view(graph: Graph, runtime: Runtime, queries: Mapping[str, Registered]) -> GraphView:
    """All of it as it is now; numbers of operators that workers run may be a call apart from each other."""
    partition_of, buffers = runtime.partition_of, runtime.buffers
    vertices = list(graph.vertices.values())
    edges = [
        EdgeView(e.source.id, e.target.id, e.port, buffers.get(e)) for v in vertices for e in v.outputs
    ]  # fmt: skip
    found = []
    resting = suspended(graph, runtime)
    for name, query in queries.items():
        member = graph.members.get(name)
        if member is not None:
            found.append(QueryView(
                name, query.text, member.sink.id, query.options.priority,
                "suspended" if query.status == "running" and resting.get(name) else query.status, query.answered,
                query.meter.latency,
            ))  # fmt: skip
    return GraphView(
        "local", runtime.settings.threading, runtime.threads,
        tuple(_operator(v, partition_of.get(v.id, PUSHED)) for v in vertices),
        tuple(edges), runtime.partitions(), tuple(found), memory_view(vertices),
        tuple(DropView(stream, rows) for stream, rows in sorted(runtime.storage.dropped_rows.copy().items())),
    )  # fmt: skip


def metrics(graph: Graph, runtime: Runtime, apart: Mapping[str, int]) -> pa.Table:
    """A row for each buffer: from which operator to which, what waits, in memory and on disk, and what was dropped. And
    one without operators for each stream that has dropped rows of buffers that are gone, or kept rows ``apart``."""
    vertices = graph.vertices
    found = [(e, v, vertex) for e, v in runtime.buffers.items() if (vertex := vertices.get(e.target.id)) is not None]
    gone = runtime.storage.dropped_rows.copy()
    for edge, view, _ in found:
        stream = stream_of(edge.source)
        if stream in gone:
            gone[stream] -= view.dropped
    return pa.Table.from_pylist(
        [
            {
                "sender": edge.source.id,
                "reader": edge.target.id,
                "queries": sorted(vertex.users),
                "stream": stream_of(edge.source),
                "rows": view.elements,
                "bytes": view.bytes,
                "spilled_rows": view.spilled,
                "spilled_bytes": view.spilled_bytes,
                "peak": view.peak,
                "messages": view.passed,
                "dropped": view.dropped,
                "lag": view.lag,
                "apart": 0,
            }
            for edge, view, vertex in found
        ]
        + [
            {
                "queries": [],
                "stream": stream,
                "rows": 0,
                "bytes": 0,
                "spilled_rows": 0,
                "spilled_bytes": 0,
                "peak": 0,
                "messages": 0,
                "dropped": max(0, gone.get(stream, 0)),
                "apart": apart.get(stream, 0),
            }
            for stream in dict.fromkeys([*(s for s, rows in gone.items() if rows > 0), *apart])
        ],
        _METRICS,
    )


def stream_of(vertex: Vertex) -> str | None:
    """The stream whose rows an operator sends as they came."""
    source = vertex.source if isinstance(vertex, Intake) else vertex
    return source.stream if isinstance(source, Source) else None


def _operator(vertex: OperatorVertex, partition: int) -> OperatorView:
    stats, size = vertex.stats, vertex.size()
    return OperatorView(
        vertex.id, vertex.kind, vertex.label, tuple(sorted(vertex.users)), vertex.state, vertex.priority, partition,
        stats.calls, stats.elements_in, stats.elements_out, stats.selectivity, stats.cost, stats.interarrival,
        size.rows, size.bytes, vertex.saved(),
    )  # fmt: skip
