"""The inputs of an operator that has several: what has come and waits for the other inputs.

A port forgets rows when they are released. It holds what the slowest input keeps back.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.graph.message import BEGIN, Data, Mark, Message, before, cut, joined_data, mark_of
from penstock.model.delta import Delta, Instant, empty, joined
from penstock.model.schema import Schema
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.pieces import RowPieces
from penstock.operators.state import Loaded, Saved, with_meta
from penstock.operators.tables import arrivals_of, arrivals_table, delta_of, delta_table


class Port:
    """One input. ``elements``: it brings arrivals, not changes. ``counts``: its rows matter, not just how far it is.
    ``ends``: its changes say when they end.
    """

    __slots__ = ("_none", "_pieces", "_released", "counts", "elements", "mark", "schema", "waiting")

    def __init__(self, schema: Schema, *, elements: bool, counts: bool = True, ends: bool = False) -> None:
        self.schema, self.elements, self.counts = schema, elements, counts
        nothing = empty(schema)
        if ends:
            nothing = replace(nothing, end=nothing.ts)
        self._none: Data = joined(schema, []) if elements else nothing
        self.mark: Mark = BEGIN
        self.waiting: list[Data] = []
        self._released = 0
        self._pieces = RowPieces()

    def add(self, message: Message) -> None:
        """Keep a message."""
        if self.counts and len(message.data.ts):
            self.waiting.append(message.data)
        self.mark = message.mark

    def release(self, frontier: Instant) -> Data:
        """The rows before the frontier; they are no longer held."""
        waiting = self.waiting
        if not waiting:
            return self._none
        if len(waiting) == 1:
            only = waiting[0]
            if before(only, frontier) == len(only.ts):
                self.waiting = []
                self._released += len(only.ts)
                return only
        released: list[Data] = []
        while waiting:
            head = waiting[0]
            n = before(head, frontier)
            if n == len(head.ts):
                released.append(waiting.pop(0))
                continue
            if n:
                released.append(cut(head, 0, n))
                waiting[0] = cut(head, n, len(head))
            break
        self._released += sum(map(len, released))
        return joined_data(released) if released else self._none

    def waits_like(self, other: Port) -> bool:
        """Whether the rows of the same instants wait in both."""

        def instants(port: Port) -> list[list[int]]:
            return [[i for w in port.waiting for i in w.ts.tolist()], [i for w in port.waiting for i in w.sub.tolist()]]

        return instants(self) == instants(other)

    def size(self) -> StateSize:
        if not self.waiting:
            return NOTHING
        return StateSize(sum(map(len, self.waiting)), sum(Message(w, BEGIN).nbytes for w in self.waiting))

    # -- state ----------------------------------------------------------------------------------------

    def save(self) -> Saved:
        saved = self._pieces.save(self._released, self._released + sum(map(len, self.waiting)), self._table)
        return with_meta(saved, mark=[*self.mark.plain()])

    def _table(self, start: int, stop: int) -> pa.Table:
        first = self._released
        parts: list[Data] = []
        for waiting in self.waiting:
            low, high = max(start - first, 0), min(stop - first, len(waiting))
            if low < high:
                parts.append(cut(waiting, low, high))
            first += len(waiting)
        data = joined_data(parts) if parts else self._none
        return delta_table(data) if isinstance(data, Delta) else arrivals_table(data)

    def load(self, state: Loaded) -> None:
        self._released, _, tables = self._pieces.load(state)
        self.waiting = [self._data(t) for t in tables]
        self.mark = mark_of(state.meta["mark"])

    def catch_up(self, state: Loaded) -> None:
        head = self._released + sum(map(len, self.waiting))
        gone, tables = self._pieces.catch_up(state, self._released, head)
        while self.waiting and gone >= len(self.waiting[0]):
            gone -= len(self.waiting.pop(0))
        if gone:
            self.waiting[0] = cut(self.waiting[0], gone, len(self.waiting[0]))
        self.waiting += [self._data(t) for t in tables]
        self._released = state.meta["tail"]
        self.mark = mark_of(state.meta["mark"])

    def _data(self, table: pa.Table) -> Data:
        return arrivals_of(self.schema, table) if self.elements else delta_of(self.schema, table)
