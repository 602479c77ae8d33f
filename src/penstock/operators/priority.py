"""The priority of a row that is made of two, and priorities that a query gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from penstock.kernels.batch import RowErrors
from penstock.kernels.expressions import CompiledExpr, compile_expr
from penstock.kernels.priority import priorities_of, priority_of
from penstock.model.delta import Delta, Ints, Step
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.join_columns import ColumnsOf, Errors, Functions
from penstock.plan.nodes import PairPriority, Prioritise
from penstock.scalar import Context, evaluate
from penstock.scalar.failing import can_fail

_COMBINED: Mapping[str, Callable[[Ints, Ints], Ints]] = {"max": np.maximum, "min": np.minimum, "sum": np.add}
_COMBINED_ONE: Mapping[str, Callable[[int, int], int]] = {"max": max, "min": min, "sum": lambda a, b: a + b}


def combined(how: str | PairPriority, left: Ints | None, right: Ints | None, count: int) -> Ints | None:
    """The priorities of so many pairs; None stands for rows without any."""
    if left is None and right is None and not isinstance(how, PairPriority):
        return None
    none = np.zeros(count, np.int64)
    both = none if left is None else left, none if right is None else right
    if isinstance(how, PairPriority):
        return priorities_of(_compiled(how)([pa.array(side) for side in both], count, RowErrors()))
    return _COMBINED[how](*both)


def combined_one(how: str | PairPriority, left: int, right: int) -> int:
    """The priority of one pair."""
    if isinstance(how, PairPriority):
        return priority_of(evaluate(how.by, (left, right), Context()))
    return _COMBINED_ONE[how](left, right)


@lru_cache(maxsize=256)
def _compiled(how: PairPriority) -> CompiledExpr:
    return compile_expr(how.by, {})


class SetPriority:
    """``PRIORITY BY``: the same changes with the priorities that an expression gives.

    Needs an expression that gives the same value on the same row each time, so that a row leaves with the priority with
    which it entered. A failure counts when its row enters. Remembers nothing.
    """

    def __init__(self, node: Prioritise, functions: Functions, errors: Errors) -> None:
        self._by = ColumnsOf([node.by], functions, errors)
        self._quietly = ColumnsOf([node.by], functions, Context(functions=functions))
        self._can_fail = can_fail(node.by)

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return delta
        if not self._can_fail or delta.sign.min() > 0:
            return replace(delta, priority=priorities_of(self._by(delta, step)[0]))
        entering = np.flatnonzero(delta.sign > 0)
        if len(entering):
            self._by(delta.take(entering), step)  # counts
        return replace(delta, priority=self.ranks(delta, step))

    def ranks(self, delta: Delta, step: Step) -> Ints:
        """The priorities; failures are not counted."""
        return priorities_of(self._quietly(delta, step)[0])

    def size(self) -> StateSize:
        return NOTHING
