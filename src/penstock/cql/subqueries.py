"""Sub-queries of expressions: how they hang on the plan of the query around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.cql.expressions import AGGREGATE, INNER, SUBQUERY, inner_columns
from penstock.cql.scope import OUTER
from penstock.model.types import BOOLEAN
from penstock.plan.nodes import Join, Node, Project, SemiJoin
from penstock.scalar import expr as ex
from penstock.scalar.expr import Column, Expr, conjunction, conjuncts


@dataclass(frozen=True)
class SubQuery:
    """A sub-query of an expression, not yet attached to the plan around it.

    ``residual`` reads the sub-query's rows by plain columns and the rows around it by columns above ``OUTER``;
    ``compare`` reads the rows around it by plain columns and the sub-query's by columns above ``INNER``.
    """

    node: Node
    outputs: tuple[Expr, ...]
    residual: Expr | None = None
    single_row: bool = False
    always_row: bool = False
    kind: str = "exists"
    operand: Expr | None = None
    compare: Expr | None = None


def attach(
    plan: Node, subqueries: list[SubQuery], rewrite: Callable[[Expr], Expr]
) -> tuple[Node, Callable[[Expr], Expr]]:
    """Join sub-queries to a plan. The function returned puts their columns where the placeholders are.

    ``rewrite`` turns an expression over the block's FROM into one over ``plan``.
    """
    columns: list[Column] = []

    def finish(expr: Expr) -> Expr:
        def change(e: Expr) -> Expr:
            if isinstance(e, Column) and SUBQUERY <= e.index < INNER:
                return columns[e.index - SUBQUERY]
            return e

        return ex.transform(expr, change)

    for sub in subqueries:
        width = len(plan.schema)
        if sub.kind == "scalar":
            names = tuple(f"value{i + 1}" for i in range(len(sub.outputs)))
            plan = Join("left", plan, Project(sub.node, sub.outputs, names))
            columns.append(Column(width, sub.outputs[0].type, "value"))
            continue

        def placed(e: Expr, width: int = width, inner_is_plain: bool = False) -> Expr:
            if not isinstance(e, Column):
                return e
            if e.index >= INNER:
                return replace(e, index=e.index - INNER + width)
            if OUTER <= e.index < AGGREGATE:
                return finish(rewrite(replace(e, index=e.index - OUTER)))
            return replace(e, index=e.index + width) if inner_is_plain else e

        residual = None
        if sub.residual is not None:
            residual = ex.transform(sub.residual, lambda e, p=placed: p(e, inner_is_plain=True))  # type: ignore[misc]
        compare = None
        if sub.compare is not None:
            compare = ex.transform(finish(rewrite(sub.compare)), placed)
        plan = SemiJoin("mark", plan, sub.node, (), residual, compare)
        columns.append(Column(width, plan.schema[-1].type, "mark"))
    return plan, finish


def as_marks(condition: Expr, subqueries: list[SubQuery], elsewhere: Sequence[Expr]) -> Expr:
    """Let a condition on the value of a sub-query be a property of the row, as IN and EXISTS are.

    Joined like any value, a row would become another one whenever the value changes, although it meets the condition
    as before. So a part of the condition that reads one such value, which is read nowhere else, is computed by a
    mark join; it needs a sub-query that always has its one row.
    """
    parts = conjuncts(condition)
    reads = [_placeholders(part) for part in parts]
    others = [k for e in elsewhere for k in _placeholders(e)]
    for i, part in enumerate(parts):
        if len(reads[i]) != 1:
            continue
        (k,) = reads[i]
        sub = subqueries[k]
        shared = k in others or any(k in r for j, r in enumerate(reads) if j != i)
        if sub.kind != "scalar" or not sub.always_row or shared:
            continue
        value = inner_columns(sub.outputs[0])
        compare = ex.transform(part, lambda e, k=k, v=value: v if _is_placeholder(e, k) else e)  # type: ignore[misc]
        subqueries[k] = replace(sub, kind="in", compare=compare)
        parts[i] = Column(SUBQUERY + k, BOOLEAN, "sub-query")
    result = conjunction(parts)
    return condition if result is None else result


def _is_placeholder(expr: Expr, k: int) -> bool:
    return isinstance(expr, Column) and expr.index == SUBQUERY + k


def _placeholders(expr: Expr) -> set[int]:
    return {e.index - SUBQUERY for e in ex.walk(expr) if isinstance(e, Column) and SUBQUERY <= e.index < INNER}
