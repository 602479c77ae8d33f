"""Between deltas and the changes of plain rows at each instant, for operators that go row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from penstock.model.delta import MAX_TS, Delta, Instant, Ints
from penstock.model.schema import Schema
from penstock.model.values import to_arrow, to_python
from penstock.operators.base import StateSize
from penstock.operators.evaluation import Values

_ROW_BYTES, _VALUE_BYTES = 200, 40


class Row(NamedTuple):
    """A row of a relation: plain values, and what every change carries. ``end`` is ``MAX_TS`` where none is known."""

    values: Values
    moment: Instant
    priority: int = 0
    end: int = MAX_TS


class Changes(NamedTuple):
    """What one input does at an instant."""

    leaving: Sequence[Row]
    entering: Sequence[Row]


_NONE = Changes((), ())


def rows_of(delta: Delta) -> list[Row]:
    """The rows of a delta, in its order."""
    size = len(delta)
    columns = [to_python(c, f.type) for c, f in zip(delta.columns, delta.schema, strict=True)]
    values: list[Values] = list(zip(*columns, strict=True)) if columns else [()] * size
    moments = zip(delta.moment_ts.tolist(), delta.moment_sub.tolist(), strict=True)
    priority = repeat(0, size) if delta.priority is None else delta.priority.tolist()
    end = repeat(MAX_TS, size) if delta.end is None else delta.end.tolist()
    return list(map(Row._make, zip(values, moments, priority, end, strict=True)))


def starts(ts: Ints, sub: Ints) -> list[int]:
    """Where each instant begins in a column of instants, and the length."""
    if not len(ts):
        return [0]
    new = np.flatnonzero((ts[1:] != ts[:-1]) | (sub[1:] != sub[:-1])) + 1
    return [0, *new.tolist(), len(ts)]


def changes_of(delta: Delta) -> Iterator[tuple[Instant, Changes]]:
    """The changes of one delta, instant by instant."""
    rows = rows_of(delta)
    cuts = starts(delta.ts, delta.sub)
    ts, sub = delta.ts[cuts[:-1]].tolist(), delta.sub[cuts[:-1]].tolist()
    # Rows that leave stand first: how many of them there are in each instant says where the others begin.
    leaving = np.concatenate(([0], np.cumsum(delta.sign < 0)))[cuts]
    counts = (leaving[1:] - leaving[:-1]).tolist()
    for i, at in enumerate(zip(ts, sub, strict=True)):
        start, stop = cuts[i], cuts[i + 1]
        middle = start + counts[i]
        yield at, Changes(rows[start:middle], rows[middle:stop])


def by_instant(inputs: Sequence[Delta]) -> Iterator[tuple[Instant, list[Changes]]]:
    """The changes of all inputs together, for each instant at which one of them changes."""
    if len(inputs) == 1:
        for at, changes in changes_of(inputs[0]):
            yield at, [changes]
        return
    sides = [changes_of(d) for d in inputs]
    heads = [next(side, None) for side in sides]
    while True:
        now = min((h[0] for h in heads if h is not None), default=None)
        if now is None:
            return
        together: list[Changes] = []
        for i, head in enumerate(heads):
            if head is not None and head[0] == now:
                together.append(head[1])
                heads[i] = next(sides[i], None)
            else:
                together.append(_NONE)
        yield now, together


class Output:
    """Collects the changes of the result, instant after instant."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._rows: list[Row] = []
        self._sign: list[int] = []
        self._instants: list[Instant] = []
        self._counts: list[int] = []

    def add(self, instant: Instant, leaving: Sequence[Row], entering: Sequence[Row]) -> None:
        """All changes of an instant; instants come in order."""
        count = len(leaving) + len(entering)
        if not count:
            return
        self._rows += leaving
        self._rows += entering
        self._sign += [-1] * len(leaving)
        self._sign += [1] * len(entering)
        self._instants.append(instant)
        self._counts.append(count)

    def delta(self, *, ends: bool = False) -> Delta:
        """What was collected; with ``ends`` each row says when it leaves by time alone."""
        rows = self._rows
        if rows:
            columns = list(zip(*[r.values for r in rows], strict=True))
        else:
            columns = [()] * len(self.schema)
        instants = np.array(self._instants, np.int64).reshape(-1, 2)
        at = np.repeat(instants, np.array(self._counts, np.int64), axis=0)
        moments = np.array([r.moment for r in rows], np.int64).reshape(-1, 2)
        priority = np.array([r.priority for r in rows], np.int64)
        return Delta(
            self.schema,
            tuple(to_arrow(c, f.type) for c, f in zip(columns, self.schema, strict=True)),
            np.ascontiguousarray(at[:, 0]),
            np.ascontiguousarray(at[:, 1]),
            np.array(self._sign, np.int8),
            np.ascontiguousarray(moments[:, 0]),
            np.ascontiguousarray(moments[:, 1]),
            priority if priority.any() else None,
            np.array([r.end for r in rows], np.int64) if ends else None,
        )


def size_of(rows: int, schema: Schema) -> StateSize:
    """An estimate of what so many plain rows of a schema take."""
    return StateSize(rows, rows * (_ROW_BYTES + _VALUE_BYTES * len(schema)))
