"""Numbers: arithmetic that notices overflow, rounding, and the functions of the mathematics library.

The good path of integers computes with wrapping and then asks cheaply whether anything wrapped. Functions such as
``exp`` go through Arrow, which calls the platform's mathematics library as Python does; numpy's own differ in the last
bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels import decimals
from penstock.kernels.vectors import DTYPES, Bools, Data, Fixed, Partial, as_arrow, both, checked, from_arrow, repaired
from penstock.model.types import Kind
from penstock.scalar.expr import Call, Literal

Kernel = Callable[..., Any]
Outcome = Fixed | Partial

_WIDE = (Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL)
_NARROW = (Kind.INT, Kind.DATE)
_INTEGERS = (*_WIDE, *_NARROW)
_LOWEST = {32: -(2**31), 64: -(2**63)}
_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_DOUBLE = np.dtype(np.float64)
# Products are approximated by floats first; below this none of them has overflowed.
_SAFE_PRODUCT = 9.2e18
_most = np.maximum.reduce
_least = np.minimum.reduce


def _wide(data: Data) -> Data:
    return data.astype(np.int64, copy=False)


def _add_wraps(x: Data, y: Data, r: Data) -> Bools:
    result: Bools = ((x ^ r) & (y ^ r)) < 0
    return result


def _subtract_wraps(x: Data, y: Data, r: Data) -> Bools:
    result: Bools = ((x ^ y) & (x ^ r)) < 0
    return result


def _linear(call: Call) -> Kernel | None:
    """``+`` and ``-``."""
    kinds = [a.type.kind for a in call.args]
    adds = call.function == "+"
    operate: np.ufunc = np.add if adds else np.subtract
    wraps = _add_wraps if adds else _subtract_wraps
    if call.type.is_float:
        return _floats(operate) if all(a.type == call.type for a in call.args) else None
    if call.type.kind is Kind.DECIMAL:
        return _decimals(call, pc.add if adds else pc.subtract) or decimals.linear(call)
    if any(k not in _INTEGERS for k in kinds):
        return None
    narrow, narrow_args = call.type.kind in _NARROW, all(k in _NARROW for k in kinds)
    step = call.args[1].value if isinstance(call.args[1], Literal) else None
    if not narrow and not narrow_args and isinstance(step, int):
        return _shift(step if adds else -step, operate, wraps)

    def kernel(a: Fixed, b: Fixed) -> Outcome:
        x, y, valid = _wide(a.data), _wide(b.data), both(a.valid, b.valid)
        result = operate(x, y)
        if not narrow:
            return Fixed(result, valid) if narrow_args else checked(result, valid, wraps(x, y, result))
        fitting = result.astype(np.int32)
        bad = fitting != result
        if not narrow_args:
            bad |= wraps(x, y, result)
        return checked(fitting, valid, bad)

    return kernel


def _shift(step: int, operate: np.ufunc, wraps: Callable[[Data, Data, Data], Bools]) -> Kernel:
    """A constant added: only numbers close to the end of the range can overflow."""

    def kernel(a: Fixed, b: Fixed) -> Outcome:
        x, valid = _wide(a.data), both(a.valid, b.valid)
        result = operate(x, b.data)
        good = _most(x) <= 2**63 - 1 - step if step >= 0 else _least(x) >= -(2**63) - step
        return Fixed(result, valid) if good else checked(result, valid, wraps(x, b.data, result))

    return kernel


def _floats(operate: Callable[[Any, Any], Data]) -> Kernel:
    return lambda a, b: Fixed(operate(a.data, b.data), both(a.valid, b.valid))


def _decimals(call: Call, operate: Callable[[Any, Any], pa.Array]) -> Kernel | None:
    """Where no digit can be lost, Arrow widens to the same type as the language does, and is exact."""
    a, b = (arg.type for arg in call.args)
    zero = pa.array([0], pa.int32())
    try:
        made = operate(zero.cast(a.arrow, safe=False), zero.cast(b.arrow, safe=False)).type
    except pa.ArrowInvalid:  # more than 38 digits
        return None
    return operate if made == call.type.arrow else None


def _multiply(call: Call) -> Kernel | None:
    kinds = {a.type.kind for a in call.args}
    if call.type.is_float:
        return _floats(np.multiply) if all(a.type == call.type for a in call.args) else None
    if call.type.kind is Kind.DECIMAL:
        return _decimals(call, pc.multiply) or decimals.product(call)
    if kinds == {Kind.INT} and call.type.kind is Kind.INT:
        return _multiply_narrow
    return _multiply_wide if kinds <= {Kind.INT, Kind.BIGINT} and call.type.kind is Kind.BIGINT else None


def _multiply_narrow(a: Fixed, b: Fixed) -> Outcome:
    result = _wide(a.data) * b.data
    fitting = result.astype(np.int32)
    return checked(fitting, both(a.valid, b.valid), fitting != result)


def _largest(data: Data) -> int:
    """The greatest absolute value."""
    return max(int(_most(data)), -int(_least(data))) if data.ndim else abs(int(data))


def _multiply_wide(a: Fixed, b: Fixed) -> Outcome:
    x, y, valid = _wide(a.data), _wide(b.data), both(a.valid, b.valid)
    result = x * y
    if _largest(x) * _largest(y) < 2**63:
        return Fixed(result, valid)
    return repaired(result, valid, np.abs(x.astype(np.float64) * y) >= _SAFE_PRODUCT)


def _divide(call: Call) -> Kernel | None:
    if any(a.type.kind is not Kind.DOUBLE for a in call.args):
        return None
    divisor = call.args[1]
    if isinstance(divisor, Literal) and divisor.value:
        return _floats(np.true_divide)

    def kernel(a: Fixed, b: Fixed) -> Outcome:
        zero = b.data == 0
        valid = both(a.valid, b.valid)
        result = a.data / b.data
        return checked(result, valid, np.broadcast_to(zero, result.shape))

    return kernel


def _integer_divide(call: Call) -> Kernel | None:
    kinds = {a.type.kind for a in call.args}
    if kinds <= {Kind.INT, Kind.BIGINT}:
        return _divide_integers
    if kinds == {Kind.DECIMAL}:
        return decimals.whole_quotient(call, _divide_integers)
    return _divide_floats if kinds in ({Kind.REAL}, {Kind.DOUBLE}) else None


def _divide_integers(a: Fixed, b: Fixed) -> Outcome:
    x, y = _wide(a.data), _wide(b.data)
    zero = y == 0
    divisor = np.where(zero, 1, y)
    bad = np.broadcast_to(zero, np.broadcast(x, y).shape)
    edge = (x == _LOWEST[64]) & (y == -1)
    if edge.any():
        divisor, bad = np.where(edge, 1, divisor), bad | edge
    result = (x - np.fmod(x, divisor)) // divisor
    return checked(result, both(a.valid, b.valid), bad)


def _divide_floats(a: Fixed, b: Fixed) -> Outcome:
    y = b.data.astype(np.float64, copy=False)
    quotient = np.trunc(a.data.astype(np.float64, copy=False) / y)
    bad = ~((quotient >= -(2.0**63)) & (quotient < 2.0**63)) | (y == 0)
    return checked(np.where(bad, 0.0, quotient).astype(np.int64), both(a.valid, b.valid), bad)


def _remainder(call: Call) -> Kernel | None:
    kinds = {a.type.kind for a in call.args}
    if kinds == {Kind.DECIMAL}:
        return decimals.remainder(call)
    if len(kinds) != 1 or (not call.type.is_integer and not call.type.is_float) or {call.type.kind} != kinds:
        return None
    integers = call.type.is_integer

    def kernel(a: Fixed, b: Fixed) -> Outcome:
        x, y = a.data, b.data
        zero = y == 0
        # Nothing is left after dividing by 1 or -1, and -1 would overflow on the lowest number.
        divisor = np.where(zero | (y == -1), y.dtype.type(1), y) if integers else y
        result = np.fmod(x, divisor)
        return checked(result, both(a.valid, b.valid), np.broadcast_to(zero, result.shape))

    return kernel


def _signed(operate: Callable[[Data], Data], on_decimals: Callable[[pa.Array], pa.Array]) -> Callable[[Call], Any]:
    """neg and abs: only the lowest integer has no counterpart."""

    def build(call: Call) -> Kernel | None:
        (arg,) = call.args
        if arg.type != call.type:
            return None
        if arg.type.is_float:
            return lambda a: Fixed(operate(a.data), a.valid)
        if arg.type.kind is Kind.DECIMAL:
            return on_decimals
        if arg.type.kind not in _INTEGERS:
            return None
        lowest = _LOWEST[32 if arg.type.kind in _NARROW else 64]
        return lambda a: checked(operate(a.data), a.valid, a.data == lowest)

    return build


def _sign(call: Call) -> Kernel | None:
    (arg,) = call.args
    if arg.type.is_float and arg.type == call.type:

        def of_floats(a: Fixed) -> Fixed:
            x = a.data
            return Fixed(np.where((x != x) | (x == 0), x, np.copysign(x.dtype.type(1), x)), a.valid)

        return of_floats
    if arg.type.is_integer and call.type.kind is Kind.INT:
        return lambda a: Fixed(np.sign(a.data).astype(np.int32), a.valid)
    return decimals.sign(arg.type) if arg.type.kind is Kind.DECIMAL else None


def _whole(operate: Callable[[Data], Data]) -> Callable[[Call], Kernel | None]:
    """floor and ceil."""

    def build(call: Call) -> Kernel | None:
        if call.type.kind is Kind.DECIMAL:
            return decimals.whole(call)
        if call.args[0].type != call.type:
            return None
        if call.type.is_integer:
            return lambda a: a
        return (lambda a: Fixed(operate(a.data), a.valid)) if call.type.is_float else None

    return build


def _rounding(call: Call) -> Kernel | None:
    """round and trunc to a constant number of digits.

    A float is scaled by a power of ten, rounded and scaled back, which gives the number as it is written unless scaling
    came close to where rounding turns: there, and where the scaled number has no room for a fraction, rows are suspect.
    The float nearest to a decimal of 15 digits or fewer is written as that decimal, so a half is known.
    """
    arg, places = call.args
    if not isinstance(places, Literal) or not isinstance(places.value, int):
        return None
    digits = places.value
    if arg.type.kind is Kind.DECIMAL:
        return decimals.rounding(call, digits)
    if arg.type != call.type:
        return None
    if arg.type.is_integer:
        return (lambda a, _: a) if digits >= 0 else None
    # Up to 22 a power of ten is exact.
    if not arg.type.is_float or abs(digits) > 22:
        return None
    power, dtype, halves = 10.0 ** abs(digits), DTYPES[arg.type.kind], call.function == "round"

    def kernel(a: Fixed, _: Fixed) -> Outcome:
        x = a.data.astype(np.float64, copy=False)
        exact = np.abs(x)
        size = exact * power if digits >= 0 else exact / power
        moved = np.floor(size + 0.5) if halves else np.floor(size)
        turn = np.floor(size) + 0.5 if halves else np.rint(size)
        close = (np.abs(size - turn) <= size * 2.0**-50) | (size >= 2.0**49)
        if halves:
            is_half = ((turn * 10.0 / (power * 10.0) if digits >= 0 else turn * power) == exact) & (turn < 1e14)
            moved, close = np.where(is_half, turn + 0.5, moved), close & ~is_half
        nearest = np.rint(size)
        unchanged = ((nearest / power if digits >= 0 else nearest * power) == exact) & (size < 2.0**52)
        # From 2**53 on there is no fraction to round.
        unchanged |= ~np.isfinite(x) | ((exact >= 2.0**53) & (digits >= 0))
        back = moved / power if digits >= 0 else moved * power
        result = np.copysign(np.where(unchanged, exact, back), x).astype(dtype, copy=False)
        return repaired(result, a.valid, close & ~unchanged)

    return kernel


def _library(name: str, fails: Callable[[Data], Bools] | None = None) -> Callable[[Call], Kernel | None]:
    """A function of one DOUBLE from the mathematics library."""
    function = getattr(pc, name, None)

    def build(call: Call) -> Kernel | None:
        if function is None or call.args[0].type.kind is not Kind.DOUBLE:
            return None

        def kernel(a: Fixed) -> Outcome:
            data = _through_arrow(function, a.data)
            return Fixed(data, a.valid) if fails is None else checked(data, a.valid, fails(a.data))

        return kernel

    return build


def _through_arrow(function: Callable[..., pa.Array], *data: Data) -> Data:
    args = [as_arrow(Fixed(d), pa.float64(), len(d)) if d.ndim else pa.scalar(float(d)) for d in data]
    return from_arrow(function(*args), _DOUBLE).data


def _power(call: Call) -> Kernel | None:
    if any(a.type.kind is not Kind.DOUBLE for a in call.args):
        return None

    def kernel(a: Fixed, b: Fixed) -> Outcome:
        x, y = a.data, b.data
        bad = (x < 0) & np.isfinite(x) & np.isfinite(y) & (y != np.floor(y))
        found = np.where((np.abs(x) == 1.0) & ~np.isfinite(y), np.nan, _through_arrow(pc.power, x, y))
        return checked(found, both(a.valid, b.valid), bad)

    return kernel


def _atan2(call: Call) -> Kernel | None:
    if any(a.type.kind is not Kind.DOUBLE for a in call.args):
        return None
    return lambda a, b: Fixed(_through_arrow(pc.atan2, a.data + 0.0, b.data + 0.0), both(a.valid, b.valid))


def _of_double(operate: Callable[[Data], Data]) -> Callable[[Call], Kernel | None]:
    def build(call: Call) -> Kernel | None:
        if call.args[0].type.kind is not Kind.DOUBLE:
            return None
        return lambda a: Fixed(operate(a.data), a.valid)

    return build


def _is_nan(call: Call) -> Kernel | None:
    """FALSE for NULL."""
    if call.args[0].type.kind is not Kind.DOUBLE:
        return None
    return lambda a: Fixed(np.isnan(a.data) if a.valid is None else np.isnan(a.data) & a.valid, None)


def _sqrt(call: Call) -> Kernel | None:
    if call.args[0].type.kind is not Kind.DOUBLE:
        return None
    return lambda a: checked(np.sqrt(a.data), a.valid, a.data < 0)


def _not_positive(x: Data) -> Bools:
    result: Bools = x <= 0
    return result


def _beyond_one(x: Data) -> Bools:
    result: Bools = np.abs(x) > 1
    return result


ARITHMETIC: dict[str, Callable[[Call], Kernel | None]] = {
    "+": _linear,
    "-": _linear,
    "*": _multiply,
    "/": _divide,
    "div": _integer_divide,
    "%": _remainder,
    "neg": _signed(np.negative, pc.negate),
    "abs": _signed(np.abs, pc.abs),
    "sign": _sign,
    # Adding 0.0 turns -0.0 into 0.0, and changes nothing else.
    "floor": _whole(lambda x: np.floor(x) + x.dtype.type(0)),
    "ceil": _whole(np.ceil),
    "round": _rounding,
    "trunc": _rounding,
    "sqrt": _sqrt,
    "exp": _library("exp"),
    "ln": _library("ln", _not_positive),
    "log10": _library("log10", _not_positive),
    "log2": _library("log2", _not_positive),
    "sin": _library("sin", np.isinf),
    "cos": _library("cos", np.isinf),
    "tan": _library("tan", np.isinf),
    "asin": _library("asin", _beyond_one),
    "acos": _library("acos", _beyond_one),
    "atan": _library("atan"),
    "atan2": _atan2,
    "power": _power,
    "degrees": _of_double(lambda x: x * (180.0 / math.pi)),
    "radians": _of_double(lambda x: x * (math.pi / 180.0)),
    "is_nan": _is_nan,
    "is_inf": _of_double(np.isinf),
    "is_finite": _of_double(np.isfinite),
}
