"""Adjacent filters become one filter, and one filter becomes several."""

from __future__ import annotations

from penstock.plan.nodes import Filter, Node, Query
from penstock.plan.scope import on_nodes
from penstock.scalar.expr import conjunction, conjuncts, few_conjuncts, is_pure


def split_filters(query: Query) -> Query:
    """Give every conjunct a filter of its own, the first of the text innermost.

    A filter keeps the rows for which all conjuncts are TRUE, so this also holds where some are NULL.
    """
    return on_nodes(query, _split)


def _split(node: Node) -> Node:
    if not (isinstance(node, Filter) and is_pure(node.predicate)):
        return node
    parts = few_conjuncts(node.predicate)
    if len(parts) < 2:
        return node
    result = node.input
    for part in parts:
        result = Filter(result, part)
    return result


def merge_filters(query: Query) -> Query:
    """Turn filters directly above each other into one, innermost condition first, without repetition."""
    return on_nodes(query, _merge)


def _merge(node: Node) -> Node:
    if not (isinstance(node, Filter) and isinstance(node.input, Filter)):
        return node
    inner = node.input
    if not (is_pure(node.predicate) and is_pure(inner.predicate)):
        return node
    parts = list(dict.fromkeys(conjuncts(inner.predicate) + conjuncts(node.predicate)))
    predicate = conjunction(parts)
    return inner.input if predicate is None else Filter(inner.input, predicate)
