"""Decide at which windows leaving rows have to be reported."""

from __future__ import annotations

from penstock.plan.derive import mark_windows
from penstock.plan.nodes import Query
from penstock.plan.scope import each_query


def mark_retractions(query: Query) -> Query:
    """Clear ``Window.retractions`` where nobody above asks which rows left.

    That is so under ISTREAM without masters, with only filters, projections, inner joins and UNION ALL in
    between. A join keeps rows itself: it knows from a RANGE window's rows when each ends, but has to be told
    when a row leaves a ROWS window. From an UNBOUNDED window nothing leaves, whoever asks. Bounded windows
    are answered once and keep their flag.
    """
    return each_query(query, mark_windows)
