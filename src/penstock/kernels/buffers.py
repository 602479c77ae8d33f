"""Between Arrow columns of fixed width and numpy arrays, without copying where the layout allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.delta import Ints

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_WIDTHS: dict[int, type[Any]] = {32: np.int32, 64: np.int64}
_FLOATS: dict[int, type[Any]] = {pa.float32().id: np.float32, pa.float64().id: np.float64}
_NO_INTS = np.empty(0, np.int64)
_NO_FLOATS = np.empty(0, np.float64)
NO_FLAGS: Flags = np.empty(0, np.bool_)


def _raw(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * np.dtype(dtype).itemsize)


def halves(array: pa.Array) -> Ints:
    """The low and the high half of the 128-bit integers underneath DECIMAL, a row for each value."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros((len(array), 2), np.int64)
    return np.frombuffer(data, np.int64, 2 * len(array), 16 * array.offset).reshape(-1, 2)


def integers(array: pa.Array) -> Ints:
    """The integers underneath BOOLEAN, INT, BIGINT, DATE, TIMESTAMP and INTERVAL; anything where it is NULL.

    Of DECIMAL the low half, which is the number where that has at most 18 digits.
    """
    if len(array) == 0:
        return _NO_INTS
    if pa.types.is_decimal(array.type):
        return halves(array)[:, 0]
    if pa.types.is_boolean(array.type):
        bits: Ints = array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.int64)
        return bits
    return _raw(array, _WIDTHS[array.type.bit_width]).astype(np.int64, copy=False)


def floats(array: pa.Array) -> Floats:
    """The values of INT, BIGINT, REAL or DOUBLE as doubles; anything where it is NULL."""
    if len(array) == 0:
        return _NO_FLOATS
    kind = _FLOATS.get(array.type.id)
    return integers(array).astype(np.float64) if kind is None else _raw(array, kind).astype(np.float64, copy=False)


def validity(array: pa.Array) -> Flags | None:
    """Where the column is not NULL; None where it has no NULL at all."""
    if array.null_count == 0:
        return None
    flags: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    return flags


def ordered(array: pa.Array) -> Ints:
    """Integers in the value order of a column: NaN greatest, and one for both zeros. ``restore`` undoes it."""
    if not pa.types.is_floating(array.type):
        return integers(array)
    values = floats(array) + 0.0
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    flipped: Ints = bits ^ ((bits >> 63) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
    return flipped


def restore(keys: Ints) -> Floats:
    """The doubles that ``ordered`` made these of."""
    bits: Ints = keys ^ ((keys >> 63) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
    return bits.view(np.float64)


def column(values: npt.NDArray[Any], null: npt.NDArray[Any] | None, dtype: pa.DataType) -> pa.Array:
    """A column of fixed width; ``values`` has the width of ``dtype`` and ``null`` is not 0 where it is NULL."""
    if pa.types.is_boolean(dtype):
        return pa.array(values.astype(np.bool_), dtype, mask=None if null is None else null.astype(np.bool_))
    bitmap = None if null is None else pa.py_buffer(np.packbits(null == 0, bitorder="little"))
    return pa.Array.from_buffers(dtype, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))])


def in_turns(one: pa.Array, other: pa.Array) -> pa.Array:
    """A value of one column, then one of the other, and so on; both have the same length and type."""
    kind, n = one.type, len(one)
    if one.null_count or other.null_count or not pa.types.is_primitive(kind) or kind.bit_width not in _WIDTHS:
        return pa.concat_arrays([one, other]).take(pa.array(np.arange(2 * n).reshape(2, n).T.ravel()))
    dtype = _WIDTHS[kind.bit_width]
    return column(numbers_in_turns(_raw(one, dtype), _raw(other, dtype)), None, kind)


def numbers_in_turns(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``in_turns`` of numbers."""
    both = np.empty(2 * len(one), one.dtype)
    both[::2], both[1::2] = one, other
    return both


def gather(array: pa.Array, rows: Ints) -> pa.Array:
    """The values at these places: as ``take``, whose calls are dear."""
    n = len(rows)
    if n and rows[-1] - rows[0] == n - 1 and (n < 3 or bool((np.diff(rows) == 1).all())):
        return array.slice(int(rows[0]), n)
    kind = array.type
    if array.null_count or not pa.types.is_primitive(kind) or kind.bit_width not in _WIDTHS:
        return array.take(pa.array(rows))
    return column(_raw(array, _WIDTHS[kind.bit_width]).take(rows), None, kind)
