"""Codes of byte strings: texts, binaries, and values of fixed width that are no 64-bit integers.

Open addressing with linear probing over codes, at most half full. What is known of a code is two numbers: 31 bits of
the hash together with the length, so that one comparison rules out almost all others, and where its bytes begin in
one array that holds the bytes of all keys. Bytes of released keys are squeezed out once they are more than the others.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.buffers import NO_FLAGS, Flags, validity
from penstock.kernels.keys_fixed import AHEAD, FREE, IN_CACHE, LIVE, NEW, NEXT, NONE, NULL, SEEN, Slots, new_state
from penstock.model.delta import Ints

Bytes = npt.NDArray[np.uint8]

_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)
_READ_FLAGS = nb.types.Array(nb.boolean, 1, "C", readonly=True)
_READ_OFFSETS = nb.types.Array(nb.int32, 1, "C", readonly=True)
_READ_BYTES = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_WRITE = nb.int64[::1]
_TABLE = nb.int32[::1]
_ENTRIES = nb.int64[:, ::1]
_BYTES = nb.uint8[::1]

# Places in an entry. ``_WORD`` of a code without bytes is NONE, and ``_START`` of a free code the next free one.
_WORD, _START = 0, 1
# Places in ``state`` behind those of all tables: where free bytes begin, and how many before that are of no use.
_USED, _DEAD = SEEN + 1, SEEN + 2
_NO_BYTES: Bytes = np.empty(0, np.uint8)
_LEAST = 64


@nb.njit(nb.uint64(_READ_BYTES, nb.int64), nogil=True, cache=True, inline="always")
def _eight(data: Bytes, at: int) -> Any:
    """Eight bytes as a number, which becomes one load: unsigned places need no look at whether they are negative."""
    i = np.uint64(at)
    low = np.uint64(data[i]) | np.uint64(data[i + np.uint64(1)]) << np.uint64(8)
    low |= np.uint64(data[i + np.uint64(2)]) << np.uint64(16) | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
    low |= np.uint64(data[i + np.uint64(4)]) << np.uint64(32) | np.uint64(data[i + np.uint64(5)]) << np.uint64(40)
    return low | np.uint64(data[i + np.uint64(6)]) << np.uint64(48) | np.uint64(data[i + np.uint64(7)]) << np.uint64(56)


@nb.njit(nb.uint64(_READ_BYTES, nb.int64, nb.int64), nogil=True, cache=True, inline="always")
def _few(data: Bytes, start: int, stop: int) -> Any:
    """Less than eight bytes as a number."""
    word = np.uint64(0)
    for at in range(np.uint64(start), np.uint64(stop)):
        word = (word << np.uint64(8)) | np.uint64(data[at])
    return word


@nb.njit(nb.int64(_READ_BYTES, nb.int64, nb.int64), nogil=True, cache=True, inline="always")
def _word(data: Bytes, start: int, stop: int) -> int:
    """31 bits of the hash, and the length."""
    length = stop - start
    h = np.uint64(length) * np.uint64(0x9E3779B97F4A7C15)
    if length < 8:
        last = _few(data, start, stop)
    else:
        for at in range(start, stop - 8, 8):
            h = (h ^ _eight(data, at)) * np.uint64(0xD6E8FEB86659FD93)
            h ^= h >> np.uint64(32)
        last = _eight(data, stop - 8)
    h = (h ^ last) * np.uint64(0xD6E8FEB86659FD93)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0x9E3779B97F4A7C15)
    return np.int64(((h >> np.uint64(33)) << np.uint64(32)) | np.uint64(length))  # type: ignore[return-value]


@nb.njit(
    nb.boolean(_READ_BYTES, nb.int64, _BYTES, nb.int64, nb.int64), nogil=True, cache=True, inline="always"
)
def _same(data: Bytes, at: int, held: Bytes, start: int, length: int) -> bool:
    if length < 8:
        return bool(_few(data, at, at + length) == _few(held, start, start + length))
    for b in range(0, length - 8, 8):
        if _eight(data, at + b) != _eight(held, start + b):
            return False
    return bool(_eight(data, at + length - 8) == _eight(held, start + length - 8))


@nb.njit(nb.void(_READ_BYTES, nb.int64, _BYTES, nb.int64, nb.int64), nogil=True, cache=True, inline="always")
def _copy(data: Bytes, at: int, held: Bytes, start: int, length: int) -> None:
    source, target = np.uint64(at), np.uint64(start)
    for _ in range(length):
        held[target] = data[source]
        source += np.uint64(1)
        target += np.uint64(1)


@nb.njit(
    nb.int64(_READ_BYTES, _READ_OFFSETS, _READ_FLAGS, nb.boolean, nb.boolean, _TABLE, nb.int64, _ENTRIES, _BYTES,
             _WRITE, _WRITE, _WRITE, nb.int64),
    nogil=True, cache=True,
)  # fmt: skip
def _encode(
    data: Bytes, offsets: Slots, valid: Flags, insert: bool, nulls_match: bool, table: Slots, shift: int,
    entries: npt.NDArray[np.int64], held: Bytes, state: Ints, out: Ints, new: Ints, start: int,
) -> int:  # fmt: skip
    """Codes of byte strings from ``start``; stops and says where if there is no room for a new one."""
    mask = len(table) - 1
    n = len(offsets) - 1
    ahead = start
    for i in range(start, n):
        if i == ahead:
            ahead = min(n, i + AHEAD)
            for j in range(i, ahead):
                out[j] = _word(data, offsets[j], offsets[j + 1])
            if len(table) > IN_CACHE:
                seen = 0
                for j in range(i, ahead):
                    seen += table[out[j] >> shift]
                for j in range(i, ahead):
                    code = np.int64(table[out[j] >> shift])
                    if code >= 0:
                        seen += entries[code, _WORD]
                for j in range(i, ahead):
                    code = np.int64(table[out[j] >> shift])
                    if code >= 0 and entries[code, _WORD] == out[j]:
                        seen += held[min(entries[code, _START], len(held) - 1)]
                state[SEEN] = seen
        is_null = len(valid) > 0 and not valid[i]
        slot = np.int64(-1)
        word = out[i]
        at, length = offsets[i], offsets[i + 1] - offsets[i]
        if is_null:
            code = state[NULL] if nulls_match else np.int64(-1)
            if code >= 0 or not nulls_match or not insert:
                out[i] = code
                continue
        else:
            slot = word >> shift
            while True:
                code = np.int64(table[slot])
                if code < 0:
                    break
                if entries[code, _WORD] == word and _same(data, at, held, entries[code, _START], length):
                    break
                slot = (slot + 1) & mask
            if code >= 0 or not insert:
                out[i] = code
                continue
            if state[_USED] + length > len(held):
                return i
        if state[FREE] >= 0:
            code = state[FREE]
            state[FREE] = entries[code, _START]
        elif state[NEXT] < len(entries) and 2 * state[LIVE] < len(table):
            code = state[NEXT]
            state[NEXT] += 1
        else:
            return i
        if is_null:
            state[NULL] = code
            entries[code, _WORD] = NONE
        else:
            table[slot] = code
            entries[code, _WORD] = word
            entries[code, _START] = state[_USED]
            _copy(data, at, held, state[_USED], length)
            state[_USED] += length
        state[LIVE] += 1
        new[state[NEW]] = code
        state[NEW] += 1
        out[i] = code
    return n


@nb.njit(nb.void(_READ, _TABLE, nb.int64, _ENTRIES, _WRITE), nogil=True, cache=True)
def _release(codes: Ints, table: Slots, shift: int, entries: npt.NDArray[np.int64], state: Ints) -> None:
    """Take keys out; what stood behind them in the table moves up, so no gravestones remain."""
    mask = len(table) - 1
    n = len(codes)
    ahead = 0 if len(table) > IN_CACHE else n
    for i in range(n):
        if i == ahead:
            ahead = min(n, i + AHEAD)
            seen = 0
            for j in range(i, ahead):
                seen += entries[codes[j], _WORD]
            for j in range(i, ahead):
                word = entries[codes[j], _WORD]
                if word >= 0:
                    seen += table[word >> shift]
            state[SEEN] = seen
        code = codes[i]
        state[LIVE] -= 1
        if code == state[NULL]:
            state[NULL] = NONE
        else:
            state[_DEAD] += entries[code, _WORD] & 0xFFFF_FFFF
            hole = entries[code, _WORD] >> shift
            while table[hole] != code:
                hole = (hole + 1) & mask
            at = hole
            while True:
                at = (at + 1) & mask
                if table[at] < 0:
                    break
                home = entries[table[at], _WORD] >> shift
                if (at - home) & mask >= (at - hole) & mask:
                    table[hole] = table[at]
                    hole = at
            table[hole] = -1
        entries[code, _WORD] = NONE
        entries[code, _START] = state[FREE]
        state[FREE] = code


@nb.njit(nb.void(_TABLE, nb.int64, _TABLE, _ENTRIES), nogil=True, cache=True)
def _rehash(old: Slots, shift: int, table: Slots, entries: npt.NDArray[np.int64]) -> None:
    mask = len(table) - 1
    for code in old:
        if code >= 0:
            slot = entries[code, _WORD] >> shift
            while table[slot] >= 0:
                slot = (slot + 1) & mask
            table[slot] = code


@nb.njit(nb.void(_ENTRIES, nb.int64, _BYTES, _BYTES, _WRITE), nogil=True, cache=True)
def _squeeze(entries: npt.NDArray[np.int64], codes: int, held: Bytes, fresh: Bytes, state: Ints) -> None:
    """Put the bytes that are in use into ``fresh``, which has room for them."""
    used = 0
    for code in range(codes):
        word = entries[code, _WORD]
        if word >= 0:
            length = word & 0xFFFF_FFFF
            _copy(held, entries[code, _START], fresh, used, length)
            entries[code, _START] = used
            used += length
    state[_USED], state[_DEAD] = used, 0


@nb.njit(nogil=True, cache=True)
def _decode(codes: Ints, entries: npt.NDArray[np.int64], held: Bytes) -> tuple[Slots, Bytes]:
    """Offsets and bytes of the keys of these codes, nothing where one is of NULL or negative."""
    n = len(codes)
    offsets = np.empty(n + 1, np.int32)
    offsets[0] = 0
    for i in range(n):
        word = entries[codes[i], _WORD] if codes[i] >= 0 else np.int64(NONE)
        offsets[i + 1] = offsets[i] + (0 if word < 0 else word & 0xFFFF_FFFF)
    data = np.empty(offsets[n], np.uint8)
    for i in range(n):
        at, length = offsets[i], offsets[i + 1] - offsets[i]
        if length > 0:
            _copy(held, entries[codes[i], _START], data, at, length)
    return offsets, data


class BytesTable:
    """Keys of ``dtype`` and their codes. ``width``: bytes of every value, None where each has its own length.

    Bounded by the most keys at one time, and four times the bytes of the keys there are; a released key is forgotten.
    """

    def __init__(self, dtype: pa.DataType, width: int | None = None) -> None:
        self._type, self._width = dtype, width
        self._bits = 5
        self._table = np.full(1 << self._bits, -1, np.int32)
        self._entries = np.zeros((1 << self._bits - 1, 2), np.int64)
        self._held: Bytes = np.empty(_LEAST, np.uint8)
        self._state = np.concatenate([new_state(), [0, 0]])

    def encode(self, array: pa.Array, insert: bool, nulls_match: bool) -> tuple[Ints, Ints]:
        """Codes of the values, -1 where there is none, and the codes that are new."""
        n = len(array)
        out = np.empty(n, np.int64)
        new = np.empty(n if insert else 0, np.int64)
        if n == 0:
            return out, new
        data, offsets = self._bytes(array)
        valid = validity(array)
        flags = NO_FLAGS if valid is None else valid
        self._state[NEW] = 0
        at = 0
        while True:
            at = _encode(
                data, offsets, flags, insert, nulls_match, self._table, 63 - self._bits, self._entries, self._held,
                self._state, out, new, at,
            )  # fmt: skip
            if at == n:
                return out, new[: self._state[NEW]]
            self._grow(int(offsets[at + 1] - offsets[at]))

    def _bytes(self, array: pa.Array) -> tuple[Bytes, Slots]:
        n, first = len(array), array.offset
        buffers = array.buffers()
        data = _NO_BYTES if buffers[-1] is None else np.frombuffer(buffers[-1], np.uint8)
        if self._width is None:
            return data, np.frombuffer(buffers[1], np.int32, n + 1, 4 * first)
        data = data[self._width * first : self._width * (first + n)]
        return data, np.arange(0, self._width * (n + 1), self._width, dtype=np.int32)

    def _grow(self, length: int) -> None:
        """Room for one more key of this length."""
        state = self._state
        if state[FREE] < 0 and 2 * state[LIVE] >= len(self._table):
            self._bits += 1
            old, self._table = self._table, np.full(1 << self._bits, -1, np.int32)
            _rehash(old, 63 - self._bits, self._table, self._entries)
        elif state[FREE] < 0 and state[NEXT] == len(self._entries):
            more = np.zeros((len(self._entries) // 4, 2), np.int64)
            self._entries = np.concatenate([self._entries, more])
        if state[_USED] + length > len(self._held):
            self._squeeze(length)

    def _squeeze(self, length: int) -> None:
        """Room for these bytes, and so many more that looking at all codes is a small part of the work."""
        alive = int(self._state[_USED] - self._state[_DEAD])
        fresh = np.empty(alive + length + max(alive // 4, self.capacity, _LEAST), np.uint8)
        _squeeze(self._entries, self.capacity, self._held, fresh, self._state)
        self._held = fresh

    def release(self, codes: Ints) -> None:
        """Forget the keys of these codes, each of which is given once."""
        _release(codes, self._table, 63 - self._bits, self._entries, self._state)
        alive = int(self._state[_USED] - self._state[_DEAD])
        if len(self._held) > 4 * (alive + self.capacity + _LEAST):
            self._squeeze(0)

    def decode(self, codes: Ints) -> pa.Array:
        """The keys of these codes, NULL where one is negative."""
        offsets, data = _decode(codes, self._entries, self._held)
        null = (codes < 0) | (codes == self._state[NULL])
        bitmap = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
        if self._width is None:
            buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
            return pa.Array.from_buffers(self._type, len(codes), buffers)
        values = data.reshape(-1, self._width)
        if bitmap is not None:
            spread = np.zeros((len(codes), self._width), np.uint8)
            spread[~null] = values
            values = spread
        return pa.Array.from_buffers(self._type, len(codes), [bitmap, pa.py_buffer(values)])

    @property
    def capacity(self) -> int:
        """All codes there have been are below this."""
        return int(self._state[NEXT])

    @property
    def live(self) -> int:
        return int(self._state[LIVE])

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._entries.nbytes + self._held.nbytes
