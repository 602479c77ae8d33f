"""When queries with different filters and projections share one window.

The optimizer moves filters and projections below a window, so that it holds less. Several queries over one window then
hold several windows, each a part of it. Where these parts together are more than the whole, it is better to hold the
whole once and to filter what enters and leaves it for each query: ``raised`` writes a plan like that, and ``worth_it``
says when.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from penstock.operators import identity
from penstock.plan.cost import selectivity
from penstock.plan.nodes import Filter, Node, Project, Query, QueryStream, StreamScan, Window, transform, walk
from penstock.plan.window import Now, Range, Rows, WindowSpec


@dataclass(frozen=True)
class Demand:
    """A window over a declared stream that somebody wants, and the part of its rows that is wanted.

    ``which``: what tells the wanted part from others.
    """

    stream: str
    position: int
    spec: WindowSpec
    part: float
    which: Hashable

    @property
    def window(self) -> tuple[str, int, WindowSpec]:
        return (self.stream, self.position, self.spec)


def demands(query: Query, functions: identity.Functions) -> list[Demand]:
    """The windows of a query that could hold the rows of others as well."""
    if query.masters or any(isinstance(n, QueryStream) for n in walk(query)):
        return []
    found: list[Demand] = []
    for node in walk(query):
        if isinstance(node, Window) and node.retractions:
            chain, scan = _below(node)
            if isinstance(scan, StreamScan) and _may_rise(node.spec, chain):
                part = 1.0
                for step in chain:
                    part *= selectivity(step.predicate) if isinstance(step, Filter) else 1.0
                which = identity.chain(chain, scan.schema, functions)
                found.append(Demand(scan.stream, scan.position, node.spec, part, which))
    return found


def worth_it(wanted: Iterable[Demand]) -> bool:
    """Whether windows that hold these parts of the rows are better held as one; equal parts are one part anyway."""
    parts = {d.which: d.part for d in wanted}
    return len(parts) > 1 and sum(parts.values()) >= 1.0


def raised(query: Query, windows: Collection[tuple[str, int, WindowSpec]]) -> Query:
    """The plan with filters and projections above these windows instead of below them."""

    def change(node: Node) -> Node:
        if not isinstance(node, Window):
            return node
        chain, scan = _below(node)
        if not chain or not isinstance(scan, StreamScan) or (scan.stream, scan.position, node.spec) not in windows:
            return node
        result: Node = Window(scan, node.spec, node.retractions)
        for step in chain:
            result = (
                Filter(result, step.predicate) if isinstance(step, Filter) else Project(result, step.exprs, step.names)
            )
        return result

    changed = transform(query, change)
    assert isinstance(changed, Query)
    return changed


def _below(window: Window) -> tuple[list[Filter | Project], Node]:
    """What stands below a window, bottom to top, and what is read."""
    chain: list[Filter | Project] = []
    node = window.input
    while isinstance(node, Filter | Project):
        chain.append(node)
        node = node.input
    return chain[::-1], node


def _may_rise(spec: WindowSpec, chain: list[Filter | Project]) -> bool:
    """Whether the window holds the same rows when they are filtered above it: time passes for all rows alike, while a
    count of rows counts those that pass."""
    match spec:
        case Range() | Now():
            return True
        case Rows():
            return not any(isinstance(step, Filter) for step in chain)
    return False
