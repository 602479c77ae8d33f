"""Which conditions of many hold on which rows: constants over a column are looked up together, not tried one by one.

A member is a list of conditions that must all hold. One of them is its *access*: equality where it has one, else an
interval. The members with an access to the same column share a structure from a row's value to a *code*: equal
constants have one, in a hash table; intervals are cut into segments at all their ends, and the codes of a segment are
the places of a binary tree over the segments on the way from there to the root, each interval standing at those few
places that together cover it. What else a member asks is tried on the rows of its access only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.delta import Ints
from penstock.kernels.buffers import NO_FLAGS, Flags
from penstock.kernels.filter_conditions import GREATEST, LEAST, Between, Condition, Equal, has_keys, keys
from penstock.kernels.keys_bytes import BytesTable
from penstock.kernels.keys_fixed import IntTable
from penstock.kernels.vectors import validity
from penstock.plan.nodes import Schema
from penstock.types import DataType, Kind
from penstock.values import to_arrow

Small = npt.NDArray[np.int32]

_DECIMAL_BYTES = 16
_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)
_READ_FLAGS = nb.types.Array(nb.boolean, 1, "C", readonly=True)
_TABLE = nb.types.Array(nb.int64, 2, "C", readonly=True)
_TABLE_FLAGS = nb.types.Array(nb.boolean, 2, "C", readonly=True)
_SMALL = nb.int32[::1]
_WRITE = nb.int64[::1]
_NO_TABLE: npt.NDArray[np.int64] = np.empty((0, 0), np.int64)
_NO_TABLE_FLAGS: npt.NDArray[np.bool_] = np.empty((0, 0), np.bool_)


@nb.njit(_WRITE(_READ, _READ_FLAGS, _READ, _READ), nogil=True, cache=True)
def _segments(values: Ints, valid: Flags, ends: Ints, codes: Ints) -> Ints:
    """The code of each value's segment, the number of ``ends`` that are not above it; -1 where it is NULL."""
    result = np.empty(len(values), np.int64)
    for i in range(len(values)):
        low, length = 0, len(ends)
        value = values[i]
        while length > 0:
            half = (length + 1) >> 1
            low += half * (ends[low + half - 1] <= value)
            length -= half
        result[i] = codes[low]
    for i in range(len(valid)):
        if not valid[i]:
            result[i] = -1
    return result


@nb.njit(
    nb.types.UniTuple(_SMALL, 2)(
        _READ, _READ, _READ, _READ, _READ, _READ, _READ, _READ, _READ, _TABLE, _TABLE_FLAGS, _WRITE
    ),
    nogil=True, cache=True,
)  # fmt: skip
def _pairs(
    codes: Ints, starts: Ints, members: Ints, above: Ints, room: Ints, first: Ints, columns: Ints, lows: Ints,
    highs: Ints, values: Ints, valid: Flags, counts: Ints,
) -> tuple[Small, Small]:  # fmt: skip
    """Rows, in order, with the members whose conditions hold; ``counts`` of each member grows by its rows.

    The members at a code are ``members[starts[code] : starts[code + 1]]`` and those at the code ``above`` it. The
    conditions of a member are from ``first[member]`` to ``first[member + 1]``.
    """
    most = 1
    for code in codes:
        if code >= 0:
            most += room[code]
    rows, who = np.empty(most, np.int32), np.empty(most, np.int32)
    n = 0
    for i in range(len(codes)):
        code = codes[i]
        while code >= 0:
            for j in range(starts[code], starts[code + 1]):
                member = members[j]
                holds = True
                for c in range(first[member], first[member + 1]):
                    value = values[columns[c], i]
                    holds &= (lows[c] <= value) & (value <= highs[c])
                    if len(valid):
                        holds &= valid[columns[c], i]
                # Written in any case, and kept or not: which of both happens cannot be foreseen by the processor.
                rows[n] = i
                who[n] = member
                n += holds
                counts[member] += holds
            code = above[code]
    return rows[:n], who[:n]


@nb.njit(nb.void(_SMALL, _SMALL, _WRITE, _WRITE), nogil=True, cache=True)
def _place(rows: Small, who: Small, at: Ints, out: Ints) -> None:
    """Each row to the place that ``at`` has for its member, which moves on."""
    for i in range(len(rows)):
        member = who[i]
        out[at[member]] = rows[i]
        at[member] += 1


class _Lists:
    """Lists of members by code, each with the code above it (-1: none), as arrays."""

    def __init__(self, lists: Sequence[Sequence[int]], above: Sequence[int]) -> None:
        self.starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        self.members = np.array([m for members in lists for m in members], np.int64)
        self.above = np.array(above, np.int64)
        room: list[int] = []
        for members, up in zip(lists, above, strict=True):
            room.append(len(members) + (room[up] if up >= 0 else 0))
        self.room = np.array(room, np.int64)


class _Constants:
    """Equality with constants on one column."""

    def __init__(self, column: int, dtype: DataType, wanted: Sequence[tuple[int, frozenset[object]]]) -> None:
        self.column = column
        by_value: dict[object, list[int]] = {}
        for member, values in wanted:
            for value in values:
                by_value.setdefault(value, []).append(member)
        self._table: IntTable | BytesTable
        if has_keys(dtype):
            self._table = IntTable()
            codes, _ = self._table.encode(np.array(list(by_value), np.int64), None, True, False)
        else:
            self._table = BytesTable(dtype.arrow, _DECIMAL_BYTES if dtype.kind is Kind.DECIMAL else None)
            codes, _ = self._table.encode(to_arrow(list(by_value), dtype), True, False)
        lists: list[list[int]] = [[] for _ in codes]
        for code, members in zip(codes.tolist(), by_value.values(), strict=True):
            lists[code] = members
        self.lists = _Lists(lists, [-1] * len(lists))

    def codes(self, rows: _Keys) -> Ints:
        if isinstance(self._table, BytesTable):
            return self._table.encode(rows.columns[self.column], False, False)[0]
        return self._table.encode(*rows.of(self.column), False, False)[0]


class _Intervals:
    """Intervals on one column: a tree over the segments between their ends."""

    def __init__(self, column: int, wanted: Sequence[tuple[int, Between]]) -> None:
        self.column = column
        ends = {b.low for _, b in wanted if b.low > LEAST} | {b.high + 1 for _, b in wanted if b.high < GREATEST}
        self._ends = np.array(sorted(ends), np.int64)
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

        self.lists = _Lists([at[n] for n in nodes], [nearest(n >> 1) for n in nodes])
        self._codes = np.array([nearest(size + i) for i in range(len(ends) + 1)], np.int64)

    def codes(self, rows: _Keys) -> Ints:
        values, valid = rows.of(self.column)
        return _segments(values, NO_FLAGS if valid is None else valid, self._ends, self._codes)


class _Keys:
    """The columns of a batch, and their keys as far as they are asked for."""

    def __init__(self, schema: Schema, columns: Sequence[pa.Array]) -> None:
        self._schema, self.columns = schema, columns
        self._known: dict[int, tuple[Ints, Flags | None]] = {}

    def of(self, column: int) -> tuple[Ints, Flags | None]:
        known = self._known.get(column)
        if known is None:
            array = self.columns[column]
            known = self._known[column] = keys(array, self._schema[column].type), validity(array)
        return known

    def table(self, columns: Sequence[int], length: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Keys and validity of several columns; the latter is empty where there is no NULL."""
        found = [self.of(c) for c in columns]
        values = _NO_TABLE if not found else found[0][0].reshape(1, length)
        if len(found) > 1:
            values = np.stack([v for v, _ in found])
        if all(flags is None for _, flags in found):
            return values, _NO_TABLE_FLAGS
        whole = np.ones(length, np.bool_)
        return values, np.stack([whole if flags is None else flags for _, flags in found])


class FilterIndex:
    """Members, numbered as given, each a list of conditions.

    ``known``: the places of the conditions that the index answers for each member. The others are left to the caller:
    further lists of constants, and texts besides the access. A member without any condition cannot be here.
    Bounded by the members.
    """

    def __init__(self, schema: Schema, members: Sequence[Sequence[Condition]]) -> None:
        self._schema = schema
        self._count = len(members)
        self.known: list[tuple[int, ...]] = []
        popular: dict[tuple[bool, int], int] = {}
        for conditions in members:
            for place in {self._place(c) for c in conditions}:
                popular[place] = popular.get(place, 0) + 1
        constants: dict[int, list[tuple[int, frozenset[object]]]] = {}
        intervals: dict[int, list[tuple[int, Between]]] = {}
        rest: list[list[Between]] = []
        for number, conditions in enumerate(members):
            access, others = self._split(conditions, popular)
            known = [i for i, c in enumerate(conditions) if c is access or self._interval(c) is not None]
            self.known.append(tuple(known))
            rest.append([])
            if any(b.low > b.high for b in others) or (isinstance(access, Between) and access.low > access.high):
                continue
            rest[-1] = others
            if isinstance(access, Equal):
                constants.setdefault(access.column, []).append((number, access.values))
            else:
                intervals.setdefault(access.column, []).append((number, access))
        self._accesses: list[_Constants | _Intervals] = [
            *[_Constants(c, schema[c].type, wanted) for c, wanted in constants.items() if any(v for _, v in wanted)],
            *[_Intervals(c, wanted) for c, wanted in intervals.items()],
        ]
        self._columns = sorted({b.column for others in rest for b in others})
        self._first = np.cumsum([0, *map(len, rest)], dtype=np.int64)
        flat = [b for others in rest for b in others]
        self._which = np.array([self._columns.index(b.column) for b in flat], np.int64)
        self._lows = np.array([b.low for b in flat], np.int64)
        self._highs = np.array([b.high for b in flat], np.int64)

    def _place(self, condition: Condition) -> tuple[bool, int]:
        return isinstance(condition, Equal), condition.column

    def _interval(self, condition: Condition) -> Between | None:
        """The condition as an interval, if it is one."""
        if isinstance(condition, Between):
            return condition
        if not condition.values:
            return Between(condition.column, 1, 0)
        if len(condition.values) > 1 or not has_keys(self._schema[condition.column].type):
            return None
        (key,) = condition.values
        assert isinstance(key, int)
        return Between(condition.column, key, key)

    def _split(
        self, conditions: Sequence[Condition], popular: dict[tuple[bool, int], int]
    ) -> tuple[Condition, list[Between]]:
        """The access, and the other intervals, one for each column.

        The access is an equality rather than an interval, one with many rather than one of two values, and then one
        to a column that many members ask for.
        """

        def order(c: Condition) -> tuple[bool, bool, int, int]:
            boolean = self._schema[c.column].type.kind is Kind.BOOLEAN
            return isinstance(c, Between), boolean, -popular[self._place(c)], c.column

        access = min(conditions, key=order)
        merged: dict[int, Between] = {}
        for c in conditions:
            b = self._interval(c)
            if b is None or (c is access and isinstance(c, Equal)):
                continue
            known = merged.get(b.column, b)
            merged[b.column] = Between(b.column, max(b.low, known.low), min(b.high, known.high))
        if isinstance(access, Between):
            access = merged.pop(access.column)
        return access, list(merged.values())

    def select(self, columns: Sequence[pa.Array], length: int) -> tuple[Ints, list[int]]:
        """Rows by member, each member's in order, and where each member's begin; the last number is that of all."""
        rows = _Keys(self._schema, columns)
        table = rows.table(self._columns, length)
        counts = np.zeros(self._count, np.int64)
        found = []
        for access in self._accesses:
            lists = access.lists
            found.append(
                _pairs(
                    access.codes(rows), lists.starts, lists.members, lists.above, lists.room, self._first, self._which,
                    self._lows, self._highs, *table, counts,
                )
            )  # fmt: skip
        starts = np.zeros(self._count + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        out = np.empty(int(starts[-1]), np.int64)
        at = starts[:-1].copy()
        for pairs in found:
            _place(*pairs, at, out)
        bounds: list[int] = starts.tolist()
        return out, bounds
