"""Comparisons, three-valued logic, and the choices made by comparing.

Comparing follows the value order: NaN equals NaN and is greater than every other number, -0.0 equals 0.0, texts go by
code point, which is the order of their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels import decimals
from penstock.kernels.vectors import DTYPES, Bools, Fixed, Value, booleans, both, truth, validity
from penstock.model.types import DataType, Kind
from penstock.model.values import to_arrow
from penstock.scalar.expr import Call, Expr, Literal

Kernel = Callable[..., Any]

_UFUNCS: dict[str, np.ufunc] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_ARROW: dict[str, Callable[[Value, Value], pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# From so many constants on, membership is looked up rather than compared one by one.
_MANY = 6


def _number(expr: Expr) -> bool:
    """A constant that is neither NULL nor NaN."""
    return isinstance(expr, Literal) and expr.value is not None and expr.value == expr.value


def _float_ordered(name: str) -> Callable[[Any, Any], Bools]:
    """The comparison of floats in value order, where both sides may be NaN."""

    def equal(x: Any, y: Any) -> Bools:
        result: Bools = (x == y) | ((x != x) & (y != y))
        return result

    def less(x: Any, y: Any) -> Bools:
        result: Bools = ~((x >= y) | (x != x))
        return result

    table: dict[str, Callable[[Any, Any], Bools]] = {
        "=": equal,
        "<>": lambda x, y: ~equal(x, y),
        "<": less,
        ">=": lambda x, y: ~less(x, y),
        ">": lambda x, y: less(y, x),
        "<=": lambda x, y: ~less(y, x),
    }
    return table[name]


def comparison(name: str, left: Expr, right: Expr) -> Kernel | None:
    """The kernel that compares two arguments, if their types have one."""
    a, b = left.type, right.type
    if a.kind in DTYPES and (a == b or (a.is_integer and b.is_integer)):
        return _fixed_comparison(name, left, right)
    if a == b and a.kind in (Kind.STRING, Kind.BINARY, Kind.DECIMAL):
        function = _ARROW[name]
        return lambda x, y: booleans(function(x, y))
    return None


def _fixed_comparison(name: str, left: Expr, right: Expr) -> Kernel:
    if not left.type.is_float:
        compare: Callable[[Any, Any], Bools] = _UFUNCS[name]
    elif _number(right):
        compare = _against_number(name)
    elif _number(left):
        turned = _against_number(_FLIPPED[name])
        compare = lambda x, y: turned(y, x)  # noqa: E731
    else:
        compare = _float_ordered(name)

    def kernel(x: Fixed, y: Fixed) -> Fixed:
        return Fixed(compare(x.data, y.data), both(x.valid, y.valid))

    return kernel


def _against_number(name: str) -> Callable[[Any, Any], Bools]:
    """IEEE says FALSE to NaN, so what NaN should pass is asked the other way round."""
    match name:
        case ">":
            return lambda x, y: ~np.less_equal(x, y)
        case ">=":
            return lambda x, y: ~np.less(x, y)
    return _UFUNCS[name]


def _comparison(call: Call) -> Kernel | None:
    return comparison(call.function, *call.args)


def kleene_and(x: Fixed, y: Fixed) -> Fixed:
    a, b = x.valid, y.valid
    data = x.data & y.data
    if a is None and b is None:
        return Fixed(data)
    if a is None:
        return Fixed(data, b | ~x.data)
    if b is None:
        return Fixed(data, a | ~y.data)
    return Fixed(data, (a & b) | (a & ~x.data) | (b & ~y.data))


def kleene_or(x: Fixed, y: Fixed) -> Fixed:
    a, b = x.valid, y.valid
    data = x.data | y.data
    if a is None and b is None:
        return Fixed(data)
    if a is None:
        return Fixed(data, b | x.data)
    if b is None:
        return Fixed(data, a | y.data)
    return Fixed(data, (a & b) | (a & x.data) | (b & y.data))


def _not(x: Fixed) -> Fixed:
    return Fixed(~x.data, x.valid)


def _length(value: Value) -> int:
    return len(value.data) if type(value) is Fixed else len(value)


def _is_null(x: Value) -> Fixed:
    valid = validity(x)
    return Fixed(np.zeros(_length(x), np.bool_) if valid is None else ~valid)


def _is_not_distinct(call: Call) -> Kernel | None:
    equal = comparison("=", *call.args)
    if equal is None:
        return None

    def kernel(x: Value, y: Value) -> Fixed:
        same, a, b = truth(equal(x, y)), validity(x), validity(y)
        return Fixed(same if a is None or b is None else same | ~(a | b))

    return kernel


def _in(call: Call) -> Kernel | None:
    needle, *items = call.args
    if len(items) >= _MANY and all(isinstance(i, Literal) and i.type == needle.type for i in items):
        found = _lookup(needle.type, [i.value for i in items if isinstance(i, Literal)])
        if found is not None:
            return found
    tests = [comparison("=", needle, item) for item in items]
    if any(t is None for t in tests):
        return None

    def kernel(x: Value, *values: Value) -> Fixed:
        result: Fixed | None = None
        for test, value in zip(tests, values, strict=True):
            assert test is not None
            same = test(x, value)
            result = same if result is None else kleene_or(result, same)
        assert result is not None
        return result

    return kernel


def _lookup(dtype: DataType, items: list[object]) -> Kernel | None:
    """IN among many constants."""
    values = [i for i in items if i is not None]
    unknown = len(values) < len(items)

    def result(found: Bools, valid: Bools | None) -> Fixed:
        return Fixed(found, both(valid, found) if unknown else valid)

    if dtype.kind in (Kind.STRING, Kind.BINARY, Kind.DECIMAL):
        among = to_arrow(values, dtype)
        return lambda x, *_: result(booleans(pc.is_in(x, value_set=among)).data, validity(x))
    if dtype.kind in DTYPES and not dtype.is_float:
        known = np.array(values, DTYPES[dtype.kind])
        return lambda x, *_: result(np.isin(x.data, known), x.valid)
    return None


def _nullif(call: Call) -> Kernel | None:
    equal = comparison("=", *call.args)
    if equal is None:
        return None

    def kernel(x: Value, y: Value) -> Value:
        same = truth(equal(x, y))
        if type(x) is not Fixed:
            return pc.if_else(pa.array(same), pa.scalar(None, x.type), x)
        data = x.data if x.data.ndim else np.broadcast_to(x.data, len(same))
        return Fixed(data, both(x.valid, ~same))

    return kernel


def _extreme(call: Call) -> Kernel | None:
    """The first of the greatest, or least, that are not NULL."""
    dtype = call.type
    if dtype.kind is Kind.DECIMAL:
        return decimals.extreme(call)
    if dtype.kind not in DTYPES or any(a.type != dtype for a in call.args):
        return None
    better: Callable[[Any, Any], Bools]
    sign = ">" if call.function == "greatest" else "<"
    better = _float_ordered(sign) if dtype.is_float else _UFUNCS[sign]

    def kernel(first: Fixed, *others: Fixed) -> Fixed:
        data, valid = first.data, first.valid
        for other in others:
            wins = better(other.data, data)
            if valid is not None:
                wins = wins | ~valid
            if other.valid is not None:
                wins = wins & other.valid
            data = np.where(wins, other.data, data)
            valid = None if valid is None or other.valid is None else valid | other.valid
        return Fixed(data, valid)

    return kernel


def _always(kernel: Kernel) -> Callable[[Call], Kernel | None]:
    return lambda call: kernel


def _booleans(kernel: Kernel) -> Callable[[Call], Kernel | None]:
    return lambda call: kernel if all(a.type.kind is Kind.BOOLEAN for a in call.args) else None


LOGIC: dict[str, Callable[[Call], Kernel | None]] = {
    "and": _booleans(kleene_and),
    "or": _booleans(kleene_or),
    "not": _booleans(_not),
    **dict.fromkeys(_UFUNCS, _comparison),
    "is_null": _always(_is_null),
    "is_not_distinct": _is_not_distinct,
    "in": _in,
    "nullif": _nullif,
    "greatest": _extreme,
    "least": _extreme,
}
