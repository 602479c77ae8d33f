"""Rows, arrivals and deltas as tables of saved state, and back.

Payload columns are called by their place, ``c0``, ``c1``, …; what every row has besides begins with ``_``. Values that
have no column of their own are JSON text, which tells apart what JSON alone would not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.model.delta import MAX_TS, Arrivals, Delta, Ints
from penstock.model.schema import Schema
from penstock.model.values import to_arrow, to_python
from penstock.operators.rows import Row
from penstock.scalar.order import NAN


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


def rows_table(schema: Schema, rows: Sequence[Row], **more: Any) -> pa.Table:
    """Plain rows as a table."""
    values = list(zip(*[r.values for r in rows], strict=True)) if rows else [()] * len(schema)
    moments = np.array([r.moment for r in rows], np.int64).reshape(-1, 2)
    ends = np.array([r.end for r in rows], np.int64)
    priority = np.array([r.priority for r in rows], np.int64)
    return table_of(
        schema,
        [to_arrow(v, f.type) for v, f in zip(values, schema, strict=True)],
        moment_ts=moments[:, 0],
        moment_sub=moments[:, 1],
        priority=priority,
        end=ends,
        **more,
    )


def rows_from(schema: Schema, table: pa.Table) -> list[Row]:
    """Plain rows of a table."""
    columns = [to_python(c, f.type) for c, f in zip(columns_of(schema, table), schema, strict=True)]
    values: Iterable[tuple[object, ...]] = zip(*columns, strict=True) if columns else [()] * table.num_rows
    moments = zip(ints(table, "moment_ts").tolist(), ints(table, "moment_sub").tolist(), strict=True)
    return [
        Row(v, m, p, e)
        for v, m, p, e in zip(
            values, moments, ints(table, "priority").tolist(), ints(table, "end").tolist(), strict=True
        )
    ]


def json_table(values: Iterable[object]) -> pa.Table:
    """A row for each value, as text."""
    return pa.table({"json": pa.array([to_text(v) for v in values], pa.string())})


def json_values(table: pa.Table) -> list[Any]:
    """The values of ``json_table``."""
    return [from_text(text) for text in table.column("json").to_pylist()]


def to_text(value: object) -> str:
    """A plain value, a key or nested tuples, lists and dicts of them as JSON text."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def from_text(text: str) -> Any:
    """The value that ``to_text`` was given."""
    return _value(json.loads(text))


def _plain(value: object) -> object:
    """Lists stand for tuples; what else JSON does not have is an object with one letter."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"f": repr(value)}
        case tuple():
            return [_plain(v) for v in value]
        case list():
            return {"l": [_plain(v) for v in value]}
        case dict():
            return {"m": [[_plain(k), _plain(v)] for k, v in value.items()]}
        case Decimal():
            return {"d": str(value)}
        case bytes():
            return {"b": value.hex()}
    if value is NAN:
        return {"n": 0}
    raise TypeError(f"no JSON form of {type(value).__name__}")


def _value(found: Any) -> Any:
    if isinstance(found, list):
        return tuple([_value(v) for v in found])
    if not isinstance(found, dict):
        return found
    ((kind, content),) = found.items()
    match kind:
        case "f":
            return float(content)
        case "l":
            return [_value(v) for v in content]
        case "m":
            return {_value(k): _value(v) for k, v in content}
        case "d":
            return Decimal(content)
        case "b":
            return bytes.fromhex(content)
    return NAN


def row_value(row: Row | None) -> object:
    """A row for ``to_text``."""
    if row is None:
        return None
    return (row.values, row.moment, row.priority, *(() if row.end == MAX_TS else (row.end,)))


def row_from(value: Any) -> Row:
    """A row of ``row_value``."""
    return Row(*value)


def number(value: float) -> int | float | str:
    """A number or infinity as JSON; ``float`` or ``int`` gives it back."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_number(value: int | float | str) -> int | float:
    """What ``number`` was given."""
    return float(value) if isinstance(value, str) else value
