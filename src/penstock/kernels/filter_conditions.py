"""What a condition asks of one column, where that is all it asks: to equal a constant, or to lie between two.

Fixed-width columns are compared by ``keys``: 64-bit integers in the value order (NaN greatest, one for both zeros), so
that every comparison with a constant is an interval of keys. Texts, binaries and DECIMAL have no such keys; they are
only looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.kernels.buffers import Floats, floats, integers
from penstock.kernels.vectors import DTYPES, constant
from penstock.model.delta import MAX_TS, MIN_TS, Ints
from penstock.model.schema import Schema
from penstock.model.types import DataType, Kind
from penstock.scalar.expr import Call, Column, Expr, Literal

LEAST, GREATEST = MIN_TS, MAX_TS
_BYTES = (Kind.STRING, Kind.BINARY, Kind.DECIMAL)
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@nb.njit(
    nb.int64[::1](nb.types.Array(nb.float64, 1, "C", readonly=True)), nogil=True, cache=True
)
def _ordered(values: Floats) -> Ints:
    """As ``buffers.ordered``, in one pass."""
    bits = (values + 0.0).view(np.int64)
    for i in range(len(values)):
        if values[i] != values[i]:
            bits[i] = np.int64(0x7FF8_0000_0000_0000)
        else:
            bits[i] ^= (bits[i] >> 63) & np.int64(0x7FFF_FFFF_FFFF_FFFF)
    return bits


def keys(array: pa.Array, dtype: DataType) -> Ints:
    """The keys of a column of fixed width; anything where it is NULL."""
    return _ordered(floats(array)) if dtype.is_float else integers(array)


def has_keys(dtype: DataType) -> bool:
    return dtype.kind in DTYPES


@dataclass(frozen=True)
class Equal:
    """The column is one of these values: keys, or plain values where the type has no keys. None of them is NULL."""

    column: int
    values: frozenset[object]


@dataclass(frozen=True)
class Between:
    """The key of the column is from ``low`` to ``high``, both included."""

    column: int
    low: int
    high: int


Condition = Equal | Between


def condition(expr: Expr, schema: Schema) -> Condition | None:
    """A condition that is TRUE on exactly the rows on which the expression is; None where there is none."""
    match expr:
        case Column(index, dtype) if dtype.kind is Kind.BOOLEAN and schema[index].type == dtype:
            return Equal(index, frozenset((1,)))
        case Call("not", (Column(index, dtype),), _) if dtype.kind is Kind.BOOLEAN and schema[index].type == dtype:
            return Equal(index, frozenset((0,)))
        case Call("in", (Column() as column, *items), _):
            return _among(column, items, schema)
        case Call("or", args, _):
            return _any_of([condition(a, schema) for a in args])
        case Call(function, (Column() as column, Literal() as literal), _) if function in _FLIPPED:
            return _compared(function, column, literal, schema)
        case Call(function, (Literal() as literal, Column() as column), _) if function in _FLIPPED:
            return _compared(_FLIPPED[function], column, literal, schema)
    return None


def _any_of(parts: Sequence[Condition | None]) -> Equal | None:
    equal = [p for p in parts if isinstance(p, Equal)]
    if len(equal) < len(parts) or len({p.column for p in equal}) != 1:
        return None
    return Equal(equal[0].column, reduce(frozenset.union, [p.values for p in equal]))


def _among(column: Column, items: Sequence[Expr], schema: Schema) -> Equal | None:
    literals = [i for i in items if isinstance(i, Literal) and _comparable(column, i, schema)]
    if len(literals) < len(items):
        return None
    return Equal(column.index, frozenset([_value(i) for i in literals if i.value is not None]))


def _compared(function: str, column: Column, literal: Literal, schema: Schema) -> Condition | None:
    if not _comparable(column, literal, schema):
        return None
    if literal.value is None:
        return Equal(column.index, frozenset())
    if function == "=":
        return Equal(column.index, frozenset((_value(literal),)))
    if not has_keys(literal.type):
        return None
    key = _value(literal)
    assert isinstance(key, int)
    match function:
        case "<":
            return Between(column.index, LEAST, key - 1)
        case "<=":
            return Between(column.index, LEAST, key)
        case ">":
            return Between(column.index, key + 1, GREATEST)
    return Between(column.index, key, GREATEST)


def _comparable(column: Column, literal: Literal, schema: Schema) -> bool:
    """Whether the comparison is one of values as they are: of one type, or of integers."""
    a, b = column.type, literal.type
    if schema[column.index].type != a:
        return False
    return (a == b and (has_keys(a) or a.kind in _BYTES)) or (a.is_integer and b.is_integer)


def _value(literal: Literal) -> object:
    """The key of a constant, or the plain value where it has none."""
    dtype, value = literal.type, literal.value
    if not has_keys(dtype):
        return value
    if not dtype.is_float:
        return int(value)  # type: ignore[call-overload]
    rounded = np.atleast_1d(constant(value, dtype).data).astype(np.float64)
    return int(_ordered(rounded)[0])
