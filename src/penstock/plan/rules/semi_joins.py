"""Turn the mark of IN and EXISTS into a semi join or an anti join where a filter decides by it."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.nodes import Node, Project, Query, SemiJoin
from penstock.plan.scope import all_columns, names_of, on_nodes
from penstock.plan.steps import filtered, pure_filters
from penstock.scalar.expr import FALSE, TRUE, Call, Column, Expr, Literal, conjunction, conjuncts, transform


def semi_joins(query: Query) -> Query:
    """A filter on the mark keeps TRUE (semi) or, negated, FALSE (anti); the mark itself is then a constant.

    NOT NULL is NULL, so a negated mark keeps exactly the rows marked FALSE, which is what ``anti`` means.
    """
    return on_nodes(query, _node)


def _node(node: Node) -> Node:
    """Look through a stack of pure filters for a marking join below, as ``split_filters`` leaves them."""
    filters, below = pure_filters(node)
    if not (filters and isinstance(below, SemiJoin) and below.kind == "mark"):
        return node
    position = len(below.left.schema)
    parts = [part for predicate in filters for part in conjuncts(predicate)]
    for part in parts:
        if _is_mark(part, position):
            semi, value = replace(below, kind="semi"), TRUE
        elif isinstance(part, Call) and part.function == "not" and _is_mark(part.args[0], position):
            semi, value = replace(below, kind="anti"), FALSE
        else:
            continue
        rest = [_with_mark(p, position, value) for p in parts if p != part]
        condition = conjunction(rest)
        kept = filtered(semi, [] if condition is None else [condition])
        left = below.left.schema
        names = (*names_of(left), below.schema[position].name)
        return Project(kept, (*all_columns(left), value), names)
    return node


def _is_mark(expr: Expr, position: int) -> bool:
    return isinstance(expr, Column) and expr.index == position


def _with_mark(expr: Expr, position: int, value: Literal) -> Expr:
    return transform(expr, lambda e: value if _is_mark(e, position) else e)
