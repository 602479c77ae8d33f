"""Turn equalities between the two sides of a join into hash keys, and back."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.nodes import Join, Node, Query, SemiJoin, conditions
from penstock.plan.scope import equality, on_nodes
from penstock.plan.steps import filtered, pure_filters
from penstock.scalar.expr import Expr, conjunction, conjuncts, is_pure

Keys = tuple[tuple[Expr, Expr], ...]


def hash_keys(query: Query) -> Query:
    """Make keys of equalities in a residual, in filters above an inner join, and in IN's comparison.

    The comparison of IN becomes keys for ``semi`` only: there, unknown is as good as FALSE. ``anti`` and
    ``mark`` have to see the candidates that compare NULL.
    """
    return on_nodes(query, _node)


def nested_loops(query: Query) -> Query:
    """Every key as a condition again, so that all pairs are compared."""

    def change(node: Node) -> Node:
        if isinstance(node, Join | SemiJoin) and node.keys:
            return replace(node, keys=(), residual=conjunction(conditions(node)))
        return node

    return on_nodes(query, change)


def _node(node: Node) -> Node:
    filters, below = pure_filters(node)
    match below:
        case Join(kind="inner") if filters:
            return _filtered(node, filters, below)
        case Join() if below is node:
            keys, rest = _split(conjuncts(below.residual), len(below.left.schema))
            return replace(below, keys=below.keys + keys, residual=conjunction(rest)) if keys else below
        case SemiJoin() if below is node:
            return _semi(below)
    return node


def _filtered(node: Node, filters: list[Expr], below: Join) -> Node:
    """The node, which is these filters above an inner join, with their equalities as keys of the join."""
    found: Keys = ()
    kept: list[Expr] = []
    for predicate in filters:
        keys, rest = _split(conjuncts(predicate), len(below.left.schema))
        found += keys
        condition = predicate if not keys else conjunction(rest)
        if condition is not None:
            kept.append(condition)
    if not found:
        return node
    return filtered(replace(below, keys=below.keys + found), kept)


def _semi(node: SemiJoin) -> SemiJoin:
    split = len(node.left.schema)
    keys, rest = _split(conjuncts(node.residual), split)
    if keys:
        node = replace(node, keys=node.keys + keys, residual=conjunction(rest))
    if node.kind == "semi" and node.compare is not None and is_pure(node.compare):
        keys, rest = _split(conjuncts(node.compare), split)
        residual = conjunction(conjuncts(node.residual) + rest)
        node = replace(node, keys=node.keys + keys, residual=residual, compare=None)
    return node


def _split(parts: list[Expr], split: int) -> tuple[Keys, list[Expr]]:
    keys: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for part in parts:
        key = equality(part, split)
        if key is None:
            rest.append(part)
        else:
            keys.append(key)
    return tuple(keys), rest
