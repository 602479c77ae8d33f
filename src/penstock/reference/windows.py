"""Windows of the reference evaluator: which rows each holds, and when that changes.

A *sliding* window is a list of rows that arrivals and the passing of time change. The *bounded* windows of a
query (``Generic``, ``Session``) are kept together, because the query is answered once for each of them: they
say when the next one ends and what every window node of the plan holds in it.

Rows come in the total order, and time passes from one ``next_time`` to the next, so no class here has to
think about anything out of order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.model.errors import PlanError
from penstock.plan.window import (
    Generic,
    Now,
    PartitionRows,
    Range,
    Rows,
    Session,
    Unbounded,
    WindowSpec,
    answered_at,
    bounds,
    exists,
    is_reverse,
)
from penstock.scalar import hashable, order_key

Moment = tuple[int, int, int]
"""Place in the total order: (ts, position of the source, arrival)."""

BEGINNING = -(2**63)
"""The ts of what was there before the first instant."""


class Row(NamedTuple):
    """A row of a relation at an instant. Two rows are the same row if their ``id`` is."""

    id: Hashable
    values: tuple[object, ...]
    moment: Moment
    priority: int

    @property
    def ts(self) -> int:
        return self.moment[0]


def value_key(values: Iterable[object]) -> Hashable:
    """Equal for rows that are equal as values: NULL = NULL, NaN = NaN, -0.0 = 0.0."""
    return hashable(tuple(values))


class Sliding(ABC):
    """A window that rows enter and leave; ``rows`` is its content."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    @abstractmethod
    def take(self, row: Row) -> bool:
        """A row arrives. True if the content changed."""

    def next_time(self) -> int | None:
        """When the content changes next if nothing more arrives."""
        return None

    def pass_time(self, now: int) -> bool:
        """It is ``now``, before the arrivals of now. True if the content changed."""
        return False


class Forever(Sliding):
    """``[RANGE UNBOUNDED]``."""

    def take(self, row: Row) -> bool:
        self.rows.append(row)
        return True


class LastRows(Sliding):
    """``[ROWS size SLIDE slide]``: ``rows`` follows ``recent`` at every slide-th arrival."""

    def __init__(self, size: int, slide: int) -> None:
        super().__init__()
        self.size, self.slide = size, slide
        self.recent: list[Row] = []
        self.arrived = 0

    def take(self, row: Row) -> bool:
        self.recent = [*self.recent, row][-self.size :]
        self.arrived += 1
        if self.arrived % self.slide:
            return False
        self.rows = self.recent
        return True


class LastRowsOfKey(Sliding):
    """``[PARTITION BY keys ROWS size]``."""

    def __init__(self, keys: tuple[int, ...], size: int) -> None:
        super().__init__()
        self.keys, self.size = keys, size

    def take(self, row: Row) -> bool:
        key = value_key(row.values[k] for k in self.keys)
        same = [r for r in self.rows if value_key(r.values[k] for k in self.keys) == key]
        if len(same) == self.size:
            self.rows.remove(same[0])
        self.rows.append(row)
        return True


class LastTime(Sliding):
    """``[RANGE size]``: a row stays from its ts until just before ts + size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def take(self, row: Row) -> bool:
        self.rows.append(row)
        return True

    def next_time(self) -> int | None:
        return self.rows[0].ts + self.size if self.rows else None

    def pass_time(self, now: int) -> bool:
        before = len(self.rows)
        self.rows = [r for r in self.rows if now < r.ts + self.size]
        return len(self.rows) < before


class SteppedTime(Sliding):
    """``[RANGE size SLIDE slide]``: at each multiple b of the slide, the rows with b - size <= ts < b."""

    def __init__(self, size: int, slide: int) -> None:
        super().__init__()
        self.size, self.slide = size, slide
        self.waiting: list[Row] = []

    def _step_after(self, t: int) -> int:
        return (t // self.slide + 1) * self.slide

    def take(self, row: Row) -> bool:
        self.waiting.append(row)
        return False

    def next_time(self) -> int | None:
        enter = [self._step_after(r.ts) for r in self.waiting[:1]]
        leave = [self._step_after(r.ts + self.size) for r in self.rows[:1]]
        return min(enter + leave, default=None)

    def pass_time(self, now: int) -> bool:
        if now != self.next_time():
            return False
        before = self.rows
        self.rows = [r for r in before + self.waiting if now - self.size <= r.ts < now]
        self.waiting = [r for r in self.waiting if r.ts >= now]
        return self.rows != before


def sliding(spec: WindowSpec) -> Sliding:
    """The state of a window that is not bounded."""
    match spec:
        case Unbounded():
            return Forever()
        case Now():
            return LastTime(1)
        case Rows(size, slide):
            return LastRows(size, slide)
        case PartitionRows(keys, size):
            return LastRowsOfKey(keys, size)
        case Range(size, slide):
            return LastTime(size) if slide is None else SteppedTime(size, slide)
    raise TypeError(f"{spec} is answered at its end; only sliding windows have a content at every instant")


class Answerable(NamedTuple):
    """One bounded window to answer: its bounds, and the rows of each window node of the plan in it."""

    start: int
    end: int
    rows: Mapping[int, list[Row]]


class Bounded(ABC):
    """All bounded windows of one query. ``slot`` tells the window nodes of the plan apart.

    ``closed_at`` is None until no more rows can come; then it is the furthest instant that the progress of
    the inputs had named before. It decides, together with the last row, which windows are still answered.
    """

    def __init__(self, slots: Iterable[int]) -> None:
        self.slots = tuple(slots)

    @abstractmethod
    def take(self, slot: int, row: Row) -> None:
        """A row arrives at a window node."""

    @abstractmethod
    def next_time(self, closed_at: float | None) -> int | None:
        """When the next window ends by time alone."""

    @abstractmethod
    def due(self, now: int, closed_at: float | None) -> Iterator[Answerable]:
        """The windows that end now, one after the other."""

    @property
    def ended(self) -> bool:
        """True when there are no more windows, whatever comes."""
        return False


class TimeWindows(Bounded):
    """``Generic`` in ticks. ``index`` is the next window; unknown before the first row if that decides it."""

    def __init__(self, spec: Generic, slots: Iterable[int]) -> None:
        super().__init__(slots)
        self.spec = spec
        self.index: int | None = None if spec.from_first else 0
        self.last: int | None = None
        self.kept: dict[int, list[Row]] = {slot: [] for slot in self.slots}

    def take(self, slot: int, row: Row) -> None:
        self.kept[slot].append(row)
        self.last = row.ts
        if self.index is None:
            self.index = (row.ts - self.spec.end) // self.spec.hop_high + 1

    @property
    def ended(self) -> bool:
        return self.index is not None and not exists(self.spec, self.index)

    def next_time(self, closed_at: float | None) -> int | None:
        if self.index is None or self.ended:
            return None
        at = answered_at(self.spec, self.index)
        if closed_at is None or self.spec.end_query is not None or at <= closed_at:
            return at
        return at if self._has_rows_left(self.index) else None

    def pass_empty(self, upto: float, closed_at: float | None) -> None:
        """Go on to the last window that ends up to an instant, or to the first with rows; no other is answered."""
        if self.index is None or self.ended:
            return
        spec = self.spec
        if spec.end_query is not None:
            upto = min(upto, spec.end_query)
        elif closed_at is not None:
            upto = min(upto, closed_at)
        if not math.isfinite(upto):
            return
        start, _ = bounds(spec, self.index)
        ahead = min((r.ts for rows in self.kept.values() for r in rows if r.ts >= start), default=upto)
        last = (int(upto) - spec.end) // spec.hop_high
        self.index = max(self.index, min(last, (int(ahead) - spec.end) // spec.hop_high + 1))

    def _has_rows_left(self, i: int) -> bool:
        """Whether window i, which ends after all that is known of the closed inputs, is still answered."""
        if self.last is None:
            return False
        if is_reverse(self.spec):
            return True
        if self.spec.hop_low > 0:
            return bounds(self.spec, i)[0] <= self.last
        return i == 0 or bounds(self.spec, i - 1)[1] <= self.last

    def due(self, now: int, closed_at: float | None) -> Iterator[Answerable]:
        while (at := self.next_time(closed_at)) is not None and at <= now:
            assert self.index is not None
            start, end = bounds(self.spec, self.index)
            inside = {s: [r for r in rows if start <= r.ts < end] for s, rows in self.kept.items()}
            if self.spec.hop_low >= 0:
                self.kept = {s: [r for r in rows if r.ts >= start] for s, rows in self.kept.items()}
            self.index += 1
            yield Answerable(start, end, inside)


class TupleWindows(Bounded):
    """``Generic`` in row numbers, counted from 1 at each window node."""

    def __init__(self, spec: Generic, slots: Iterable[int]) -> None:
        super().__init__(slots)
        self.spec = spec
        self.index = 0
        self.kept: dict[int, list[Row]] = {slot: [] for slot in self.slots}

    def take(self, slot: int, row: Row) -> None:
        self.kept[slot].append(row)

    @property
    def ended(self) -> bool:
        return not exists(self.spec, self.index)

    def next_time(self, closed_at: float | None) -> int | None:
        return None

    def due(self, now: int, closed_at: float | None) -> Iterator[Answerable]:
        arrived = min(len(rows) for rows in self.kept.values())
        while not self.ended and answered_at(self.spec, self.index) <= arrived:
            start, end = bounds(self.spec, self.index)
            inside = {s: rows[max(start, 1) - 1 : max(end, 0)] for s, rows in self.kept.items()}
            self.index += 1
            yield Answerable(start, end, inside)


class Sessions(Bounded):
    """``Session``: the open session of each key. It ends by time before a row could come too late for it."""

    def __init__(self, spec: Session, slots: Iterable[int]) -> None:
        super().__init__(slots)
        self.spec = spec
        self.open: dict[Hashable, list[Row]] = {}

    def take(self, slot: int, row: Row) -> None:
        self.open.setdefault(value_key(row.values[k] for k in self.spec.keys), []).append(row)

    def next_time(self, closed_at: float | None) -> int | None:
        return min((rows[-1].ts + self.spec.gap for rows in self.open.values()), default=None)

    def due(self, now: int, closed_at: float | None) -> Iterator[Answerable]:
        over = [key for key, rows in self.open.items() if rows[-1].ts + self.spec.gap <= now]
        sessions = [self.open.pop(key) for key in over]

        def start_then_key(rows: list[Row]) -> tuple[object, ...]:
            return rows[0].ts, [order_key(rows[0].values[k]) for k in self.spec.keys]

        for rows in sorted(sessions, key=start_then_key):
            (slot,) = self.slots
            yield Answerable(rows[0].ts, rows[-1].ts + self.spec.gap, {slot: rows})


def bounded(spec: WindowSpec, slots: Iterable[int]) -> Bounded:
    """The state of all bounded windows of a query, which have the same spec."""
    if (
        isinstance(spec, Generic)
        and is_reverse(spec)
        and spec.end_query is None
        and spec.hop_low <= spec.hop_high
    ):
        raise PlanError(
            f"windows that hop back by ({spec.hop_low}, {spec.hop_high}) go on forever",
            hint="END QUERY would say how far back",
        )
    match spec:
        case Generic(unit="time"):
            return TimeWindows(spec, slots)
        case Generic(unit="tuples"):
            return TupleWindows(spec, slots)
        case Session():
            return Sessions(spec, slots)
    raise TypeError(f"{spec} is not answered at its end; it has a content at every instant")
