"""Rows that come to a join before their place in the order (004, section 3).

The join itself holds the rows that came in order, and makes their pairs. Here are those that came early, for as long
as they may have partners, and all pairs with at least one of them: so each pair is made once, by whoever of the two
comes last, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.delta import BEGINNING, Delta, Instant, Ints, Step, concat, merge
from penstock.kernels.intern import Interner
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.fast_join import FastJoin
from penstock.operators.join_columns import ColumnsOf, Condition
from penstock.operators.priority import combined
from penstock.scalar import Context

_MOST_PAIRS = 1 << 17
_FEW = 1024
_STEP = Step(BEGINNING)


class _Side:
    """The early rows of one input, found by the codes of their keys; 0 where there are no keys.

    Bounded by the rows that have not ended. Sorted when somebody looks for partners and rows have come since.
    """

    def __init__(self) -> None:
        self._parts: list[Delta] = []
        self._codes: list[Ints] = []
        self._sorted: tuple[Delta, Ints] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, rows: Delta, codes: Ints) -> None:
        if len(rows):
            self._parts.append(rows)
            self._codes.append(codes)
            self._sorted = None

    def by_code(self) -> tuple[Delta, Ints]:
        """All rows, and their codes in ascending order."""
        if self._sorted is None:
            rows, codes = concat(self._parts), np.concatenate(self._codes)
            order = np.argsort(codes, kind="stable")
            self._sorted = rows.take(order), codes[order]
            self._parts, self._codes = [self._sorted[0]], [self._sorted[1]]
        return self._sorted

    def forget(self, now: int) -> None:
        """Rows that have ended by then are not needed."""
        for i in reversed(range(len(self._parts))):
            rows, codes = self._parts[i], self._codes[i]
            assert rows.end is not None
            stay = np.flatnonzero(rows.end > now)
            if len(stay) == len(rows):
                continue
            self._sorted = None
            if len(stay):
                self._parts[i], self._codes[i] = rows.take(stay), codes[stay]
            else:
                del self._parts[i], self._codes[i]

    @property
    def rows(self) -> Sequence[Delta]:
        return self._parts

    def size(self) -> StateSize:
        return StateSize(len(self), sum(rows.nbytes for rows in self._parts) + sum(c.nbytes for c in self._codes))


class EarlyJoin:
    """Beside a ``FastJoin`` of rows that say when they leave.

    Needs: early rows are not before the frontier of the last ``meet``. Promises with it: each pair that has an early
    row once, at the instant of its later row. A pair without priority (by a function other than the maximum) that is
    ahead of the frontier waits until the frontier has passed it.

    Bounded by the early rows that have not ended and such pairs; forgotten when the frontier, which prioritised rows
    do not move, reaches their end or the instant of the pair.
    """

    def __init__(self, join: FastJoin) -> None:
        node = join.node
        self._join, self._node = join, node
        types = [a.type for a, _ in node.keys]
        self._hashed = bool(node.keys)
        self._types = types
        self._interner = Interner(types, nulls_match=False)
        keys = [a for a, _ in node.keys], [b for _, b in node.keys]
        # Failures on rows that come in order have been counted by the join.
        self._of_ordinary = tuple(ColumnsOf(exprs, join.functions, Context(functions=join.functions)) for exprs in keys)
        self._residual = None if node.residual is None else Condition(node.residual, join.functions, join.errors)
        self._sides = _Side(), _Side()
        self._held: list[Delta] = []

    def __bool__(self) -> bool:
        return bool(self._held) or any(map(len, self._sides))

    def arrive(self, side: int, rows: Delta) -> Delta:
        """Early rows of an input; gives the pairs that may go on at once."""
        join = self._join
        found_by = join.found_by(side, rows, _STEP)
        pairs = [self._pairs(side, rows.take(mine), theirs) for mine, theirs in join.partners(side, found_by, rows)]
        codes = np.zeros(len(rows), np.int64)
        if self._hashed:
            codes = self._interner.encode(found_by, len(rows))
        pairs += self._met(side, rows, codes)
        usable = np.flatnonzero(codes >= 0)
        self._sides[side].add(rows if len(usable) == len(rows) else rows.take(usable), codes[usable])
        return self._ahead(pairs)

    def meet(self, out: Delta, left: Delta, right: Delta, frontier: Instant) -> tuple[Delta, Delta]:
        """Rows come in order, and the join has made its pairs of them, ``out``. Gives these with those of early rows
        that are before the frontier, and pairs that may go on at once although they are ahead of it."""
        pairs: list[Delta] = []
        for side, rows in enumerate((left, right)):
            if len(rows) and len(self._sides[1 - side]):
                codes = np.zeros(len(rows), np.int64)
                if self._hashed:
                    codes = self._interner.lookup(self._of_ordinary[side](rows, _STEP), len(rows))
                pairs += self._met(side, rows, codes)
        due: list[Delta] = []
        later: list[Delta] = []
        ts, sub = frontier
        for part in (*pairs, *self._held):
            is_due = (part.ts < ts) | ((part.ts == ts) & (part.sub < sub))
            if is_due.any():
                due.append(part.take(np.flatnonzero(is_due)))
            if not is_due.all():
                later.append(part.take(np.flatnonzero(~is_due)))
        self._held = []
        ahead = self._ahead(later)
        for early in self._sides:
            early.forget(ts)
        self._forget_keys()
        if due:
            out = merge([out, merge(due)]) if len(out) else merge([due[0].slice(0, 0), *due])
            out = out.take(np.lexsort((out.sub, out.ts)))
        return out, ahead

    def size(self) -> StateSize:
        total = NOTHING
        for side in self._sides:
            total += side.size()
        return total + StateSize(0, self._interner.nbytes + sum(h.nbytes for h in self._held))

    def _ahead(self, pairs: Sequence[Delta]) -> Delta:
        """Of pairs that are ahead of the frontier those that may go on; the others are held."""
        together = concat(pairs) if pairs else self._join.nothing
        if not len(together):
            return self._join.nothing
        together = together.take(np.lexsort((together.sub, together.ts)))
        ranked = np.zeros(len(together), bool) if together.priority is None else together.priority > 0
        if ranked.all():
            return together
        self._held.append(together.take(np.flatnonzero(~ranked)))
        return together.take(np.flatnonzero(ranked))

    def _met(self, side: int, rows: Delta, codes: Ints) -> list[Delta]:
        """The pairs of rows of one input with early rows of the other."""
        other = self._sides[1 - side]
        if not len(other):
            return []
        theirs, known = other.by_code()
        first, last = np.searchsorted(known, codes, "left"), np.searchsorted(known, codes, "right")
        counts = np.where(codes >= 0, last - first, 0)
        made = [self._pairs(side, rows.take(mine), theirs.take(at)) for mine, at in _expanded(first, counts)]
        return [pairs for pairs in made if len(pairs)]

    def _pairs(self, side: int, rows: Delta, theirs: Delta) -> Delta:
        """Pairs of rows, one by one, as far as they are there at the same time and the residual is TRUE."""
        left, right = (rows, theirs) if side == 0 else (theirs, rows)
        assert left.end is not None
        assert right.end is not None
        end = np.minimum(left.end, right.end)
        chosen = np.flatnonzero(np.maximum(left.ts, right.ts) < end)
        if len(chosen) < len(end):
            left, right, end = left.take(chosen), right.take(chosen), end[chosen]
        if self._residual is not None and len(end):
            columns: tuple[pa.Array, ...] = left.columns + right.columns
            passed = self._residual([columns[i] for i in self._residual.reads], left.sign, _STEP)
            if passed is not None:
                left, right, end = left.take(passed), right.take(passed), end[passed]
        later = (left.ts > right.ts) | ((left.ts == right.ts) & (left.sub > right.sub))
        ts, sub = np.where(later, left.ts, right.ts), np.where(later, left.sub, right.sub)
        priority = combined(self._node.priority, left.priority, right.priority, len(end))
        return Delta(
            self._node.schema, left.columns + right.columns, ts, sub, np.ones(len(end), np.int8), ts, sub, priority, end
        )

    def _forget_keys(self) -> None:
        if not self._hashed or self._interner.live <= _FEW + 2 * sum(map(len, self._sides)):
            return
        self._interner = Interner(self._types, nulls_match=False)
        sides = self._sides
        self._sides = _Side(), _Side()
        for which, side in enumerate(sides):
            for rows in side.rows:
                codes = self._interner.encode(self._of_ordinary[which](rows, _STEP), len(rows))
                self._sides[which].add(rows, codes)


def _expanded(first: Ints, counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """For each place i the numbers from ``first[i]`` on, ``counts[i]`` of them: (i, number), not too many at a time."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + _MOST_PAIRS, "right")), start + 1)
        some = counts[start:stop]
        total = int(some.sum())
        if total:
            mine = np.repeat(np.arange(start, stop), some)
            offset = np.arange(total) - np.repeat(np.cumsum(some) - some, some)
            yield mine, first[mine] + offset
        start = stop
