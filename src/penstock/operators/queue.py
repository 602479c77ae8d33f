"""A queue of rows that can be saved."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.kernels.store import RowQueue
from penstock.model.schema import Schema
from penstock.operators.pieces import RowPieces
from penstock.operators.state import Loaded, Saved
from penstock.operators.stored import piece_of, piece_table
from penstock.operators.tables import arrivals_of


class SavedQueue(RowQueue):
    """First in, first out; saved as what has come since the last save."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self._schema = schema
        self._pieces = RowPieces()

    def save(self) -> Saved:
        return self._pieces.save(self.taken, self.taken + len(self), self._table)

    def _table(self, start: int, stop: int) -> pa.Table:
        return piece_table(self._schema, self.numbered(start, stop))

    def load(self, state: Loaded) -> None:
        self.taken, _, tables = self._pieces.load(state)
        self._append(tables)

    def catch_up(self, state: Loaded) -> None:
        gone, tables = self._pieces.catch_up(state, self.taken, self.taken + len(self))
        self.first(gone)
        self.taken = state.meta["tail"]
        self._append(tables)

    def _append(self, tables: Sequence[pa.Table]) -> None:
        for table in tables:
            self.append(piece_of(arrivals_of(self._schema, table)))
