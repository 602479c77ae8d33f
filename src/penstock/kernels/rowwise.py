"""One function of an expression, row by row, by the meaning that ``scalar`` gives it.

What has no vectorised form is computed here, and so are the single rows on which a vectorised form may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat

import numpy as np

from penstock.kernels.batch import Rows, count_failures
from penstock.kernels.vectors import Bools, Fixed, Partial, Selection, Value, from_plain, plain, select
from penstock.scalar import Context, evaluate
from penstock.scalar.expr import Call, Cast, Column, Literal, UserCall, children, with_children


class RowWise:
    """The function of one expression over columns of arguments that are computed already."""

    def __init__(self, expr: Call | Cast | UserCall, functions: Mapping[str, Callable[..., object]]) -> None:
        args = children(expr)
        self._inputs = [i for i, a in enumerate(args) if not isinstance(a, Literal)]
        self._types = [args[i].type for i in self._inputs]
        places = {i: Column(n, args[i].type) for n, i in enumerate(self._inputs)}
        self._expr = with_children(expr, tuple(places.get(i, a) for i, a in enumerate(args)))
        self._type = expr.type
        self._functions = functions

    def __call__(self, args: Sequence[Value], rows: Rows) -> Value:
        """The function on all rows."""
        return self._on(args, rows.length, rows, rows.counted)

    def settle(self, args: Sequence[Value], result: Partial, rows: Rows) -> Fixed:
        """Complete a result: NULL where it failed, and the exact value where it is suspect."""
        data, valid = result.data, result.valid
        if result.failed is not None:
            self._count(args, result.failed, rows)
            valid = ~result.failed if valid is None else valid & ~result.failed
        if result.suspect is not None:
            where = result.suspect
            counted = None if rows.counted is None else rows.counted[where]
            some = Selection(where)
            exact = self._on([select(a, some) for a in args], some.count, rows, counted)
            data, valid = data.copy(), np.ones(len(data), np.bool_) if valid is None else valid.copy()
            data[where] = exact.data
            valid[where] = True if exact.valid is None else exact.valid
        return Fixed(data, valid)

    def _on(self, args: Sequence[Value], length: int, rows: Rows, counted: Bools | None) -> Value:
        columns = [plain(args[i], t, length) for i, t in zip(self._inputs, self._types, strict=True)]
        table = zip(*columns, strict=True) if columns else repeat((), length)
        expr, counting = self._expr, self._context(rows, rows.run.strict)
        try:
            if counted is None:
                values = [evaluate(expr, row, counting) for row in table]
            else:
                silent = self._context(rows, False)
                pairs = zip(table, counted.tolist(), strict=True)
                values = [evaluate(expr, row, counting if counts else silent) for row, counts in pairs]
        finally:
            if counting.failures:
                rows.run.failures += counting.failures
                rows.run.last_failure = counting.last_failure
        return from_plain(values, self._type)

    def _count(self, args: Sequence[Value], failed: Bools, rows: Rows) -> None:
        """Count known failures; one of the rows is evaluated to learn what to say."""
        counted = failed if rows.counted is None else failed & rows.counted
        where = np.flatnonzero(counted)
        if not len(where):
            return
        only = np.zeros(rows.length, np.bool_)
        only[where[0 if rows.run.strict else -1]] = True
        one = Selection(only)
        row = [plain(select(args[i], one), t, 1)[0] for i, t in zip(self._inputs, self._types, strict=True)]
        context = self._context(rows, False)
        evaluate(self._expr, row, context)
        if context.failures:  # TRY_CAST fails silently
            count_failures(rows.run, 1 if rows.run.strict else len(where), context.last_failure)

    def _context(self, rows: Rows, strict: bool) -> Context:
        return Context(rows.run.window, self._functions, strict)
