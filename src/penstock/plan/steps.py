"""Filters and projections above each other: what treats every row by itself, as one thing.

Who only needs to know what such a chain does, or what is below it, asks here and not which node is which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from penstock.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    Prioritise,
    Project,
    SemiJoin,
    TopN,
    with_inputs,
)
from penstock.scalar.expr import Expr

RowStep = Filter | Project


def is_step(node: Node) -> TypeGuard[RowStep]:
    """Whether a node treats every row by itself."""
    return isinstance(node, Filter | Project)


def steps_of(node: Node) -> tuple[list[RowStep], Node]:
    """The steps that a plan ends with, bottom to top, and what is below them."""
    found: list[RowStep] = []
    while isinstance(node, Filter | Project):
        found.append(node)
        node = node.input
    return found[::-1], node


def below_steps(node: Node, *, filters: bool = True, priorities: bool = False) -> Node:
    """What is below the steps that a plan ends with; ``filters``: they may leave rows out; ``priorities``: other
    priorities are a step too."""
    while (
        isinstance(node, Project)
        or (filters and isinstance(node, Filter))
        or (priorities and isinstance(node, Prioritise))
    ):
        node = node.input
    return node


def condition_of(step: RowStep) -> Expr | None:
    """The condition of a filter; None for a projection."""
    return step.predicate if isinstance(step, Filter) else None


def columns_of(step: RowStep) -> tuple[Expr, ...]:
    """The columns that a projection computes; none for a filter, which leaves rows as they are."""
    return step.exprs if isinstance(step, Project) else ()


def leaves_rows_out(steps: Sequence[RowStep]) -> bool:
    """Whether not all rows go through."""
    return any(isinstance(step, Filter) for step in steps)


def over(below: Node, steps: Sequence[RowStep]) -> Node:
    """The same steps over something else."""
    for step in steps:
        below = with_inputs(step, (below,))
    return below


def projections(steps: Sequence[RowStep]) -> list[Project]:
    """Those that compute columns."""
    return [step for step in steps if isinstance(step, Project)]


def expressions_of(node: Node) -> list[Expr]:
    """All expressions of a node itself."""
    match node:
        case Filter():
            return [node.predicate]
        case Project():
            return list(node.exprs)
        case Prioritise():
            return [node.by]
        case Join() | SemiJoin():
            parts = [e for pair in node.keys for e in pair]
            parts += [node.residual] if node.residual is not None else []
            if isinstance(node, SemiJoin) and node.compare is not None:
                parts.append(node.compare)
            return parts
        case Aggregate():
            parts = list(node.keys)
            for call in node.aggregates:
                parts += [*call.args, *([call.where] if call.where is not None else [])]
            return parts
        case TopN():
            return [k.expr for k in node.keys]
    return []
