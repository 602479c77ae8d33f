"""What operators of a graph pass on: a batch, and how far its sender is.

A message with no rows still says something: nothing before its frontier will come. Messages of one sender come in
order; their frontiers never go back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.model.delta import MIN_TS, NEVER, Arrivals, Delta, Instant, Ints, concat, joined, sliced
from penstock.operators.tables import from_number, number

Data = Arrivals | Delta


@dataclass(slots=True, eq=False)
class Mark:
    """How far a sender is.

    ``frontier``: no row with an instant before it will follow. ``progress``: the same as time alone, infinite once
    nothing can come. ``newest``: the furthest time that anybody has named, which closing does not change.
    """

    frontier: Instant
    progress: float
    newest: float

    @property
    def closed(self) -> bool:
        return self.frontier == NEVER


    def plain(self) -> list[int | float | str]:
        """As JSON."""
        return [*self.frontier, number(self.progress), number(self.newest)]


BEGIN = Mark((MIN_TS, 0), float("-inf"), float("-inf"))
"""Before anything was said."""


def mark_of(plain: Sequence[Any]) -> Mark:
    """What ``Mark.plain`` gave."""
    ts, sub, progress, newest = plain
    return Mark((ts, sub), from_number(progress), from_number(newest))


def least(marks: Sequence[Mark]) -> Mark:
    """How far somebody is who needs all of several senders."""
    if len(marks) == 1:
        return marks[0]
    return Mark(
        min([m.frontier for m in marks]), min([m.progress for m in marks]), max([m.newest for m in marks])
    )


@dataclass(slots=True, eq=False)
class Message:
    """Rows in order, all before ``mark.frontier``, and the mark."""

    data: Data
    mark: Mark

    def __len__(self) -> int:
        return len(self.data)

    @property
    def first(self) -> Instant:
        """The instant of the first row; of a message without rows, its frontier."""
        data = self.data
        return (int(data.ts[0]), int(data.sub[0])) if len(data) else self.mark.frontier

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return int(sum(c.nbytes for c in self.data.columns)) + 33 * len(self.data)


def split(message: Message, rows: int) -> tuple[Message, Message | None]:
    """The first ``rows`` rows (or a few more: an instant is never cut) as a message of its own, and the rest."""
    data = message.data
    stop = max(rows, 1)
    if stop >= len(data):
        return message, None
    ts, sub, step = data.ts[stop - 1], data.sub[stop - 1], 64
    while stop < len(data) and data.ts[stop] == ts and data.sub[stop] == sub:
        same = (data.ts[stop : stop + step] == ts) & (data.sub[stop : stop + step] == sub)
        stop += len(same) if same.all() else int(np.argmin(same))
        step *= 2
    if stop >= len(data):
        return message, None
    frontier = (int(data.ts[stop]), int(data.sub[stop]))
    head, tail = cut(data, 0, stop), cut(data, stop, len(data))
    time = frontier[0]
    mark = Mark(frontier, min(time, message.mark.progress), min(time, message.mark.newest))
    return Message(head, mark), Message(tail, message.mark)


def join(messages: Sequence[Message]) -> Message:
    """Messages of one sender, in order, as one."""
    if len(messages) == 1:
        return messages[0]
    last = messages[-1]
    return Message(joined_data([m.data for m in messages]), last.mark)


def joined_data(parts: Sequence[Data]) -> Data:
    """Batches of one sender, in order, as one."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Delta):
        return concat([p for p in parts if isinstance(p, Delta)])
    return joined(parts[0].schema, [p for p in parts if isinstance(p, Arrivals)])


def cut(data: Data, start: int, stop: int) -> Data:
    """The rows from ``start`` to before ``stop``, without copying."""
    return data.slice(start, stop) if isinstance(data, Delta) else sliced(data, start, stop)


def before(data: Arrivals | Delta, frontier: Instant) -> int:
    """How many rows stand before the frontier."""
    ts, sub = frontier
    last = data.ts[-1]
    if last < ts or (last == ts and data.sub[-1] < sub):
        return len(data.ts)
    low = int(np.searchsorted(data.ts, ts, "left"))
    high = int(np.searchsorted(data.ts, ts, "right"))
    return low + int(np.searchsorted(data.sub[low:high], sub, "left"))


def dropped_before(message: Message, since: Instant) -> Message:
    """A message without its rows before an instant."""
    if not len(message.data):
        return message
    n = before(message.data, since)
    return message if not n else Message(cut(message.data, n, len(message.data)), message.mark)


def chosen(data: Data, indices: Ints) -> Data:
    """The rows at these places, in this order."""
    if isinstance(data, Delta):
        return data.take(indices)
    where = pa.array(indices)
    columns = tuple([c.take(where) for c in data.columns])
    priority = None if data.priority is None else data.priority[indices]
    return Arrivals(data.schema, columns, data.ts[indices], data.sub[indices], priority)


def dropped_rows(data: Data, since: Instant) -> Data:
    """The rows, in whatever order, that are not before an instant."""
    ts, sub = since
    kept = np.flatnonzero((data.ts > ts) | ((data.ts == ts) & (data.sub >= sub)))
    return data if len(kept) == len(data) else chosen(data, kept)
