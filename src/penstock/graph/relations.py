"""The rows of a stored relation on their way into queries: changes that have been made and whose turn has not come.

Changes are held while the streams are behind them; rows as long as they are in the relation.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from penstock.model.change import Change
from penstock.model.delta import MIN_TS, Delta, Instant, arrival_sub
from penstock.model.schema import Schema
from penstock.model.values import to_arrow, to_rows
from penstock.operators.base import StateSize
from penstock.operators.pieces import RowPieces, Tracked
from penstock.operators.rows import Row, size_of
from penstock.operators.shapes import row_of
from penstock.operators.state import Content, Loaded, Saved, together
from penstock.operators.tables import table_of
from penstock.scalar import hashable


class RelationInput:
    """The changes of one relation. ``position``: its place in the catalog."""

    def __init__(self, schema: Schema, position: int) -> None:
        self.schema = schema
        self.position = position
        self._waiting: deque[Change] = deque()
        self._entered: dict[tuple[object, ...], deque[int]] = {}
        shape = row_of(schema)
        self._present: Tracked[Row] = Tracked(shape.table, shape.entries)
        self._released = 0
        self._pieces = RowPieces()

    def size(self) -> StateSize:
        return size_of(len(self._waiting) + len(self._present.entries), self.schema)

    @property
    def last_waiting(self) -> Instant | None:
        """The instant of the last change whose turn has not come."""
        return self.instant(self._waiting[-1]) if self._waiting else None

    def push(self, changes: Sequence[Change]) -> None:
        """Changes in order."""
        self._waiting.extend(changes)

    def difference(self, rows: Sequence[tuple[object, ...]]) -> list[tuple[int, tuple[object, ...]]]:
        """Signs and rows that make these rows of all that were pushed, also of those whose turn has not come."""
        if not self._entered and not self._waiting:
            return [(1, row) for row in rows]
        known = {key: self._present.entries[ids[0]].values for key, ids in self._entered.items()}
        left = Counter({key: len(ids) for key, ids in self._entered.items()})
        for change in self._waiting:
            key = _hashable(change.row)
            known[key] = change.row
            left[key] += change.sign
        new: list[tuple[int, tuple[object, ...]]] = []
        for row in rows:
            key = _hashable(row)
            if left[key] > 0:
                left[key] -= 1
            else:
                new.append((1, row))
        return [(-1, known[key]) for key in left.elements()] + new

    def release(self, frontier: Instant) -> Delta:
        """The changes before the frontier."""
        released: list[Change] = []
        while self._waiting and self.instant(self._waiting[0]) < frontier:
            released.append(self._waiting.popleft())
        self._released += len(released)
        # Each row's identity is its own place in the relation's history, so that a row that leaves
        # is told from an equal one that enters at the same instant.
        keyed: list[tuple[Instant, int, Change, Instant]] = []
        for change in released:
            at = self.instant(change)
            key = _hashable(change.row)
            if change.sign > 0:
                moment = (at[0], int(arrival_sub(self.position, change.arrival + (1 << 40))))
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
        def waiting(start: int, stop: int) -> Content:
            some = islice(self._waiting, start - self._released, stop - self._released)
            return partial(changes_table, self.schema, list(some))

        return together(
            waiting=self._pieces.save(self._released, self._released + len(self._waiting), waiting),
            present=self._present.save(),
        )

    def load(self, state: Loaded) -> None:
        self._released, _, tables = self._pieces.load(state.part("waiting"))
        self._waiting = deque(change for table in tables for change in changes_from(self.schema, table))
        for id, row in self._present.load(state.part("present")):
            self._entered.setdefault(_hashable(row.values), deque()).append(id)

    def catch_up(self, state: Loaded) -> None:
        """Go on from a later state."""
        waiting = state.part("waiting")
        gone, tables = self._pieces.catch_up(waiting, self._released, self._released + len(self._waiting))
        for _ in range(gone):
            self._waiting.popleft()
        self._waiting.extend(change for table in tables for change in changes_from(self.schema, table))
        self._released = waiting.meta["tail"]
        rows_gone, rows_new = self._present.catch_up(state.part("present"))
        for id, row in rows_gone:
            key = _hashable(row.values)
            self._entered[key].remove(id)
            if not self._entered[key]:
                del self._entered[key]
        for id, row in rows_new:
            self._entered.setdefault(_hashable(row.values), deque()).append(id)

    def instant(self, change: Change) -> Instant:
        """When a change happens."""
        if change.ts is None:
            return (MIN_TS, 0)
        return change.ts, int(arrival_sub(self.position, change.group))


def numbered_changes(schema: Schema, changes: Sequence[tuple[Change, int]]) -> pa.Table:
    """Changes of a relation, each with the number of its row."""
    table = changes_table(schema, [change for change, _ in changes])
    return table.append_column("_number", pa.array([number for _, number in changes], pa.int64()))


def numbered_from(schema: Schema, table: pa.Table) -> list[tuple[Change, int]]:
    """What ``numbered_changes`` had."""
    return list(zip(changes_from(schema, table), table.column("_number").to_pylist(), strict=True))


def changes_schema(schema: Schema) -> pa.Schema:
    """Of what ``changes_table`` gives."""
    found: pa.Schema = changes_table(schema, ()).schema
    return found


def changes_table(schema: Schema, changes: Sequence[Change]) -> pa.Table:
    """Changes of a relation as rows."""
    columns = [to_arrow([c.row[i] for c in changes], f.type) for i, f in enumerate(schema)]
    return table_of(
        schema,
        columns,
        ts=pa.array([c.ts for c in changes], pa.int64()),
        sign=pa.array([c.sign for c in changes], pa.int8()),
        arrival=pa.array([c.arrival for c in changes], pa.int64()),
        group=pa.array([c.group for c in changes], pa.int64()),
    )


def changes_from(schema: Schema, table: pa.Table) -> list[Change]:
    """What ``changes_table`` had."""
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
