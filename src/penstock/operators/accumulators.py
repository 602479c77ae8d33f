"""Aggregates of one group that rows enter and leave: always exactly what ``aggregates.compute`` gives.

An accumulator is told the arguments and moments of rows; NULL arguments and FILTER are dealt with before. Sums are
kept exactly, as integers: a finite double is a whole multiple of 2**-1074. Adding and removing therefore leave no
trace, and each value is rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import Any, Protocol

from penstock.model.delta import Instant
from penstock.model.types import DataType, Kind
from penstock.operators.evaluation import Values, order_keys
from penstock.operators.ordered import SortedBag, value_of
from penstock.operators.shapes import BIG, FLOAT, INT, MOMENT, TEXT, ListOf, MapOf, Ordered, Record, Shape, keys_of
from penstock.plan.nodes import AggregateCall
from penstock.scalar import hashable, order_key
from penstock.scalar.order import OrderKey

_BITS = 1074
_ONE = 1 << _BITS


class Accumulator(Protocol):
    """The rows of a group that an aggregate is over."""

    def add(self, args: Values, moment: Instant) -> None: ...

    def remove(self, args: Values, moment: Instant) -> None: ...

    def value(self) -> object:
        """The aggregate, before it is fitted into its type."""

    def saved(self) -> object:
        """What is remembered, as plain values, tuples and dicts of its own, of the shape that ``shape_of`` says."""

    def restore(self, saved: Any) -> None:
        """Go on, when fresh, from what was saved."""


class Count:
    """How many rows."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, args: Values, moment: Instant) -> None:
        self.rows += 1

    def remove(self, args: Values, moment: Instant) -> None:
        self.rows -= 1

    def value(self) -> object:
        return self.rows

    def saved(self) -> object:
        return self.rows

    def restore(self, saved: Any) -> None:
        self.rows = saved


class ExactSum:
    """Sum or average of integers, intervals or decimals, as an integer of the smallest unit."""

    def __init__(self, call: AggregateCall, average: bool) -> None:
        self._unit: int = 10 ** (call.args[0].type.scale or 0)
        self._type = call.type
        self._average = average
        self._total = 0
        self._rows = 0

    def _units(self, value: object) -> int:
        if isinstance(value, int):
            return value * self._unit
        assert isinstance(value, Decimal)
        numerator, denominator = value.as_integer_ratio()
        return numerator * self._unit // denominator

    def add(self, args: Values, moment: Instant) -> None:
        self._total += self._units(args[0])
        self._rows += 1

    def remove(self, args: Values, moment: Instant) -> None:
        self._total -= self._units(args[0])
        self._rows -= 1

    def value(self) -> object:
        if not self._rows:
            return None
        return _rounded(self._total, self._unit * (self._rows if self._average else 1), self._type)

    def saved(self) -> object:
        return self._total, self._rows

    def restore(self, saved: Any) -> None:
        self._total, self._rows = saved


class FloatSum:
    """Sum or average of REAL or DOUBLE; infinities and NaN are counted apart."""

    def __init__(self, average: bool = False) -> None:
        self._average = average
        self.rows = 0
        self.total = 0
        self.special: dict[str, int] = {}

    def add(self, args: Values, moment: Instant) -> None:
        self._change(args[0], 1)

    def remove(self, args: Values, moment: Instant) -> None:
        self._change(args[0], -1)

    def _change(self, value: object, by: int) -> None:
        assert isinstance(value, float)
        self.rows += by
        if math.isfinite(value):
            self.total += by * _scaled(value)
            return
        name = repr(value)
        self.special[name] = self.special.get(name, 0) + by
        if not self.special[name]:
            del self.special[name]

    def value(self) -> object:
        if not self.rows:
            return None
        total = sum(float(name) for name in self.special) if self.special else _divided(self.total, _ONE)
        return total / self.rows if self._average else total

    def saved(self) -> object:
        return self.rows, _short(self.total), dict(self.special)

    def restore(self, saved: Any) -> None:
        self.rows, total, self.special = saved
        self.total = _long(total)


class Spread(FloatSum):
    """Variance or standard deviation, from the exact sum and the exact sum of squares."""

    def __init__(self, sample: bool, root: bool) -> None:
        super().__init__()
        self._sample = sample
        self._root = root
        self._squares = 0

    def _change(self, value: object, by: int) -> None:
        super()._change(value, by)
        assert isinstance(value, float)
        if math.isfinite(value):
            self._squares += by * _scaled(value) ** 2

    def value(self) -> object:
        n = self.rows
        if n < (2 if self._sample else 1):
            return None
        if self.special:
            return math.nan
        divisor = n * (n - 1 if self._sample else n)
        variance = _divided(n * self._squares - self.total**2, divisor << 2 * _BITS)
        return math.sqrt(variance) if self._root else variance

    def saved(self) -> object:
        return super().saved(), _short(self._squares)

    def restore(self, saved: Any) -> None:
        sums, squares = saved
        super().restore(sums)
        self._squares = _long(squares)


class Extreme:
    """Least or greatest in value order."""

    def __init__(self, greatest: bool) -> None:
        self._greatest = greatest
        self._counts: dict[OrderKey, int] = {}
        self._keys: SortedBag[OrderKey] = SortedBag()

    def add(self, args: Values, moment: Instant) -> None:
        key = order_key(args[0])
        count = self._counts.get(key, 0)
        if not count:
            self._keys.add(key)
        self._counts[key] = count + 1

    def remove(self, args: Values, moment: Instant) -> None:
        key = order_key(args[0])
        if self._counts[key] > 1:
            self._counts[key] -= 1
        else:
            del self._counts[key]
            self._keys.remove(key)

    def value(self) -> object:
        if not self._keys:
            return None
        return value_of(self._keys.greatest if self._greatest else self._keys.least)

    def saved(self) -> object:
        return dict(self._counts)

    def restore(self, saved: Any) -> None:
        self._counts = saved
        self._keys = SortedBag(self._counts)


class Quantile:
    """The value at a fraction of the way through the values in order."""

    def __init__(self) -> None:
        self._keys: SortedBag[OrderKey] = SortedBag()
        self._fraction = 0.0

    def add(self, args: Values, moment: Instant) -> None:
        assert isinstance(args[1], float)
        self._fraction = args[1]
        self._keys.add(order_key(args[0]))

    def remove(self, args: Values, moment: Instant) -> None:
        self._keys.remove(order_key(args[0]))

    def value(self) -> object:
        if not self._keys:
            return None
        place = (len(self._keys) - 1) * self._fraction
        below = math.floor(place)
        low, high = value_of(self._keys[below]), value_of(self._keys[math.ceil(place)])
        assert isinstance(low, float)
        assert isinstance(high, float)
        return low if low == high else low + (high - low) * (place - below)

    def saved(self) -> object:
        return self._fraction, tuple(self._keys)

    def restore(self, saved: Any) -> None:
        self._fraction, keys = saved
        self._keys = SortedBag(keys)


class InOrder:
    """First, last or all of the values by (moment, value)."""

    def __init__(self, which: str) -> None:
        self._which = which
        self._rows: SortedBag[tuple[Instant, tuple[OrderKey, ...]]] = SortedBag()

    def add(self, args: Values, moment: Instant) -> None:
        self._rows.add((moment, order_keys(args)))

    def remove(self, args: Values, moment: Instant) -> None:
        self._rows.remove((moment, order_keys(args)))

    def value(self) -> object:
        if self._which == "collect":
            return tuple([value_of(keys[0]) for _, keys in self._rows])
        if not self._rows:
            return None
        return value_of((self._rows.least if self._which == "first" else self._rows.greatest)[1][0])

    def saved(self) -> object:
        return tuple(self._rows)

    def restore(self, saved: Any) -> None:
        self._rows = SortedBag(saved)


class DistinctValues:
    """Tells another accumulator of each different value once."""

    def __init__(self, inner: Accumulator) -> None:
        self._inner = inner
        self._counts: dict[Hashable, int] = {}

    def add(self, args: Values, moment: Instant) -> None:
        key = hashable(args)
        count = self._counts.get(key, 0)
        if not count:
            self._inner.add(args, moment)
        self._counts[key] = count + 1

    def remove(self, args: Values, moment: Instant) -> None:
        key = hashable(args)
        if self._counts[key] > 1:
            self._counts[key] -= 1
        else:
            del self._counts[key]
            self._inner.remove(args, moment)

    def value(self) -> object:
        return self._inner.value()

    def saved(self) -> object:
        return self._inner.saved(), dict(self._counts)

    def restore(self, saved: Any) -> None:
        inner, self._counts = saved
        self._inner.restore(inner)


class EarliestOfEach:
    """Tells an accumulator that goes by moments of each different value once, at its earliest moment."""

    def __init__(self, inner: Accumulator) -> None:
        self._inner = inner
        self._moments: dict[Hashable, SortedBag[Instant]] = {}

    def add(self, args: Values, moment: Instant) -> None:
        moments = self._moments.setdefault(hashable(args), SortedBag())
        if not moments or moment < moments.least:
            if moments:
                self._inner.remove(args, moments.least)
            self._inner.add(args, moment)
        moments.add(moment)

    def remove(self, args: Values, moment: Instant) -> None:
        key = hashable(args)
        moments = self._moments[key]
        moments.remove(moment)
        if not moments:
            del self._moments[key]
            self._inner.remove(args, moment)
        elif moment < moments.least:
            self._inner.remove(args, moment)
            self._inner.add(args, moments.least)

    def value(self) -> object:
        return self._inner.value()

    def saved(self) -> object:
        return self._inner.saved(), {key: tuple(moments) for key, moments in self._moments.items()}

    def restore(self, saved: Any) -> None:
        inner, moments = saved
        self._inner.restore(inner)
        self._moments = {key: SortedBag(of_key) for key, of_key in moments.items()}


GOES_BY_MOMENT = frozenset({"first", "last", "collect"})
"""The aggregates that depend on the order in which rows came."""

_MAKE: dict[str, Callable[[AggregateCall], Accumulator]] = {
    "count": lambda call: Count(),
    "sum": lambda call: FloatSum() if call.args[0].type.is_float else ExactSum(call, average=False),
    "avg": lambda call: FloatSum(average=True) if call.args[0].type.is_float else ExactSum(call, average=True),
    "min": lambda call: Extreme(greatest=False),
    "max": lambda call: Extreme(greatest=True),
    "variance": lambda call: Spread(sample=True, root=False),
    "var_pop": lambda call: Spread(sample=False, root=False),
    "stddev": lambda call: Spread(sample=True, root=True),
    "stddev_pop": lambda call: Spread(sample=False, root=True),
    "quantile": lambda call: Quantile(),
    "first": lambda call: InOrder("first"),
    "last": lambda call: InOrder("last"),
    "collect": lambda call: InOrder("collect"),
}


_EXACT = Record(BIG, INT)
_FLOAT = Record(INT, _EXACT, MapOf(TEXT, INT))


def _sum(call: AggregateCall) -> Shape:
    return _FLOAT if call.args[0].type.is_float else _EXACT


def _spread(call: AggregateCall) -> Shape:
    return Record(_FLOAT, _EXACT)


def _counts(call: AggregateCall) -> Shape:
    return MapOf(Ordered(call.args[0].type), INT)


def _rows(call: AggregateCall) -> Shape:
    return ListOf(Record(MOMENT, Record(*[Ordered(a.type) for a in call.args])))


_SHAPES: dict[str, Callable[[AggregateCall], Shape]] = {
    "count": lambda call: INT,
    "sum": _sum,
    "avg": _sum,
    "min": _counts,
    "max": _counts,
    "variance": _spread,
    "var_pop": _spread,
    "stddev": _spread,
    "stddev_pop": _spread,
    "quantile": lambda call: Record(FLOAT, ListOf(Ordered(call.args[0].type))),
    "first": _rows,
    "last": _rows,
    "collect": _rows,
}


def shape_of(call: AggregateCall) -> Shape:
    """What the accumulator for a call saves."""
    inner = _SHAPES[call.function](call)
    if not call.distinct:
        return inner
    each = ListOf(MOMENT) if call.function in GOES_BY_MOMENT else INT
    return Record(inner, MapOf(keys_of(a.type for a in call.args), each))


def accumulator(call: AggregateCall) -> Accumulator:
    """An empty accumulator for a call."""
    inner = _MAKE[call.function](call)
    if not call.distinct:
        return inner
    return EarliestOfEach(inner) if call.function in GOES_BY_MOMENT else DistinctValues(inner)


def _scaled(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_BITS + 1 - denominator.bit_length())


def _short(number: int) -> tuple[int, int]:
    """A number that ends in many zero bits, without them."""
    zeros = (number & -number).bit_length() - 1 if number else 0
    return number >> zeros, zeros


def _long(short: tuple[int, int]) -> int:
    return short[0] << short[1]


def _divided(numerator: int, denominator: int) -> float:
    """Rounded once; beyond the range of a double, infinite."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _rounded(numerator: int, denominator: int, dtype: DataType) -> object:
    """DECIMAL rounds half away from zero, whole numbers to the nearest with ties to even."""
    if dtype.kind is Kind.DOUBLE:
        return _divided(numerator, denominator)
    unit = 10 ** (dtype.scale or 0)
    whole, rest = divmod(abs(numerator) * unit, denominator)
    if dtype.kind is not Kind.DECIMAL:
        whole += 2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1)
        return -whole if numerator < 0 else whole
    whole += 2 * rest >= denominator
    digits = tuple(int(d) for d in str(whole))
    return Decimal((1 if numerator < 0 else 0, digits, -(dtype.scale or 0)))
