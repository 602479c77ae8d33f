"""What all windows are made with: rows as the stores of windows take them, and changes in one order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.store import Piece, join
from penstock.model.delta import Arrivals, Delta, Ints, Step, empty
from penstock.model.schema import Schema
from penstock.operators.tables import arrivals_table


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
