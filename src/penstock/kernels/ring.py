"""Columns whose rows are numbered by slots of a ring: written at the end, forgotten at the start, read anywhere.

A column does not know which slots are in use; whoever owns it writes behind the newest row and says, when the ring
gets another size, which slots to keep. Values of fixed width stand in one array. Strings and binaries stand one after
the other in a ring of bytes; a row's bytes end where those of the next slot start, so one slot always stays free.
"""

from __future__ import annotations

from typing import Any, Protocol

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.delta import Ints
from penstock.model.types import DataType, Kind

Slots = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

_WIDTHS: dict[Kind, Any] = {
    Kind.BOOLEAN: np.uint8,
    Kind.INT: np.int32,
    Kind.DATE: np.int32,
    Kind.REAL: np.int32,
    Kind.BIGINT: np.int64,
    Kind.DOUBLE: np.int64,
    Kind.TIMESTAMP: np.int64,
    Kind.INTERVAL: np.int64,
    Kind.DECIMAL: np.complex128,
}


class RingColumn(Protocol):
    """A column of the ring."""

    def write(self, at: int, array: pa.Array) -> None:
        """Put values at slots from ``at`` on, around the end of the ring."""

    def read(self, slots: Slots) -> pa.Array:
        """The values at these slots."""

    def keep(self, slots: Slots, capacity: int) -> None:
        """A ring of another size: only these slots, numbered anew from 0, oldest first."""

    def forget(self, tail: int) -> None:
        """Slots before ``tail`` are not read any more."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""


def column(dtype: DataType, capacity: int) -> RingColumn:
    """A column for values of this type; see ``storable``."""
    if dtype.kind in (Kind.STRING, Kind.BINARY):
        return _Texts(dtype.arrow, capacity)
    if dtype.kind is Kind.NULL:
        return _Nothing()
    return _Fixed(dtype, capacity)


def storable(dtype: DataType) -> bool:
    """Whether there is a column for this type."""
    return dtype.kind in _WIDTHS or dtype.kind in (Kind.STRING, Kind.BINARY, Kind.NULL)


def put(ring: npt.NDArray[Any], at: int, values: npt.NDArray[Any]) -> None:
    """Write values around the end of the ring."""
    n, room = len(values), len(ring) - at
    if n <= room:
        ring[at : at + n] = values
    else:
        ring[at:] = values[:room]
        ring[: n - room] = values[room:]


def kept(ring: npt.NDArray[Any], slots: Slots, capacity: int) -> npt.NDArray[Any]:
    """A ring of another size with these slots of the old one."""
    new = np.empty(capacity, ring.dtype)
    np.take(ring, slots, out=new[: len(slots)], mode="clip")
    return new


class _Validity:
    """Which rows are not NULL; nothing as long as none is."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._valid: Bytes | None = None

    def write(self, at: int, array: pa.Array) -> None:
        if array.null_count:
            if self._valid is None:
                self._valid = np.ones(self._capacity, np.uint8)
            put(self._valid, at, array.is_valid().to_numpy(zero_copy_only=False))
        elif self._valid is not None:
            put(self._valid, at, np.ones(len(array), np.uint8))

    def read(self, slots: Slots) -> pa.Buffer | None:
        if self._valid is None:
            return None
        valid = self._valid.take(slots)
        return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))

    def keep(self, slots: Slots, capacity: int) -> None:
        self._capacity = capacity
        if self._valid is not None:
            self._valid = kept(self._valid, slots, capacity)
            if self._valid[: len(slots)].all():
                self._valid = None

    @property
    def nbytes(self) -> int:
        return 0 if self._valid is None else self._valid.nbytes


class _Fixed:
    def __init__(self, dtype: DataType, capacity: int) -> None:
        self._type = dtype.arrow
        self._is_boolean = dtype.kind is Kind.BOOLEAN
        self._values: npt.NDArray[Any] = np.empty(capacity, _WIDTHS[dtype.kind])
        self._valid = _Validity(capacity)

    def write(self, at: int, array: pa.Array) -> None:
        if len(array) == 0:
            return
        self._valid.write(at, array)
        if self._is_boolean:
            array = array.cast(pa.uint8())
        data = array.buffers()[1]
        dtype = self._values.dtype
        if data is not None:
            put(self._values, at, np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize))

    def read(self, slots: Slots) -> pa.Array:
        values = self._values.take(slots)
        bitmap = self._valid.read(slots)
        if self._is_boolean:
            values = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(self._type, len(slots), [bitmap, pa.py_buffer(values)])

    def keep(self, slots: Slots, capacity: int) -> None:
        self._values = kept(self._values, slots, capacity)
        self._valid.keep(slots, capacity)

    def forget(self, tail: int) -> None:
        pass

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + self._valid.nbytes


class _Nothing:
    """The column of type NULL."""

    nbytes = 0

    def write(self, at: int, array: pa.Array) -> None:
        pass

    def read(self, slots: Slots) -> pa.Array:
        return pa.nulls(len(slots))

    def keep(self, slots: Slots, capacity: int) -> None:
        pass

    def forget(self, tail: int) -> None:
        pass


class _Texts:
    """``starts`` are places in an endless text of which ``heap`` holds the part from ``first`` to ``last``."""

    def __init__(self, dtype: pa.DataType, capacity: int) -> None:
        self._type = dtype
        self._starts = np.zeros(capacity, np.int64)
        self._heap: Bytes = np.empty(64, np.uint8)
        self._first = self._last = 0
        self._valid = _Validity(capacity)

    def write(self, at: int, array: pa.Array) -> None:
        if len(array) == 0:
            return
        self._valid.write(at, array)
        _, offsets_buffer, data = array.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
        size = int(offsets[-1] - offsets[0])
        put(self._starts, at, offsets + (self._last - offsets[0]))
        if size:
            used = self._last - self._first
            if used + size > len(self._heap):
                self._resize(used + size + used // 8)
            put(self._heap, self._last % len(self._heap), np.frombuffer(data, np.uint8, size, int(offsets[0])))
            self._last += size

    def _resize(self, size: int) -> None:
        old = self._heap
        used = self._last - self._first
        start = self._first % len(old)
        whole = np.concatenate([old[start:], old[:start]])[:used]
        self._heap = np.empty(max(size, 64), np.uint8)
        put(self._heap, self._first % len(self._heap), whole)

    def read(self, slots: Slots) -> pa.Array:
        offsets, data = _texts(self._starts, self._heap, slots)
        buffers = [self._valid.read(slots), pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._type, len(slots), buffers)

    def keep(self, slots: Slots, capacity: int) -> None:
        lengths, data = _texts(self._starts, self._heap, slots)
        starts = np.zeros(capacity, np.int64)
        starts[: len(lengths)] = lengths
        self._starts, self._first, self._last = starts, 0, len(data)
        self._heap = np.empty(max(64, len(data) + len(data) // 8), np.uint8)
        self._heap[: len(data)] = data
        self._valid.keep(slots, capacity)

    def forget(self, tail: int) -> None:
        self._first = int(self._starts[tail])
        if len(self._heap) > 4 * (self._last - self._first) + 4096:
            self._resize(self._last - self._first)

    @property
    def nbytes(self) -> int:
        return self._starts.nbytes + self._heap.nbytes + self._valid.nbytes


@numba.njit(nogil=True, cache=True)
def _texts(starts: Ints, heap: Bytes, slots: Slots) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Offsets and bytes of the texts at these slots, one after the other."""
    n, capacity = len(slots), len(starts)
    offsets = np.empty(n + 1, np.int32)
    offsets[0] = 0
    for k in range(n):
        follower = slots[k] + 1
        if follower == capacity:
            follower = 0
        offsets[k + 1] = offsets[k] + (starts[follower] - starts[slots[k]])
    data = np.empty(offsets[n], np.uint8)
    size = len(heap)
    for k in range(n):
        at = starts[slots[k]] % size
        first, last = np.int64(offsets[k]), np.int64(offsets[k + 1])
        if at + last - first <= size:
            for b in range(last - first):
                data[first + b] = heap[at + b]
        else:
            for b in range(last - first):
                data[first + b] = heap[(at + b) % size]
    return offsets, data
