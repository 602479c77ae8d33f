"""The types of CQL and the Arrow types underneath.

One table, ``_ARROW``, says how each is stored. Row-at-a-time code (the reference) uses plain Python
values: bool, int, float, ``Decimal``, str, bytes; DATE is days since 1970-01-01, TIMESTAMP and
INTERVAL are microseconds, all as int; ARRAY is a tuple.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pyarrow as pa

TICKS_PER_SECOND = 1_000_000


class Kind(Enum):
    """What a type is, without its parameters."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    REAL = "REAL"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    STRING = "STRING"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    INTERVAL = "INTERVAL"
    ARRAY = "ARRAY"

    __hash__ = object.__hash__  # each is there once; that of Enum is slow, and each column of each push asks for it


@dataclass(frozen=True)
class DataType:
    """A type: its kind, and precision and scale of DECIMAL or the element of ARRAY."""

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    element: DataType | None = None

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.kind is Kind.ARRAY:
            return f"ARRAY<{self.element}>"
        return str(self.kind.value)

    @cached_property
    def arrow(self) -> pa.DataType:
        """The Arrow type that stores values of this type."""
        if self.kind is Kind.DECIMAL:
            return pa.decimal128(self.precision or 38, self.scale or 0)
        if self.kind is Kind.ARRAY:
            assert self.element is not None
            return pa.list_(self.element.arrow)
        return _ARROW[self.kind]

    @cached_property
    def is_integer(self) -> bool:
        return self.kind in (Kind.INT, Kind.BIGINT)

    @cached_property
    def is_float(self) -> bool:
        return self.kind in (Kind.REAL, Kind.DOUBLE)

    @cached_property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_float or self.kind is Kind.DECIMAL


_ARROW: dict[Kind, pa.DataType] = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.REAL: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.INTERVAL: pa.duration("us"),
}

NULL = DataType(Kind.NULL)
BOOLEAN = DataType(Kind.BOOLEAN)
INT = DataType(Kind.INT)
BIGINT = DataType(Kind.BIGINT)
REAL = DataType(Kind.REAL)
DOUBLE = DataType(Kind.DOUBLE)
STRING = DataType(Kind.STRING)
BINARY = DataType(Kind.BINARY)
DATE = DataType(Kind.DATE)
TIMESTAMP = DataType(Kind.TIMESTAMP)
INTERVAL = DataType(Kind.INTERVAL)


_DAY = 86_400 * TICKS_PER_SECOND
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
# The values that each kind of whole numbers has. Days and instants are those of the years 1 to 9999, as in Spark: so
# every one of them is a date or datetime of Python.
RANGES: dict[Kind, tuple[int, int]] = {
    Kind.INT: (-(2**31), 2**31 - 1),
    Kind.BIGINT: (-(2**63), 2**63 - 1),
    Kind.DATE: (_FIRST_DAY, _LAST_DAY),
    Kind.TIMESTAMP: (_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1),
    Kind.INTERVAL: (-(2**63), 2**63 - 1),
}


def decimal(precision: int, scale: int) -> DataType:
    """DECIMAL(precision, scale), limited to what Arrow's 128 bits hold."""
    precision = max(1, min(38, precision))
    return DataType(Kind.DECIMAL, precision, max(0, min(scale, precision)))


def array(element: DataType) -> DataType:
    """ARRAY of the given element type."""
    return DataType(Kind.ARRAY, element=element)


def as_decimal(dtype: DataType) -> DataType:
    """The DECIMAL wide enough for an integer type; a DECIMAL is itself."""
    if dtype.kind is Kind.INT:
        return decimal(10, 0)
    if dtype.kind is Kind.BIGINT:
        return decimal(19, 0)
    return dtype


def common_type(left: DataType, right: DataType) -> DataType | None:
    """The type both sides are brought to before they are compared or combined, if there is one."""
    if left == right:
        return left
    if left.kind is Kind.NULL:
        return right
    if right.kind is Kind.NULL:
        return left
    if left.is_numeric and right.is_numeric:
        if left.is_float or right.is_float:
            return REAL if left.kind is right.kind is Kind.REAL else DOUBLE
        if Kind.DECIMAL in (left.kind, right.kind):
            a, b = as_decimal(left), as_decimal(right)
            whole = max((a.precision or 0) - (a.scale or 0), (b.precision or 0) - (b.scale or 0))
            scale = max(a.scale or 0, b.scale or 0)
            return decimal(whole + scale, scale)
        return BIGINT
    if {left.kind, right.kind} == {Kind.DATE, Kind.TIMESTAMP}:
        return TIMESTAMP
    if left.element is not None and right.element is not None:
        element = common_type(left.element, right.element)
        return None if element is None else array(element)
    return None


def from_arrow(dtype: pa.DataType) -> DataType | None:
    """The CQL type that values of an Arrow type are read as, or None where there is none."""
    t = pa.types
    if t.is_null(dtype):
        return NULL
    if t.is_boolean(dtype):
        return BOOLEAN
    if t.is_int8(dtype) or t.is_int16(dtype) or t.is_int32(dtype) or t.is_uint8(dtype) or t.is_uint16(dtype):
        return INT
    if t.is_integer(dtype):
        return BIGINT
    if t.is_float16(dtype) or t.is_float32(dtype):
        return REAL
    if t.is_float64(dtype):
        return DOUBLE
    if t.is_decimal(dtype):
        return decimal(dtype.precision, dtype.scale) if dtype.precision <= 38 else None
    if t.is_string(dtype) or t.is_large_string(dtype) or t.is_string_view(dtype):
        return STRING
    if t.is_dictionary(dtype):
        return from_arrow(dtype.value_type)
    if t.is_binary(dtype) or t.is_large_binary(dtype) or t.is_fixed_size_binary(dtype):
        return BINARY
    if t.is_date(dtype):
        return DATE
    if t.is_timestamp(dtype):
        return TIMESTAMP
    if t.is_duration(dtype):
        return INTERVAL
    if t.is_list(dtype) or t.is_large_list(dtype):
        element = from_arrow(dtype.value_type)
        return None if element is None else array(element)
    return None
