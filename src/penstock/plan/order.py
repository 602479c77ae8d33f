"""The order in which the rows of an answer are shown.

ORDER BY may name what is not selected, so the rows of an answer do not say in which order they are. A registered query
therefore carries the values that it is ordered by to its end, as columns that are hidden from its users: those answers
of an instant that are delivered together, and the answer that stands (``database.standing``), are in order by them.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.derive import is_monotonic
from penstock.plan.nodes import Project, Query, SortKey, TopN
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
