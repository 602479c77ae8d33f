"""Codes of 64-bit integers: open addressing, linear probing, at most half full, free codes chained where keys stood."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from penstock.kernels.buffers import NO_FLAGS, Flags
from penstock.model.delta import Ints

Slots = npt.NDArray[np.int32]

_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)
_READ_FLAGS = nb.types.Array(nb.boolean, 1, "C", readonly=True)
_WRITE = nb.int64[::1]
_TABLE = nb.int32[::1]

# Places in ``state``: codes ever given, the first free one, keys, the code of NULL, codes given in this call, and
# something that makes reading ahead not look useless to the compiler.
NEXT, FREE, LIVE, NULL, NEW, SEEN = range(6)
NONE = -1
AHEAD = 128
"""Keys whose places are read before they are looked at: one by one each would wait for memory."""
IN_CACHE = 1 << 14
"""Slots of a table so small that reading ahead is no gain."""


def new_state() -> Ints:
    return np.array([0, NONE, 0, NONE, 0, 0], np.int64)


@nb.njit(nb.int64(nb.int64, nb.int64), nogil=True, cache=True, inline="always")
def _home(key: int, shift: int) -> int:
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift))  # type: ignore[return-value]


@nb.njit(
    nb.int64(_READ, _READ_FLAGS, nb.boolean, nb.boolean, _TABLE, nb.int64, _WRITE, _WRITE, _WRITE, _WRITE, nb.int64),
    nogil=True, cache=True,
)  # fmt: skip
def _encode(
    keys: Ints, valid: Flags, insert: bool, nulls_match: bool, table: Slots, shift: int, key_of: Ints, state: Ints,
    out: Ints, new: Ints, start: int,
) -> int:  # fmt: skip
    """Codes of ``keys`` from ``start``; stops and says where if there is no room for a new one."""
    mask = len(table) - 1
    n = len(keys)
    ahead = start if len(table) > IN_CACHE else n
    for i in range(start, n):
        if i == ahead:
            ahead = min(n, i + AHEAD)
            seen = 0
            for j in range(i, ahead):
                seen += table[_home(keys[j], shift)]
            for j in range(i, ahead):
                code = np.int64(table[_home(keys[j], shift)])
                if code >= 0:
                    seen += key_of[code]
            state[SEEN] = seen
        is_null = len(valid) > 0 and not valid[i]
        key = keys[i]
        slot = -1
        if is_null:
            code = state[NULL] if nulls_match else np.int64(-1)
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
        if state[FREE] >= 0:
            code = state[FREE]
            state[FREE] = key_of[code]
        elif state[NEXT] < len(key_of) and 2 * state[LIVE] < len(table):
            code = state[NEXT]
            state[NEXT] += 1
        else:
            return i
        if is_null:
            state[NULL] = code
            key_of[code] = 0
        else:
            table[slot] = code
            key_of[code] = key
        state[LIVE] += 1
        new[state[NEW]] = code
        state[NEW] += 1
        out[i] = code
    return n


@nb.njit(nb.void(_READ, _TABLE, nb.int64, _WRITE, _WRITE), nogil=True, cache=True)
def _release(codes: Ints, table: Slots, shift: int, key_of: Ints, state: Ints) -> None:
    """Take keys out; what stood behind them in the table moves up, so no gravestones remain."""
    mask = len(table) - 1
    n = len(codes)
    ahead = 0 if len(table) > IN_CACHE else n
    for i in range(n):
        if i == ahead:
            ahead = min(n, i + AHEAD)
            seen = 0
            for j in range(i, ahead):
                seen += key_of[codes[j]]
            for j in range(i, ahead):
                code = np.int64(table[_home(key_of[codes[j]], shift)])
                if code >= 0:
                    seen += key_of[code]
            state[SEEN] = seen
        code = codes[i]
        state[LIVE] -= 1
        if code == state[NULL]:
            state[NULL] = NONE
        else:
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
        key_of[code] = state[FREE]
        state[FREE] = code


@nb.njit(nb.void(_TABLE, nb.int64, _TABLE, _READ), nogil=True, cache=True)
def _rehash(old: Slots, shift: int, table: Slots, key_of: Ints) -> None:
    mask = len(table) - 1
    for code in old:
        if code >= 0:
            slot = _home(key_of[code], shift)
            while table[slot] >= 0:
                slot = (slot + 1) & mask
            table[slot] = code


class IntTable:
    """Keys and their codes. Bounded by the most keys at one time; a released key is forgotten."""

    def __init__(self) -> None:
        self._bits = 5
        self._table = np.full(1 << self._bits, -1, np.int32)
        self.key_of: Ints = np.zeros(1 << self._bits - 1, np.int64)
        self._state = new_state()

    def encode(self, keys: Ints, valid: Flags | None, insert: bool, nulls_match: bool) -> tuple[Ints, Ints]:
        """Codes of the keys, -1 where there is none, and the codes that are new."""
        n = len(keys)
        out = np.empty(n, np.int64)
        new = np.empty(n if insert else 0, np.int64)
        flags = NO_FLAGS if valid is None else valid
        self._state[NEW] = 0
        at = 0
        while True:
            at = _encode(
                keys, flags, insert, nulls_match, self._table, 64 - self._bits, self.key_of, self._state, out, new, at
            )
            if at == n:
                return out, new[: self._state[NEW]]
            self._grow()

    def release(self, codes: Ints) -> None:
        """Forget the keys of these codes, each of which is given once."""
        _release(codes, self._table, 64 - self._bits, self.key_of, self._state)

    def reserve(self, keys: int) -> None:
        """Room for so many keys, before there are any."""
        self._bits = max(self._bits, (2 * keys).bit_length())
        self._table = np.full(1 << self._bits, -1, np.int32)
        self.key_of = np.zeros(max(keys, len(self.key_of)), np.int64)

    def _grow(self) -> None:
        if 2 * self._state[LIVE] >= len(self._table):
            self._bits += 1
            old, self._table = self._table, np.full(1 << self._bits, -1, np.int32)
            _rehash(old, 64 - self._bits, self._table, self.key_of)
        else:
            self.key_of = np.concatenate([self.key_of, np.zeros(len(self.key_of) // 4, np.int64)])

    def nulls(self, codes: Ints) -> Flags | None:
        """Which of the codes are negative or that of NULL; None if none is."""
        if self._state[NULL] < 0 and not (len(codes) and codes.min() < 0):
            return None
        found: Flags = (codes < 0) | (codes == self._state[NULL])
        return found

    @property
    def capacity(self) -> int:
        """All codes there have been are below this."""
        return int(self._state[NEXT])

    @property
    def live(self) -> int:
        return int(self._state[LIVE])

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self.key_of.nbytes
