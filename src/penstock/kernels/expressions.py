"""Bound expressions, compiled to functions over columns with exactly the values of ``scalar.evaluate``.

``VECTORISED`` lists the functions that have kernels; each entry says, given the bound call, whether its types and
constants have one. Everything else, and user functions, is lowered to ``RowWise`` at that node alone: its arguments are
still computed in columns. A kernel may decline what it gets (None), or leave single rows to the row-wise meaning.

Failures count as in ``scalar``: CASE and COALESCE compute what can fail only on the rows that need it, and a
sub-expression that is computed once for several uses counts for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.arithmetic import ARITHMETIC
from penstock.kernels.batch import RowErrors, Rows
from penstock.kernels.casts import cast_kernel
from penstock.kernels.logic import LOGIC
from penstock.kernels.rowwise import RowWise
from penstock.kernels.strings import STRINGS
from penstock.kernels.temporal import TEMPORAL
from penstock.kernels.vectors import (
    DTYPES,
    Bools,
    Fixed,
    Partial,
    Selection,
    Value,
    as_arrow,
    checked,
    constant,
    full,
    truth,
    validity,
)
from penstock.model.errors import QueryFailed
from penstock.model.types import RANGES, DataType, Kind
from penstock.scalar import fold
from penstock.scalar.expr import (
    Call,
    Case,
    Cast,
    Column,
    Expr,
    Literal,
    UserCall,
    WindowBound,
    children,
    conjuncts,
    is_pure,
)
from penstock.scalar.failing import can_fail

__all__ = [
    "VECTORISED",
    "CompiledExpr",
    "CompiledFilter",
    "Compiler",
    "RowErrors",
    "compile_expr",
    "compile_filter",
    "compile_project",
]

Functions = Mapping[str, Callable[..., object]]
Node = Callable[[Rows], Value]
Kernel = Callable[..., Any]

VECTORISED: dict[str, Callable[[Call], Kernel | None]] = {**LOGIC, **ARITHMETIC, **STRINGS, **TEMPORAL}
"""The functions that have kernels. COALESCE and CASE are built in; what is not here is lowered row by row."""


class Compiler:
    """Compiles expressions over one set of columns; equal parts are computed once for each set of rows."""

    def __init__(self, exprs: Sequence[Expr], functions: Functions) -> None:
        self._functions = functions
        self._ids: dict[object, int] = {}
        self._uses: dict[int, int] = {}
        self._nodes: dict[int, Node] = {}
        for expr in exprs:
            self._count(expr)

    def _id(self, expr: Expr) -> int:
        """Equal for expressions with the same values, which ``==`` is not: 0.0 == -0.0."""
        match expr:
            case Literal(value, dtype):
                key: object = (Literal, repr(value), dtype)
            case Column(index, dtype):
                key = (Column, index, dtype)
            case Call(function, args, dtype) | UserCall(function, args, dtype):
                key = (type(expr), function, dtype, *map(self._id, args))
            case Cast(arg, dtype, safe, zone):
                key = (Cast, dtype, safe, zone, self._id(arg))
            case Case():
                key = (Case, expr.type, *map(self._id, children(expr)))
            case WindowBound(which, dtype):
                key = (WindowBound, which, dtype)
        return self._ids.setdefault(key, len(self._ids))

    def _count(self, expr: Expr) -> None:
        identity = self._id(expr)
        self._uses[identity] = self._uses.get(identity, 0) + 1
        for child in children(expr):
            self._count(child)

    def node(self, expr: Expr) -> Node:
        """The function that computes the expression on rows."""
        identity = self._id(expr)
        if identity not in self._nodes:
            made = self._make(expr)
            shareable = children(expr) and self._uses.get(identity, 0) > 1 and is_pure(expr)
            self._nodes[identity] = _shared(made) if shareable else made
        return self._nodes[identity]

    def _make(self, expr: Expr) -> Node:
        known = fold(expr) if children(expr) else None
        match known or expr:
            case Column(index, dtype):
                return _column(index, dtype)
            case Literal(value, dtype):
                made = constant(value, dtype)
                return lambda rows: made
            case WindowBound(which, dtype):
                return _window_bound(which, dtype)
            case Case() as case:
                return self._case(case)
            case Call("coalesce") as call:
                return self._coalesce(call)
            case UserCall() as call:
                return self._apply(None, call)
            case Call() as call:
                build = VECTORISED.get(call.function)
                return self._apply(build(call) if build is not None else None, call)
            case Cast(arg, dtype, _, zone) as cast:
                return self._apply(cast_kernel(arg.type, dtype, zone), cast)

    def _apply(self, kernel: Kernel | None, expr: Call | Cast | UserCall) -> Node:
        row_wise = RowWise(expr, self._functions)
        if kernel is not None and expr.type.kind in (Kind.DATE, Kind.TIMESTAMP):
            kernel = _in_range(kernel, *RANGES[expr.type.kind])
        args = [self.node(a) for a in children(expr)]
        if kernel is None or all(map(_is_constant, children(expr))):
            # What fails does so on every row.
            return lambda rows: row_wise([a(rows) for a in args], rows)
        if len(args) == 1:
            return _unary(kernel, args[0], row_wise)
        if len(args) == 2:
            second = children(expr)[1]
            if isinstance(second, Literal):
                return _with_constant(kernel, args[0], constant(second.value, second.type), row_wise)
            return _binary(kernel, args[0], args[1], row_wise)

        def apply(rows: Rows) -> Value:
            values = [a(rows) for a in args]
            result = kernel(*values)
            return result if type(result) is Fixed else _finish(result, values, rows, row_wise)

        return apply

    def _case(self, expr: Case) -> Node:
        branches = [(self.node(c), self.node(r)) for c, r in expr.branches]
        otherwise, dtype = self.node(expr.otherwise), expr.type
        if not can_fail(expr) and dtype.kind in DTYPES:
            return _eager_case(branches, otherwise)

        def choose(rows: Rows) -> Value:
            chosen = _Chosen(dtype, rows)
            for condition, result in branches:
                rest = chosen.rest()
                if rest is None:
                    return chosen.result()
                chosen.add(full(condition(rest), rest.length), rest, result)
            rest = chosen.rest()
            if rest is not None:
                chosen.add(None, rest, otherwise)
            return chosen.result()

        return choose

    def _coalesce(self, expr: Call) -> Node:
        args, dtype = [self.node(a) for a in expr.args], expr.type
        lazily = [can_fail(a) for a in expr.args]

        def first_valid(rows: Rows) -> Value:
            result = full(args[0](rows), rows.length)
            for arg, lazy in zip(args[1:], lazily[1:], strict=True):
                valid = validity(result)
                if valid is None or valid.all():
                    break
                if lazy:
                    rest = rows.where(Selection(~valid))
                    result = _spread(dtype, rows.length, [(valid, None, result), (~valid, rest, arg(rest))])
                else:
                    result = _first(result, valid, arg(rows))
            return result

        return first_valid


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, Literal) or (bool(children(expr)) and fold(expr) is not None)


def _in_range(kernel: Kernel, least: int, most: int) -> Kernel:
    """The kernel, failing where its result is beyond the calendar."""

    def within(*args: Value) -> Any:
        result = kernel(*args)
        if result is None or not result.data.size or (least <= result.data.min() and result.data.max() <= most):
            return result
        beyond = (result.data < least) | (result.data > most)
        if type(result) is Fixed:
            return checked(result.data, result.valid, beyond)
        if result.suspect is not None:
            beyond &= ~result.suspect
        if result.valid is not None:
            beyond &= result.valid
        failed = beyond if result.failed is None else result.failed | beyond
        return Partial(result.data, result.valid, failed, result.suspect)

    return within


def _column(index: int, dtype: DataType) -> Node:
    fixed = DTYPES.get(dtype.kind)

    def column(rows: Rows) -> Value:
        value = rows.values[index]
        return value if type(value) is Fixed else rows.fetch(index, fixed)

    return column


def _window_bound(which: str, dtype: DataType) -> Node:
    end = which == "end"

    def bound(rows: Rows) -> Value:
        window = rows.run.window
        if window is None:
            raise QueryFailed(f"window_{which} outside of a window that has bounds")
        return full(constant(window[end], dtype), rows.length)

    return bound


def _shared(node: Node) -> Node:
    # By the function itself: filters and projections that are compiled apart may see the same rows.
    def shared(rows: Rows) -> Value:
        known = rows.shared.get(node)
        if known is not None:
            rows.run.failures += known[1]
            return known[0]
        before = rows.run.failures
        value = node(rows)
        rows.shared[node] = value, rows.run.failures - before
        return value

    return shared


def _finish(result: Any, args: Sequence[Value], rows: Rows, row_wise: RowWise) -> Value:
    if result is None:
        return row_wise(args, rows)
    return row_wise.settle(args, result, rows) if type(result) is Partial else result


def _unary(kernel: Kernel, arg: Node, row_wise: RowWise) -> Node:
    def apply(rows: Rows) -> Value:
        value = arg(rows)
        result = kernel(value)
        return result if type(result) is Fixed else _finish(result, (value,), rows, row_wise)

    return apply


def _binary(kernel: Kernel, left: Node, right: Node, row_wise: RowWise) -> Node:
    def apply(rows: Rows) -> Value:
        a, b = left(rows), right(rows)
        result = kernel(a, b)
        return result if type(result) is Fixed else _finish(result, (a, b), rows, row_wise)

    return apply


def _with_constant(kernel: Kernel, left: Node, right: Value, row_wise: RowWise) -> Node:
    def apply(rows: Rows) -> Value:
        value = left(rows)
        result = kernel(value, right)
        return result if type(result) is Fixed else _finish(result, (value, right), rows, row_wise)

    return apply


def _eager_case(branches: Sequence[tuple[Node, Node]], otherwise: Node) -> Node:
    """All branches on all rows: nothing can fail."""

    def choose(rows: Rows) -> Fixed:
        data, valid = (last := full(otherwise(rows), rows.length)).data, last.valid
        for condition, result in reversed(branches):
            taken, value = truth(condition(rows)), result(rows)
            data = np.where(taken, value.data, data)
            if valid is not None or value.valid is not None:
                ours = True if value.valid is None else value.valid
                valid = np.where(taken, ours, True if valid is None else valid)
        return Fixed(data, valid)

    return choose


class _Chosen:
    """Which rows have taken which branch of a CASE so far."""

    def __init__(self, dtype: DataType, rows: Rows) -> None:
        self._dtype = dtype
        self._rows = rows
        self._open = np.ones(rows.length, np.bool_)
        self._parts: list[tuple[Bools, Rows | None, Value]] = []

    def rest(self) -> Rows | None:
        """The rows that have not taken a branch."""
        if not self._parts:
            return self._rows
        return self._rows.where(Selection(self._open)) if self._open.any() else None

    def add(self, condition: Fixed | None, rest: Rows, result: Node) -> None:
        """A branch: of the rest, the rows where the condition is TRUE take it; all where there is none."""
        if condition is None:
            self._parts.append((self._open, rest, result(rest)))
            return
        taken = truth(condition)
        if taken.all():
            taking = rest
        elif taken.any():
            taking = rest.where(Selection(taken))
        else:
            # Remember that a branch was looked at, so that the rest is asked for by mask.
            self._parts.append((np.zeros(self._rows.length, np.bool_), None, None))
            return
        mask = np.zeros(self._rows.length, np.bool_)
        mask[self._open] = taken
        # A new array: the rest reads its columns later, by the old one.
        self._open = self._open & ~mask
        self._parts.append((mask, taking, result(taking)))

    def result(self) -> Value:
        return _spread(self._dtype, self._rows.length, self._parts)


def _spread(dtype: DataType, length: int, parts: Sequence[tuple[Bools, Rows | None, Value]]) -> Value:
    """One column from values on disjoint sets of rows; a part without ``Rows`` is as long as the column."""
    fixed = DTYPES.get(dtype.kind)
    taken = [(mask, rows, value) for mask, rows, value in parts if value is not None]
    if len(taken) == 1 and (taken[0][1] is None or taken[0][1].length == length):
        return full(taken[0][2], length)
    if fixed is None:
        pieces = [as_arrow(v, dtype.arrow, r.length) if r is not None else v.filter(pa.array(m)) for m, r, v in taken]
        order = np.empty(length, np.int64)
        order[np.concatenate([np.flatnonzero(m) for m, _, _ in taken])] = np.arange(length)
        return pa.concat_arrays(pieces).take(pa.array(order))
    data, valid = np.zeros(length, fixed), np.ones(length, np.bool_)
    for mask, rows, value in taken:
        here = rows is None
        data[mask] = value.data[mask] if here else value.data
        if value.valid is not None:
            valid[mask] = value.valid[mask] if here else value.valid
    return Fixed(data, valid)


def _first(value: Value, valid: Bools, other: Value) -> Value:
    """The value where it is valid, elsewhere the other."""
    if type(value) is not Fixed:
        return pc.coalesce(value, other)
    data = np.where(valid, value.data, other.data)
    return Fixed(data, None if other.valid is None else valid | other.valid)


class CompiledExpr:
    """An expression over columns, giving an Arrow array."""

    def __init__(self, expr: Expr, functions: Functions) -> None:
        self._project = CompiledProject((expr,), functions)

    def __call__(self, columns: Sequence[pa.Array], length: int, run: RowErrors) -> pa.Array:
        return self._project(columns, length, run)[0]


class CompiledProject:
    """Several expressions over the same columns; what they have in common is computed once."""

    def __init__(self, exprs: Sequence[Expr], functions: Functions) -> None:
        compiler = Compiler(exprs, functions)
        self._nodes = [(compiler.node(e), e.type.arrow) for e in exprs]

    def __call__(self, columns: Sequence[pa.Array], length: int, run: RowErrors) -> tuple[pa.Array, ...]:
        if not length:
            return tuple([pa.array([], arrow) for _, arrow in self._nodes])
        with np.errstate(all="ignore"):
            return self.arrays(Rows(columns, length, run))

    def values(self, rows: Rows) -> list[Value]:
        """The computed columns, to be computed with further."""
        return [full(node(rows), rows.length) for node, _ in self._nodes]

    def arrays(self, rows: Rows) -> tuple[pa.Array, ...]:
        """The computed columns as Arrow arrays. The caller has told numpy to be silent."""
        length = rows.length
        return tuple([as_arrow(node(rows), arrow, length) for node, arrow in self._nodes])


class CompiledFilter:
    """A predicate over columns, giving the rows for which it is TRUE."""

    def __init__(self, predicate: Expr, functions: Functions) -> None:
        compiler = Compiler((predicate,), functions)
        self._parts = [compiler.node(part) for part in conjuncts(predicate)]

    def __call__(self, columns: Sequence[pa.Array], length: int, run: RowErrors) -> Selection | None:
        """The rows that are TRUE; None where all are."""
        if not length:
            return None
        with np.errstate(all="ignore"):
            return self.passing(Rows(columns, length, run))

    def passing(self, rows: Rows) -> Selection | None:
        """The rows that are TRUE; None where all are. The caller has told numpy to be silent."""
        found: Bools | None = None
        for part in self._parts:
            passed = truth(part(rows))
            found = passed if found is None else found & passed
        if found is None:
            return None
        if not found.ndim:
            return None if found else Selection(np.zeros(rows.length, np.bool_), 0)
        some = Selection(found)
        return None if some.count == rows.length else some


def compile_expr(expr: Expr, functions: Functions) -> CompiledExpr:
    """``(columns, length, run)`` to an Arrow array of the expression's type."""
    return CompiledExpr(expr, functions)


def compile_filter(predicate: Expr, functions: Functions) -> CompiledFilter:
    """``(columns, length, run)`` to a ``Selection`` of the rows that are TRUE, or None where all are."""
    return CompiledFilter(predicate, functions)


def compile_project(exprs: Sequence[Expr], functions: Functions) -> CompiledProject:
    """``(columns, length, run)`` to one Arrow array for each expression."""
    return CompiledProject(exprs, functions)
