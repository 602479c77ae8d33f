"""Between Arrow arrays and the plain values that ``types`` describes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pyarrow as pa

from penstock.model.schema import Schema
from penstock.model.types import DataType, Kind

# Stored as integers underneath; the plain value is that integer.
_COUNTED = {Kind.DATE: pa.int32(), Kind.TIMESTAMP: pa.int64(), Kind.INTERVAL: pa.int64()}


def to_python(array: pa.Array | pa.ChunkedArray, dtype: DataType) -> list[object]:
    """Plain values of a column; it is cast to the Arrow type of ``dtype`` first."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in to_python(chunk, dtype)]
    if array.type != dtype.arrow:
        array = array.cast(dtype.arrow)
    if dtype.kind in _COUNTED:
        array = array.cast(_COUNTED[dtype.kind])
    if not array.null_count and pa.types.is_primitive(array.type):
        return list(array.to_numpy(zero_copy_only=False).tolist())
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
