"""Plain values, tuples, lists and dicts as Arrow columns, for what operators that go row by row save.

A ``Shape`` says what one column holds. It converts all values of the column in one pass, so that the work for each
value is done by Arrow and by the interpreter's own loops.

    INT, FLOAT, TEXT    numbers of 64 bits, and text
    BIG                 integers of any length
    Typed(type)         plain values of a column type, NULL among them
    Hashed(type)        the same as ``hashable`` makes them, for keys
    Ordered(type)       the same as ``order_key`` makes them
    Record(a, b)        tuples of two fields
    ListOf(a)           tuples of any length
    MapOf(a, b)         dicts
    OneOrNone(a)        a value or None
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise, repeat
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.model.schema import Schema
from penstock.model.types import DataType, Kind
from penstock.model.values import to_arrow, to_python
from penstock.operators.evaluation import has_nan
from penstock.operators.ordered import value_of
from penstock.operators.rows import Row
from penstock.scalar import hashable, order_key
from penstock.scalar.order import NAN

_ENTRY = "entry"


class Shape(ABC):
    """What a column holds."""

    @abstractmethod
    def array(self, values: Sequence[Any]) -> pa.Array:
        """The column of these values."""

    @abstractmethod
    def values(self, array: pa.Array) -> Sequence[Any]:
        """The values of such a column."""

    def table(self, values: Sequence[Any]) -> pa.Table:
        """A table of one such column."""
        return pa.table({_ENTRY: self.array(values)})

    def entries(self, table: pa.Table) -> Sequence[Any]:
        """The values of what ``table`` gave."""
        column = table.column(_ENTRY)
        return self.values(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())


class _Simple(Shape):
    def __init__(self, type: pa.DataType) -> None:
        self._type = type

    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self._type)

    def values(self, array: pa.Array) -> Sequence[Any]:
        return array.to_pylist() if self._type == pa.string() else array.to_numpy().tolist()  # type: ignore[no-any-return]


INT = _Simple(pa.int64())
FLOAT = _Simple(pa.float64())
TEXT = _Simple(pa.string())


class _Big(Shape):
    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array([v.to_bytes(v.bit_length() // 8 + 1, "little", signed=True) for v in values], pa.binary())

    def values(self, array: pa.Array) -> Sequence[Any]:
        return [int.from_bytes(v, "little", signed=True) for v in array.to_pylist()]


BIG = _Big()


class Typed(Shape):
    """Values of a column type."""

    def __init__(self, type: DataType) -> None:
        self._type = type

    def array(self, values: Sequence[Any]) -> pa.Array:
        return to_arrow(values, self._type)

    def values(self, array: pa.Array) -> Sequence[Any]:
        return to_python(array, self._type)


class Hashed(Typed):
    """Values of a column type as dict keys."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        return super().array([_not_hashed(v) for v in values] if has_nan(self._type) else values)

    def values(self, array: pa.Array) -> Sequence[Any]:
        found = super().values(array)
        return [hashable(v) for v in found] if has_nan(self._type) else found


class Ordered(Typed):
    """Values of a column type as ``order_key`` has them."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        if self._type.kind is Kind.ARRAY:
            return super().array([value_of(key) for key in values])
        return super().array([key[1] if key[0] == 1 else value_of(key) for key in values])

    def values(self, array: pa.Array) -> Sequence[Any]:
        found = super().values(array)
        if array.null_count or self._type.kind is Kind.ARRAY or has_nan(self._type):
            return [order_key(v) for v in found]
        return list(zip(repeat(1), found))


class Record(Shape):
    """Tuples with a shape for each field; ``make`` makes of an iterable what is wanted instead of a tuple."""

    def __init__(self, *fields: Shape, make: Callable[[Iterable[Any]], Any] | None = None) -> None:
        self._fields, self._make = fields, make

    def array(self, values: Sequence[Any]) -> pa.Array:
        if not self._fields:
            return pa.nulls(len(values))
        # Not zip(*values): it makes an iterator of each, and the garbage collector counts those.
        arrays = [field.array(list(map(itemgetter(i), values))) for i, field in enumerate(self._fields)]
        return pa.StructArray.from_arrays(arrays, [f"{i}" for i in range(len(arrays))])

    def values(self, array: pa.Array) -> Sequence[Any]:
        if not self._fields:
            return [()] * len(array)
        columns = [field.values(array.field(i)) for i, field in enumerate(self._fields)]
        rows = zip(*columns, strict=True)
        return list(rows if self._make is None else map(self._make, rows))


class ListOf(Shape):
    """Tuples of any length, of values of one shape."""

    def __init__(self, element: Shape) -> None:
        self._element = element

    def array(self, values: Sequence[Any]) -> pa.Array:
        return _lists(values, self._element.array(list(chain.from_iterable(values))))

    def values(self, array: pa.Array) -> Sequence[Any]:
        bounds, elements = _bounds(array)
        found = self._element.values(elements)
        return [tuple(found[a:b]) for a, b in bounds]


class OneOrNone(ListOf):
    """A value of a shape, or None."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        return super().array([() if value is None else (value,) for value in values])

    def values(self, array: pa.Array) -> Sequence[Any]:
        return [found[0] if found else None for found in super().values(array)]


class MapOf(Shape):
    """Dicts."""

    def __init__(self, key: Shape, value: Shape) -> None:
        self._key, self._value = key, value

    def array(self, values: Sequence[Any]) -> pa.Array:
        keys = self._key.array(list(chain.from_iterable(values)))
        content = self._value.array(list(chain.from_iterable(d.values() for d in values)))
        return _lists(values, pa.StructArray.from_arrays([keys, content], ["key", "value"]))

    def values(self, array: pa.Array) -> Sequence[Any]:
        bounds, items = _bounds(array)
        keys, content = self._key.values(items.field(0)), self._value.values(items.field(1))
        return [dict(zip(keys[a:b], content[a:b], strict=True)) for a, b in bounds]


MOMENT = Record(INT, INT)


def values_of(types: Iterable[DataType]) -> Record:
    """Tuples of values of these types."""
    return Record(*map(Typed, types))


def keys_of(types: Iterable[DataType]) -> Record:
    """Tuples of values of these types as ``hashable`` makes them."""
    return Record(*map(Hashed, types))


def row_of(schema: Schema) -> Record:
    """Rows of a schema."""
    return Record(values_of(f.type for f in schema), MOMENT, INT, INT, make=Row._make)


def _lists(values: Sequence[Any], content: pa.Array) -> pa.Array:
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=ends[1:])
    return pa.ListArray.from_arrays(pa.array(ends), content)


def _bounds(array: pa.Array) -> tuple[Iterable[tuple[int, int]], pa.Array]:
    """Where the values of each list begin and end, and the values of all."""
    offsets = array.offsets.to_numpy()
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return pairwise((offsets - first).tolist()), array.values.slice(first, last - first)


def _not_hashed(value: object) -> object:
    """The value of which this is the ``hashable``."""
    if value is NAN:
        return float("nan")
    return tuple(map(_not_hashed, value)) if isinstance(value, tuple) else value
