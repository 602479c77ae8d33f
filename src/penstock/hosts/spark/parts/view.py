"""The graph of a database on Spark as plain data: which operators its queries share, and what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.graph.graph import Graph
from penstock.graph.sink import Sink
from penstock.graph.sources import Source
from penstock.graph.statistics import Statistics
from penstock.graph.view import (
    BufferView,
    EdgeView,
    GraphView,
    MemoryView,
    OperatorView,
    PartitionView,
    QueryMemory,
    QueryView,
)
from penstock.hosts.registered import Registered
from penstock.hosts.spark.parts.runner import SparkRunner


def graph_view(
    queries: Sequence[Registered],
    waiting: Mapping[str, tuple[int, int]],
    threading: str,
    parts: Sequence[tuple[int, frozenset[str], int, str | None]],
) -> GraphView:
    """``waiting``: of each stream, the frames and rows that not all parts have taken. ``parts``: of each its number,
    the names of its queries, its priority and its thread. An operator that queries of several parts have is worked on
    in each of them, and shown in the first.

    Operators work in Spark's tasks, one after the other on each share of the rows; the numbers of an operator are those
    of all slots together. What each query remembers is shown where it ends.
    """
    graph = Graph(mirrors=False)  # as in the slots
    stats: dict[int, Statistics] = {}
    for query in queries:
        graph.add(query.name, query.plan, {}, priority=query.options.priority)
        vertices = graph.members[query.name].vertices
        runner = query.runner
        if isinstance(runner, SparkRunner) and len(runner.stats) == len(vertices):
            stats |= {v.id: s for v, s in zip(vertices, runner.stats, strict=True) if v.id not in stats}
    held = {q.name: q.runner.sizes() for q in queries}
    sizes = {name: (sum(s.rows for s in of.values()), sum(s.bytes for s in of.values())) for name, of in held.items()}
    operators: list[OperatorView] = []
    part_of = {name: id for id, names, *_ in parts for name in names}
    for vertex in graph.vertices.values():
        rows, size = sizes.get(vertex.query, (0, 0)) if isinstance(vertex, Sink) else (0, 0)
        measured = stats.get(vertex.id) or Statistics()
        operators.append(OperatorView(
            vertex.id, vertex.kind, vertex.label, tuple(sorted(vertex.users)), "ready", vertex.priority,
            min((part_of[name] for name in vertex.users if name in part_of), default=0),
            measured.calls, measured.elements_in, measured.elements_out, measured.selectivity, measured.cost,
            measured.interarrival, rows, size,
        ))  # fmt: skip
    edges: list[EdgeView] = []
    for vertex in graph.vertices.values():
        for edge in vertex.outputs:
            buffer = None
            if isinstance(vertex, Source):
                frames, rows = waiting.get(vertex.stream, (0, 0))
                buffer = BufferView(rows, 0, 0, frames)
            edges.append(EdgeView(edge.source.id, edge.target.id, edge.port, buffer))
    found = tuple(
        QueryView(
            q.name, q.text, graph.members[q.name].sink.id, q.options.priority, q.shown_status, q.answered,
            q.meter.latency,
        )
        for q in queries
    )
    partitions = tuple(
        PartitionView(id, tuple(o.id for o in operators if o.partition == id), thread, None, priority, None)
        for id, _, priority, thread in parts
    )
    threads = sum(thread is not None for *_, thread in parts)
    # By query alone: the windows are in Spark's tasks, which say what each operator of a query remembers.
    windows = {name: [s.bytes for n, s in of.items() if n.endswith(":Window")] for name, of in held.items()}
    memory = MemoryView((), tuple(QueryMemory(name, sum(windows[name])) for name in sorted(windows)))
    return GraphView("spark", threading, threads, tuple(operators), tuple(edges), partitions, found, memory)
