"""Columns as kernels see them.

Types of fixed width (BOOLEAN, INT, BIGINT, REAL, DOUBLE, DATE, TIMESTAMP, INTERVAL) are ``Fixed``: a numpy array and
which of its places are valid. All others stay Arrow arrays. A constant is a ``Fixed`` of dimension 0 or an Arrow
scalar, so that it costs nothing per row; numpy and Arrow broadcast it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.types import DataType, Kind
from penstock.model.values import to_arrow, to_python

Bools = npt.NDArray[np.bool_]
Data = npt.NDArray[Any]

# So few rows are taken by mask faster than the places of those that stay are found.
_FEW = 256


class Selection:
    """The rows where ``mask`` is set; ``count`` of them."""

    __slots__ = ("_arrow", "_indices", "count", "mask")

    def __init__(self, mask: Bools, count: int | None = None) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask)) if count is None else count
        self._indices: Data | None = None
        self._arrow: pa.Array | None = None

    def of(self, values: Data) -> Data:
        """These rows of an array."""
        if len(values) < _FEW:
            return values[self.mask]
        if self._indices is None:
            self._indices = self.mask.nonzero()[0]
        return values.take(self._indices)

    def of_arrow(self, array: pa.Array) -> pa.Array:
        """These rows of an Arrow array."""
        if self._arrow is None:
            self._arrow = pa.array(self.mask)
        return array.filter(self._arrow)

    def narrowed(self, further: Selection) -> Selection:
        """Of these rows, only the further ones."""
        mask = self.mask.copy()
        mask[self.mask] = further.mask
        return Selection(mask, further.count)


DTYPES: dict[Kind, np.dtype[Any]] = {
    Kind.BOOLEAN: np.dtype(np.bool_),
    Kind.INT: np.dtype(np.int32),
    Kind.BIGINT: np.dtype(np.int64),
    Kind.REAL: np.dtype(np.float32),
    Kind.DOUBLE: np.dtype(np.float64),
    Kind.DATE: np.dtype(np.int32),
    Kind.TIMESTAMP: np.dtype(np.int64),
    Kind.INTERVAL: np.dtype(np.int64),
}


class Fixed:
    """Values of fixed width. ``valid`` None: no NULL. What stands in ``data`` at a NULL means nothing.

    ``arrow`` is the Arrow array this was read from, where it still is the same.
    """

    __slots__ = ("arrow", "data", "valid")

    def __init__(self, data: Data, valid: Bools | None = None, arrow: pa.Array | None = None) -> None:
        self.data = data
        self.valid = valid
        self.arrow = arrow


class Partial:
    """A result that is not complete: ``failed`` rows have no value, ``suspect`` ones must be computed row by row."""

    __slots__ = ("data", "failed", "suspect", "valid")

    def __init__(
        self, data: Data, valid: Bools | None, failed: Bools | None = None, suspect: Bools | None = None
    ) -> None:
        self.data = data
        self.valid = valid
        self.failed = failed
        self.suspect = suspect


Value = Any
"""``Fixed``, ``pa.Array`` or ``pa.Scalar``."""


def checked(data: Data, valid: Bools | None, failed: Bools) -> Fixed | Partial:
    """The result of arithmetic, given where it went wrong; NULL cannot go wrong."""
    if valid is not None:
        failed = failed & valid
    return Partial(data, valid, failed) if failed.any() else Fixed(data, valid)


def repaired(data: Data, valid: Bools | None, suspect: Bools) -> Fixed | Partial:
    """The result of a kernel, given where it may be wrong."""
    if valid is not None:
        suspect = suspect & valid
    return Partial(data, valid, None, suspect) if suspect.any() else Fixed(data, valid)


def both(a: Bools | None, b: Bools | None) -> Bools | None:
    """Where both are valid."""
    if a is None:
        return b
    return a if b is None else a & b


def truth(value: Fixed) -> Bools:
    """Where a BOOLEAN is TRUE."""
    return value.data if value.valid is None else value.data & value.valid


def _bits(buffer: pa.Buffer, offset: int, length: int) -> Bools:
    start, skip = divmod(offset, 8)
    packed = np.frombuffer(buffer, np.uint8, (skip + length + 7) // 8, start)
    bits = np.unpackbits(packed, count=skip + length, bitorder="little")
    return (bits[skip:] if skip else bits).view(np.bool_)


def validity(value: Value) -> Bools | None:
    """Where a value is not NULL; None where it never is."""
    if type(value) is Fixed:
        return value.valid
    if isinstance(value, pa.Scalar):
        return None if value.is_valid else np.zeros((), np.bool_)
    nulls = value.null_count
    if not nulls:
        return None
    if nulls == len(value):
        return np.zeros(nulls, np.bool_)
    return _bits(value.buffers()[0], value.offset, len(value))


def from_arrow(array: pa.Array, dtype: np.dtype[Any]) -> Fixed:
    """An Arrow array of a type of fixed width, without copying anything but bits."""
    length, offset = len(array), array.offset
    valid_bits, content = array.buffers()
    if not length or content is None:
        return Fixed(np.zeros(length, dtype), np.zeros(length, np.bool_) if length else None, array)
    if dtype == np.bool_:
        data: Data = _bits(content, offset, length)
    else:
        data = np.frombuffer(content, dtype, length, offset * dtype.itemsize)
    valid = None if array.null_count == 0 else _bits(valid_bits, offset, length)
    return Fixed(data, valid, array)


def booleans(array: pa.Array | pa.Scalar) -> Fixed:
    """An Arrow array of BOOLEAN, or what comparing two constants gave."""
    if isinstance(array, pa.Scalar):
        return Fixed(np.array(array.as_py() is True), None if array.is_valid else np.zeros((), np.bool_))
    return from_arrow(array, DTYPES[Kind.BOOLEAN])


def full(value: Value, length: int) -> Value:
    """The value on every row: constants are spread."""
    if type(value) is Fixed:
        data, valid = value.data, value.valid
        if data.ndim and (valid is None or valid.ndim):
            return value
        return Fixed(np.broadcast_to(data, length), None if valid is None else np.broadcast_to(valid, length))
    return pa.repeat(value, length) if isinstance(value, pa.Scalar) else value


def as_arrow(value: Value, arrow: pa.DataType, length: int) -> pa.Array:
    """An Arrow array of ``length`` rows."""
    if type(value) is not Fixed:
        return pa.repeat(value, length) if isinstance(value, pa.Scalar) else value
    if value.arrow is not None:
        return value.arrow
    value = full(value, length)
    data, valid, bits, nulls = value.data, value.valid, None, 0
    if valid is not None:
        nulls = length - int(np.count_nonzero(valid))
        if nulls:
            bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if data.dtype == np.bool_:
        data = np.packbits(data, bitorder="little")
    elif not data.flags.c_contiguous:
        data = np.ascontiguousarray(data)
    return pa.Array.from_buffers(arrow, length, [bits, pa.py_buffer(data)], nulls)


def select(value: Value, some: Selection) -> Value:
    """The value on some rows."""
    if type(value) is Fixed:
        data, valid = value.data, value.valid
        return Fixed(
            some.of(data) if data.ndim else data,
            some.of(valid) if valid is not None and valid.ndim else valid,
        )
    return value if isinstance(value, pa.Scalar) else some.of_arrow(value)


def plain(value: Value, dtype: DataType, length: int) -> list[object]:
    """Plain Python values, as ``types`` describes them."""
    value = full(value, length)
    if type(value) is not Fixed:
        return to_python(value, dtype)
    values: list[object] = value.data.tolist()
    if value.valid is None:
        return values
    return [v if ok else None for v, ok in zip(values, value.valid.tolist(), strict=True)]


def from_plain(values: list[object], dtype: DataType) -> Value:
    """A column of plain Python values."""
    array = to_arrow(values, dtype)
    fixed = DTYPES.get(dtype.kind)
    return array if fixed is None else from_arrow(array, fixed)


def constant(value: object, dtype: DataType) -> Value:
    """A plain value as a constant."""
    fixed = DTYPES.get(dtype.kind)
    if fixed is None:
        return to_arrow([value], dtype)[0]
    if value is None:
        return Fixed(np.zeros((), fixed), np.zeros((), np.bool_))
    return Fixed(np.array(value, fixed))
