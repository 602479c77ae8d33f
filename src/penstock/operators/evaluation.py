"""Expressions of a node on plain rows, and where their failures are counted.

A failure counts when a row enters. When it leaves, the same expressions are computed again to find what it was part
of, quietly: expressions give the same value on the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Protocol

from penstock.model.delta import Step
from penstock.model.schema import Schema
from penstock.model.types import DataType, Kind
from penstock.scalar import Context, evaluate, hashable, order_key
from penstock.scalar.expr import Column, Expr, Literal
from penstock.scalar.order import OrderKey

Values = tuple[object, ...]
Reader = Callable[[Values], object]
Functions = Mapping[str, Callable[..., object]]


class Errors(Protocol):
    """Where failures on a row are counted; ``fail`` gives NULL, or raises where the query is strict."""

    def fail(self, message: str) -> object: ...


@dataclass
class _Counting(Context):
    errors: Errors | None = field(default=None)

    def fail(self, message: str) -> object:
        assert self.errors is not None
        return self.errors.fail(message)


@dataclass
class _Quiet(Context):
    def fail(self, message: str) -> object:
        return None


class Evaluation:
    """The surroundings in which a node's expressions are evaluated: ``entering`` counts, ``leaving`` is quiet."""

    def __init__(self, functions: Functions, errors: Errors) -> None:
        self.entering: Context = _Counting(functions=functions, errors=errors)
        self.leaving: Context = _Quiet(functions=functions)

    def begin(self, step: Step) -> None:
        self.entering.window = self.leaving.window = step.window


def reader(expr: Expr, context: Context) -> Reader:
    """The expression as a function of the row."""
    match expr:
        case Column(index=index):
            return itemgetter(index)
        case Literal(value=value):
            return lambda _: value
    return lambda row: evaluate(expr, row, context)


def row_reader(exprs: Sequence[Expr], context: Context) -> Callable[[Values], Values]:
    """Several expressions as a function from row to row."""
    readers = [reader(e, context) for e in exprs]
    if len(readers) == 1:
        only = readers[0]
        return lambda row: (only(row),)
    return lambda row: tuple([read(row) for read in readers])


def value_key_of(types: Iterable[DataType]) -> Callable[[Values], Hashable]:
    """Rows of these types as keys: NULL = NULL, NaN = NaN, -0.0 = 0.0."""
    return hashable if any(has_nan(t) for t in types) else _itself


def row_key_of(schema: Schema) -> Callable[[Values], Hashable]:
    """Rows of the schema as keys."""
    return value_key_of(f.type for f in schema)


def _itself(values: Values) -> Hashable:
    return values


def has_nan(dtype: DataType) -> bool:
    """Whether there may be NaN in values of a type."""
    return dtype.is_float or (dtype.kind is Kind.ARRAY and dtype.element is not None and has_nan(dtype.element))


def equality_key_of(exprs: Sequence[Expr], context: Context) -> Callable[[Values], Hashable]:
    """Keys that are equal where SQL's ``=`` is TRUE of all expressions; None where one is NULL."""
    if not exprs:
        return lambda _: ()
    read = row_reader(exprs, context)
    key = value_key_of(e.type for e in exprs)

    def of(row: Values) -> Hashable:
        values = read(row)
        return None if None in values else key(values)

    return of


def order_keys(values: Values) -> tuple[OrderKey, ...]:
    """Sorts rows by value order."""
    return tuple([order_key(v) for v in values])
