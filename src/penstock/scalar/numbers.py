"""Numbers within their types: ranges, rounding, and the functions of arithmetic."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

from penstock.model.types import RANGES, DataType, Kind
from penstock.scalar.context import RowError

Number = int | float | Decimal

# Wide enough for the exact product of two 38-digit numbers.
_EXACT = Context(prec=120)
# Wide enough for all digits of a float.
_LONG = Context(prec=800)


def fit(value: object, dtype: DataType) -> object:
    """The value as its type stores it: REAL rounded, DECIMAL at its scale; what does not fit fails."""
    if value is None:
        return None
    kind = dtype.kind
    if kind in RANGES:
        assert isinstance(value, int)
        least, most = RANGES[kind]
        if not least <= value <= most:
            if kind in (Kind.DATE, Kind.TIMESTAMP):
                raise RowError(f"the {dtype} is beyond the years 1 to 9999")
            raise RowError(f"{value} is out of range of {dtype}")
        return value
    if kind is Kind.REAL:
        assert isinstance(value, float)
        return ctypes.c_float(value).value
    if kind is Kind.DECIMAL:
        assert isinstance(value, Decimal | int)
        return fit_decimal(Decimal(value), dtype)
    return value


def fit_decimal(value: Decimal, dtype: DataType) -> Decimal:
    """Rounded half away from zero to the scale of the type; too many digits fail."""
    assert dtype.precision is not None
    assert dtype.scale is not None
    if not value:
        return Decimal(0).scaleb(-dtype.scale)
    if not value.is_finite() or value.adjusted() >= dtype.precision - dtype.scale:
        raise RowError(f"{value} is out of range of {dtype}")
    scaled = value.quantize(Decimal(1).scaleb(-dtype.scale), rounding=ROUND_HALF_UP, context=_EXACT)
    if len(scaled.as_tuple().digits) > dtype.precision:
        raise RowError(f"{value} is out of range of {dtype}")
    # A negative number may round to -0, which equals 0 but prints otherwise.
    return scaled if scaled else abs(scaled)


def _decimals(a: Number, b: Number) -> bool:
    return isinstance(a, Decimal) or isinstance(b, Decimal)


def add(a: Number, b: Number) -> Number:
    return _EXACT.add(a, b) if _decimals(a, b) else a + b  # type: ignore[operator,arg-type]


def subtract(a: Number, b: Number) -> Number:
    return _EXACT.subtract(a, b) if _decimals(a, b) else a - b  # type: ignore[operator,arg-type]


def multiply(a: Number, b: Number) -> Number:
    return _EXACT.multiply(a, b) if _decimals(a, b) else a * b  # type: ignore[operator,arg-type]


def scale_interval(ticks: int, factor: int | float) -> int:
    """INTERVAL * number, to the nearest tick, ties to even."""
    return nearest(ticks * factor)


def divide_interval(ticks: int, divisor: float) -> int:
    """INTERVAL / number, to the nearest tick, ties to even."""
    return nearest(divide(float(ticks), divisor))


def nearest(value: int | float) -> int:
    """The nearest integer, ties to even."""
    if isinstance(value, float) and not math.isfinite(value):
        raise RowError(f"{value} has no nearest integer")
    return round(value)


def divide(a: float, b: float) -> float:
    if b == 0.0:
        raise RowError("division by zero")
    return a / b


def integer_divide(a: Number, b: Number) -> int:
    """The quotient without its fraction."""
    if b == 0:
        raise RowError("division by zero")
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    if _decimals(a, b):
        return int(_EXACT.divide_int(Decimal(a), Decimal(b)))
    return truncate_to_int(float(a) / float(b))


def integer(value: Number) -> Number:
    """What an INT or BIGINT column takes of other numbers: those without a fraction."""
    if math.isfinite(value) and value != math.trunc(value):
        raise RowError(f"{value} is not a whole number; write round(…), or CAST(… AS INT) to cut the fraction off")
    return value


def truncate_to_int(value: float) -> int:
    if not math.isfinite(value):
        raise RowError(f"{value} is not an integer")
    return math.trunc(value)


def remainder(a: Number, b: Number) -> Number:
    """What is left after ``integer_divide``; it has the sign of the dividend."""
    if b == 0:
        raise RowError("division by zero")
    if isinstance(a, int) and isinstance(b, int):
        return a - b * integer_divide(a, b)
    if _decimals(a, b):
        return _EXACT.remainder(Decimal(a), Decimal(b))
    if math.isinf(float(a)):
        return math.nan
    return math.fmod(float(a), float(b))


def negate(a: Number) -> Number:
    return a.copy_negate() if isinstance(a, Decimal) and a else -a


def absolute(a: Number) -> Number:
    return a.copy_abs() if isinstance(a, Decimal) else abs(a)


def sign(a: Number) -> Number:
    if isinstance(a, float):
        return a if a != a or a == 0.0 else math.copysign(1.0, a)
    return (a > 0) - (a < 0)


def floor(a: Number) -> Number:
    if isinstance(a, float):
        return float(math.floor(a)) if math.isfinite(a) else a
    return math.floor(a)


def ceil(a: Number) -> Number:
    if isinstance(a, float):
        # ceil(-0.5) is -0.0 in IEEE arithmetic, which an int cannot say.
        return math.copysign(float(math.ceil(a)), a) if math.isfinite(a) else a
    return math.ceil(a)


def round_to(a: Number, digits: int = 0) -> Number:
    """Half away from zero. A float is rounded as it is written: 2.675 to two digits is 2.68."""
    return _to_digit(a, digits, ROUND_HALF_UP)


def trunc_to(a: Number, digits: int = 0) -> Number:
    """Toward zero, otherwise as ``round_to``."""
    return _to_digit(a, digits, ROUND_DOWN)


def _to_digit(a: Number, digits: int, rounding: str) -> Number:
    if isinstance(a, float):
        if not math.isfinite(a) or digits > 400:
            return a
        return math.copysign(float(_at_digit(Decimal(repr(a)), digits, rounding)), a)
    if isinstance(a, Decimal):
        return _at_digit(a, digits, rounding)
    return int(_at_digit(Decimal(a), min(digits, 0), rounding))


def _at_digit(a: Decimal, digits: int, rounding: str) -> Decimal:
    exponent = a.as_tuple().exponent
    assert isinstance(exponent, int)
    if digits >= -exponent:
        return a
    if digits < -400:
        return Decimal(0)
    return a.quantize(Decimal(1).scaleb(-digits), rounding=rounding, context=_LONG)


def power(a: float, b: float) -> float:
    """0 to a negative power is infinite, a negative number to a fraction has no value, 1 to an infinite one is NaN."""
    if abs(a) == 1.0 and not math.isfinite(b):
        return math.nan
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a == 0.0:
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        raise RowError(f"{a} to the power of {b} is not a real number") from None


def exp(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def logarithm(base: float, a: float) -> float:
    return divide(in_domain("log", math.log)(a), in_domain("log", math.log)(base))


def angle(y: float, x: float) -> float:
    """atan2, for which -0.0 is 0.0."""
    return math.atan2(y + 0.0, x + 0.0)


def in_domain(name: str, function: Callable[[float], float]) -> Callable[[float], float]:
    """The function of ``math``, failing on the row where it has no value; NaN stays NaN."""

    def call(a: float) -> float:
        try:
            return function(a)
        except ValueError:
            raise RowError(f"{name}({a}) has no value") from None

    return call
