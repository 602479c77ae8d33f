"""When queries with different filters and projections share one window.

The optimizer moves filters and projections below a window, so that it holds less. Several queries over one window then
hold several windows, each a part of it. Where these parts together are more than the whole, it is better to hold the
whole once and to filter what enters and leaves it for each query: ``raised`` writes a plan like that, and ``worth_it``
says when.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from penstock.operators import identity
from penstock.plan.cost import selectivity
from penstock.plan.nodes import Node, Query, QueryStream, StreamScan, Window, transform, walk
from penstock.plan.steps import RowStep, condition_of, leaves_rows_out, over, steps_of
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
            chain, scan = steps_of(node.input)
            if isinstance(scan, StreamScan) and _may_rise(node.spec, chain):
                part = 1.0
                for condition in map(condition_of, chain):
                    part *= 1.0 if condition is None else selectivity(condition)
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
        chain, scan = steps_of(node.input)
        if not chain or not isinstance(scan, StreamScan) or (scan.stream, scan.position, node.spec) not in windows:
            return node
        return over(Window(scan, node.spec, node.retractions), chain)

    changed = transform(query, change)
    assert isinstance(changed, Query)
    return changed


def _may_rise(spec: WindowSpec, chain: Sequence[RowStep]) -> bool:
    """Whether the window holds the same rows when they are filtered above it: time passes for all rows alike, while a
    count of rows counts those that pass."""
    match spec:
        case Range() | Now():
            return True
        case Rows():
            return not leaves_rows_out(chain)
    return False
