"""Graphs to draw."""

from __future__ import annotations

import random
from collections.abc import Iterable

from penstock.graph.view import BufferView, EdgeView, GraphView, OperatorView, PartitionView, QueryView


def operator(id: int, kind: str, label: str, partition: int = 0, **more: object) -> OperatorView:
    """An operator that has done something."""
    fields: dict[str, object] = {
        "queries": ("q",), "state": "ready", "priority": 5, "calls": 3,
        "elements_in": 1000 * id, "elements_out": 10 * id,
        "selectivity": 0.01, "cost": 1.5e-6, "interarrival": 1e-3, "rows": 0, "bytes": 0,
    }  # fmt: skip
    return OperatorView(id, kind, label, partition=partition, **{**fields, **more})  # type: ignore[arg-type]


def graph(
    operators: Iterable[OperatorView], edges: Iterable[EdgeView], queries: Iterable[QueryView] = ()
) -> GraphView:
    """A view whose partitions are those that the operators name; each has a worker."""
    members: dict[int, list[int]] = {}
    operators = tuple(operators)
    for o in operators:
        members.setdefault(o.partition, []).append(o.id)
    partitions = tuple(
        PartitionView(id, tuple(own), f"w{id % 2}", "chain", 5, 1e-3 * (id + 1)) for id, own in members.items()
    )
    return GraphView("local", "hybrid", 2, operators, tuple(edges), partitions, tuple(queries))


def shops() -> GraphView:
    """Two queries that share a stream and a window, with two buffers."""
    both = ("large", "by_city")
    return graph(
        [
            operator(1, "source", "orders", 0, queries=both, elements_in=1_250_000, elements_out=1_250_000),
            operator(2, "relation", "shops", 1, queries=both, rows=200, bytes=18_000),
            operator(3, "filter", "amount > 10 AND shop <> 'none' AND region IN ('north', 'south', 'east')", 0,
                     queries=both),
            operator(4, "window", "[RANGE 10 SECONDS SLIDE 1 SECOND] of orders", 0, queries=both, rows=12_345,
                     bytes=1_600_000),
            operator(5, "join", "orders.shop = shops.shop", 1, queries=both, rows=12_545, bytes=2_100_000,
                     state="running", saved=1_600_000),
            operator(6, "filter", "amount > 100", 1, queries=("large",)),
            operator(7, "query", "large", 1, queries=("large",), priority=7),
            operator(8, "aggregate", "count(*), avg(amount) GROUP BY city", 2, queries=("by_city",), rows=40,
                     bytes=4_000, cost=None),
            operator(9, "query", "by_city", 2, queries=("by_city",), state="suspended"),
        ],
        [
            EdgeView(1, 3, 0), EdgeView(3, 4, 0), EdgeView(4, 5, 0, BufferView(17, 1_234, 40, 120)),
            EdgeView(2, 5, 1), EdgeView(5, 6, 0), EdgeView(6, 7, 0),
            EdgeView(5, 8, 0, BufferView(123_456, 9_876_543, 200_000, 77)), EdgeView(8, 9, 0),
        ],
        [
            QueryView("large", "SELECT ISTREAM city, amount FROM orders [NOW] JOIN shops USING (shop)", 7, 7,
                      "running", 1_234),
            QueryView("by_city", "SELECT city, count(*) FROM …", 9, 5, "failed: no function f", 40),
        ],
    )  # fmt: skip


def many(queries: int, partitions: bool = True) -> GraphView:
    """One stream, a filter and an answer for each of many queries."""
    operators = [operator(0, "source", "s")]
    edges, views = [], []
    for i in range(queries):
        own = i + 1 if partitions else 0
        operators += [
            operator(2 * i + 1, "filter", f"k = {i} AND v > {3 * i}", own),
            operator(2 * i + 2, "query", f"q{i}", own),
        ]
        buffer = BufferView(i, i, i, i) if partitions else None
        edges += [EdgeView(0, 2 * i + 1, 0, buffer), EdgeView(2 * i + 1, 2 * i + 2, 0)]
        views.append(QueryView(f"q{i}", "", 2 * i + 2, 5, "running", i))
    return graph(operators, edges, views)


def anyhow(chance: random.Random, count: int, together: int) -> GraphView:
    """Operators that send to later ones in any way; each is with one of those that send to it, or by itself."""
    operators: list[OperatorView] = []
    edges = []
    for id in range(count):
        senders = chance.sample(range(id), min(id, chance.choice([0, 1, 1, 1, 2, 3]))) if id else []
        partition = id
        if senders and chance.randrange(10) < together:
            partition = operators[senders[0]].partition
        for port, sender in enumerate(senders):
            apart = operators[sender].partition != partition
            edges.append(EdgeView(sender, id, port, BufferView(id, id, id, id) if apart else None))
        kind = chance.choice(["filter", "window", "join", "aggregate"]) if senders else "source"
        operators.append(operator(id, kind, f"operator {id} " + "x" * chance.randrange(60), partition))
    ends = [o.id for o in operators if o.id not in {e.source for e in edges}]
    return graph(operators, edges, [QueryView(f"q{id}", "SELECT", id, 5, "running", 3) for id in ends])
