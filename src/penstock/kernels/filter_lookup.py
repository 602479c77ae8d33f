"""From the value of a column to the members that ask for it: by equality with constants, or by intervals.

Both give a row a *code* and a code a list of members. Equal constants have one code, found in a table. Intervals are
cut into segments at all their ends; a binary tree stands over the segments, each interval at those few places that
together cover it, and the code of a segment is the lowest such place on the way to the root, where the lists of the
places above follow. Where lists are short enough each segment has one of its own instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.kernels.buffers import NO_FLAGS, Flags
from penstock.kernels.filter_conditions import GREATEST, LEAST, Between, has_keys, keys
from penstock.kernels.keys_bytes import BytesTable
from penstock.kernels.keys_fixed import IntTable
from penstock.kernels.vectors import validity
from penstock.model.delta import Ints
from penstock.model.schema import Schema
from penstock.model.types import DataType, Kind
from penstock.model.values import to_arrow

_DECIMAL_BYTES = 16
_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)
_READ_FLAGS = nb.types.Array(nb.boolean, 1, "C", readonly=True)
_WRITE = nb.int64[::1]
BLOCK = 1 << 14
"""Rows that are looked at together: what is computed on the way stays in the cache, and memory is used again."""
# Segments have lists of their own where these are so long for each interval, or shorter.
_FLAT = 256
# A table from integers to codes may have so many places for each constant.
_SPARSE = 64


@nb.njit(_WRITE(_READ, _READ_FLAGS, _READ, _READ), nogil=True, cache=True)
def _segments(values: Ints, valid: Flags, ends: Ints, codes: Ints) -> Ints:
    """The code of each value's segment, the number of ``ends`` that are not above it; -1 where it is NULL.

    There is one less end than a power of two. All values take a step of the search before any takes the next: no step
    waits for another.
    """
    result = np.zeros(len(values), np.int64)
    half = (len(ends) + 1) >> 1
    while half > 0:
        for i in range(len(values)):
            result[i] += half * int(ends[np.uint64(result[i] + half - 1)] <= values[i])
        half >>= 1
    for i in range(len(values)):
        result[i] = codes[np.uint64(result[i])]
    for i in range(len(valid)):
        if not valid[i]:
            result[i] = -1
    return result


@nb.njit(_WRITE(_READ, _READ_FLAGS, nb.int64, _READ), nogil=True, cache=True)
def _direct(values: Ints, valid: Flags, least: int, codes: Ints) -> Ints:
    """The code of each value, which is at its distance from ``least``, and at the end for all that are not there."""
    result = np.empty(len(values), np.int64)
    last = np.uint64(len(codes) - 1)
    for i in range(len(values)):
        result[i] = codes[min(np.uint64(values[i]) - np.uint64(np.int64(least)), last)]
    for i in range(len(valid)):
        if not valid[i]:
            result[i] = -1
    return result


class Block:
    """A block of the rows of a batch: its columns and their keys, as far as they are asked for."""

    def __init__(self, schema: Schema, columns: Sequence[pa.Array], first: int) -> None:
        self._schema, self._columns, self._first = schema, columns, first
        self._known: dict[int, tuple[Ints, Flags]] = {}

    def column(self, column: int) -> pa.Array:
        return self._columns[column].slice(self._first, BLOCK)

    def of(self, column: int) -> tuple[Ints, Flags]:
        """The keys, and where they are valid; that is empty where there is no NULL."""
        known = self._known.get(column)
        if known is None:
            array = self.column(column)
            valid = validity(array)
            known = keys(array, self._schema[column].type), NO_FLAGS if valid is None else valid
            self._known[column] = known
        return known


class Lists:
    """Lists of members by code, each with the code above it (-1: none), as arrays."""

    def __init__(self, lists: Sequence[Sequence[int]], above: Sequence[int]) -> None:
        self.starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        self.members = np.array([m for members in lists for m in members], np.int64)
        self.above = np.array(above, np.int64)
        room: list[int] = []
        for members, up in zip(lists, above, strict=True):
            room.append(len(members) + (room[up] if up >= 0 else 0))
        self.room = np.array(room, np.int64)


class Constants:
    """Equality with constants on one column: looked up in a table, of all integers from the least if they are near."""

    def __init__(self, column: int, dtype: DataType, wanted: Sequence[tuple[int, frozenset[object]]]) -> None:
        self.column = column
        by_value: dict[object, list[int]] = {}
        for member, values in wanted:
            for value in values:
                by_value.setdefault(value, []).append(member)
        self._table: Ints | IntTable | BytesTable
        self._least = 0
        if has_keys(dtype):
            self._table, codes = self._integers(np.array(list(by_value), np.int64))
        else:
            self._table = BytesTable(dtype.arrow, _DECIMAL_BYTES if dtype.kind is Kind.DECIMAL else None)
            codes, _ = self._table.encode(to_arrow(list(by_value), dtype), True, False)
        lists: list[list[int]] = [[] for _ in codes]
        for code, members in zip(codes.tolist(), by_value.values(), strict=True):
            lists[code] = members
        self.lists = Lists(lists, [-1] * len(lists))

    def _integers(self, constants: Ints) -> tuple[Ints | IntTable, Ints]:
        least, greatest = int(constants.min()), int(constants.max())
        if greatest - least <= _SPARSE * len(constants):
            self._least = least
            codes = np.arange(len(constants))
            direct = np.full(greatest - least + 2, -1, np.int64)
            direct[constants - least] = codes
            return direct, codes
        table = IntTable()
        table.reserve(4 * len(constants))
        return table, table.encode(constants, None, True, False)[0]

    def codes(self, block: Block) -> Ints:
        table = self._table
        if isinstance(table, BytesTable):
            return table.encode(block.column(self.column), False, False)[0]
        values, valid = block.of(self.column)
        if isinstance(table, IntTable):
            return table.encode(values, valid, False, False)[0]
        return _direct(values, valid, self._least, table)


def _flat(lists: Sequence[list[int]], above: Sequence[int], codes: Sequence[int]) -> tuple[Lists, list[int]]:
    """The same with nothing above: each of these codes has a list of its own."""
    whole: list[list[int]] = []
    for code in codes:
        whole.append([])
        while code >= 0:
            whole[-1] += lists[code]
            code = above[code]
    return Lists(whole, [-1] * len(whole)), list(range(len(whole)))


class Intervals:
    """Intervals on one column: a tree over the segments between their ends."""

    def __init__(self, column: int, wanted: Sequence[tuple[int, Between]]) -> None:
        self.column = column
        ends = {b.low for _, b in wanted if b.low > LEAST} | {b.high + 1 for _, b in wanted if b.high < GREATEST}
        place = {end: i + 1 for i, end in enumerate(sorted(ends))}
        size = 1 << len(ends).bit_length()
        at: dict[int, list[int]] = {}
        for member, b in wanted:
            low = size + (place[b.low] if b.low > LEAST else 0)
            high = size + (place[b.high + 1] if b.high < GREATEST else len(ends) + 1)
            while low < high:
                if low & 1:
                    at.setdefault(low, []).append(member)
                    low += 1
                if high & 1:
                    high -= 1
                    at.setdefault(high, []).append(member)
                low, high = low >> 1, high >> 1
        nodes = sorted(at)
        code = {node: i for i, node in enumerate(nodes)}

        def nearest(node: int) -> int:
            while node and node not in code:
                node >>= 1
            return code.get(node, -1)

        above = [nearest(n >> 1) for n in nodes]
        codes = [nearest(size + min(i, len(ends))) for i in range(size)]
        self.lists = Lists([at[n] for n in nodes], above)
        self._ends = np.full(size - 1, GREATEST, np.int64)
        self._ends[: len(ends)] = sorted(ends)
        if sum(self.lists.room[c] for c in codes if c >= 0) <= _FLAT * len(wanted):
            self.lists, codes = _flat([at[n] for n in nodes], above, codes)
        self._codes = np.array(codes, np.int64)

    def codes(self, block: Block) -> Ints:
        values, valid = block.of(self.column)
        return _segments(values, valid, self._ends, self._codes)
