"""DECIMAL in columns: the whole numbers underneath, as 64-bit integers where they all fit.

A DECIMAL(p, s) is stored as its *unscaled* value, the number times 10 to the power of s, in 128 bits. Nearly all fit
64 bits, so most kernels compute with numpy's integers and decline a batch that does not fit, which is then computed row
by row. ``+``, ``-``, ``*`` and comparisons are Arrow's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.buffers import halves
from penstock.kernels.vectors import DTYPES, Data, Fixed, Partial, Value, both, checked, repaired, validity
from penstock.model.types import DataType, Kind
from penstock.scalar.expr import Call

Kernel = Callable[..., Any]
Outcome = Fixed | Partial | None

_MOST = 2**63 - 1
# Whole numbers below it, and powers of ten up to 10**22, are doubles exactly: their quotient is rounded only once.
_EXACT_DOUBLE = 2**53
_EXACT_POWER = 22


def unscaled(value: Value, dtype: DataType) -> Fixed | None:
    """The whole numbers underneath a column or constant; None where one of them needs more than 64 bits."""
    if isinstance(value, pa.Scalar):
        if not value.is_valid:
            return Fixed(np.zeros((), np.int64), np.zeros((), np.bool_))
        number = int(value.as_py().scaleb(_scale(dtype)))
        return Fixed(np.array(number, np.int64)) if abs(number) <= _MOST else None
    valid = validity(value)
    low, high = halves(value).T
    # The lowest integer has no counterpart, so it counts as one too many.
    wide = (high != low >> 63) | (low == -_MOST - 1)
    if valid is not None:
        wide &= valid
    return None if wide.any() else Fixed(low, valid)


def scaled(data: Data, valid: Any, dtype: DataType) -> pa.Array:
    """The column of the type with these whole numbers underneath."""
    words = np.stack([data, data >> 63], axis=1)
    bits, nulls = None, 0
    if valid is not None:
        valid = np.broadcast_to(valid, len(data))
        nulls = len(data) - int(np.count_nonzero(valid))
        bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(dtype.arrow, len(data), [bits, pa.py_buffer(words)], nulls)


def _scale(dtype: DataType) -> int:
    assert dtype.scale is not None
    return dtype.scale


def _digits(dtype: DataType) -> int:
    """The digits before the point."""
    assert dtype.precision is not None
    return dtype.precision - _scale(dtype)


def _largest(found: Fixed) -> int:
    """The greatest absolute value, at least 1: a factor must fit too."""
    data = found.data if found.valid is None else np.where(found.valid, found.data, 0)
    return max(1, int(data.max()), -int(data.min())) if data.size else 1


def _fitting(found: Fixed, factor: int, dtype: DataType) -> pa.Array | None:
    """The numbers times the factor as the type; None where one does not fit, or needs more than 64 bits."""
    assert dtype.precision is not None
    if _largest(found) * factor > min(_MOST, 10**dtype.precision - 1):
        return None
    data = found.data if found.valid is None else np.where(found.valid, found.data, 0)
    return scaled(data * factor, found.valid, dtype)


# -- conversions ------------------------------------------------------------------------------------------


def from_integer(source: DataType, target: DataType) -> Kernel:
    factor = 10 ** _scale(target)
    always = _digits(target) >= (10 if source.kind is Kind.INT else 19)

    def kernel(a: Fixed) -> pa.Array | None:
        wide = Fixed(np.atleast_1d(a.data.astype(np.int64, copy=False)), a.valid)
        found = _fitting(wide, factor, target)
        if found is None and always:
            found = pc.cast(scaled(wide.data, wide.valid, DataType(Kind.DECIMAL, 19, 0)), target.arrow)
        return found

    return kernel


def _half_away(data: Data, power: int) -> Data:
    """The quotient rounded half away from zero."""
    size = np.abs(data)
    whole: Data = size // power
    whole += size - whole * power >= power - power // 2
    return np.where(data < 0, -whole, whole)


def to_decimal(source: DataType, target: DataType) -> Kernel:
    step = _scale(target) - _scale(source)
    if step >= 0 and _digits(target) >= _digits(source):
        return lambda a: pc.cast(a, target.arrow)

    def kernel(a: pa.Array) -> pa.Array | None:
        found = unscaled(a, source)
        if found is None or step < -18:
            return None
        if step >= 0:
            return _fitting(found, 10**step, target)
        return _fitting(Fixed(_half_away(found.data, 10**-step), found.valid), 1, target)

    return kernel


def to_float(source: DataType, target: DataType) -> Kernel | None:
    scale, dtype = _scale(source), DTYPES[target.kind]
    if scale > _EXACT_POWER:
        return None
    power = float(10**scale)

    def kernel(a: pa.Array) -> Outcome:
        found = unscaled(a, source)
        if found is None:
            return None
        result = (found.data.astype(np.float64) / power).astype(dtype, copy=False)
        return repaired(result, found.valid, np.abs(found.data) >= _EXACT_DOUBLE)

    return kernel


def to_integer(source: DataType, target: DataType) -> Kernel:
    power, dtype = 10 ** _scale(source), DTYPES[target.kind]

    def kernel(a: pa.Array) -> Outcome:
        found = unscaled(a, source)
        if found is None:
            return None
        if power > _MOST:  # nothing is left of it
            return Fixed(np.zeros(len(found.data), dtype), found.valid)
        data = found.data
        whole = np.where(data < 0, -(-data // power), data // power)
        fitting = whole.astype(dtype)
        return checked(fitting, found.valid, fitting != whole)

    return kernel


def to_text(source: DataType, target: DataType) -> Kernel | None:
    # Arrow writes smaller numbers with an exponent.
    return (lambda a: pc.cast(a, pa.string())) if _scale(source) <= 6 else None


# -- functions --------------------------------------------------------------------------------------------


def linear(call: Call) -> Kernel | None:
    """``+`` and ``-`` whose result has as many digits as there are: Arrow would want one more."""
    a, b = (arg.type for arg in call.args)
    if max(_scale(a), _scale(b)) != _scale(call.type):
        return None
    factors = [10 ** (_scale(call.type) - _scale(t)) for t in (a, b)]
    operate = np.add if call.function == "+" else np.subtract

    def kernel(x: Value, y: Value) -> pa.Array | None:
        p, q = unscaled(x, a), unscaled(y, b)
        if p is None or q is None or _largest(p) * factors[0] + _largest(q) * factors[1] > _MOST:
            return None
        return _fitting(Fixed(operate(p.data * factors[0], q.data * factors[1]), both(p.valid, q.valid)), 1, call.type)

    return kernel


def product(call: Call) -> Kernel | None:
    """``*`` whose result has as many digits as there are."""
    a, b = (arg.type for arg in call.args)
    if _scale(a) + _scale(b) != _scale(call.type):
        return None

    def kernel(x: Value, y: Value) -> pa.Array | None:
        p, q = unscaled(x, a), unscaled(y, b)
        if p is None or q is None or _largest(p) * _largest(q) > _MOST:
            return None
        return _fitting(Fixed(p.data * q.data, both(p.valid, q.valid)), 1, call.type)

    return kernel


def remainder(call: Call) -> Kernel | None:
    dtype = call.type
    if any(arg.type != dtype for arg in call.args):
        return None

    def kernel(x: Value, y: Value) -> pa.Array | None:
        p, q = unscaled(x, dtype), unscaled(y, dtype)
        if p is None or q is None:
            return None
        valid = both(p.valid, q.valid)
        zero = q.data == 0
        if zero.any() and (valid is None or (zero & valid).any()):
            return None
        return scaled(np.fmod(p.data, np.where(zero, 1, q.data)), valid, dtype)

    return kernel


def whole_quotient(call: Call, divide: Kernel) -> Kernel | None:
    """DIV, by the kernel that divides integers: both sides have one scale."""
    dtype = call.args[0].type
    if call.args[1].type != dtype:
        return None

    def kernel(x: Value, y: Value) -> Any:
        p, q = unscaled(x, dtype), unscaled(y, dtype)
        return None if p is None or q is None else divide(p, q)

    return kernel


def sign(dtype: DataType) -> Kernel:
    def kernel(a: pa.Array) -> Fixed | None:
        found = unscaled(a, dtype)
        return None if found is None else Fixed(np.sign(found.data).astype(np.int32), found.valid)

    return kernel


def whole(call: Call) -> Kernel | None:
    """floor and ceil."""
    dtype = call.args[0].type
    if _scale(dtype) > 18:
        return None
    power, up = 10 ** _scale(dtype), call.function == "ceil"

    def kernel(a: pa.Array) -> pa.Array | None:
        found = unscaled(a, dtype)
        if found is None:
            return None
        data = -(-found.data // power) if up else found.data // power
        return scaled(data, found.valid, call.type)

    return kernel


def rounding(call: Call, digits: int) -> Kernel | None:
    """round and trunc to a constant number of digits."""
    dtype = call.args[0].type
    step = _scale(dtype) - digits
    if step <= 0:
        return lambda a, _: pc.cast(a, call.type.arrow)
    if step > 18 or _digits(call.type) < _digits(dtype) + (call.function == "round"):
        return None
    power, halves = 10**step, call.function == "round"

    def kernel(a: pa.Array, _: Value) -> pa.Array | None:
        found = unscaled(a, dtype)
        if found is None or _largest(found) > _MOST - power:
            return None
        data = found.data
        cut = _half_away(data, power) if halves else np.where(data < 0, -(-data // power), data // power)
        return scaled(cut * power, found.valid, call.type)

    return kernel


def extreme(call: Call) -> Kernel | None:
    """greatest and least."""
    if any(arg.type != call.type for arg in call.args):
        return None
    choose = pc.max_element_wise if call.function == "greatest" else pc.min_element_wise
    return lambda *args: choose(*args, skip_nulls=True)
