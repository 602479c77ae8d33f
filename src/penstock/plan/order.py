"""The order in which the rows of an answer are shown.

ORDER BY may name what is not selected, so the rows of an answer do not say in which order they are. A registered query
therefore carries the values that it is ordered by to its end, as columns that are hidden from its users: those answers
of an instant that are delivered together, and the answer that stands (``database.standing``), are in order by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.plan.derive import is_monotonic
from penstock.plan.nodes import Node, Project, Query, SortKey, TopN
from penstock.plan.steps import below_steps, projections, steps_of
from penstock.scalar.expr import Column


def stands(query: Query) -> bool:
    """Whether the answers are changes of one answer, and not a stream."""
    return query.output == "changes" or (query.output == "istream" and is_monotonic(query.input))


def carrying_order(query: Query) -> Query:
    """The same query with what it is ordered by as hidden columns; without those its answers are the same."""
    project = query.input
    if not isinstance(project, Project) or not isinstance(project.input, TopN):
        return query
    top = project.input
    first = tuple(Column(i, f.type, f.name) for i, f in enumerate(top.schema[: len(project.exprs)]))
    if project.exprs != first or project.schema != top.schema[: len(first)]:
        return query
    return replace(query, input=top, hidden=len(top.schema) - len(first))


def is_ranking(query: Query) -> bool:
    """Whether the answer stands and is the first rows in an order: ORDER BY … LIMIT."""
    top = query.input
    return stands(query) and isinstance(top, TopN) and bool(top.keys) and top.limit is not None


def order_of(query: Query) -> tuple[SortKey, ...] | None:
    """What the rows of the answer are ordered by, and after that by their values; None where no order is asked for."""
    return query.input.keys if isinstance(query.input, TopN) else None


def is_ordered(query: Query) -> bool:
    """Whether the query says in which order rows are delivered."""
    return isinstance(below_steps(query.input, priorities=True), TopN)


def delivery_keys(query: Query) -> tuple[SortKey, ...]:
    """The keys of the query's ORDER BY, as far as its answers show them."""
    steps, node = steps_of(query.input)
    if not isinstance(node, TopN):
        return ()
    return tuple(_visible(node.keys, projections(steps)))


def _visible(keys: Sequence[SortKey], computed: Sequence[Project]) -> Iterator[SortKey]:
    for key in keys:
        expr = key.expr
        for project in computed:
            if expr not in project.exprs:
                return
            expr = Column(project.exprs.index(expr), expr.type)
        yield replace(key, expr=expr)


def cut(plan: Node, limit: int | None, offset: int | None) -> Node:
    """The rows from an offset on, as many as a limit says, in the order of the plan, which may have such bounds too."""
    if limit is None and offset is None:
        return plan
    if isinstance(plan, Project) and isinstance(plan.input, TopN):  # it is ordered by what is not selected
        return replace(plan, input=cut(plan.input, limit, offset))
    if not isinstance(plan, TopN):
        return TopN(plan, (), limit, offset or 0)
    if plan.limit is not None:
        left = max(0, plan.limit - (offset or 0))
        limit = left if limit is None else min(limit, left)
    return replace(plan, limit=limit, offset=plan.offset + (offset or 0))
