"""MASTER: windows that pass rows on when a master element arrives (002 §7).

What a window of a query with masters lets into the plan is the difference between one master instant and the next. The
rows are in the store that other windows share; which of them have been passed on is a place among them, so nothing is
copied and a row that comes and goes between two master instants is never touched.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.gate import counts_not_after, counts_until, first_above
from penstock.kernels.store import Piece, join
from penstock.model.delta import MIN_TS, Arrivals, Delta, Ints, Step, empty
from penstock.model.schema import Schema
from penstock.operators.base import StateSize
from penstock.operators.queue import SavedQueue
from penstock.operators.state import Loaded, Saved, together, with_meta
from penstock.operators.stored import StoredWindow, by_time, changes, piece_of
from penstock.plan.window import Now, Range, Rows, Unbounded, WindowSpec


def is_smart(spec: WindowSpec) -> bool:
    """Whether there is a smart window of this kind; others need a gate behind them."""
    match spec:
        case Rows(slide=1) | Range(slide=None) | Now() | Unbounded():
            return True
    return False


def build_smart(spec: WindowSpec, schema: Schema) -> SmartWindow:
    """The window for a query with masters."""
    match spec:
        case Rows(size, 1):
            return SmartWindow(schema, rows=size)
        case Range(size, None):
            return SmartWindow(schema, stay=size)
        case Now():
            return SmartWindow(schema, stay=1)
        case Unbounded():
            return SmartWindow(schema)
    raise ValueError(f"{spec} passes everything on; a gate holds it back")


class SmartWindow(StoredWindow):
    """``[ROWS n]``, ``[RANGE d]``, ``[NOW]`` or ``[RANGE UNBOUNDED]`` of a query with masters.

    Needs ``step.masters``. Promises, at each master instant, the rows that have left among those passed on, and those
    that have entered since the last one and are still inside. A change at a master's own instant is in time for it.

    Keeps the rows inside, in the shared store (those that have not been passed on, if rows never leave), and by itself
    those that were passed on and have left: the plan has them until the next master instant. Nothing else.
    """

    def __init__(self, schema: Schema, *, rows: int | None = None, stay: int | None = None) -> None:
        super().__init__(schema)
        self._rows, self._stay = rows, stay
        self.passed = 0
        """So many of the rows inside, the oldest, have been passed on."""
        self._left = SavedQueue(schema)

    @property
    def waiting(self) -> int:
        """How many rows inside have not been passed on."""
        return len(self.inside) - self.passed

    @property
    def leaving(self) -> int:
        """How many rows have left which the plan still has."""
        return len(self._left)

    def process(self, arrivals: Arrivals, step: Step) -> Delta:
        assert step.masters is not None
        master_ts, master_sub = step.masters
        inside = self.inside
        before = len(inside)
        if len(arrivals):
            inside.put(piece_of(arrivals))
        count = len(master_ts)
        if count == 0:
            out = empty(self._schema)
        else:
            there = counts_until(arrivals.ts, arrivals.sub, master_ts, master_sub) + before
            out = self._once(int(there[0]), step.masters) if count == 1 else self._often(there, step.masters)
        self._forget(step)
        return out

    def _once(self, come: int, masters: tuple[Ints, Ints]) -> Delta:
        """The changes at one master instant, when so many rows have come."""
        inside, passed = self.inside, self.passed
        left = 0
        if self._rows is not None:
            left = max(come - self._rows, 0)
        elif self._stay is not None:
            left = inside.until(int(masters[0][0]) - self._stay)
        pieces = self._left.first(len(self._left)) if len(self._left) else []
        pieces += inside.first(min(left, passed))
        leaving = sum([len(p.ts) for p in pieces])
        if left > passed:
            inside.drop(left - passed)
        pieces += inside.between(max(passed - left, 0), come - left)
        self.passed = come - left
        if not pieces:
            return empty(self._schema)
        rows = join(pieces)
        n = len(rows.ts)
        sign = np.ones(n, np.int8)
        sign[:leaving] = -1
        ts, sub = masters[0].repeat(n), masters[1].repeat(n)
        return Delta(self._schema, rows.columns, ts, sub, sign, rows.ts, rows.sub, rows.priority)

    def _often(self, there: Ints, masters: tuple[Ints, Ints]) -> Delta:
        """The changes at several master instants, when so many rows have come at each."""
        gone = self._gone(there, masters[0])
        come, left, passed = int(there[-1]), int(gone[-1]), self.passed
        # Rows enter at the first master instant at which they have come, unless they have left by then.
        entering = self.inside.between(passed, come)
        enter = first_above(there, passed, come)
        if left > passed:
            stay = gone[enter] <= np.arange(passed, come)
            if not stay.all():
                enter, entering = enter[stay], _some(entering, stay)
        # They leave at the first at which they have left, if they were there at the one before.
        leaving = self.inside.first(left)
        leave = first_above(gone, 0, left)
        if left > passed:
            seen = np.arange(left) < np.where(leave > 0, there[leave - 1], passed)
            if not seen.all():
                leave, leaving = leave[seen], _some(leaving, seen)
        if len(self._left):
            earlier = self._left.first(len(self._left))
            leave = np.concatenate([np.zeros(sum(len(p.ts) for p in earlier), np.int64), leave])
            leaving = [*earlier, *leaving]
        self.passed = come - left
        ts, sub = masters
        return changes(
            self._schema, entering, leaving,
            (enter, ts[enter], sub[enter]) if len(enter) else None,
            (leave, ts[leave], sub[leave]) if len(leave) else None,
        )  # fmt: skip

    def _gone(self, there: Ints, master_ts: Ints) -> Ints:
        """How many rows have left at each master instant, when so many have come."""
        if self._rows is not None:
            return np.maximum(there - self._rows, 0)
        if self._stay is None:
            return np.zeros(len(there), np.int64)
        last = np.maximum(master_ts, MIN_TS + self._stay) - self._stay
        pieces = self.inside.between(0, self.inside.until(int(last[-1])))
        if not pieces:
            return np.zeros(len(there), np.int64)
        ts = pieces[0].ts if len(pieces) == 1 else np.concatenate([p.ts for p in pieces])
        return counts_not_after(ts, last)

    def _forget(self, step: Step) -> None:
        """Rows that no master instant to come finds inside."""
        inside, passed = self.inside, self.passed
        if self._rows is not None:
            gone = len(inside) - self._rows
        elif self._stay is not None:
            gone = inside.until(by_time(step) - self._stay)
        else:
            gone, self.passed = passed, 0
            if gone:
                inside.drop(gone)
            return
        if gone <= 0:
            return
        if passed:
            for piece in inside.first(min(gone, passed)):
                self._left.append(piece)
            self.passed = max(passed - gone, 0)
        if gone > passed:
            inside.drop(gone - passed)

    def is_like(self, other: SmartWindow) -> bool:
        """Whether both hold the same rows, of which they have passed on the same, and will for ever."""
        mine, others = self.inside, other.inside
        same = mine.store is others.store and (mine.tail, mine.head) == (others.tail, others.head)
        same = same or not (len(mine) or len(others))
        return same and self.passed == other.passed and self._left.instants() == other._left.instants()

    def size(self) -> StateSize:
        return super().size() + self.left()

    def left(self) -> StateSize:
        """The rows that have left which the plan still has."""
        return StateSize(len(self._left), self._left.nbytes)

    def save(self) -> Saved:
        return with_meta(together(inside=super().save(), left=self._left.save()), passed=self.passed)

    def load(self, state: Loaded) -> None:
        super().load(state.part("inside"))
        self._left.load(state.part("left"))
        self.passed = state.meta["passed"]

    def catch_up(self, state: Loaded) -> None:
        super().catch_up(state.part("inside"))
        self._left.catch_up(state.part("left"))
        self.passed = state.meta["passed"]


def _some(pieces: list[Piece], which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[Piece]:
    """The rows for which it is true."""
    found: list[Piece] = []
    start = 0
    for piece in pieces:
        stop = start + len(piece.ts)
        places = np.flatnonzero(which[start:stop])
        if len(places):
            found.append(piece if len(places) == stop - start else piece.take(places))
        start = stop
    return found
