"""Relation to stream: from the changes of the query's relation to its answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from penstock.kernels.buffers import gather
from penstock.model.delta import MIN_TS, Delta, Instant, Ints, Step, concat, empty
from penstock.model.errors import PlanError
from penstock.operators.base import StateSize
from penstock.operators.evaluation import Functions, row_key_of
from penstock.operators.pieces import Tracked
from penstock.operators.rows import Changes, Output, Row, changes_of, rows_of, size_of
from penstock.operators.shapes import row_of
from penstock.operators.state import Loaded, Saved, with_meta
from penstock.operators.topn import in_order, place_of
from penstock.plan.nodes import Query, SortKey
from penstock.scalar import Context


class Emit:
    """The answers of ISTREAM, DSTREAM, RSTREAM, or of none of them (``changes``).

    Needs clean deltas, already at master instants where there are masters, and the sorted instants of evaluation of
    each step. Promises a delta whose sign is the answer's ``+`` or ``-``; elements of a stream are all ``+``.

    What is there from the beginning waits for the first instant of evaluation and is, with what changes then, the
    first answer: before it there was nothing, so nothing leaves.

    Within an instant ``-`` stands before ``+``. ``ordered``: each in value order, as the elements of a stream come.
    ``keys``: the ``+`` in this order, ties by value. With neither, rows that change come as the operators below
    leave them, and those of a whole relation in any order.

    Bounded by the rows of the beginning until the first instant, then by nothing; RSTREAM by the relation.
    """

    def __init__(
        self,
        query: Query,
        *,
        ordered: bool = False,
        keys: Sequence[SortKey] = (),
        functions: Functions | None = None,
    ) -> None:
        if query.output == "windows":
            raise PlanError("a query over bounded windows is answered window by window, not by its changes")
        self.output = query.output
        self.schema = query.schema
        self._ordered = ordered or bool(keys)
        self._place = place_of(keys, Context(functions=functions or {})) if keys else None
        self._key = row_key_of(query.schema)
        self._rows: dict[Hashable, list[int]] = {}
        shape = row_of(query.schema)
        self._present: Tracked[Row] = Tracked(shape.table, shape.entries)
        self._begun = False

    @property
    def passes(self) -> bool:
        """Whether rows that enter are the answer as they are, provided that there are none at the beginning."""
        return self.output in ("istream", "changes") and not self._ordered

    @property
    def needs_instants(self) -> bool:
        """Whether the instants of the next step matter."""
        return not self._begun or self.output == "rstream"

    def process(self, inputs: Sequence[Delta], step: Step, instants: tuple[Ints, Ints]) -> Delta:
        (delta,) = inputs
        if not self.needs_instants:
            return self._differences(delta)
        if self.output == "rstream":
            return self._whole(delta, list(zip(instants[0].tolist(), instants[1].tolist(), strict=True)))
        if not len(instants[0]):
            self._take(delta)
            return empty(self.schema)
        self._begun = True
        first = int(instants[0][0]), int(instants[1][0])
        if not self._rows and (not len(delta) or delta.ts[0] != MIN_TS):
            return self._differences(delta)
        cut = _count_until(delta, first)
        self._take(delta.slice(0, cut))
        output = Output(self.schema)
        if self.output != "dstream":
            output.add(first, (), self._all())
        self._rows = {}
        for id in list(self._present.entries):
            self._present.remove(id)
        rest = self._differences(delta.slice(cut, len(delta)))
        return concat([output.delta(), rest])

    def size(self) -> StateSize:
        return size_of(len(self._present.entries), self.schema)

    def save(self) -> Saved:
        return with_meta(self._present.save(), begun=self._begun)

    def load(self, state: Loaded) -> None:
        self._begun = state.meta["begun"]
        for id, row in self._present.load(state):
            self._rows.setdefault(self._key(row.values), []).append(id)

    def catch_up(self, state: Loaded) -> None:
        self._begun = state.meta["begun"]
        gone, came = self._present.catch_up(state)
        for id, row in gone:
            key = self._key(row.values)
            self._rows[key].remove(id)
            if not self._rows[key]:
                del self._rows[key]
        for id, row in came:
            self._rows.setdefault(self._key(row.values), []).append(id)

    def _differences(self, delta: Delta) -> Delta:
        if delta.end is not None:
            delta = replace(delta, end=None)
        if self.output == "istream" and len(delta.ts) and delta.sign.min() < 0:
            delta = _entering(delta)
        if self.output == "dstream":
            delta = delta.take(np.flatnonzero(delta.sign < 0))
            delta = replace(delta, sign=np.ones(len(delta), np.int8))
        return self._in_order(delta) if self._ordered else delta

    def _in_order(self, delta: Delta) -> Delta:
        """The rows of each instant and sign in order."""
        rows = None
        places = np.arange(len(delta))
        same = (delta.ts[1:] == delta.ts[:-1]) & (delta.sub[1:] == delta.sub[:-1]) & (delta.sign[1:] == delta.sign[:-1])
        cuts = [0, *(np.flatnonzero(~same) + 1).tolist(), len(delta)]
        for start, stop in pairwise(cuts):
            if stop - start < 2:
                continue
            rows = rows_of(delta) if rows is None else rows
            place = self._place if delta.sign[start] > 0 else None
            # Each row carries its place in the delta where its end was.
            marked = [r._replace(end=i) for i, r in enumerate(rows[start:stop], start)]
            places[start:stop] = [r.end for r in in_order(marked, place)]
        return delta if rows is None else delta.take(places)

    def _whole(self, delta: Delta, instants: list[Instant]) -> Delta:
        output = Output(self.schema)
        changes = changes_of(delta)
        ahead = next(changes, None)
        for instant in instants:
            while ahead is not None and ahead[0] <= instant:
                self._apply(ahead[1])
                ahead = next(changes, None)
            output.add(instant, (), self._all())
        while ahead is not None:
            self._apply(ahead[1])
            ahead = next(changes, None)
        return output.delta()

    def _all(self) -> list[Row]:
        rows = list(self._present.entries.values())
        return in_order(rows, self._place) if self._ordered else rows

    def _take(self, delta: Delta) -> None:
        for _, changes in changes_of(delta):
            self._apply(changes)

    def _apply(self, changes: Changes) -> None:
        for row in changes.leaving:
            key = self._key(row.values)
            same = self._rows[key]
            self._present.remove(same.pop())
            if not same:
                del self._rows[key]
        for row in changes.entering:
            self._rows.setdefault(self._key(row.values), []).append(self._present.add(row))


def _entering(delta: Delta) -> Delta:
    """The rows that enter."""
    where = np.flatnonzero(delta.sign > 0)
    ts, sub = delta.ts[where], delta.sub[where]
    return Delta(
        delta.schema,
        tuple([gather(c, where) for c in delta.columns]),
        ts,
        sub,
        np.ones(len(where), np.int8),
        ts if delta.moment_ts is delta.ts else delta.moment_ts[where],
        sub if delta.moment_sub is delta.sub else delta.moment_sub[where],
        None if delta.priority is None else delta.priority[where],
    )


def _count_until(delta: Delta, instant: Instant) -> int:
    """How many changes lie not after the instant."""
    ts, sub = instant
    return int(np.count_nonzero((delta.ts < ts) | ((delta.ts == ts) & (delta.sub <= sub))))
