"""Bounded windows: which windows are over, and the rows in each.

``WindowEnds`` takes the rows of every bounded window node of a query and says, as the frontier moves on, which
windows have ended, in order. Rows are kept in ``RowLog`` as long as a window that is still to come can contain
them (for windows that only move forward: from the begin of the next one), and forgotten after that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.model.delta import BEGINNING, Arrivals, Delta, Instant, joined, sliced
from penstock.model.errors import EngineError
from penstock.model.schema import Schema
from penstock.model.values import to_python
from penstock.operators.base import StateSize
from penstock.operators.pieces import RowPieces
from penstock.operators.state import Loaded, Saved, together, with_meta
from penstock.operators.tables import arrivals_of, arrivals_table
from penstock.plan.empty import TOO_MANY
from penstock.plan.window import Generic, Session, answered_at, bounds, exists, is_reverse
from penstock.scalar import hashable, order_key


@dataclass
class RowLog:
    """Rows of one window node by number (from 0, in order); whole batches are dropped at the front."""

    schema: Schema
    _parts: list[Arrivals] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _last_ts: list[int] = field(default_factory=list)
    total: int = 0
    _pieces: RowPieces = field(default_factory=RowPieces)

    def append(self, arrivals: Arrivals) -> None:
        """Rows in order."""
        if len(arrivals):
            self._parts.append(arrivals)
            self._starts.append(self.total)
            self._last_ts.append(int(arrivals.ts[-1]))
            self.total += len(arrivals)

    def rows(self, start: int, stop: int) -> Arrivals:
        """The rows from number ``start`` to before ``stop``, as far as they are kept."""
        found: list[Arrivals] = []
        for i in range(max(0, bisect_right(self._starts, start) - 1), len(self._parts)):
            base, part = self._starts[i], self._parts[i]
            if base >= stop:
                break
            low, high = max(0, start - base), min(len(part), stop - base)
            if low < high:
                found.append(sliced(part, low, high))
        return joined(self.schema, found)

    def number_at(self, ts: int) -> int:
        """The number of the first row at or after ``ts``."""
        i = bisect_left(self._last_ts, ts)
        if i == len(self._parts):
            return self.total
        return self._starts[i] + int(np.searchsorted(self._parts[i].ts, ts, "left"))

    def instant_of(self, number: int) -> Instant:
        """When a kept row arrived."""
        i = bisect_right(self._starts, number) - 1
        place = number - self._starts[i]
        return int(self._parts[i].ts[place]), int(self._parts[i].sub[place])

    def drop(self, before: int) -> None:
        """Rows with smaller numbers are not needed any more."""
        n = 0
        while n < len(self._parts) and self._starts[n] + len(self._parts[n]) <= before:
            n += 1
        del self._parts[:n], self._starts[:n], self._last_ts[:n]

    @property
    def _tail(self) -> int:
        return self._starts[0] if self._starts else self.total

    def size(self) -> StateSize:
        rows = sum(len(p) for p in self._parts)
        return StateSize(rows, sum(c.nbytes for p in self._parts for c in p.columns) + 16 * rows)

    def save(self) -> Saved:
        return self._pieces.save(self._tail, self.total, lambda start, stop: arrivals_table(self.rows(start, stop)))

    def load(self, state: Loaded) -> None:
        self.total, _, tables = self._pieces.load(state)
        for table in tables:
            self.append(arrivals_of(self.schema, table))

    def catch_up(self, state: Loaded) -> None:
        _, tables = self._pieces.catch_up(state, self._tail, self.total)
        tail = state.meta["tail"]
        self.drop(tail)
        if self._parts and self._starts[0] < tail:
            self._parts[0] = sliced(self._parts[0], tail - self._starts[0], len(self._parts[0]))
            self._starts[0] = tail
        self.total = max(self.total, tail)
        for table in tables:
            self.append(arrivals_of(self.schema, table))


@dataclass(frozen=True)
class Ended:
    """A window to answer: its bounds, when, and which rows of each window node it has.

    ``ranges`` are row numbers; a session has its ``rows`` instead.
    """

    start: int
    end: int
    instant: Instant
    ranges: tuple[tuple[int, int], ...] = ()
    rows: Arrivals | None = None


class GenericEnds:
    """The ends of ``Generic`` windows, in time or in row numbers."""

    def __init__(self, spec: Generic, schemas: Sequence[Schema], *, passes_empty: bool = False) -> None:
        self.spec = spec
        self._passes_empty = passes_empty
        self.logs = [RowLog(s) for s in schemas]
        self._index: int | None = None if spec.from_first else 0
        self._last: int | None = None

    @property
    def ended(self) -> bool:
        """No window is left, whatever comes."""
        return self._index is not None and not exists(self.spec, self._index)

    def take(self, arrivals: Sequence[Arrivals]) -> None:
        """Rows of every window node, all of this step."""
        for log, new in zip(self.logs, arrivals, strict=True):
            log.append(new)
        times = [new.ts for new in arrivals if len(new)]
        if not times:
            return
        if self._index is None:
            first = min(int(ts[0]) for ts in times)
            self._index = (first - self.spec.end) // self.spec.hop_high + 1
        self._last = max(int(ts[-1]) for ts in times)

    def due(self, frontier: Instant, closed_at: float | None) -> list[Ended]:
        """The windows that end before the frontier, in order; their rows are kept until ``forget``."""
        windows: list[Ended] = []
        self._check_count(frontier, closed_at)
        while True:
            at = self.next_instant(closed_at)
            if at is None or not at < frontier:
                return windows
            assert self._index is not None
            start, end = bounds(self.spec, self._index)
            if self.spec.unit == "time":
                ranges = tuple((log.number_at(start), log.number_at(end)) for log in self.logs)
            else:
                ranges = tuple((max(start, 1) - 1, max(end, 0)) for _ in self.logs)
            self._index += 1
            windows.append(Ended(start, end, at, ranges))
            if self._passes_empty and all(low == high for low, high in ranges):
                self._pass_empty(frontier, closed_at)

    def _check_count(self, frontier: Instant, closed_at: float | None) -> None:
        """Fail before there are more windows than can be answered; who can refuse what comes in has done so before."""
        at = None if self._passes_empty or self.spec.unit != "time" else self.next_instant(closed_at)
        if at is None or self.spec.hop_high <= 0:
            return
        count = (self._upto(frontier, closed_at) - at[0]) // self.spec.hop_high
        if count > TOO_MANY:
            raise EngineError(
                f"{int(count)} windows end at once after {at[0]}, and each of them would be answered",
                hint="with GROUP BY a window without rows has no answer; or use longer windows",
            )

    def _upto(self, frontier: Instant, closed_at: float | None) -> float:
        """Up to where windows end, whether or not they have rows."""
        if self.spec.end_query is not None:
            return min(frontier[0], self.spec.end_query)
        return frontier[0] if closed_at is None else min(frontier[0], closed_at)

    def _pass_empty(self, frontier: Instant, closed_at: float | None) -> None:
        """Behind an empty window, go on to the last one that ends before the frontier, or to the first with rows."""
        assert self._index is not None
        upto = self._upto(frontier, closed_at)
        ahead = [log.instant_of(n)[0] for log in self.logs if (n := self._after(log)) < log.total]
        last = (int(upto) - self.spec.end) // self.spec.hop_high
        first = min(((ts - self.spec.end) // self.spec.hop_high + 1 for ts in ahead), default=last)
        self._index = max(self._index, min(last, first))

    def _after(self, log: RowLog) -> int:
        """The number of the first row that the next window may have."""
        assert self._index is not None
        return log.number_at(bounds(self.spec, self._index)[0])

    def next_instant(self, closed_at: float | None) -> Instant | None:
        """When the next window ends, as far as that is known."""
        if self._index is None or self.ended:
            return None
        at = answered_at(self.spec, self._index)
        if self.spec.unit == "tuples":
            if min(log.total for log in self.logs) < at:
                return None
            return max(log.instant_of(at - 1) for log in self.logs)
        known = closed_at is None or self.spec.end_query is not None or at <= closed_at
        return (at, 0) if known or self._has_rows_left(self._index) else None

    def _has_rows_left(self, i: int) -> bool:
        """Whether a window that ends after all that closed inputs have named is still answered."""
        if self._last is None:
            return False
        if is_reverse(self.spec):
            return True
        if self.spec.hop_low > 0:
            return bounds(self.spec, i)[0] <= self._last
        return i == 0 or bounds(self.spec, i - 1)[1] <= self._last

    def forget(self) -> None:
        """Drop the rows that no window to come has, nor the last one answered."""
        if self.spec.hop_low < 0 or self._index is None:
            return
        start, _ = bounds(self.spec, self._index - 1)
        for log in self.logs:
            before = log.number_at(start) if self.spec.unit == "time" else max(start, 1) - 1
            if self.spec.unit == "tuples":
                before = min(before, answered_at(self.spec, self._index) - 1)
            log.drop(before)

    def size(self) -> StateSize:
        return sum((log.size() for log in self.logs), StateSize(0, 0))

    def save(self) -> Saved:
        logs = together(**{f"{i}": log.save() for i, log in enumerate(self.logs)})
        return with_meta(logs, index=self._index, last=self._last)

    def load(self, state: Loaded) -> None:
        for i, log in enumerate(self.logs):
            log.load(state.part(f"{i}"))
        self._index, self._last = state.meta["index"], state.meta["last"]

    def catch_up(self, state: Loaded) -> None:
        for i, log in enumerate(self.logs):
            log.catch_up(state.part(f"{i}"))
        self._index, self._last = state.meta["index"], state.meta["last"]


@dataclass
class _Open:
    start: int
    last: int
    key: tuple[object, ...]
    parts: list[tuple[int, int]]  # (row number, count) runs


class SessionEnds:
    """The ends of ``Session`` windows; holds the rows of the sessions that are open."""

    def __init__(self, spec: Session, schema: Schema) -> None:
        self.spec = spec
        self.ended = False
        self._schema = schema
        self._log = RowLog(schema)
        self._open: dict[object, _Open] = {}
        self._over: list[_Open] = []
        self._answered: Instant = BEGINNING

    def take(self, arrivals: Sequence[Arrivals]) -> None:
        """Rows of the one window node."""
        (new,) = arrivals
        if len(new):
            self._log.append(new)
            self._sort(new, self._log.total - len(new))

    def _sort(self, new: Arrivals, base: int) -> None:
        """Rows to their sessions; ``base`` is the number of the first."""
        columns = [to_python(new.columns[k], self._schema[k].type) for k in self.spec.keys]
        keys: list[tuple[object, ...]] = list(zip(*columns, strict=True)) if columns else [()] * len(new)
        for i, (ts, key) in enumerate(zip(new.ts.tolist(), keys, strict=True)):
            name = tuple(hashable(v) for v in key)
            session = self._open.get(name)
            if session is not None and ts >= session.last + self.spec.gap:
                self._over.append(session)
                session = None
            if session is None:
                session = self._open[name] = _Open(ts, ts, key, [])
            session.last = ts
            number, count = session.parts[-1] if session.parts else (-1, 0)
            if session.parts and number + count == base + i:
                session.parts[-1] = (number, count + 1)
            else:
                session.parts.append((base + i, 1))

    def due(self, frontier: Instant, closed_at: float | None) -> list[Ended]:
        """The sessions that end before the frontier, by end, start and key."""
        over = [k for k, s in self._open.items() if (s.last + self.spec.gap, 0) < frontier]
        self._answered = frontier
        sessions = self._over + [self._open.pop(k) for k in over]
        self._over = []
        sessions.sort(key=lambda s: (s.last, s.start, [order_key(v) for v in s.key]))
        windows: list[Ended] = []
        for s in sessions:
            rows = joined(self._schema, [self._log.rows(n, n + count) for n, count in s.parts])
            windows.append(Ended(s.start, s.last + self.spec.gap, (s.last + self.spec.gap, 0), (), rows))
        return windows

    def forget(self) -> None:
        """Drop the rows before the first of an open session."""
        self._log.drop(min((s.parts[0][0] for s in self._open.values()), default=self._log.total))

    def next_instant(self, closed_at: float | None) -> Instant | None:
        """When the next session ends, if no further row comes."""
        ends = [s.last + self.spec.gap for s in (*self._over, *self._open.values())]
        return (min(ends), 0) if ends else None

    def size(self) -> StateSize:
        return self._log.size()

    def save(self) -> Saved:
        return together(log=with_meta(self._log.save(), answered=list(self._answered)))

    def load(self, state: Loaded) -> None:
        """Rows of open sessions are all in the log; what else is in it makes sessions that have been answered."""
        log = state.part("log")
        self._log.load(log)
        self._sort_from(log.meta["tail"])
        ts, sub = log.meta["answered"]
        self.due((ts, sub), None)

    def catch_up(self, state: Loaded) -> None:
        """Sessions that were open and have been answered since end before that instant, with what there is of them."""
        log = state.part("log")
        total = self._log.total
        self._log.catch_up(log)
        self._sort_from(max(total, log.meta["tail"]))
        ts, sub = log.meta["answered"]
        self.due((ts, sub), None)

    def _sort_from(self, number: int) -> None:
        kept = self._log.rows(number, self._log.total)
        if len(kept):
            self._sort(kept, number)


WindowEnds = GenericEnds | SessionEnds


def entering(rows: Arrivals, instant: Instant, sign: int = 1) -> Delta:
    """Rows that enter (or leave) a bounded window's relation at one instant."""
    n = len(rows)
    return Delta(
        rows.schema,
        rows.columns,
        np.full(n, instant[0], np.int64),
        np.full(n, instant[1], np.int64),
        np.full(n, sign, np.int8),
        rows.ts,
        rows.sub,
        rows.priority,
    )

