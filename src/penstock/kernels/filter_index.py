"""Which conditions of many hold on which rows: constants over a column are looked up together, not tried one by one.

A member is a list of conditions that must all hold. One of them is its *access*: equality where it has one, else an
interval. The members with an access to the same column are found together (``filter_lookup``); what else a member asks
is tried on the rows of its access only, for all members at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.buffers import Flags
from penstock.kernels.filter_conditions import GREATEST, LEAST, Between, Condition, Equal, has_keys
from penstock.kernels.filter_lookup import BLOCK, Block, Constants, Intervals
from penstock.model.delta import Ints
from penstock.model.schema import Schema
from penstock.model.types import Kind

Small = npt.NDArray[np.int32]

_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)
_READ_FLAGS = nb.types.Array(nb.boolean, 1, "C", readonly=True)
_SMALL = nb.int32[::1]
_WRITE = nb.int64[::1]
_PAIRS = nb.types.Tuple((_SMALL, _SMALL))  # type: ignore[no-untyped-call]


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


class _Limits:
    """For each member the interval on one column, everything where it has none."""

    def __init__(self, column: int, members: int) -> None:
        self.column = column
        self.lows = np.full(members, LEAST, np.int64)
        self.highs = np.full(members, GREATEST, np.int64)
        self.asks = np.zeros(members, np.bool_)

    def set(self, member: int, interval: Between) -> None:
        self.lows[member], self.highs[member], self.asks[member] = interval.low, interval.high, True

    def narrow(self, rows: Small, who: Small, block: Block) -> tuple[Small, Small]:
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
        self._accesses: list[Constants | Intervals] = [
            *[Constants(c, schema[c].type, wanted) for c, wanted in constants.items()],
            *[Intervals(c, wanted) for c, wanted in intervals.items()],
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
        for first in range(0, length, BLOCK):
            block = Block(self._schema, columns, first)
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
