"""Sliding windows: arrivals in, rows that enter and leave out.

What a window gives depends on what is needed above it (``Mode``):

- ``changes``: rows that enter and rows that leave. The window keeps the rows inside it, and nothing else: those
  columns, their moments, and for slides the rows that wait to enter.
- ``insert``: rows that enter only. Nothing is kept, except rows that wait for a slide.
- ``ends``: rows that enter, each with the ts at which it leaves. Nothing is kept.

Rows leave in the order in which they entered, except from ``PARTITION BY … ROWS``; what leaves has the payload,
the moment and the priority with which it entered. What time alone brings at t is at the instant (t, 0), and comes
out as soon as that is before the frontier; what an arrival brings is at the arrival's instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as OneOf

import numpy as np
import pyarrow as pa

from penstock.kernels.store import Piece, RowLog
from penstock.model.delta import MAX_TS, Arrivals, Delta, Ints, Step, empty
from penstock.model.schema import Schema
from penstock.operators.base import NOTHING, StateSize, WindowOperator
from penstock.operators.pieces import RowPieces
from penstock.operators.queue import SavedQueue
from penstock.operators.state import Json, Loaded, Saved, together, with_meta
from penstock.operators.stored import RowsWindow, TimeWindow, by_time, changes, piece_of, piece_table
from penstock.operators.tables import arrivals_of
from penstock.plan.window import Now, PartitionRows, Range, Rows, Unbounded, WindowSpec

Mode = OneOf["changes", "insert", "ends"]


def build_window(spec: WindowSpec, schema: Schema, mode: Mode) -> WindowOperator:
    """The operator for a sliding window over rows of ``schema``."""
    if mode == "ends":
        match spec:
            case Range(size, None):
                return PassingWindow(schema, stay=size)
            case Now():
                return PassingWindow(schema, stay=1)
            case Unbounded():
                return PassingWindow(schema, stay=MAX_TS)
        raise ValueError(f"{spec} has no ends known in advance; RANGE without SLIDE, NOW and UNBOUNDED have")
    leaving = mode == "changes"
    match spec:
        case Range(size, slide) if slide is not None:
            return SlidingTimeWindow(schema, size, slide, leaving=leaving)
        case Rows(size, slide) if slide > 1:
            return SlidingRowsWindow(schema, size, slide, leaving=leaving)
        case Unbounded():
            return PassingWindow(schema)
        case Now() | Range() | Rows() | PartitionRows() if not leaving:
            return PassingWindow(schema)
        case Now():
            return TimeWindow(schema, 1)
        case Range(size, None):
            return TimeWindow(schema, size)
        case Rows(size):
            return RowsWindow(schema, size)
        case PartitionRows(keys, size):
            return PartitionWindow(schema, keys, size)
    raise ValueError(f"{spec} is answered at its end; it has no changes")


def _save_both(waiting: SavedQueue, inside: SavedQueue | None) -> Saved:
    return together(waiting=waiting.save(), **({} if inside is None else {"inside": inside.save()}))


def _load_both(state: Loaded, waiting: SavedQueue, inside: SavedQueue | None) -> None:
    waiting.load(state.part("waiting"))
    if inside is not None:
        inside.load(state.part("inside"))


def _catch_up_both(state: Loaded, waiting: SavedQueue, inside: SavedQueue | None) -> None:
    waiting.catch_up(state.part("waiting"))
    if inside is not None:
        inside.catch_up(state.part("inside"))


class PassingWindow:
    """Rows enter when they arrive, and how they leave is known or of no interest. Keeps nothing."""

    def __init__(self, schema: Schema, stay: int | None = None) -> None:
        self._schema = schema
        self._stay = stay

    @property
    def tells_ends(self) -> bool:
        """Whether rows say when they leave."""
        return self._stay is not None

    def process(self, arrivals: Arrivals, step: Step) -> Delta:
        ts, sub = arrivals.ts, arrivals.sub
        end = None
        if self._stay == MAX_TS:
            end = np.full(len(ts), MAX_TS, np.int64)
        elif self._stay is not None:
            # Beyond the last instant is never.
            end = np.minimum(ts, MAX_TS - self._stay) + self._stay
        sign = np.ones(len(ts), np.int8)
        return Delta(self._schema, arrivals.columns, ts, sub, sign, ts, sub, arrivals.priority, end)

    def size(self) -> StateSize:
        return NOTHING


class SlidingTimeWindow:
    """``[RANGE size SLIDE slide]``: rows enter and leave at multiples of the slide, by time alone.

    A row enters at the first multiple after its ts and leaves at the first after ts + size; if these are the same it is
    never inside and never kept. Keeps rows from their arrival until they leave (until they enter, if nobody
    asks when they leave).
    """

    def __init__(self, schema: Schema, size: int, slide: int, *, leaving: bool) -> None:
        self._schema = schema
        self._size, self._slide = size, slide
        self._waiting = SavedQueue(schema)
        self._inside = SavedQueue(schema) if leaving else None

    def process(self, arrivals: Arrivals, step: Step) -> Delta:
        piece, slide = piece_of(arrivals), self._slide
        if self._size < slide and len(arrivals):
            (kept,) = np.nonzero(arrivals.ts // slide != (arrivals.ts + self._size) // slide)
            piece = piece.take(kept)
        self._waiting.append(piece)
        last = by_time(step) // slide * slide - 1
        entering = self._waiting.until(last)
        leaving: list[Piece] = []
        if self._inside is not None:
            for p in entering:
                self._inside.append(p)
            leaving = self._inside.until(last - self._size)
        return changes(self._schema, entering, leaving, self._steps(entering, 0), self._steps(leaving, self._size))

    def _steps(self, pieces: Sequence[Piece], after: int) -> tuple[Ints, Ints, Ints] | None:
        if not pieces:
            return None
        at = ((np.concatenate([p.ts for p in pieces]) + after) // self._slide + 1) * self._slide
        return at, at, np.zeros(len(at), np.int64)

    def size(self) -> StateSize:
        queues = [self._waiting] + ([] if self._inside is None else [self._inside])
        return StateSize(sum(len(q) for q in queues), sum(q.nbytes for q in queues))

    def save(self) -> Saved:
        return _save_both(self._waiting, self._inside)

    def load(self, state: Loaded) -> None:
        _load_both(state, self._waiting, self._inside)

    def catch_up(self, state: Loaded) -> None:
        _catch_up_both(state, self._waiting, self._inside)


class SlidingRowsWindow:
    """``[ROWS size SLIDE slide]``: at every slide-th arrival the content becomes the last ``size`` rows.

    Rows are numbered from 1. Row p is inside from the first multiple of the slide not before p to just before the
    first not before p + size. With a slide greater than the size, rows between are never inside and never kept.
    Keeps the rows inside and those since the last slide (only these, if nobody asks when rows leave).
    """

    def __init__(self, schema: Schema, size: int, slide: int, *, leaving: bool) -> None:
        self._schema = schema
        self._size, self._slide = size, slide
        self._skipped = max(0, slide - size)  # of each slide's rows, the first ones
        self._arrived = self._entered = self._left = 0
        self._waiting = SavedQueue(schema)
        self._inside = SavedQueue(schema) if leaving else None

    def process(self, arrivals: Arrivals, step: Step) -> Delta:
        n, slide = len(arrivals), self._slide
        if n == 0:
            return empty(self._schema)
        piece, before = piece_of(arrivals), self._arrived
        self._arrived += n
        if self._skipped:
            (kept,) = np.nonzero(np.arange(before, self._arrived) % slide >= self._skipped)
            piece = piece.take(kept)
        self._waiting.append(piece)
        after_slide = self._arrived % slide
        if after_slide == n < slide:
            return empty(self._schema)
        entering = self._waiting.first(len(self._waiting) - max(0, after_slide - self._skipped))
        leaving: list[Piece] = []
        if self._inside is not None:
            for p in entering:
                self._inside.append(p)
            leaving = self._inside.first(max(0, len(self._inside) - self._size))
        enter = self._steps(arrivals, before, self._entered, entering, 0)
        leave = self._steps(arrivals, before, self._left, leaving, self._size)
        self._entered += sum(len(p.ts) for p in entering)
        self._left += sum(len(p.ts) for p in leaving)
        return changes(self._schema, entering, leaving, enter, leave)

    def _steps(
        self, arrivals: Arrivals, before: int, first: int, pieces: Sequence[Piece], after: int
    ) -> tuple[Ints, Ints, Ints] | None:
        """The slides at which rows enter or leave, ``first`` being how many were kept before these."""
        if not pieces:
            return None
        number = np.arange(first, first + sum(len(p.ts) for p in pieces))
        per_slide = self._slide - self._skipped
        place = number // per_slide * self._slide + self._skipped + number % per_slide + 1
        slides = -(-(place + after) // self._slide) * self._slide
        at = slides - before - 1
        return slides, arrivals.ts[at], arrivals.sub[at]

    def size(self) -> StateSize:
        queues = [self._waiting] + ([] if self._inside is None else [self._inside])
        return StateSize(sum(len(q) for q in queues), sum(q.nbytes for q in queues))

    def save(self) -> Saved:
        counts: list[Json] = [self._arrived, self._entered, self._left]
        return with_meta(_save_both(self._waiting, self._inside), counts=counts)

    def load(self, state: Loaded) -> None:
        _load_both(state, self._waiting, self._inside)
        self._arrived, self._entered, self._left = state.meta["counts"]

    def catch_up(self, state: Loaded) -> None:
        _catch_up_both(state, self._waiting, self._inside)
        self._arrived, self._entered, self._left = state.meta["counts"]


class PartitionWindow:
    """``[PARTITION BY keys ROWS size]``: an arrival beyond ``size`` of its key pushes that key's oldest row out.

    Keeps up to ``size`` rows of every key there has been. Rows that left are dropped together once they are half as
    many as those that stay.
    """

    def __init__(self, schema: Schema, keys: tuple[int, ...], size: int) -> None:
        self._schema = schema
        self._keys, self._rows = keys, size
        self._first = 0  # how many rows had been when the log began
        self._pieces = RowPieces()
        self._clear()

    def _clear(self) -> None:
        from penstock.kernels.intern import Interner
        from penstock.kernels.windows import Chains

        self._interner = Interner([self._schema[k].type for k in self._keys])
        self._chains = Chains(self._rows)
        self._log = RowLog()

    def process(self, arrivals: Arrivals, step: Step) -> Delta:
        n = len(arrivals)
        if n == 0:
            return empty(self._schema)
        codes = self._interner.encode([arrivals.columns[k] for k in self._keys], n)
        piece = piece_of(arrivals)
        self._log.append(piece)
        pushed = self._chains.add(codes, self._interner.capacity)
        (pushing,) = np.nonzero(pushed >= 0)
        leaving, leave = [], None
        if len(pushing):
            leaving = [self._log.take(pushed[pushing])]
            leave = (pushing, arrivals.ts[pushing], arrivals.sub[pushing])
        if self._chains.gone > 4096 + (self._log.rows - self._chains.gone) // 2:
            self._first += self._log.rows
            self._log.compact(self._chains.compact())
        return changes(self._schema, [piece], leaving, (np.arange(n), arrivals.ts, arrivals.sub), leave)

    def size(self) -> StateSize:
        rows = self._log.rows - self._chains.gone
        return StateSize(rows, self._log.nbytes + self._chains.nbytes + self._interner.nbytes)

    def save(self) -> Saved:
        first = self._first

        def rows(start: int, stop: int) -> pa.Table:
            return piece_table(self._schema, self._log.between(start - first, stop - first))

        return self._pieces.save(first, first + self._log.rows, rows)

    def load(self, state: Loaded) -> None:
        """Rows that had left are among those saved; they are pushed out again by those that pushed them out before."""
        self._first, _, tables = self._pieces.load(state)
        self._append(tables)

    def catch_up(self, state: Loaded) -> None:
        _, tables = self._pieces.catch_up(state, self._first, self._first + self._log.rows)
        if self._first != state.meta["tail"]:
            # The rows that were left have been numbered anew.
            self._clear()
            self._first = state.meta["tail"]
        self._append(tables)

    def _append(self, tables: Sequence[pa.Table]) -> None:
        for table in tables:
            piece = piece_of(arrivals_of(self._schema, table))
            codes = self._interner.encode([piece.columns[k] for k in self._keys], len(piece.ts))
            self._log.append(piece)
            self._chains.add(codes, self._interner.capacity)
