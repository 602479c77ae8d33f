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

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.delta import Ints
from penstock.kernels.buffers import NO_FLAGS, Flags, integers, ordered, restore, validity
from penstock.kernels.buffers import column as as_column
from penstock.scalar.order import NAN, hashable
from penstock.types import DataType, Kind
from penstock.values import to_arrow, to_python

_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)
_READ_FLAGS = nb.types.Array(nb.boolean, 1, "C", readonly=True)
_WRITE = nb.int64[::1]
_TABLE = nb.int32[::1]

# Places in ``state``.
_NEXT, _FREE, _LIVE, _NULL, _NEW = range(5)

_AS_OBJECTS = (Kind.STRING, Kind.BINARY, Kind.DECIMAL, Kind.ARRAY, Kind.NULL)
_NARROW: dict[Kind, Any] = {Kind.INT: np.int32, Kind.DATE: np.int32, Kind.REAL: np.float32}
_ONE_BY_ONE = 16
"""Up to so many rows a dictionary costs more than it saves."""


@nb.njit(nb.int64(nb.int64, nb.int64), nogil=True, cache=True, inline="always")
def _home(key: int, shift: int) -> int:
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift))  # type: ignore[return-value]


@nb.njit(
    nb.int64(_READ, _READ_FLAGS, nb.boolean, nb.boolean, _TABLE, nb.int64, _WRITE, _WRITE, _WRITE, _WRITE, _WRITE,
             nb.int64),
    nogil=True, cache=True,
)  # fmt: skip
def _encode(
    keys: Ints, valid: Flags, insert: bool, nulls_match: bool, table: npt.NDArray[np.int32], shift: int, key_of: Ints,
    free: Ints, state: Ints, out: Ints, new: Ints, start: int,
) -> int:  # fmt: skip
    """Codes of ``keys`` from ``start``; stops and says where if there is no room for a new one."""
    mask = len(table) - 1
    for i in range(start, len(keys)):
        is_null = len(valid) > 0 and not valid[i]
        key = keys[i]
        slot = -1
        if is_null:
            code = state[_NULL] if nulls_match else -1
            if code >= 0 or not nulls_match or not insert:
                out[i] = code
                continue
        else:
            slot = _home(key, shift)
            while table[slot] >= 0 and key_of[table[slot]] != key:
                slot = (slot + 1) & mask
            code = np.int64(table[slot])
            if code >= 0 or not insert:
                out[i] = code
                continue
        if state[_FREE] > 0:
            state[_FREE] -= 1
            code = free[state[_FREE]]
        elif state[_NEXT] < len(key_of) and 2 * state[_LIVE] < len(table):
            code = state[_NEXT]
            state[_NEXT] += 1
        else:
            return i
        if is_null:
            state[_NULL] = code
        else:
            table[slot] = code
        key_of[code] = key
        state[_LIVE] += 1
        new[state[_NEW]] = code
        state[_NEW] += 1
        out[i] = code
    return len(keys)


@nb.njit(nb.void(_READ, _TABLE, nb.int64, _WRITE, _WRITE, _WRITE), nogil=True, cache=True)
def _release(
    codes: Ints, table: npt.NDArray[np.int32], shift: int, key_of: Ints, free: Ints, state: Ints
) -> None:
    """Take keys out; what stood behind them in the table moves up, so no gravestones remain."""
    mask = len(table) - 1
    for code in codes:
        free[state[_FREE]] = code
        state[_FREE] += 1
        state[_LIVE] -= 1
        if code == state[_NULL]:
            state[_NULL] = -1
            continue
        hole = _home(key_of[code], shift)
        while table[hole] != code:
            hole = (hole + 1) & mask
        at = hole
        while True:
            at = (at + 1) & mask
            if table[at] < 0:
                break
            home = _home(key_of[table[at]], shift)
            if (at - home) & mask >= (at - hole) & mask:
                table[hole] = table[at]
                hole = at
        table[hole] = -1


@nb.njit(nb.void(_TABLE, nb.int64, _TABLE, _READ), nogil=True, cache=True)
def _rehash(old: npt.NDArray[np.int32], shift: int, table: npt.NDArray[np.int32], key_of: Ints) -> None:
    mask = len(table) - 1
    for code in old:
        if code >= 0:
            slot = _home(key_of[code], shift)
            while table[slot] >= 0:
                slot = (slot + 1) & mask
            table[slot] = code


class IntTable:
    """Codes of 64-bit integers: open addressing, linear probing, at most half full."""

    def __init__(self) -> None:
        self._bits = 5
        self._table = np.full(1 << self._bits, -1, np.int32)
        self.key_of: Ints = np.zeros(1 << self._bits - 1, np.int64)
        self._free: Ints = np.zeros(1 << self._bits - 1, np.int64)
        self._state: Ints = np.array([0, 0, 0, -1, 0], np.int64)

    def encode(self, keys: Ints, valid: Flags | None, insert: bool, nulls_match: bool) -> tuple[Ints, Ints]:
        """Codes of the keys, -1 where there is none, and the codes that are new."""
        n = len(keys)
        out = np.empty(n, np.int64)
        new = np.empty(n if insert else 0, np.int64)
        flags = NO_FLAGS if valid is None else valid
        self._state[_NEW] = 0
        at = 0
        while True:
            at = _encode(
                keys, flags, insert, nulls_match, self._table, 64 - self._bits, self.key_of, self._free, self._state,
                out, new, at,
            )  # fmt: skip
            if at == n:
                return out, new[: self._state[_NEW]]
            self._grow()

    def release(self, codes: Ints) -> None:
        """Forget the keys of these codes, each of which is given once."""
        _release(codes, self._table, 64 - self._bits, self.key_of, self._free, self._state)

    def _grow(self) -> None:
        self._bits += 1
        old, size = self._table, 1 << self._bits
        if self._state[_NULL] >= 0:
            self.key_of[self._state[_NULL]] = 0
        self.key_of = np.concatenate([self.key_of, np.zeros(size // 2 - len(self.key_of), np.int64)])
        self._free = np.concatenate([self._free, np.zeros(size // 2 - len(self._free), np.int64)])
        self._table = np.full(size, -1, np.int32)
        _rehash(old, 64 - self._bits, self._table, self.key_of)

    def nulls(self, codes: Ints) -> Flags:
        """Which of the codes is that of NULL."""
        found: Flags = codes == self._state[_NULL]
        return found

    @property
    def capacity(self) -> int:
        """All codes there have been are below this."""
        return int(self._state[_NEXT])

    @property
    def live(self) -> int:
        return int(self._state[_LIVE])

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self.key_of.nbytes + self._free.nbytes


class ObjectTable:
    """Codes of values that have no fixed width; a batch asks once for each distinct value."""

    def __init__(self, dtype: DataType) -> None:
        self._type = dtype
        self._codes: dict[object, int] = {}
        self._values: list[object] = []
        self._free: list[int] = []
        self._bytes = 0

    def encode(self, array: pa.Array, insert: bool, nulls_match: bool) -> tuple[Ints, Ints]:
        indices: npt.NDArray[Any] | None = None
        if len(array) > _ONE_BY_ONE and self._type.kind not in (Kind.ARRAY, Kind.NULL):
            encoded = array.dictionary_encode(null_encoding="encode")
            indices = encoded.indices.to_numpy()
            array = encoded.dictionary
        new: list[int] = []
        codes = np.empty(len(array), np.int64)
        for i, value in enumerate(to_python(array, self._type)):
            codes[i] = self._code(value, insert, nulls_match, new)
        return codes if indices is None else codes[indices], np.array(new, np.int64)

    def _code(self, value: object, insert: bool, nulls_match: bool, new: list[int]) -> int:
        if value is None and not nulls_match:
            return -1
        key = value if isinstance(value, str) else hashable(value)
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
        return to_arrow([_unhashed(self._values[c]) for c in codes.tolist()], self._type)

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


class _Column:
    """The codes of one column of a key; ``uses`` counts the pairs that have each."""

    def __init__(self, dtype: DataType) -> None:
        self._type = dtype
        self.table = ObjectTable(dtype) if dtype.kind in _AS_OBJECTS else IntTable()
        self._is_float = dtype.is_float
        self.uses = np.zeros(16, np.int64)

    def encode(self, array: pa.Array, insert: bool, nulls_match: bool) -> tuple[Ints, Ints]:
        if isinstance(self.table, ObjectTable):
            return self.table.encode(array, insert, nulls_match)
        keys = ordered(array) if self._is_float else integers(array)
        return self.table.encode(keys, validity(array), insert, nulls_match)

    def decode(self, codes: Ints) -> pa.Array:
        if isinstance(self.table, ObjectTable):
            return self.table.decode(codes)
        keys = self.table.key_of[codes]
        values: npt.NDArray[Any] = restore(keys) if self._is_float else keys
        if self._type.kind in _NARROW:
            values = values.astype(_NARROW[self._type.kind])
        return as_column(values, self.table.nulls(codes), self._type.arrow)


class _Pairs:
    """The codes of pairs (code so far, code of the next column)."""

    def __init__(self) -> None:
        self.table = IntTable()
        self.uses = np.zeros(16, np.int64)


class Interner:
    """Codes of keys of the given types.

    Needs: columns of these types. Promises: equal keys have equal codes as long as the key is not released.
    Bounded by the keys not released; forgets a key when it is released.
    """

    def __init__(self, types: Sequence[DataType], *, nulls_match: bool = True) -> None:
        self._nulls_match = nulls_match
        self._columns = [_Column(t) for t in types]
        self._pairs = [_Pairs() for _ in types[1:]]

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
        """The keys of these codes: values equal to those that were encoded."""
        found: list[pa.Array] = []
        for i in range(len(self._pairs) - 1, -1, -1):
            made = self._pairs[i].table.key_of[codes]
            found.append(self._columns[i + 1].decode(made & 0xFFFF_FFFF))
            codes = made >> 32
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
        longer = np.zeros(max(2 * len(part.uses), part.table.capacity), np.int64)
        longer[: len(part.uses)] = part.uses
        part.uses = longer
    np.add.at(part.uses, codes, 1)


def _disuse(part: _Column | _Pairs, codes: Ints) -> Ints:
    """The codes that no pair has any more."""
    np.subtract.at(part.uses, codes, 1)
    gone: Ints = np.unique(codes[part.uses[codes] == 0])
    return gone
