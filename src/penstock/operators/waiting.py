"""Changes that wait for a master element."""

from __future__ import annotations

import pyarrow as pa

from penstock.model.delta import Delta, concat, empty
from penstock.model.schema import Schema
from penstock.operators.base import StateSize
from penstock.operators.pieces import RowPieces
from penstock.operators.state import Loaded, Saved, with_meta
from penstock.operators.tables import delta_of, delta_table

_SLOTH = 1024
"""So many waiting changes are not worth looking through."""


class Waiting:
    """What operators that hold changes back have in common: the changes, of rows of ``taken``, in order, and their
    state. Whoever holds them says what bounds them."""

    def __init__(self, taken: Schema) -> None:
        self._taken = taken
        self._waiting: list[Delta] = []
        self._length = 0
        self._limit = _SLOTH  # more are looked through
        self._first = 0  # the number of the first waiting change
        self._pieces = RowPieces()

    def _wait(self, waiting: list[Delta]) -> None:
        self._waiting = waiting
        self._length = sum(map(len, waiting))

    def _looked_through(self) -> None:
        """What waits now is worth looking at again when it has doubled."""
        self._limit = max(_SLOTH, 2 * self._length)

    def size(self) -> StateSize:
        return StateSize(self._length, sum(d.nbytes for d in self._waiting))

    def save(self) -> Saved:
        def rows(start: int, stop: int) -> pa.Table:
            waiting = concat([empty(self._taken), *self._waiting])
            return delta_table(waiting.slice(start - self._first, stop - self._first))

        return with_meta(self._pieces.save(self._first, self._first + self._length, rows), limit=self._limit)

    def load(self, state: Loaded) -> None:
        self._first, _, tables = self._pieces.load(state)
        self._wait([delta_of(self._taken, t) for t in tables])
        self._limit = state.meta["limit"]

    def catch_up(self, state: Loaded) -> None:
        gone, tables = self._pieces.catch_up(state, self._first, self._first + self._length)
        waiting = self._waiting
        while waiting and gone >= len(waiting[0]):
            gone -= len(waiting[0])
            waiting = waiting[1:]
        if gone:
            waiting = [waiting[0].slice(gone, len(waiting[0])), *waiting[1:]]
        self._wait([*waiting, *(delta_of(self._taken, t) for t in tables)])
        self._first, self._limit = state.meta["tail"], state.meta["limit"]
