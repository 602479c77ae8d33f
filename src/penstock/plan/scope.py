"""What the rules share: applying a rewrite query by query, and what may be moved where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.model.schema import Schema
from penstock.model.types import DataType, Kind
from penstock.plan.nodes import Node, Query, QueryStream, map_inputs, transform
from penstock.scalar.expr import Call, Column, Expr, WindowBound, children, columns, is_pure, remap, walk

_COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">=", "is_null", "is_not_distinct", "in"])


def each_query(query: Query, rule: Callable[[Query], Query]) -> Query:
    """Apply a rule to every sub-query used as a stream, then to the query itself.

    Each is a query of its own, with its own instants and output; its answers are all that is seen outside.
    """

    def below(node: Node) -> Node:
        if isinstance(node, QueryStream):
            return replace(node, query=each_query(node.query, rule))
        return map_inputs(node, below)

    return rule(map_inputs(query, below))


def on_nodes(query: Query, change: Callable[[Node], Node]) -> Query:
    """Apply ``change`` bottom up to every node of every query."""
    return each_query(query, lambda q: replace(q, input=transform(q.input, change, into_queries=False)))


def has_window_bound(expr: Expr) -> bool:
    """True where the value depends on which bounded window is being answered."""
    return any(isinstance(e, WindowBound) for e in walk(expr))


def decides_by_value(expr: Expr) -> bool:
    """True where rows that are equal by value surely get the same result.

    -0.0 and 0.0 are the same value, but a function (a cast to STRING) may tell them apart; comparing cannot.
    """
    if isinstance(expr, Column):
        return not _has_float(expr.type)
    if isinstance(expr, Call) and expr.function in _COMPARISONS:
        return all(isinstance(arg, Column) or decides_by_value(arg) for arg in expr.args)
    return all(decides_by_value(arg) for arg in children(expr))


def _has_float(dtype: DataType) -> bool:
    return dtype.is_float or (
        dtype.kind is Kind.ARRAY and dtype.element is not None and _has_float(dtype.element)
    )


def shift(expr: Expr, by: int) -> Expr:
    """The expression reading every column that many positions further right."""
    return remap(expr, lambda i: i + by)


def side_of(expr: Expr, split: int) -> str:
    """Which rows of a join an expression reads: ``left``, ``right``, ``both`` or ``none``."""
    read = columns(expr)
    left = any(i < split for i in read)
    right = any(i >= split for i in read)
    return "both" if left and right else "left" if left else "right" if right else "none"


def equality(expr: Expr, split: int) -> tuple[Expr, Expr] | None:
    """A hash key (over the left row, over the right row), if the condition is one."""
    if not (isinstance(expr, Call) and expr.function == "=" and is_pure(expr)):
        return None
    a, b = expr.args
    if a.type != b.type or a.type.kind in (Kind.ARRAY, Kind.NULL) or has_window_bound(expr):
        return None
    sides = side_of(a, split), side_of(b, split)
    if sides == ("left", "right"):
        return a, shift(b, -split)
    if sides == ("right", "left"):
        return b, shift(a, -split)
    return None


def all_columns(schema: Schema) -> tuple[Expr, ...]:
    """Every field of a schema as an expression."""
    return tuple(Column(i, f.type, f.name) for i, f in enumerate(schema))


def names_of(schema: Schema) -> tuple[str, ...]:
    """The names of a schema's fields."""
    return tuple(f.name for f in schema)
