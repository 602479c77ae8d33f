"""The rows an expression is evaluated on, and what becomes of rows that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.kernels.vectors import Bools, Fixed, Selection, Value, from_arrow, select
from penstock.scalar import Context

RowErrors = Context
"""Failures on rows, counted; where it is ``strict`` the first one raises ``QueryFailed``."""


def count_failures(run: RowErrors, count: int, message: str | None) -> None:
    """Count failures, the last of which had this message."""
    run.failures += count - 1
    run.fail(message or "a row failed")


class Rows:
    """Columns of equal length, read as kernels want them at first use.

    ``counted``: the rows whose failures count; None for all. The rest are rows that leave, which have been counted
    when they entered. ``shared`` remembers sub-expressions that occur more than once, by what computes them, with their
    failures.
    """

    __slots__ = ("_parent", "_some", "counted", "length", "run", "shared", "values")

    def __init__(self, values: Sequence[Value], length: int, run: RowErrors, counted: Bools | None = None) -> None:
        self.values: list[Value] = list(values)
        self.length = length
        self.run = run
        self.counted = counted
        self.shared: dict[Callable[[Rows], Value], tuple[Value, int]] = {}
        self._parent: Rows | None = None
        self._some: Selection | None = None

    def where(self, some: Selection) -> Rows:
        """Some of the rows; a column is copied when it is asked for."""
        counted = None if self.counted is None else self.counted[some.mask]
        part = Rows([None] * len(self.values), some.count, self.run, counted)
        part._parent, part._some = self, some
        return part

    def fetch(self, index: int, dtype: np.dtype[Any] | None) -> Value:
        """A column: ``Fixed`` where its type has a numpy type, else an Arrow array."""
        value = self.values[index]
        if value is None:
            assert self._parent is not None
            assert self._some is not None
            value = self.values[index] = select(self._parent.fetch(index, dtype), self._some)
        elif dtype is not None and type(value) is not Fixed:
            value = self.values[index] = from_arrow(value, dtype)
        return value
