"""Rows, arrivals and deltas as tables of saved state, and back.

Payload columns are called by their place, ``c0``, ``c1``, …; what every row has besides begins with ``_``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.model.delta import Arrivals, Delta, Ints
from penstock.model.schema import Schema


def table_of(schema: Schema, columns: Sequence[pa.Array], **more: Any) -> pa.Table:
    """Payload and further columns; those that are None are left out."""
    given = {f"_{name}": column for name, column in more.items() if column is not None}
    arrays = [*columns, *(c if isinstance(c, pa.Array) else pa.array(c) for c in given.values())]
    return pa.Table.from_arrays(arrays, names=[*(f"c{i}" for i in range(len(schema))), *given])


def columns_of(schema: Schema, table: pa.Table) -> tuple[pa.Array, ...]:
    """The payload."""
    return tuple(whole(table.column(i)) for i in range(len(schema)))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one part."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def ints(table: pa.Table, name: str) -> Ints:
    """A column of integers."""
    return whole(table.column(f"_{name}")).to_numpy()  # type: ignore[no-any-return]


def has(table: pa.Table, name: str) -> bool:
    """Whether the table has this further column."""
    return f"_{name}" in table.column_names


def arrivals_table(arrivals: Arrivals) -> pa.Table:
    """Elements as a table."""
    return table_of(
        arrivals.schema, arrivals.columns, ts=arrivals.ts, sub=arrivals.sub, priority=arrivals.priority
    )


def arrivals_of(schema: Schema, table: pa.Table) -> Arrivals:
    """Elements of a table."""
    priority = ints(table, "priority") if has(table, "priority") else None
    return Arrivals(schema, columns_of(schema, table), ints(table, "ts"), ints(table, "sub"), priority)



def delta_table(delta: Delta) -> pa.Table:
    """Changes as a table."""
    return table_of(
        delta.schema, delta.columns, ts=delta.ts, sub=delta.sub, sign=delta.sign, moment_ts=delta.moment_ts,
        moment_sub=delta.moment_sub, priority=delta.priority, end=delta.end,
    )  # fmt: skip


def delta_of(schema: Schema, table: pa.Table) -> Delta:
    """Changes of a table."""
    return Delta(
        schema,
        columns_of(schema, table),
        ints(table, "ts"),
        ints(table, "sub"),
        whole(table.column("_sign")).to_numpy(),
        ints(table, "moment_ts"),
        ints(table, "moment_sub"),
        ints(table, "priority") if has(table, "priority") else None,
        ints(table, "end") if has(table, "end") else None,
    )


def number(value: float) -> int | float | str:
    """A number or infinity as JSON; ``float`` or ``int`` gives it back."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_number(value: int | float | str) -> int | float:
    """What ``number`` was given."""
    return float(value) if isinstance(value, str) else value
