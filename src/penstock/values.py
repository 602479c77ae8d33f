"""Between Arrow arrays and the plain values that ``types`` describes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock.io.values import said
from penstock.plan.nodes import Schema
from penstock.types import DataType, Kind

# Stored as integers underneath; the plain value is that integer.
_COUNTED = {Kind.DATE: pa.int32(), Kind.TIMESTAMP: pa.int64(), Kind.INTERVAL: pa.int64()}


def to_python(array: pa.Array | pa.ChunkedArray, dtype: DataType) -> list[object]:
    """Plain values of a column; it is cast to the Arrow type of ``dtype`` first."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in to_python(chunk, dtype)]
    if array.type != dtype.arrow:
        array = array.cast(dtype.arrow)
    if dtype.kind in _COUNTED:
        return list(array.cast(_COUNTED[dtype.kind]).to_pylist())
    if dtype.kind is Kind.ARRAY:
        assert dtype.element is not None
        elements = to_python(array.values, dtype.element)
        offsets = array.offsets.to_pylist()
        valid = array.is_valid().to_pylist()
        bounds = zip(offsets[:-1], offsets[1:], valid, strict=True)
        return [tuple(elements[a:b]) if v else None for a, b, v in bounds]
    return list(array.to_pylist())


def to_arrow(values: Sequence[object], dtype: DataType) -> pa.Array:
    """A column of the Arrow type of ``dtype``; REAL is rounded to 32 bits."""
    if dtype.kind in _COUNTED:
        return pa.array(values, _COUNTED[dtype.kind]).cast(dtype.arrow)
    if dtype.kind is Kind.REAL:
        rounded = [ctypes.c_float(v).value if isinstance(v, int | float) else None for v in values]
        return pa.array(rounded, pa.float32())
    if dtype.kind is Kind.ARRAY:
        assert dtype.element is not None
        elements: list[object] = []
        offsets: list[int | None] = []
        for value in values:
            # A NULL in the offsets makes that list NULL.
            offsets.append(None if value is None else len(elements))
            elements.extend(value if isinstance(value, tuple | list) else ())
        offsets.append(len(elements))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), to_arrow(elements, dtype.element))
    return pa.array(values, dtype.arrow)


def to_rows(table: pa.Table, schema: Schema) -> list[tuple[object, ...]]:
    """Plain rows of a table that has the columns of ``schema``, in that order."""
    columns = [to_python(table.column(i), f.type) for i, f in enumerate(schema)]
    return list(zip(*columns, strict=True))


def with_zone(schema: pa.Schema, zone: str | None) -> pa.Schema:
    """The schema with its TIMESTAMPs to be shown in a zone; values are the same instants. None: without a zone."""
    return pa.schema([f.with_type(_with_zone(f.type, zone)) for f in schema])


def _with_zone(dtype: pa.DataType, zone: str | None) -> pa.DataType:
    if pa.types.is_timestamp(dtype):
        return pa.timestamp("us", zone)
    return pa.list_(_with_zone(dtype.value_type, zone)) if pa.types.is_list(dtype) else dtype


def to_instant(value: object, zone: str = "UTC") -> int:
    """The ticks of an instant as a user gives it: ticks, a datetime (without a zone it is UTC), a date, or ISO text.

    ``zone``: of texts that name none.
    """
    if isinstance(value, bool):
        raise InputError(f"{said(value)} is not an instant", hint="give ticks, a datetime, or ISO text")
    if isinstance(value, int | np.integer):
        if abs(int(value)) >= 2**62:
            raise InputError(f"the instant {value} is out of range")
        return int(value)
    if isinstance(value, str):
        from penstock.scalar.casts import parse_timestamp
        from penstock.scalar.context import RowError

        try:
            return parse_timestamp(value, zone)
        except RowError as error:
            problem = str(error) if "time zone" in str(error) else f"{said(value)} is not an instant"
            raise InputError(problem, hint="write it as 2024-05-01T10:00:00") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        try:
            delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
        except Exception as error:  # its zone may be the user's
            hint = f"its zone raised {type(error).__name__}"
            raise InputError(f"{said(value)} is not an instant", hint=hint) from error
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    raise InputError(f"{said(value)} is not an instant", hint="give ticks, a datetime, or ISO text")
