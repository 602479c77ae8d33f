"""Adjacent filters become one filter, and one filter becomes several."""

from __future__ import annotations

from penstock.plan.nodes import Node, Query
from penstock.plan.scope import on_nodes
from penstock.plan.steps import filtered, pure_filters
from penstock.scalar.expr import conjunction, conjuncts, few_conjuncts


def split_filters(query: Query) -> Query:
    """Give every conjunct a filter of its own, the first of the text innermost.

    A filter keeps the rows for which all conjuncts are TRUE, so this also holds where some are NULL.
    """
    return on_nodes(query, _split)


def _split(node: Node) -> Node:
    filters, below = pure_filters(node)
    parts = few_conjuncts(filters[-1]) if filters else []
    return node if len(parts) < 2 else filtered(below, [*filters[:-1], *parts])


def merge_filters(query: Query) -> Query:
    """Turn filters directly above each other into one, innermost condition first, without repetition."""
    return on_nodes(query, _merge)


def _merge(node: Node) -> Node:
    filters, below = pure_filters(node)
    if len(filters) < 2:
        return node
    condition = conjunction(list(dict.fromkeys(part for predicate in filters for part in conjuncts(predicate))))
    return below if condition is None else filtered(below, [condition])
