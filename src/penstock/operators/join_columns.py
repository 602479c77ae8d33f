"""What a join computes from its inputs' columns before and after it looks for partners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.delta import Delta, Step
from penstock.kernels.batch import RowErrors, Rows
from penstock.kernels.expressions import compile_filter, compile_project
from penstock.plan.expr import Column, Expr, columns, remap

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
        self._filter = compile_filter(remap(predicate, places), functions)
        self._errors = errors

    def __call__(
        self, read: Sequence[pa.Array], length: int, counted: npt.NDArray[np.bool_] | None, step: Step
    ) -> npt.NDArray[np.int64] | None:
        """The pairs for which it is TRUE, None for all; failures count on the ``counted`` ones."""
        with np.errstate(all="ignore"), _counting(self._errors, step) as run:
            passed = self._filter.mask(Rows(read, length, run, counted))
        return None if passed is None else np.flatnonzero(passed)
