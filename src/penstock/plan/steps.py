"""Filters and projections above each other: what treats every row by itself, as one thing.

Who only needs to know what such a chain does, or what is below it, asks here and not which node is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from penstock.plan.nodes import Filter, Node, Prioritise, Project, with_inputs
from penstock.scalar.expr import Expr, is_pure

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


def pure_filters(node: Node) -> tuple[list[Expr], Node]:
    """The conditions of the filters that a plan ends with, innermost first, and what is below them; a filter that calls
    a user's function stays."""
    found: list[Expr] = []
    while isinstance(node, Filter) and is_pure(node.predicate):
        found.append(node.predicate)
        node = node.input
    return found[::-1], node


def filtered(node: Node, conditions: Iterable[Expr]) -> Node:
    """The node below a filter for each condition, the first innermost."""
    for condition in conditions:
        node = Filter(node, condition)
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
