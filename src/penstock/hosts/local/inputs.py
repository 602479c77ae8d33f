"""What a running query reads: elements that have come and whose turn in the total order has not.

An input holds elements only while some other input is behind them; it forgets them when they are released.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.delta import MIN_TS, NEVER, Arrivals, Delta, Instant, arrival_sub
from penstock.operators.arrivals import joined, sliced, some
from penstock.operators.pieces import RowPieces, Tracked
from penstock.operators.rows import Row
from penstock.operators.state import Loaded, Saved, together, with_meta
from penstock.operators.tables import (
    arrivals_of,
    arrivals_table,
    from_number,
    number,
    rows_from,
    rows_table,
    table_of,
)
from penstock.plan.nodes import Schema
from penstock.reference import Change
from penstock.scalar import hashable
from penstock.values import to_arrow, to_rows


class StreamInput:
    """The elements of one stream on their way into a query. ``rank``: its place among the query's sources."""

    def __init__(self, schema: Schema, rank: int) -> None:
        self.schema = schema
        self.rank = rank
        self.progress: float = -math.inf
        self.newest: float = -math.inf
        self._next_arrival = 0
        self._waiting: list[Arrivals] = []
        self._released = 0
        self._pieces = RowPieces()

    @property
    def bound(self) -> Instant:
        """No element with an instant before this can still come."""
        if self.progress == math.inf:
            return NEVER
        if self.progress == -math.inf:
            return (MIN_TS, 0)
        return int(self.progress), int(arrival_sub(self.rank, self._next_arrival))

    @property
    def closed(self) -> bool:
        return self.progress == math.inf

    @property
    def waiting(self) -> bool:
        """Some element has not been released."""
        return bool(self._waiting)

    def push(
        self,
        columns: Sequence[pa.Array],
        ts: npt.NDArray[np.int64],
        arrival: npt.NDArray[np.int64],
        priority: npt.NDArray[np.int64] | None,
    ) -> None:
        """Elements in order."""
        if not len(ts):
            return
        newest = int(arrival[0] if len(arrival) == 1 else arrival.max())
        self._next_arrival = max(self._next_arrival, newest + 1)
        self._waiting.append(
            Arrivals(self.schema, tuple(columns), ts, arrival_sub(self.rank, arrival), priority)
        )
        self.advance(int(ts[-1]))

    def advance(self, at: float) -> None:
        """No more elements before ``at``."""
        self.progress = max(self.progress, at)
        if at < math.inf:
            self.newest = max(self.newest, at)

    def release(self, frontier: Instant) -> Arrivals:
        """The elements before the frontier, in order; they are no longer held."""
        released: list[Arrivals] = []
        while self._waiting:
            head = self._waiting[0]
            n = _before(head, frontier)
            if n == len(head):
                released.append(head)
                self._waiting.pop(0)
                continue
            if n:
                released.append(sliced(head, 0, n))
                self._waiting[0] = sliced(head, n, len(head))
            break
        self._released += sum(map(len, released))
        return joined(self.schema, released)

    def save(self) -> Saved:
        def rows(start: int, stop: int) -> pa.Table:
            return arrivals_table(some(self.schema, self._waiting, start - self._released, stop - self._released))

        saved = self._pieces.save(self._released, self._released + sum(map(len, self._waiting)), rows)
        return with_meta(
            saved, progress=number(self.progress), newest=number(self.newest), next_arrival=self._next_arrival
        )

    def load(self, state: Loaded) -> None:
        self._released, _, tables = self._pieces.load(state)
        self._waiting = [arrivals_of(self.schema, t) for t in tables]
        self._load_meta(state)

    def catch_up(self, state: Loaded) -> None:
        """Go on from a later state."""
        head = self._released + sum(map(len, self._waiting))
        gone, tables = self._pieces.catch_up(state, self._released, head)
        while self._waiting and gone >= len(self._waiting[0]):
            gone -= len(self._waiting.pop(0))
        if gone:
            self._waiting[0] = sliced(self._waiting[0], gone, len(self._waiting[0]))
        self._waiting += [arrivals_of(self.schema, t) for t in tables]
        self._released = state.meta["tail"]
        self._load_meta(state)

    def _load_meta(self, state: Loaded) -> None:
        self.progress, self.newest = from_number(state.meta["progress"]), from_number(state.meta["newest"])
        self._next_arrival = state.meta["next_arrival"]


class RelationInput:
    """The changes of one relation on their way into a query."""

    def __init__(self, schema: Schema, rank: int) -> None:
        self.schema = schema
        self.rank = rank
        self._waiting: list[Change] = []
        self._entered: dict[tuple[object, ...], deque[int]] = {}
        self._present: Tracked[Row] = Tracked()
        self._released = 0
        self._pieces = RowPieces()

    @property
    def rows(self) -> int:
        """Rows in the relation now."""
        return len(self._present.entries)

    @property
    def next_instant(self) -> Instant | None:
        """When the next change happens, if one is known."""
        return self._instant(self._waiting[0]) if self._waiting else None

    def push(self, changes: Sequence[Change]) -> None:
        """Changes in order."""
        self._waiting.extend(changes)

    def release(self, frontier: Instant) -> Delta:
        """The changes before the frontier."""
        n = 0
        while n < len(self._waiting) and self._instant(self._waiting[n]) < frontier:
            n += 1
        released, self._waiting = self._waiting[:n], self._waiting[n:]
        self._released += n
        # Each row's identity is its own place in the relation's history, so that a row that leaves
        # is told from an equal one that enters at the same instant.
        keyed: list[tuple[Instant, int, Change, Instant]] = []
        for change in released:
            at = self._instant(change)
            key = _hashable(change.row)
            if change.sign > 0:
                moment = (at[0], int(arrival_sub(self.rank, change.arrival + (1 << 40))))
                self._entered.setdefault(key, deque()).append(self._present.add(Row(change.row, moment)))
            else:
                queue = self._entered[key]
                id = queue.popleft()
                moment = self._present.entries[id].moment
                self._present.remove(id)
                if not queue:
                    del self._entered[key]
            keyed.append((at, change.sign, change, moment))
        kept = _net(keyed)
        kept.sort(key=lambda k: (k[0], k[1]))
        columns = tuple(to_arrow([k[2].row[i] for k in kept], f.type) for i, f in enumerate(self.schema))
        return Delta(
            self.schema,
            columns,
            np.array([k[0][0] for k in kept], np.int64),
            np.array([k[0][1] for k in kept], np.int64),
            np.array([k[1] for k in kept], np.int8),
            np.array([k[3][0] for k in kept], np.int64),
            np.array([k[3][1] for k in kept], np.int64),
        )

    def save(self) -> Saved:
        def waiting(start: int, stop: int) -> pa.Table:
            return _changes_table(self.schema, self._waiting[start - self._released : stop - self._released])

        return together(
            waiting=self._pieces.save(self._released, self._released + len(self._waiting), waiting),
            present=self._present.save(lambda rows: rows_table(self.schema, rows)),
        )

    def load(self, state: Loaded) -> None:
        self._released, _, tables = self._pieces.load(state.part("waiting"))
        self._waiting = [change for table in tables for change in _changes_from(self.schema, table)]
        for id, row in self._present.load(state.part("present"), lambda t: rows_from(self.schema, t)):
            self._entered.setdefault(_hashable(row.values), deque()).append(id)

    def catch_up(self, state: Loaded) -> None:
        """Go on from a later state."""
        waiting = state.part("waiting")
        gone, tables = self._pieces.catch_up(waiting, self._released, self._released + len(self._waiting))
        new = [change for table in tables for change in _changes_from(self.schema, table)]
        self._waiting, self._released = self._waiting[gone:] + new, waiting.meta["tail"]
        rows_gone, rows_new = self._present.catch_up(
            state.part("present"), lambda t: rows_from(self.schema, t), lambda row, saved: None
        )
        for id, row in rows_gone:
            key = _hashable(row.values)
            self._entered[key].remove(id)
            if not self._entered[key]:
                del self._entered[key]
        for id, row in rows_new:
            self._entered.setdefault(_hashable(row.values), deque()).append(id)

    def _instant(self, change: Change) -> Instant:
        if change.ts is None:
            return (MIN_TS, 0)
        return change.ts, int(arrival_sub(self.rank, change.group))


def _changes_table(schema: Schema, changes: Sequence[Change]) -> pa.Table:
    columns = [to_arrow([c.row[i] for c in changes], f.type) for i, f in enumerate(schema)]
    return table_of(
        schema,
        columns,
        ts=pa.array([c.ts for c in changes], pa.int64()),
        sign=pa.array([c.sign for c in changes], pa.int8()),
        arrival=pa.array([c.arrival for c in changes], pa.int64()),
        group=pa.array([c.group for c in changes], pa.int64()),
    )


def _changes_from(schema: Schema, table: pa.Table) -> list[Change]:
    rows = to_rows(table, schema)
    more = [table.column(f"_{name}").to_pylist() for name in ("ts", "sign", "arrival", "group")]
    return [Change(t, s, row, a, g) for row, t, s, a, g in zip(rows, *more, strict=True)]


def _net(
    changes: list[tuple[Instant, int, Change, Instant]],
) -> list[tuple[Instant, int, Change, Instant]]:
    """Without rows that enter and leave at one instant."""
    entered = {(at, moment) for at, sign, _, moment in changes if sign > 0}
    gone = {(at, moment) for at, sign, _, moment in changes if sign < 0}
    both = entered & gone
    return [c for c in changes if (c[0], c[3]) not in both]


def _hashable(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(hashable(v) for v in row)


def _before(arrivals: Arrivals, frontier: Instant) -> int:
    """How many elements stand before the frontier."""
    ts, sub = frontier
    last = arrivals.ts[-1]
    if last < ts or (last == ts and arrivals.sub[-1] < sub):
        return len(arrivals)
    low = int(np.searchsorted(arrivals.ts, ts, "left"))
    high = int(np.searchsorted(arrivals.ts, ts, "right"))
    return low + int(np.searchsorted(arrivals.sub[low:high], sub, "left"))
