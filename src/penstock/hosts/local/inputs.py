"""What a running query reads: elements that have come and whose turn in the total order has not.

An input holds elements only while some other input is behind them; it forgets them when they are released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.delta import MAX_TS, MIN_TS, NEVER, Arrivals, Delta, Instant, arrival_sub
from penstock.operators.arrivals import joined, sliced
from penstock.plan.nodes import Schema
from penstock.reference import Change
from penstock.scalar import hashable
from penstock.values import to_arrow


class StreamInput:
    """The elements of one stream on their way into a query. ``rank``: its place among the query's sources."""

    def __init__(self, schema: Schema, rank: int) -> None:
        self.schema = schema
        self.rank = rank
        self.progress: float = -math.inf
        self.newest: float = -math.inf
        self._next_arrival = 0
        self._waiting: list[Arrivals] = []

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
        self._next_arrival = max(self._next_arrival, int(arrival.max()) + 1)
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
        return joined(self.schema, released)


class RelationInput:
    """The changes of one relation on their way into a query."""

    def __init__(self, schema: Schema, rank: int) -> None:
        self.schema = schema
        self.rank = rank
        self._waiting: list[Change] = []
        self._entered: dict[tuple[object, ...], list[Instant]] = {}
        self._rows = 0

    @property
    def rows(self) -> int:
        """Rows in the relation now."""
        return self._rows

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
        # Each row's identity is its own place in the relation's history, so that a row that leaves
        # is told from an equal one that enters at the same instant.
        keyed: list[tuple[Instant, int, Change, Instant]] = []
        for change in released:
            at = self._instant(change)
            key = _hashable(change.row)
            if change.sign > 0:
                moment = (at[0], int(arrival_sub(self.rank, change.arrival + (1 << 40))))
                self._entered.setdefault(key, []).append(moment)
                self._rows += 1
            else:
                queue = self._entered[key]
                moment = queue.pop(0)
                self._rows -= 1
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

    def _instant(self, change: Change) -> Instant:
        if change.ts is None:
            return (MIN_TS, 0)
        return change.ts, int(arrival_sub(self.rank, change.group))


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
    if ts == MAX_TS:
        return len(arrivals)
    low = int(np.searchsorted(arrivals.ts, ts, "left"))
    high = int(np.searchsorted(arrivals.ts, ts, "right"))
    return low + int(np.searchsorted(arrivals.sub[low:high], sub, "left"))
