"""Which conditions of many hold on which rows: constants over a column are looked up together, not tried one by one.

A member is a list of conditions that must all hold. One of them is its *access*: equality where it has one, else an
interval. The members with an access to the same column share a structure from a row's value to a *code*: equal
constants have one, in a hash table; intervals are cut into segments at all their ends, and the codes of a segment are
the places of a binary tree over the segments on the way from there to the root, each interval standing at those few
places that together cover it. What else a member asks is tried on the rows of its access only,
of all members at once.
"""

from __future__ import annotations

from collections.abc import Sequence

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
_SMALL = nb.int32[::1]
_WRITE = nb.int64[::1]
_PAIRS = nb.types.Tuple((_SMALL, _SMALL))  # type: ignore[no-untyped-call]
_BLOCK = 1 << 14
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
        result[i] = codes[min(np.uint64(values[i]) - np.uint64(least), last)]
    for i in range(len(valid)):
        if not valid[i]:
            result[i] = -1
    return result


@nb.njit(_PAIRS(_READ, _READ, _READ, _READ, _READ), nogil=True, cache=True)
def _pairs(codes: Ints, starts: Ints, members: Ints, above: Ints, room: Ints) -> tuple[Small, Small]:
    """Rows, in order, with the members at their codes.

    The members at a code are ``members[starts[code] : starts[code + 1]]`` and those at the code ``above`` it;
    ``room`` says how many.
    """
    total = 0
    for code in codes:
        if code >= 0:
            total += room[code]
    rows, who = np.empty(total, np.int32), np.empty(total, np.int32)
    n = 0
    for i in range(len(codes)):
        code = codes[i]
        while code >= 0:
            for j in range(np.uint64(starts[code]), np.uint64(starts[code + 1])):
                rows[n] = i
                who[n] = members[j]
                n += 1
            code = above[code]
    return rows, who


@nb.njit(
    nb.int64(_SMALL, _SMALL, nb.int64, _READ, _READ_FLAGS, _READ, _READ, _READ_FLAGS), nogil=True, cache=True
)
def _narrow(
    rows: Small, who: Small, count: int, values: Ints, valid: Flags, lows: Ints, highs: Ints, asks: Flags
) -> int:
    """Keep the pairs of a row with a value between what its member says, in place; gives how many stay.

    A NULL is between nothing; where a member does not ask for this column, its interval has everything.
    """
    n = 0
    for i in range(count):
        row, member = rows[i], np.uint64(who[i])
        value = values[np.uint64(row)]
        holds = (lows[member] <= value) & (value <= highs[member])
        if len(valid):
            holds &= valid[np.uint64(row)] | (not asks[member])
        # Written in any case, and kept or not: which of both happens the processor cannot foresee.
        rows[n] = row
        who[n] = member
        n += int(holds)
    return n


@nb.njit(nb.void(_SMALL, _WRITE), nogil=True, cache=True)
def _count(who: Small, counts: Ints) -> None:
    for member in who:
        counts[np.uint64(member)] += 1


@nb.njit(nb.void(nb.int64, _SMALL, _SMALL, _WRITE, _WRITE), nogil=True, cache=True)
def _place(first: int, rows: Small, who: Small, at: Ints, out: Ints) -> None:
    """Each row, counted from ``first``, to the place that ``at`` has for its member, which moves on."""
    for i in range(len(rows)):
        member = np.uint64(who[i])
        out[at[member]] = first + rows[i]
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
        self.lists = _Lists(lists, [-1] * len(lists))

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

    def codes(self, rows: _Keys) -> Ints:
        table = self._table
        if isinstance(table, BytesTable):
            return table.encode(rows.column(self.column), False, False)[0]
        values, valid = rows.of(self.column)
        if isinstance(table, IntTable):
            return table.encode(values, valid, False, False)[0]
        return _direct(values, valid, self._least, table)


def _flat(lists: Sequence[list[int]], above: Sequence[int], codes: Sequence[int]) -> tuple[_Lists, list[int]]:
    """The same with nothing above: each of these codes has a list of its own."""
    whole: list[list[int]] = []
    for code in codes:
        whole.append([])
        while code >= 0:
            whole[-1] += lists[code]
            code = above[code]
    return _Lists(whole, [-1] * len(whole)), list(range(len(whole)))


class _Intervals:
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
        self.lists = _Lists([at[n] for n in nodes], above)
        self._ends = np.full(size - 1, GREATEST, np.int64)
        self._ends[: len(ends)] = sorted(ends)
        if sum(self.lists.room[c] for c in codes if c >= 0) <= _FLAT * len(wanted):
            self.lists, codes = _flat([at[n] for n in nodes], above, codes)
        self._codes = np.array(codes, np.int64)

    def codes(self, rows: _Keys) -> Ints:
        values, valid = rows.of(self.column)
        return _segments(values, valid, self._ends, self._codes)


class _Keys:
    """A block of the rows of a batch: its columns and their keys, as far as they are asked for."""

    def __init__(self, schema: Schema, columns: Sequence[pa.Array], first: int) -> None:
        self._schema, self._columns, self._first = schema, columns, first
        self._known: dict[int, tuple[Ints, Flags]] = {}

    def column(self, column: int) -> pa.Array:
        return self._columns[column].slice(self._first, _BLOCK)

    def of(self, column: int) -> tuple[Ints, Flags]:
        """The keys, and where they are valid; that is empty where there is no NULL."""
        known = self._known.get(column)
        if known is None:
            array = self.column(column)
            valid = validity(array)
            known = keys(array, self._schema[column].type), NO_FLAGS if valid is None else valid
            self._known[column] = known
        return known


class _Limits:
    """For each member the interval on one column, everything where it has none."""

    def __init__(self, column: int, members: int) -> None:
        self.column = column
        self.lows = np.full(members, LEAST, np.int64)
        self.highs = np.full(members, GREATEST, np.int64)
        self.asks = np.zeros(members, np.bool_)

    def set(self, member: int, interval: Between) -> None:
        self.lows[member], self.highs[member], self.asks[member] = interval.low, interval.high, True

    def narrow(self, rows: Small, who: Small, block: _Keys) -> tuple[Small, Small]:
        values, valid = block.of(self.column)
        count = _narrow(rows, who, len(rows), values, valid, self.lows, self.highs, self.asks)
        return rows[:count], who[:count]


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
        self._limits: dict[int, _Limits] = {}
        for number, conditions in enumerate(members):
            access, others = self._split(conditions, popular)
            known = [i for i, c in enumerate(conditions) if c is access or self._interval(c) is not None]
            self.known.append(tuple(known))
            if any(b.low > b.high for b in others) or _impossible(access):
                continue
            for b in others:
                self._limits.setdefault(b.column, _Limits(b.column, len(members))).set(number, b)
            if isinstance(access, Equal):
                constants.setdefault(access.column, []).append((number, access.values))
            else:
                intervals.setdefault(access.column, []).append((number, access))
        self._accesses: list[_Constants | _Intervals] = [
            *[_Constants(c, schema[c].type, wanted) for c, wanted in constants.items()],
            *[_Intervals(c, wanted) for c, wanted in intervals.items()],
        ]

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
        starts = np.zeros(self._count + 1, np.int64)
        counts = starts[1:]
        found: list[tuple[int, Small, Small]] = []
        for first in range(0, length, _BLOCK):
            block = _Keys(self._schema, columns, first)
            for access in self._accesses:
                lists = access.lists
                rows, who = _pairs(access.codes(block), lists.starts, lists.members, lists.above, lists.room)
                for limits in self._limits.values():
                    rows, who = limits.narrow(rows, who, block)
                _count(who, counts)
                found.append((first, rows, who))
        np.cumsum(counts, out=counts)
        bounds: list[int] = starts.tolist()
        out = np.empty(bounds[-1], np.int64)
        for first, rows, who in found:
            _place(first, rows, who, starts, out)
        return out, bounds


def _impossible(condition: Condition) -> bool:
    return not condition.values if isinstance(condition, Equal) else condition.low > condition.high
