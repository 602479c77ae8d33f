"""What every aggregate means over the rows of a group: the slow truth.

Sums and spreads are computed exactly and rounded once, so they do not depend on the order of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

from penstock.model.types import DataType, Kind
from penstock.plan.nodes import AggregateCall
from penstock.scalar.context import Context, RowError
from penstock.scalar.numbers import fit
from penstock.scalar.order import hashable, order_key

Moment = tuple[object, ...]
Row = tuple[Moment, tuple[object, ...]]


def compute(call: AggregateCall, rows: Sequence[Row], context: Context | None = None) -> object:
    """The aggregate's value.

    Each row is its moment and the values of ``call.args`` on it, in any order; the caller has left out the
    rows for which ``call.where`` is not TRUE. Overflow gives NULL, counted in the context.
    """
    ordered = sorted(rows, key=lambda r: (r[0], tuple(order_key(v) for v in r[1])))
    values = [args for _, args in ordered]
    if call.function not in ("first", "last"):
        values = [args for args in values if all(v is not None for v in args)]
    if call.distinct:
        # Each value counts once, at its first moment.
        earliest: dict[object, tuple[object, ...]] = {}
        for args in values:
            earliest.setdefault(hashable(args), args)
        values = list(earliest.values())
    if call.function == "count":
        return len(values)
    try:
        return fit(_AGGREGATES[call.function](values, call), call.type)
    except RowError as e:
        return (context or Context()).fail(f"{call.function}: {e}")


def _first_args(values: Sequence[tuple[object, ...]]) -> list[object]:
    return [args[0] for args in values]


def _first(values: Sequence[tuple[object, ...]], call: AggregateCall) -> object:
    return values[0][0] if values else None


def _last(values: Sequence[tuple[object, ...]], call: AggregateCall) -> object:
    return values[-1][0] if values else None


def _min(values: Sequence[tuple[object, ...]], call: AggregateCall) -> object:
    return min(_first_args(values), key=order_key, default=None)


def _max(values: Sequence[tuple[object, ...]], call: AggregateCall) -> object:
    return max(_first_args(values), key=order_key, default=None)


def _collect(values: Sequence[tuple[object, ...]], call: AggregateCall) -> object:
    return tuple(_first_args(values))


def _sum(values: Sequence[tuple[object, ...]], call: AggregateCall) -> object:
    if not values:
        return None
    numbers = _first_args(values)
    if call.args[0].type.is_float:
        return float_sum([float(v) for v in numbers if isinstance(v, float)])
    return _as(call.type, sum((_fraction(v) for v in numbers), Fraction(0)))


def _avg(values: Sequence[tuple[object, ...]], call: AggregateCall) -> object:
    if not values:
        return None
    numbers = _first_args(values)
    if call.args[0].type.is_float:
        return float_sum([float(v) for v in numbers if isinstance(v, float)]) / len(numbers)
    return _as(call.type, sum((_fraction(v) for v in numbers), Fraction(0)) / len(numbers))


def float_sum(values: Sequence[float]) -> float:
    """The exact sum, rounded once; infinities and NaN as IEEE arithmetic has them."""
    special = [v for v in values if not math.isfinite(v)]
    if special:
        return sum(special)
    try:
        return math.fsum(values)
    except OverflowError:  # of an intermediate result
        return as_float(sum((Fraction(v) for v in values), Fraction(0)))


def as_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _fraction(value: object) -> Fraction:
    assert isinstance(value, int | Decimal)
    return Fraction(value)


def _as(dtype: DataType, exact: Fraction) -> object:
    """DECIMAL rounds half away from zero, INTERVAL to the nearest tick with ties to even."""
    if dtype.kind is Kind.DOUBLE:
        return as_float(exact)
    if dtype.kind is not Kind.DECIMAL:
        return round(exact)
    assert dtype.scale is not None
    scaled = abs(exact) * 10**dtype.scale
    whole = math.floor(scaled + Fraction(1, 2))
    sign = 1 if exact < 0 else 0
    return Decimal((sign, tuple(int(d) for d in str(whole)), -dtype.scale))


def _variance(values: Sequence[tuple[object, ...]], sample: bool) -> float | None:
    numbers = [float(v) for v in _first_args(values) if isinstance(v, float)]
    n = len(numbers)
    if n < (2 if sample else 1):
        return None
    if not all(math.isfinite(v) for v in numbers):
        return math.nan
    exact = [Fraction(v) for v in numbers]
    total = sum(exact, Fraction(0))
    squares = sum((v * v for v in exact), Fraction(0))
    return as_float((squares - total * total / n) / (n - 1 if sample else n))


def _deviation(values: Sequence[tuple[object, ...]], sample: bool) -> float | None:
    variance = _variance(values, sample)
    return None if variance is None else math.sqrt(variance)


def _quantile(values: Sequence[tuple[object, ...]], call: AggregateCall) -> object:
    """With n values in order, the one at (n - 1) * fraction, interpolated between its neighbours."""
    if not values:
        return None
    fraction = values[0][1]
    numbers = sorted((float(v) for v in _first_args(values) if isinstance(v, float)), key=order_key)
    assert isinstance(fraction, float)
    place = (len(numbers) - 1) * fraction
    below = math.floor(place)
    low, high = numbers[below], numbers[math.ceil(place)]
    # Equal neighbours are not subtracted: they may be infinite.
    return low if low == high else low + (high - low) * (place - below)


_AGGREGATES: dict[str, Callable[[Sequence[tuple[object, ...]], AggregateCall], object]] = {
    "sum": _sum,
    "avg": _avg,
    "min": _min,
    "max": _max,
    "first": _first,
    "last": _last,
    "collect": _collect,
    "variance": lambda values, _: _variance(values, sample=True),
    "var_pop": lambda values, _: _variance(values, sample=False),
    "stddev": lambda values, _: _deviation(values, sample=True),
    "stddev_pop": lambda values, _: _deviation(values, sample=False),
    "quantile": _quantile,
}
