"""Keys to small integers: what is grouped, partitioned or joined by any columns is then indexed by one number.

Codes are dense from 0 and are used again after ``release``, so arrays indexed by code are as long as there were
keys at the same time. A key of several columns is a chain of pairs: the code of the first two columns is the
code of the pair of their codes, and so on; a column's code lives as long as a pair has it.

Values are keys as everywhere: NULL = NULL (unless ``nulls_match`` is off), NaN = NaN, -0.0 = 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.buffers import column as as_column
from penstock.kernels.buffers import integers, ordered, restore, validity
from penstock.kernels.keys_bytes import BytesTable
from penstock.kernels.keys_fixed import IntTable
from penstock.model.delta import Ints
from penstock.model.types import DataType, Kind
from penstock.model.values import to_arrow, to_python
from penstock.scalar.order import NAN, hashable

_NARROW: dict[Kind, Any] = {Kind.INT: np.int32, Kind.DATE: np.int32, Kind.REAL: np.float32}
_DECIMAL_BYTES = 16


class ObjectTable:
    """Codes of values that have no bytes of their own: arrays, and the one value of type NULL."""

    def __init__(self, dtype: DataType) -> None:
        self._type = dtype
        self._codes: dict[object, int] = {}
        self._values: list[object] = []
        self._free: list[int] = []
        self._bytes = 0

    def encode(self, array: pa.Array, insert: bool, nulls_match: bool) -> tuple[Ints, Ints]:
        new: list[int] = []
        codes = np.empty(len(array), np.int64)
        for i, value in enumerate(to_python(array, self._type)):
            codes[i] = self._code(value, insert, nulls_match, new)
        return codes, np.array(new, np.int64)

    def _code(self, value: object, insert: bool, nulls_match: bool, new: list[int]) -> int:
        if value is None and not nulls_match:
            return -1
        key = hashable(value)
        code = self._codes.get(key, -1)
        if code < 0 and insert:
            if self._free:
                code = self._free.pop()
                self._values[code] = key
            else:
                code = len(self._values)
                self._values.append(key)
            self._codes[key] = code
            self._bytes += _weight(key)
            new.append(code)
        return code

    def decode(self, codes: Ints) -> pa.Array:
        return to_arrow([_unhashed(self._values[c]) if c >= 0 else None for c in codes.tolist()], self._type)

    def release(self, codes: Ints) -> None:
        for code in codes.tolist():
            key = self._values[code]
            del self._codes[key]
            self._bytes -= _weight(key)
            self._values[code] = None
            self._free.append(code)

    @property
    def capacity(self) -> int:
        return len(self._values)

    @property
    def live(self) -> int:
        return len(self._codes)

    @property
    def nbytes(self) -> int:
        return self._bytes + 8 * len(self._values)


def _unhashed(key: object) -> object:
    """A value of which this is the ``hashable``."""
    if key is NAN:
        return math.nan
    return tuple([_unhashed(k) for k in key]) if isinstance(key, tuple) else key


def _weight(key: object) -> int:
    """About what a key takes as an object and in the dictionary."""
    return 150 + (len(key) if isinstance(key, str | bytes | tuple) else 0)


def _table(dtype: DataType) -> IntTable | BytesTable | ObjectTable:
    match dtype.kind:
        case Kind.STRING | Kind.BINARY:
            return BytesTable(dtype.arrow)
        case Kind.DECIMAL:
            return BytesTable(dtype.arrow, _DECIMAL_BYTES)
        case Kind.ARRAY | Kind.NULL:
            return ObjectTable(dtype)
    return IntTable()


class _Column:
    """The codes of one column of a key; ``uses`` counts the pairs that have each."""

    def __init__(self, dtype: DataType) -> None:
        self._type = dtype
        self.table = _table(dtype)
        self._is_float = dtype.is_float
        self.uses = np.zeros(16, np.int32)

    def encode(self, array: pa.Array, insert: bool, nulls_match: bool) -> tuple[Ints, Ints]:
        if not isinstance(self.table, IntTable):
            return self.table.encode(array, insert, nulls_match)
        keys = ordered(array) if self._is_float else integers(array)
        return self.table.encode(keys, validity(array), insert, nulls_match)

    def decode(self, codes: Ints) -> pa.Array:
        if not isinstance(self.table, IntTable):
            return self.table.decode(codes)
        keys = self.table.key_of.take(codes)
        values: npt.NDArray[Any] = restore(keys) if self._is_float else keys
        if self._type.kind in _NARROW:
            values = values.astype(_NARROW[self._type.kind])
        return as_column(values, self.table.nulls(codes), self._type.arrow)


class _Pairs:
    """The codes of pairs (code so far, code of the next column)."""

    def __init__(self) -> None:
        self.table = IntTable()
        self.uses = np.zeros(16, np.int32)


class Interner:
    """Codes of keys of the given types.

    Needs: columns of these types. Promises: equal keys have equal codes as long as the key is not released.
    Bounded by the keys not released; forgets a key when it is released.
    """

    def __init__(self, types: Sequence[DataType], *, nulls_match: bool = True) -> None:
        self._nulls_match = nulls_match
        self._columns = [_Column(t) for t in types]
        self._pairs = [_Pairs() for _ in types[1:]]

    def reserve(self, keys: int) -> None:
        """Room for so many keys, before there are any, where making it as they come costs."""
        table = (self._pairs[-1] if self._pairs else self._columns[0]).table
        if isinstance(table, IntTable):
            table.reserve(keys)

    def encode(self, columns: Sequence[pa.Array], length: int) -> Ints:
        """The code of each row's key, new keys taken in; -1 where a column is NULL and NULLs do not match."""
        if self._nulls_match or len(columns) <= 1:
            return self._find(columns, length, insert=True, nulls_match=self._nulls_match)
        # A key with a NULL leaves nothing behind, not even the codes of its other columns.
        flags = [f for f in map(validity, columns) if f is not None]
        if not flags:
            return self._find(columns, length, insert=True, nulls_match=True)
        codes = np.full(length, -1, np.int64)
        (rows,) = np.nonzero(np.logical_and.reduce(flags))
        if len(rows):
            where = pa.array(rows)
            known = [c.take(where) for c in columns]
            codes[rows] = self._find(known, len(rows), insert=True, nulls_match=True)
        return codes

    def decode(self, codes: Ints) -> list[pa.Array]:
        """The keys of these codes: values equal to those that were encoded, and NULL where a code is negative."""
        found: list[pa.Array] = []
        negative = codes < 0 if self._pairs and len(codes) and codes.min() < 0 else None
        for i in range(len(self._pairs) - 1, -1, -1):
            made = self._pairs[i].table.key_of[codes]
            others, codes = made & 0xFFFF_FFFF, made >> 32
            if negative is not None:
                others[negative] = codes[negative] = -1
            found.append(self._columns[i + 1].decode(others))
        if self._columns:
            found.append(self._columns[0].decode(codes))
        return found[::-1]

    def lookup(self, columns: Sequence[pa.Array], length: int) -> Ints:
        """The code of each row's key, -1 where the key is not known."""
        return self._find(columns, length, insert=False, nulls_match=self._nulls_match)

    def _find(self, columns: Sequence[pa.Array], length: int, *, insert: bool, nulls_match: bool) -> Ints:
        if not self._columns:
            return np.zeros(length, np.int64)
        codes, _ = self._columns[0].encode(columns[0], insert, nulls_match)
        below: _Column | _Pairs = self._columns[0]
        for column, pairs, array in zip(self._columns[1:], self._pairs, columns[1:], strict=True):
            others, _ = column.encode(array, insert, nulls_match)
            found = None if insert else (codes >= 0) & (others >= 0)
            codes, new = pairs.table.encode((codes << 32) | others, found, insert, False)
            if len(new):
                made = pairs.table.key_of[new]
                _use(below, made >> 32)
                _use(column, made & 0xFFFF_FFFF)
            below = pairs
        return codes

    def release(self, codes: Ints) -> None:
        """Forget keys; each code is one that ``encode`` gave, and is given once."""
        if not self._columns:
            return
        levels: list[_Column | _Pairs] = [self._columns[0], *self._pairs]
        for i in range(len(self._pairs) - 1, -1, -1):
            pairs = self._pairs[i]
            made = pairs.table.key_of[codes]
            pairs.table.release(codes)
            column = self._columns[i + 1]
            unused = _disuse(column, made & 0xFFFF_FFFF)
            if len(unused):
                column.table.release(unused)
            codes = _disuse(levels[i], made >> 32)
            if not len(codes):
                return
        self._columns[0].table.release(codes)

    @property
    def capacity(self) -> int:
        """All codes there have been are below this: the length of arrays indexed by code."""
        if not self._columns:
            return 1
        return (self._pairs[-1] if self._pairs else self._columns[0]).table.capacity

    @property
    def live(self) -> int:
        """How many keys there are."""
        if not self._columns:
            return 1
        return (self._pairs[-1] if self._pairs else self._columns[0]).table.live

    @property
    def nbytes(self) -> int:
        parts: list[_Column | _Pairs] = [*self._columns, *self._pairs]
        return sum(p.table.nbytes + p.uses.nbytes for p in parts)


def _use(part: _Column | _Pairs, codes: Ints) -> None:
    if part.table.capacity > len(part.uses):
        longer = np.zeros(max(2 * len(part.uses), part.table.capacity), np.int32)
        longer[: len(part.uses)] = part.uses
        part.uses = longer
    np.add.at(part.uses, codes, 1)


def _disuse(part: _Column | _Pairs, codes: Ints) -> Ints:
    """The codes that no pair has any more."""
    np.subtract.at(part.uses, codes, 1)
    gone: Ints = np.unique(codes[part.uses[codes] == 0])
    return gone
