"""Filters and projections above each other, as one operator without state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

import numpy as np
import pyarrow as pa

from penstock.kernels.batch import RowErrors, Rows
from penstock.kernels.expressions import CompiledFilter, CompiledProject
from penstock.kernels.vectors import DTYPES, Bools, Selection, as_arrow
from penstock.model.delta import Arrivals, Delta, Ints, Step
from penstock.model.schema import Schema
from penstock.operators.base import NOTHING, StateSize
from penstock.plan.nodes import expressions
from penstock.plan.steps import RowStep, columns_of, condition_of
from penstock.scalar.expr import Column, Expr, UserCall, columns, conjunction, conjuncts, walk
from penstock.scalar.failing import can_fail

_Stage = CompiledFilter | CompiledProject


class FilterProject:
    """A chain of filters and projections, bottom to top, over changes or over arrivals.

    Needs: expressions that give the same value on the same row each time, user functions too, so that a row that leaves
    is computed to be the row that entered. ``schema`` is that of the input, ``errors`` counts failures.
    Promises: the rows for which every filter is TRUE, in order, with their instants, signs, moments, priorities and
    ends; a filter or projection sees only the rows that passed the filters below it. A failure counts when its row
    enters, not again when it leaves.
    Remembers nothing.
    """

    def __init__(
        self,
        steps: Sequence[RowStep],
        schema: Schema,
        functions: Mapping[str, Callable[..., object]],
        errors: RowErrors,
    ) -> None:
        self.schema: Schema = steps[-1].schema if steps else schema
        self._width = len(schema)
        self._functions = functions
        self._errors = errors
        self._stages: list[_Stage] = []
        self._exprs: list[tuple[Expr, ...]] = []
        self._outputs = [(f.type.arrow, DTYPES.get(f.type.kind)) for f in self.schema]
        self._fails = any(can_fail(e) for s in steps for e in expressions(s))
        self.calls_functions = any(isinstance(p, UserCall) for s in steps for e in expressions(s) for p in walk(e))
        """Whether it calls Python functions of the user."""
        filters: list[Expr] = []
        for step in steps:
            condition = condition_of(step)
            if condition is None:
                self._flush(filters)
                self._stages.append(CompiledProject(columns_of(step), functions))
                self._exprs.append(columns_of(step))
                continue
            # What can fail may count only the rows that the filters below it let pass.
            if can_fail(condition):
                self._flush(filters)
            filters += conjuncts(condition)
        self._flush(filters)

    def _flush(self, filters: list[Expr]) -> None:
        predicate = conjunction(filters)
        if predicate is not None:
            self._stages.append(CompiledFilter(predicate, self._functions))
            self._exprs.append(tuple(filters))
        filters.clear()

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """The conjuncts of the filter that all rows come to first, if none of them can fail."""
        if not self._stages or isinstance(self._stages[0], CompiledProject):
            return ()
        return () if self._fails and any(map(can_fail, self._exprs[0])) else self._exprs[0]

    def knowing(self, true: Sequence[int]) -> FilterProject:
        """The same for rows on which the ``conditions`` at these places are known to be TRUE; it shares ``errors``."""
        rest = copy(self)
        rest._stages, rest._exprs = self._stages[1:], self._exprs[1:]
        left = [e for i, e in enumerate(self.conditions) if i not in true]
        predicate = conjunction(left)
        if predicate is not None:
            rest._stages.insert(0, CompiledFilter(predicate, self._functions))
            rest._exprs.insert(0, tuple(left))
        return rest

    @property
    def reads(self) -> tuple[int, ...]:
        """The columns of the input that make a difference; the others need not be there."""
        found: set[int] = set()
        for stage, exprs in zip(self._stages, self._exprs, strict=True):
            found.update(*map(columns, exprs))
            if isinstance(stage, CompiledProject):
                return tuple(sorted(found))
        return tuple(range(self._width))

    @property
    def picks(self) -> tuple[int, ...] | None:
        """Where every row passes and nothing is computed: the columns of the input that are those of the output."""
        picked = tuple(range(self._width))
        for exprs, stage in zip(self._exprs, self._stages, strict=True):
            places = [e.index for e in exprs if isinstance(e, Column)]
            if isinstance(stage, CompiledFilter) or len(places) < len(exprs):
                return None
            picked = tuple([picked[i] for i in places])
        return picked

    def enter_window(self, window: tuple[int, int] | None) -> None:
        """Changes from now on are of the bounded window with these bounds."""
        if window is not None:
            self._errors.window = window

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        """The changes that pass, projected."""
        (delta,) = inputs
        self.enter_window(step.window)
        sign, counted = delta.sign, None
        enter_only = not len(sign) or bool(np.minimum.reduce(sign) > 0)
        if self._fails and not enter_only:
            counted = sign > 0
        columns, kept = self._run(delta.columns, len(delta.ts), counted)
        if kept is None:
            return Delta(self.schema, columns, delta.ts, delta.sub, sign, delta.moment_ts, delta.moment_sub,
                         delta.priority, delta.end)  # fmt: skip
        ts, sub = kept.of(delta.ts), kept.of(delta.sub)
        return Delta(
            self.schema,
            columns,
            ts,
            sub,
            sign[: kept.count] if enter_only else kept.of(sign),
            ts if delta.moment_ts is delta.ts else kept.of(delta.moment_ts),
            sub if delta.moment_sub is delta.sub else kept.of(delta.moment_sub),
            _some(delta.priority, kept),
            _some(delta.end, kept),
        )

    def process_arrivals(self, arrivals: Arrivals) -> Arrivals:
        """The elements that pass, projected."""
        columns, kept = self._run(arrivals.columns, len(arrivals.ts), None)
        if kept is None:
            return Arrivals(self.schema, columns, arrivals.ts, arrivals.sub, arrivals.priority)
        priority = _some(arrivals.priority, kept)
        return Arrivals(self.schema, columns, kept.of(arrivals.ts), kept.of(arrivals.sub), priority)

    def size(self) -> StateSize:
        return NOTHING

    def _run(
        self, columns: Sequence[pa.Array], length: int, counted: Bools | None
    ) -> tuple[tuple[pa.Array, ...], Selection | None]:
        """The projected columns, and which rows passed; None where all did."""
        rows, kept = Rows(columns, length, self._errors, counted), None
        with np.errstate(all="ignore"):
            for stage in self._stages:
                if not rows.length:
                    break
                if isinstance(stage, CompiledProject):
                    rows = Rows(stage.values(rows), rows.length, self._errors, rows.counted)
                    continue
                passed = stage.passing(rows)
                if passed is not None:
                    kept = passed if kept is None else kept.narrowed(passed)
                    rows = rows.where(passed)
            if not rows.length:
                return tuple([pa.array([], arrow) for arrow, _ in self._outputs]), kept
            return self._arrays(rows), kept

    def _arrays(self, rows: Rows) -> tuple[pa.Array, ...]:
        values, length = rows.values, rows.length
        return tuple(
            [
                as_arrow(rows.fetch(i, dtype) if values[i] is None else values[i], arrow, length)
                for i, (arrow, dtype) in enumerate(self._outputs)
            ]
        )


def _some(values: Ints | None, kept: Selection) -> Ints | None:
    return None if values is None else kept.of(values)
