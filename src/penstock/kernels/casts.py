"""CAST between types, where a vectorised form gives exactly the values of ``scalar.casts``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels import decimals
from penstock.kernels.vectors import DTYPES, Data, Fixed, Partial, as_arrow, checked, from_arrow, repaired
from penstock.kernels.zones import zone_table
from penstock.model.types import DataType, Kind
from penstock.scalar.calendar import DAY
from penstock.scalar.casts import is_zoned
from penstock.scalar.zones import UTC

Kernel = Callable[[Any], Any]
Outcome = Fixed | Partial

_INTEGERS = (Kind.INT, Kind.BIGINT)
_FLOATS = (Kind.REAL, Kind.DOUBLE)
_MOST_DAYS = (2**63 - 1) // DAY
_LEAST_DAYS = -(2**63 // DAY)
# Texts on which Arrow's parsers surely agree with ours: no blanks, no plus, nothing that overflows.
_PLAIN_INTEGER = r"\A-?[0-9]{1,18}\z"
_PLAIN_DATE = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_PLAIN_TIMESTAMP = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?\z"
_PLAIN_FLOAT = r"\A-?[0-9]{1,100}(\.[0-9]{1,100})?([eE]-?[0-9]{1,2})?\z"


def cast_kernel(source: DataType, target: DataType, zone: str = UTC) -> Kernel | None:
    """The kernel of a conversion, by clocks of a zone, if it has one."""
    if source == target:
        return lambda a: a
    if source.kind is Kind.NULL:
        arrow = target.arrow
        return None if target.kind in DTYPES else lambda a: pa.nulls(len(a), arrow)
    if zone != UTC and is_zoned(source, target):
        return _ZONED[source.kind, target.kind](zone) if (source.kind, target.kind) in _ZONED else None
    make = CASTS.get((source.kind, target.kind))
    return None if make is None else make(source, target)


def _as(*dtypes: Any) -> Callable[[DataType, DataType], Kernel]:
    """By way of these numpy types."""

    def convert(a: Fixed) -> Fixed:
        data: Data = a.data
        for dtype in dtypes:
            data = data.astype(dtype)
        return Fixed(data, a.valid)

    return lambda source, target: convert


def _same(source: DataType, target: DataType) -> Kernel:
    return lambda a: Fixed(a.data, a.valid)


def _to_int(source: DataType, target: DataType) -> Kernel:
    def kernel(a: Fixed) -> Outcome:
        fitting = a.data.astype(np.int32)
        return checked(fitting, a.valid, fitting != a.data)

    return kernel


def _float_to_integer(source: DataType, target: DataType) -> Kernel:
    dtype = DTYPES[target.kind]
    bound = 2.0 ** (8 * dtype.itemsize - 1)

    def kernel(a: Fixed) -> Outcome:
        whole = np.trunc(a.data.astype(np.float64, copy=False))
        good = (whole >= -bound) & (whole < bound)
        return checked(np.where(good, whole, 0.0).astype(dtype), a.valid, ~good)

    return kernel


def _is_not_zero(source: DataType, target: DataType) -> Kernel:
    return lambda a: Fixed(a.data != 0, a.valid)


def _days_to_ticks(source: DataType, target: DataType) -> Kernel:
    def kernel(a: Fixed) -> Outcome:
        days = a.data.astype(np.int64)
        return checked(days * DAY, a.valid, (days > _MOST_DAYS) | (days < _LEAST_DAYS))

    return kernel


def _ticks_to_days(source: DataType, target: DataType) -> Kernel:
    return lambda a: Fixed((a.data // DAY).astype(np.int32), a.valid)


def _days_to_instants(zone: str) -> Kernel:
    table = zone_table(zone)

    def kernel(a: Fixed) -> Outcome:
        days = a.data.astype(np.int64)
        found, far = table.instant(days * DAY)
        return repaired(found, a.valid, far | (days > _MOST_DAYS) | (days < _LEAST_DAYS))

    return kernel


def _instants_to_days(zone: str) -> Kernel:
    table = zone_table(zone)

    def kernel(a: Fixed) -> Outcome:
        shown, far = table.local(a.data)
        return repaired((shown // DAY).astype(np.int32), a.valid, far)

    return kernel


_ZONED: dict[tuple[Kind, Kind], Callable[[str], Kernel]] = {
    (Kind.DATE, Kind.TIMESTAMP): _days_to_instants,
    (Kind.TIMESTAMP, Kind.DATE): _instants_to_days,
}


def _to_text(source: DataType, target: DataType) -> Kernel:
    arrow = source.arrow
    return lambda a: pc.cast(as_arrow(a, arrow, len(a.data)), pa.string())


def _text_to_number(pattern: str, number: pa.DataType) -> Callable[[DataType, DataType], Kernel]:
    """Plain texts by Arrow; where one is not plain, the kernel declines."""
    dtype = np.dtype(number.to_pandas_dtype())

    def make(source: DataType, target: DataType) -> Kernel:
        narrow = DTYPES[target.kind]

        def kernel(a: pa.Array) -> Outcome | None:
            if pc.all(pc.match_substring_regex(a, pattern=pattern)).as_py() is False:
                return None
            found = from_arrow(pc.cast(a, number), dtype)
            data = found.data.astype(narrow)
            if target.kind is Kind.INT:
                return checked(data, found.valid, data != found.data)
            return Fixed(data, found.valid)

        return kernel

    return make


def _text_to_time(pattern: str) -> Callable[[DataType, DataType], Kernel]:
    """Plain texts by Arrow; where one is not plain, or there is no such day, the kernel declines."""

    def make(source: DataType, target: DataType) -> Kernel:
        def kernel(a: pa.Array) -> Fixed | None:
            if pc.all(pc.match_substring_regex(a, pattern=pattern)).as_py() is False:
                return None
            try:
                return from_arrow(pc.cast(a, target.arrow), DTYPES[target.kind])
            except pa.ArrowInvalid:
                return None

        return kernel

    return make


def _text_to_bytes(source: DataType, target: DataType) -> Kernel:
    return lambda a: pc.cast(a, pa.binary())


def _bytes_to_text(source: DataType, target: DataType) -> Kernel:
    def kernel(a: pa.Array) -> pa.Array | None:
        try:
            return pc.cast(a, pa.string())
        except pa.ArrowInvalid:  # some of it is not UTF-8
            return None

    return kernel


CASTS: dict[tuple[Kind, Kind], Callable[[DataType, DataType], Kernel | None]] = {
    (Kind.BOOLEAN, Kind.INT): _as(np.int32),
    (Kind.BOOLEAN, Kind.BIGINT): _as(np.int64),
    (Kind.BOOLEAN, Kind.STRING): _to_text,
    **{(i, Kind.BOOLEAN): _is_not_zero for i in _INTEGERS},
    **{(i, Kind.STRING): _to_text for i in _INTEGERS},
    **{(i, Kind.DOUBLE): _as(np.float64) for i in _INTEGERS},
    # As in ``scalar``, by way of DOUBLE: rounding twice may give another number than rounding once.
    **{(i, Kind.REAL): _as(np.float64, np.float32) for i in _INTEGERS},
    (Kind.INT, Kind.BIGINT): _as(np.int64),
    (Kind.BIGINT, Kind.INT): _to_int,
    **{(i, Kind.DECIMAL): decimals.from_integer for i in _INTEGERS},
    **{(Kind.DECIMAL, i): decimals.to_integer for i in _INTEGERS},
    **{(Kind.DECIMAL, f): decimals.to_float for f in _FLOATS},
    (Kind.DECIMAL, Kind.DECIMAL): decimals.to_decimal,
    (Kind.DECIMAL, Kind.STRING): decimals.to_text,
    **{(f, i): _float_to_integer for f in _FLOATS for i in _INTEGERS},
    (Kind.REAL, Kind.DOUBLE): _as(np.float64),
    (Kind.DOUBLE, Kind.REAL): _as(np.float32),
    **{(Kind.INT, t): _as(np.int64) for t in (Kind.TIMESTAMP, Kind.INTERVAL)},
    **{(Kind.BIGINT, t): _same for t in (Kind.TIMESTAMP, Kind.INTERVAL)},
    **{(t, Kind.BIGINT): _same for t in (Kind.TIMESTAMP, Kind.INTERVAL)},
    (Kind.DATE, Kind.TIMESTAMP): _days_to_ticks,
    (Kind.TIMESTAMP, Kind.DATE): _ticks_to_days,
    **{(Kind.STRING, i): _text_to_number(_PLAIN_INTEGER, pa.int64()) for i in _INTEGERS},
    **{(Kind.STRING, f): _text_to_number(_PLAIN_FLOAT, pa.float64()) for f in _FLOATS},
    (Kind.STRING, Kind.DATE): _text_to_time(_PLAIN_DATE),
    (Kind.STRING, Kind.TIMESTAMP): _text_to_time(_PLAIN_TIMESTAMP),
    (Kind.STRING, Kind.BINARY): _text_to_bytes,
    (Kind.BINARY, Kind.STRING): _bytes_to_text,
}
