"""Rows that come to a join before their place in the order (004, section 3).

The join itself holds the rows that came in order, and makes their pairs. Here are those that came early, for as long
as they may have partners, and all pairs with at least one of them: so each pair is made once, by whoever of the two
comes last, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.intern import Interner
from penstock.model.delta import BEGINNING, MIN_TS, Delta, Instant, Ints, Step, concat, merge
from penstock.model.schema import Schema
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.fast_join import FastJoin
from penstock.operators.join_columns import ColumnsOf, Condition
from penstock.operators.priority import combined
from penstock.operators.saved_rows import SavedRows
from penstock.operators.state import Loaded, Saved, together
from penstock.scalar import Context

_MOST_PAIRS = 1 << 17
_FEW = 1024
_STEP = Step(BEGINNING)


class _Side:
    """The early rows of one input in the order in which they came, found by the codes of their keys; 0 where there are
    no keys.

    Bounded by the rows that have not ended, and those that came after one of them and have; these are removed once
    they are more. Sorted when somebody looks for partners and rows have come or gone since.
    """

    def __init__(self) -> None:
        self.kept = SavedRows()
        self._codes: list[Ints] = []
        self._sorted: tuple[Delta, Ints, Ints] | None = None
        self._now = MIN_TS

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, rows: Delta, codes: Ints) -> None:
        if len(rows):
            self.kept.add(rows)
            self._codes.append(codes)
            self._sorted = None

    def by_code(self) -> tuple[Delta, Ints, Ints]:
        """All rows, the order of their codes, and the codes in this order."""
        if self._sorted is None:
            rows, codes = self.kept.whole(), np.concatenate(self._codes)
            assert isinstance(rows, Delta)
            assert rows.end is not None
            stay = np.flatnonzero(rows.end > self._now)
            if 2 * len(stay) < len(rows):
                rows, codes = rows.take(stay), codes[stay]
                self.kept.become(rows)
            order = np.argsort(codes, kind="stable")
            self._codes = [codes] if len(codes) else []
            self._sorted = rows, order, codes[order]
        return self._sorted

    def forget(self, now: int) -> None:
        """Rows that have ended by then are not needed."""
        self._now = now
        while self.kept.parts:
            rows = self.kept.parts[0]
            assert isinstance(rows, Delta)
            assert rows.end is not None
            there = rows.end > now
            gone = int(np.argmax(there)) if there.any() else len(rows)
            if not gone:
                return
            self.kept.drop(gone)
            self._sorted = None
            if gone < len(rows):
                self._codes[0] = self._codes[0][gone:]
                return
            del self._codes[0]

    def encode(self, codes_of: Callable[[Delta], Ints]) -> None:
        """Let rows have other codes."""
        self._codes = [codes_of(rows) for rows in self.kept.parts if isinstance(rows, Delta)]
        self._sorted = None

    def size(self) -> StateSize:
        nbytes = sum(rows.nbytes for rows in self.kept.parts if isinstance(rows, Delta))
        found = self._sorted
        nbytes += sum(c.nbytes for c in self._codes) + (0 if found is None else found[1].nbytes + found[2].nbytes)
        return StateSize(len(self), nbytes)


class EarlyJoin:
    """Beside a ``FastJoin`` of rows that say when they leave.

    Needs: early rows are not before the frontier of the last ``meet``. Promises with it: each pair that has an early
    row once, at the instant of its later row. With ``hold`` a pair without priority that is ahead of the frontier waits
    until the frontier has passed it.

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
        self._held = SavedRows()

    def __bool__(self) -> bool:
        return bool(len(self._held)) or any(map(len, self._sides))

    def arrive(self, side: int, rows: Delta, *, hold: bool) -> Delta:
        """Early rows of an input; gives the pairs that may go on at once. ``hold``: those without priority may not."""
        join = self._join
        found_by = join.found_by(side, rows, _STEP)
        pairs = [self._pairs(side, rows.take(mine), theirs) for mine, theirs in join.partners(side, found_by, rows)]
        codes = np.zeros(len(rows), np.int64)
        if self._hashed:
            codes = self._interner.encode(found_by, len(rows))
        pairs += self._met(side, rows, codes)
        usable = np.flatnonzero(codes >= 0)
        self._sides[side].add(rows if len(usable) == len(rows) else rows.take(usable), codes[usable])
        return self._ahead(pairs, hold)

    def pass_by(self, side: int, rows: Delta, *, hold: bool) -> Delta:
        """Rows of an input come ahead of the other; gives their pairs with early rows that may go on at once."""
        return self._ahead(self._passed(side, rows), hold)

    def meet(self, out: Delta, left: Delta, right: Delta, frontier: Instant, *, hold: bool) -> tuple[Delta, Delta]:
        """Rows come in order, and the join has made its pairs of them, ``out``. Gives these with those of early rows
        that are before the frontier, and pairs that may go on at once although they are ahead of it."""
        pairs = [*self._passed(0, left), *self._passed(1, right)]
        due: list[Delta] = []
        later: list[Delta] = []
        ts, sub = frontier
        held = [part for part in self._held.parts if isinstance(part, Delta)]
        self._held.drop(len(self._held))
        for part in (*pairs, *held):
            is_due = (part.ts < ts) | ((part.ts == ts) & (part.sub < sub))
            if is_due.any():
                due.append(part.take(np.flatnonzero(is_due)))
            if not is_due.all():
                later.append(part.take(np.flatnonzero(~is_due)))
        ahead = self._ahead(later, hold)
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
        held = sum(h.nbytes for h in self._held.parts if isinstance(h, Delta))
        return total + StateSize(0, self._interner.nbytes + held)

    def save(self) -> Saved:
        left, right = self._sides
        return together(left=left.kept.save(), right=right.kept.save(), held=self._held.save())

    def load(self, state: Loaded, schemas: Sequence[Schema]) -> None:
        """Become, fresh, what was saved; ``schemas`` are those of the inputs."""
        for side, name, schema in zip(self._sides, ("left", "right"), schemas, strict=True):
            side.kept = SavedRows.loaded(schema, state.part(name))
        self._held = SavedRows.loaded(self._node.schema, state.part("held"))
        self._encode()

    def _passed(self, side: int, rows: Delta) -> list[Delta]:
        """The pairs of rows that come in order with early rows of the other input."""
        if not len(rows) or not len(self._sides[1 - side]):
            return []
        codes = np.zeros(len(rows), np.int64)
        if self._hashed:
            codes = self._interner.lookup(self._of_ordinary[side](rows, _STEP), len(rows))
        return self._met(side, rows, codes)

    def _ahead(self, pairs: Sequence[Delta], hold: bool) -> Delta:
        """Of pairs that are ahead of the frontier those that may go on; the others are held."""
        found = concat(pairs) if pairs else self._join.nothing
        if not len(found):
            return self._join.nothing
        found = found.take(np.lexsort((found.sub, found.ts)))
        ranked = np.zeros(len(found), bool) if found.priority is None else found.priority > 0
        if not hold or ranked.all():
            return found
        self._held.add(found.take(np.flatnonzero(~ranked)))
        return found.take(np.flatnonzero(ranked))

    def _met(self, side: int, rows: Delta, codes: Ints) -> list[Delta]:
        """The pairs of rows of one input with early rows of the other."""
        other = self._sides[1 - side]
        if not len(other):
            return []
        theirs, order, known = other.by_code()
        first, last = np.searchsorted(known, codes, "left"), np.searchsorted(known, codes, "right")
        counts = np.where(codes >= 0, last - first, 0)
        made = [self._pairs(side, rows.take(mine), theirs.take(order[at])) for mine, at in _expanded(first, counts)]
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
        self._encode()

    def _encode(self) -> None:
        """Find codes for all rows."""
        for side, columns_of in zip(self._sides, self._of_ordinary, strict=True):

            def codes_of(rows: Delta, columns_of: ColumnsOf = columns_of) -> Ints:
                if not self._hashed:
                    return np.zeros(len(rows), np.int64)
                return self._interner.encode(columns_of(rows, _STEP), len(rows))

            side.encode(codes_of)


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
