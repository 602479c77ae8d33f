"""Windows that hold the rows inside them in a store which others share: ``[ROWS n]``, ``[RANGE d]``, ``[NOW]``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.buffers import in_turns, numbers_in_turns
from penstock.kernels.store import Piece, join
from penstock.model.delta import Arrivals, Delta, Ints, Step, empty
from penstock.model.schema import Schema
from penstock.operators.base import StateSize
from penstock.operators.pieces import RowPieces
from penstock.operators.state import Loaded, Saved
from penstock.operators.tables import arrivals_of, arrivals_table
from penstock.operators.window_store import WindowStore


def piece_of(arrivals: Arrivals) -> Piece:
    return Piece(arrivals.columns, arrivals.ts, arrivals.sub, arrivals.priority)


def by_time(step: Step) -> int:
    """The last t for which (t, 0) is before the frontier."""
    ts, sub = step.frontier
    return ts if sub > 0 else ts - 1


def changes(
    schema: Schema,
    entering: Sequence[Piece],
    leaving: Sequence[Piece],
    enter: tuple[Ints, Ints, Ints] | None,
    leave: tuple[Ints, Ints, Ints] | None,
) -> Delta:
    """Rows that enter and leave in one order.

    ``enter`` and ``leave``: for each row when it does, as a number by which both ascend together, and the instant.
    """
    if enter is None or leave is None:
        if enter is not None:
            rows, (_, ts, sub), sign = join(entering), enter, np.ones(len(enter[0]), np.int8)
        elif leave is not None:
            rows, (_, ts, sub), sign = join(leaving), leave, np.full(len(leave[0]), -1, np.int8)
        else:
            return empty(schema)
        return Delta(schema, rows.columns, ts, sub, sign, rows.ts, rows.sub, rows.priority)
    rows = join([*leaving, *entering])
    n = len(leave[0])
    ts, sub = np.concatenate([leave[1], enter[1]]), np.concatenate([leave[2], enter[2]])
    sign = np.ones(len(ts), np.int8)
    sign[:n] = -1
    if leave[0][n - 1] > enter[0][0]:
        from penstock.kernels.windows import order

        where = order(enter[0], leave[0])
        rows, ts, sub, sign = rows.take(where), ts[where], sub[where], sign[where]
    return Delta(schema, rows.columns, ts, sub, sign, rows.ts, rows.sub, rows.priority)


def piece_table(schema: Schema, piece: Piece) -> pa.Table:
    """Rows as they are saved."""
    return arrivals_table(Arrivals(schema, piece.columns, piece.ts, piece.sub, piece.priority))


class StoredWindow:
    """A window whose rows, all that came since the oldest one inside, are in a store that it may share with others."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.inside = WindowStore().share()
        self._pieces = RowPieces()

    def use(self, store: WindowStore) -> None:
        """Hold rows in this store; there are none yet."""
        self.inside = store.share()

    def release(self) -> None:
        """The rows are of no use to this any more."""
        self.inside.release()

    def size(self) -> StateSize:
        return self.inside.size()

    def save(self) -> Saved:
        inside = self.inside
        taken = inside.taken

        def rows(start: int, stop: int) -> pa.Table:
            return piece_table(self._schema, join(inside.between(start - taken, stop - taken)))

        return self._pieces.save(taken, taken + len(inside), rows)

    def load(self, state: Loaded) -> None:
        self.inside.taken, _, tables = self._pieces.load(state)
        self._put(tables)

    def catch_up(self, state: Loaded) -> None:
        inside = self.inside
        gone, tables = self._pieces.catch_up(state, inside.taken, inside.taken + len(inside))
        inside.first(gone)
        inside.taken = state.meta["tail"]
        self._put(tables)

    def _put(self, tables: Sequence[pa.Table]) -> None:
        pieces = [piece_of(arrivals_of(self._schema, table)) for table in tables]
        if len(pieces) > 1 and self.inside.store.rows:
            pieces = [join(pieces)]  # others have loaded some of these rows: as a whole they go with them
        for piece in pieces:
            self.inside.put(piece)


def _in_turns(schema: Schema, leaving: Piece, entering: Piece) -> Delta:
    """Each row that enters pushes one out."""
    n = len(entering.ts)
    sign = np.ones(2 * n, np.int8)
    sign[::2] = -1
    priority = None
    if leaving.priority is not None or entering.priority is not None:
        none = np.zeros(n, np.int64)
        gone, came = (none if p is None else p for p in (leaving.priority, entering.priority))
        priority = numbers_in_turns(gone, came)
    return Delta(
        schema,
        tuple([in_turns(a, b) for a, b in zip(leaving.columns, entering.columns, strict=True)]),
        entering.ts.repeat(2),
        entering.sub.repeat(2),
        sign,
        numbers_in_turns(leaving.ts, entering.ts),
        numbers_in_turns(leaving.sub, entering.sub),
        priority,
    )


class TimeWindow(StoredWindow):
    """``[RANGE size]`` and ``[NOW]``: a row leaves at ts + size. Keeps the rows inside; forgets one when it leaves."""

    def __init__(self, schema: Schema, size: int) -> None:
        super().__init__(schema)
        self._size = size

    def process(self, arrivals: Arrivals, step: Step) -> Delta:
        ts = arrivals.ts
        n = len(ts)
        piece = piece_of(arrivals)
        inside = self.inside
        inside.put(piece)
        leaving = inside.first_until(by_time(step) - self._size)
        leave = None
        if leaving:
            at = (leaving[0].ts if len(leaving) == 1 else np.concatenate([p.ts for p in leaving])) + self._size
            leave = (at, at, np.zeros(len(at), np.int64))
        return changes(self._schema, [piece], leaving, (ts, ts, arrivals.sub) if n else None, leave)


class RowsWindow(StoredWindow):
    """``[ROWS size]``: each arrival beyond ``size`` pushes the oldest out. Keeps the last ``size`` rows."""

    def __init__(self, schema: Schema, size: int) -> None:
        super().__init__(schema)
        self._size = size

    def process(self, arrivals: Arrivals, step: Step) -> Delta:
        n = len(arrivals.ts)
        if n == 0:
            return empty(self._schema)
        inside = self.inside
        room = self._size - (inside.head - inside.tail)
        piece = piece_of(arrivals)
        inside.put(piece)
        if room <= 0:
            return _in_turns(self._schema, join(inside.first(n)), piece)
        when = np.arange(n)
        enter = (when, arrivals.ts, arrivals.sub)
        leaving, leave = inside.first(max(0, n - room)), None
        if leaving:
            leave = (when[room:], arrivals.ts[room:], arrivals.sub[room:])
        return changes(self._schema, [piece], leaving, enter, leave)
