"""What a join computes from its inputs' columns before and after it looks for partners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.batch import RowErrors
from penstock.kernels.expressions import compile_expr, compile_project
from penstock.model.delta import Delta, Ints, Signs, Step
from penstock.scalar import Context
from penstock.scalar.expr import Column, Expr, columns, remap
from penstock.scalar.failing import can_fail

Functions = Mapping[str, Callable[..., object]]


class Errors(Protocol):
    """Where failures on rows are counted."""

    failures: int
    last_failure: str | None
    strict: bool


@contextmanager
def _counting(errors: Errors, step: Step) -> Iterator[RowErrors]:
    """Failures of one evaluation, told to the query."""
    run = RowErrors(strict=errors.strict, window=step.window)
    try:
        yield run
    finally:
        if run.failures:
            errors.failures += run.failures
            errors.last_failure = run.last_failure


class ColumnsOf:
    """Expressions over the rows of one input."""

    def __init__(self, exprs: Sequence[Expr], functions: Functions, errors: Errors) -> None:
        self._plain = [e.index for e in exprs if isinstance(e, Column)]
        self._project = None if len(self._plain) == len(exprs) else compile_project(exprs, functions)
        self._errors = errors

    def __call__(self, rows: Delta, step: Step) -> Sequence[pa.Array]:
        """One array for each expression."""
        if self._project is None:
            return [rows.columns[i] for i in self._plain]
        with _counting(self._errors, step) as run:
            return self._project(rows.columns, len(rows), run)


class Condition:
    """A predicate over pairs, of which it reads the columns ``reads``."""

    def __init__(self, predicate: Expr, functions: Functions, errors: Errors) -> None:
        self.reads = sorted(columns(predicate))
        places = {column: place for place, column in enumerate(self.reads)}
        self._value = compile_expr(remap(predicate, places), functions)
        self._can_fail = can_fail(predicate)
        self._errors = errors

    def __call__(self, read: Sequence[pa.Array], sign: Signs, step: Step) -> Ints | None:
        """The pairs for which it is TRUE, None for all; failures count on those that are made only."""
        if not self._can_fail or sign.min() > 0:
            with _counting(self._errors, step) as run:
                passed = _is_true(self._value(read, len(sign), run))
        else:
            passed = np.zeros(len(sign), np.bool_)
            for change in (-1, 1):
                rows = np.flatnonzero(sign == change)
                some = [c.take(pa.array(rows)) for c in read]
                with _counting(self._errors if change > 0 else Context(), step) as run:
                    passed[rows] = _is_true(self._value(some, len(rows), run))
        found = np.flatnonzero(passed)
        return None if len(found) == len(sign) else found


def _is_true(values: pa.Array) -> npt.NDArray[np.bool_]:
    known = values.fill_null(False) if values.null_count else values
    return known.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
