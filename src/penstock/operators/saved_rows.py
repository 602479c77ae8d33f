"""Rows that come at one end and go at the other, with what a save needs to write only those that are new."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.model.delta import Arrivals, Delta, concat, joined, sliced
from penstock.model.schema import Schema
from penstock.operators.pieces import RowPieces
from penstock.operators.state import Loaded, Saved
from penstock.operators.tables import arrivals_of, arrivals_table, delta_of, delta_table, has


class SavedRows:
    """Rows in the order in which they came, all elements or all changes.

    Bounded by whoever forgets them with ``drop``.
    """

    def __init__(self) -> None:
        self.parts: list[Arrivals | Delta] = []
        self._gone = 0
        self._pieces = RowPieces()

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def add(self, rows: Arrivals | Delta) -> None:
        """More rows."""
        if len(rows):
            self.parts.append(rows)

    def whole(self) -> Arrivals | Delta:
        """All rows, of which there are some, in one part."""
        if len(self.parts) > 1:
            self.parts = [_together(self.parts)]
        return self.parts[0]

    def drop(self, count: int) -> None:
        """So many of the oldest rows are not needed any more."""
        self._gone += count
        while count and count >= len(self.parts[0]):
            count -= len(self.parts.pop(0))
        if count:
            self.parts[0] = _cut(self.parts[0], count, len(self.parts[0]))

    def become(self, rows: Arrivals | Delta) -> None:
        """Others in their place: the next save writes them all."""
        self.drop(len(self))
        self.add(rows)

    def save(self) -> Saved:
        return self._pieces.save(self._gone, self._gone + len(self), self._table)

    @classmethod
    def loaded(cls, schema: Schema, state: Loaded) -> SavedRows:
        """Those that were saved."""
        found = cls()
        found._gone, _, tables = found._pieces.load(state)
        read: Callable[[Schema, pa.Table], Arrivals | Delta]
        for table in tables:
            read = delta_of if has(table, "sign") else arrivals_of
            found.parts.append(read(schema, table))
        return found

    def _table(self, start: int, stop: int) -> pa.Table:
        first = self._gone
        chosen: list[Arrivals | Delta] = []
        for part in self.parts:
            low, high = max(start - first, 0), min(stop - first, len(part))
            if low < high:
                chosen.append(_cut(part, low, high))
            first += len(part)
        rows = _together(chosen)
        return delta_table(rows) if isinstance(rows, Delta) else arrivals_table(rows)


def _cut(rows: Arrivals | Delta, start: int, stop: int) -> Arrivals | Delta:
    return rows.slice(start, stop) if isinstance(rows, Delta) else sliced(rows, start, stop)


def _together(parts: list[Arrivals | Delta]) -> Arrivals | Delta:
    if isinstance(parts[0], Delta):
        return concat([p for p in parts if isinstance(p, Delta)])
    return joined(parts[0].schema, [p for p in parts if isinstance(p, Arrivals)])
