"""Compute what is constant, and simplify conditions.

Every step holds in three-valued logic: ``NULL AND x`` stays, ``FALSE AND x`` is FALSE. Where only TRUE counts
(a filter, a join's residual) a constant NULL becomes FALSE.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.model.types import BOOLEAN
from penstock.plan.nodes import Filter, Join, Node, Query, SemiJoin, map_expressions
from penstock.plan.scope import on_nodes
from penstock.scalar import fold
from penstock.scalar.expr import (
    FALSE,
    TRUE,
    Call,
    Case,
    Column,
    Expr,
    Literal,
    UserCall,
    WindowBound,
    is_pure,
    transform,
    walk,
)

_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def fold_constants(query: Query) -> Query:
    """Replace constant parts of expressions by their values, and drop filters that are TRUE.

    >>> from penstock.scalar.expr import TRUE, Call, Column
    >>> from penstock.model.types import BOOLEAN
    >>> simplify(Call("and", (TRUE, Column(0, BOOLEAN)), BOOLEAN)) == Column(0, BOOLEAN)
    True
    """
    return on_nodes(query, _node)


def _node(node: Node) -> Node:
    node = map_expressions(node, simplify)
    match node:
        case Filter(below, predicate):
            predicate = _only_true_counts(predicate)
            return below if predicate == TRUE else replace(node, predicate=predicate)
        case Join() | SemiJoin() if node.residual is not None:
            residual = _only_true_counts(node.residual)
            return replace(node, residual=None if residual == TRUE else residual)
    return node


def _only_true_counts(predicate: Expr) -> Expr:
    if isinstance(predicate, Literal) and predicate.value is None:
        return FALSE
    return predicate


def simplify(expr: Expr) -> Expr:
    """The expression with constants computed and boolean identities applied, of the same type."""
    return transform(expr, _step)


def _step(expr: Expr) -> Expr:
    if isinstance(expr, Column | Literal | WindowBound | UserCall):
        return expr
    if not any(isinstance(e, Column | WindowBound | UserCall) for e in walk(expr)):
        value = fold(expr)
        return value if value is not None and value.type == expr.type else expr
    simpler: Expr = expr
    match expr:
        case Call("and", args, _):
            simpler = _connective("and", args, absorbing=FALSE, neutral=TRUE)
        case Call("or", args, _):
            simpler = _connective("or", args, absorbing=TRUE, neutral=FALSE)
        case Call("not", (Call("not", (inner,), _),), _):
            simpler = inner
        case Call("not", (Call(name, args, dtype),), _) if name in _OPPOSITE:
            simpler = Call(_OPPOSITE[name], args, dtype)
        case Case():
            simpler = _case(expr)
    return simpler if simpler.type == expr.type else expr


def _connective(name: str, args: tuple[Expr, ...], *, absorbing: Literal, neutral: Literal) -> Expr:
    if absorbing in args and all(is_pure(a) for a in args):
        return absorbing
    kept: list[Expr] = []
    for arg in args:
        if arg != neutral and not (arg in kept and is_pure(arg)):
            kept.append(arg)
    if not kept:
        return neutral
    result = kept[0]
    for arg in kept[1:]:
        result = Call(name, (result, arg), BOOLEAN)
    return result


def _case(expr: Case) -> Expr:
    branches: list[tuple[Expr, Expr]] = []
    otherwise = expr.otherwise
    for condition, result in expr.branches:
        if condition == TRUE:
            otherwise = result
            break
        if not (isinstance(condition, Literal) and condition.value in (False, None)):
            branches.append((condition, result))
    if not branches:
        return otherwise
    return replace(expr, branches=tuple(branches), otherwise=otherwise)
