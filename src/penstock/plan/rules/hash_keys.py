"""Turn equalities between the two sides of a join into hash keys."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.nodes import Filter, Join, Node, Query, SemiJoin
from penstock.plan.scope import equality, on_nodes
from penstock.scalar.expr import Expr, conjunction, conjuncts, is_pure

Keys = tuple[tuple[Expr, Expr], ...]


def hash_keys(query: Query) -> Query:
    """Make keys of equalities in a residual, in filters above an inner join, and in IN's comparison.

    The comparison of IN becomes keys for ``semi`` only: there, unknown is as good as FALSE. ``anti`` and
    ``mark`` have to see the candidates that compare NULL.
    """
    return on_nodes(query, _node)


def _node(node: Node) -> Node:
    match node:
        case Filter():
            return _filter(node)
        case Join():
            keys, rest = _split(conjuncts(node.residual), len(node.left.schema))
            return replace(node, keys=node.keys + keys, residual=conjunction(rest)) if keys else node
        case SemiJoin():
            return _semi(node)
    return node


def _filter(node: Filter) -> Node:
    """Look through a stack of pure filters for an inner join below."""
    stack: list[Expr] = []
    below: Node = node
    while isinstance(below, Filter) and is_pure(below.predicate):
        stack.append(below.predicate)
        below = below.input
    if not (isinstance(below, Join) and below.kind == "inner"):
        return node
    result: Node = below
    found: Keys = ()
    kept: list[Expr] = []
    for predicate in reversed(stack):
        keys, rest = _split(conjuncts(predicate), len(below.left.schema))
        found += keys
        condition = predicate if not keys else conjunction(rest)
        if condition is not None:
            kept.append(condition)
    if not found:
        return node
    result = replace(below, keys=below.keys + found)
    for condition in kept:
        result = Filter(result, condition)
    return result


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
