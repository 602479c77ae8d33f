"""Answers that a test expects, in any of the forms in which it may write them, as rows that can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import scalar
from penstock.model.errors import InputError, suggest
from penstock.model.names import Names, counted
from penstock.model.schema import Field, Schema
from penstock.model.types import STRING, DataType, Kind, from_arrow
from penstock.model.values import to_arrow, to_rows, with_zone
from penstock.rows.given import as_table
from penstock.rows.text import plain
from penstock.rows.times import TimeForm
from penstock.scalar.expr import Cast, Literal
from penstock.scalar.zones import UTC, zone_name

__tracebackhide__ = True
"""pytest shows the test that failed, not the lines of this module."""

WHERE = "expected answers"


@dataclass(frozen=True)
class Row:
    """One answer: ``ts`` and ``op`` are None where they do not matter. ``cells``: what people read, ts and op first."""

    ts: int | None
    op: str | None
    values: tuple[object, ...]
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """Answers under the names of their columns; ``has_ts``: whether instants are told.

    ``nan_is_null``: columns where NaN and NULL cannot be told apart, and are NULL.
    """

    schema: pa.Schema
    rows: list[Row]
    has_ts: bool = True
    nan_is_null: frozenset[str] = frozenset()


def rows_of(table: pa.Table) -> Rows:
    """Answers as a query has given them, or a part of their columns."""
    has_ts, has_op = "ts" in table.column_names, "op" in table.column_names
    columns = [name for name in table.column_names if name not in ("ts", "op")]
    values = to_rows(table.select(columns), _fields(table.select(columns).schema)) if columns else []
    values = values if columns else [()] * table.num_rows
    texts = [_cells(table[name]) for name in columns]
    ts = to_rows(table.select(["ts"]), _fields(table.select(["ts"]).schema)) if has_ts else []
    ts_texts = _cells(table["ts"]) if has_ts else [""] * table.num_rows
    ops = table["op"].to_pylist() if has_op else [None] * table.num_rows
    found = []
    for i in range(table.num_rows):
        instant = ts[i][0] if has_ts else None
        assert instant is None or isinstance(instant, int)
        cells = (ts_texts[i], ops[i] or "", *(column[i] for column in texts))
        found.append(Row(instant, ops[i], values[i], cells))
    return Rows(table.schema, found, has_ts)


def read_expected(expected: object, schema: pa.Schema, *, marks: bool = True) -> Rows:
    """What a test expects of answers with this schema (ts, op, the columns).

    ``marks``: ts and op may be told.
    """
    types = {field.name: field for field in _fields(schema)}
    if isinstance(expected, str):
        return _read(_read_text(expected, types, _zone(schema)), None, schema, types, marks)
    if hasattr(expected, "columns"):  # Arrow, or a DataFrame
        return _read_frame(expected, schema, types, marks)
    listed, told = _as_dicts(_listed(expected), schema.names[2:], types)
    told = told if listed or not marks else ["ts", "op"]
    return _read(listed, told, schema, types, marks)


def _read_frame(frame: Any, schema: pa.Schema, types: Mapping[str, Field], marks: bool) -> Rows:
    """A table of Arrow or a DataFrame. In pandas NaN may mean NULL: there it stands for either."""
    is_arrow = isinstance(frame, pa.Table)
    names = [str(name) for name in (frame.column_names if is_arrow else frame.columns)]
    names = [Names(types).given(name) or name for name in names]
    _refuse_twice(names)
    if is_arrow or hasattr(frame, "to_arrow"):
        return _read(frame if is_arrow else frame.to_arrow(), None, schema, types, marks)
    found = _read(pa.Table.from_pandas(frame, preserve_index=False), None, schema, types, marks)
    own = [str(dtype).endswith("[pyarrow]") for dtype in frame.dtypes]  # there NaN is NaN
    return replace(found, nan_is_null=frozenset(n for n, is_own in zip(names, own, strict=True) if not is_own))


def _read(
    rows: object, told: Sequence[str] | None, schema: pa.Schema, types: Mapping[str, Field], marks: bool
) -> Rows:
    """``told``: which of ts and op there are, None for those that a table has."""
    zone = _zone(schema)
    if told is None:
        assert isinstance(rows, pa.Table)
        told = [name for name in ("ts", "op") if name in rows.column_names]
    if told and not marks:
        hint = f"the columns are {_list(schema.names[2:])}"
        raise InputError(f"{WHERE}: `{told[0]}` makes no sense here", hint=hint)
    table = as_table(rows, tuple(types[name] for name in (*told, *schema.names[2:])), WHERE, time=TimeForm("", zone))
    for name in told:
        if table[name].null_count:
            row = table[name].is_null().index(True).as_py() + 1
            raise InputError(f"{WHERE}, row {row}: `{name}` is NULL", hint=f"leave out `{name}` if it does not matter")
    if isinstance(rows, pa.Table):
        _refuse_rounded(rows, table, types)
    return rows_of(table if zone == UTC else table.cast(with_zone(table.schema, zone)))


def _zone(schema: pa.Schema) -> str:
    """The time zone in which answers are shown, and so in which they are expected."""
    zones = (field.type.tz for field in schema if pa.types.is_timestamp(field.type))
    return next((zone_name(zone) for zone in zones if zone is not None), UTC)


def _refuse_rounded(given: pa.Table, table: pa.Table, types: Mapping[str, Field]) -> None:
    """No answer can be what has more digits than the type of its column, so nobody expects that."""
    for name, column in zip(given.column_names, given.columns, strict=True):
        name = Names(types).given(name) or name
        if pa.types.is_floating(column.type) and pa.types.is_decimal(table[name].type):
            changed = pc.not_equal(table[name].cast(column.type), column)
        elif pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            changed = pc.not_equal(pc.floor_temporal(column, unit="microsecond"), column)
        else:
            continue
        row = changed.index(True).as_py()
        if row >= 0:
            raise InputError(f"{WHERE}, row {row + 1}, column `{name}`: {column[row]} is no {types[name].type}")


def _refuse_twice(names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError(f"{WHERE}: the column `{name}` is there twice", hint="name each column once")


def _listed(expected: object) -> list[Any]:
    if isinstance(expected, Mapping):
        return [expected]
    if not isinstance(expected, Iterable) or isinstance(expected, bytes):
        raise InputError(
            f"{WHERE}: cannot read rows from {type(expected).__name__}",
            hint="give a list of tuples or dicts, a DataFrame, or a table as text",
        )
    return list(expected)


def _as_dicts(
    rows: Sequence[Any], names: Sequence[str], fields: Mapping[str, Field]
) -> tuple[list[dict[str, object]], list[str]]:
    """Rows as dicts, and which of ts and op they tell; all rows tell the same."""
    found: list[dict[str, object]] = []
    first: tuple[str, ...] | None = None
    for i, row in enumerate(rows):
        if isinstance(row, Mapping):
            known = Names(fields)
            have = {known.given(str(key)) or str(key): value for key, value in row.items()}
            for name in have:
                if name not in fields:
                    raise InputError(f"{WHERE}, row {i + 1}: no column `{name}`", hint=suggest(name, fields))
        else:
            have = _named(row, names, i)
        told = tuple(name for name in ("ts", "op") if name in have)
        first = told if first is None else first
        if told != first:
            raise InputError(
                f"{WHERE}, row {i + 1}: this row tells {_list(told)}, the first one {_list(first)}",
                hint="all rows are written in one way",
            )
        found.append(have)
    return found, list(first or ())


def _named(row: object, names: Sequence[str], i: int) -> dict[str, object]:
    values = tuple(row) if isinstance(row, tuple | list) else (row,)
    if len(values) == len(names):
        return dict(zip(names, values, strict=True))
    if len(values) == len(names) + 2:
        return dict(zip(("ts", "op", *names), values, strict=True))
    if len(values) == len(names) + 1:
        mark = "op" if values[0] in ("+", "-") else "ts"
        return dict(zip((mark, *names), values, strict=True))
    raise InputError(
        f"{WHERE}, row {i + 1}: {counted(len(values), 'value')} for {counted(len(names), 'column')}",
        hint=f"the columns are {_list(names)}; before them there may be ts, op, or both",
    )


# -- tables as text ---------------------------------------------------------------------------------------


def _read_text(text: str, types: Mapping[str, Field], zone: str) -> pa.Table:
    """A table as ``penstock`` prints it: names, perhaps a rule, rows; columns two blanks or ``|`` apart."""
    lines = [line.rstrip() for line in text.expandtabs().splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{WHERE}: the text is empty", hint="the first line names the columns; [] means no answers")
    ruled = len(lines) > 1 and re.fullmatch(r"[\s|:+-]*-{2,}[\s|:+-]*", lines[1]) is not None
    names = [Names(types).given(name) or name for name in _split(lines[0])]
    for name in names:
        if name not in types:
            raise InputError(f"{WHERE}: no column `{name}`", hint=suggest(name, types))
    _refuse_twice(names)
    columns: dict[str, list[object]] = {name: [] for name in names}
    for i, line in enumerate(lines[2 if ruled else 1 :], 1):
        cells = _split(line)
        if len(cells) != len(names) and ruled and "|" not in lines[1]:
            cells = _cut(line, lines[1])
        if len(cells) != len(names):
            counts = f"{counted(len(cells), 'value')} for {counted(len(names), 'column')}"
            raise InputError(f"{WHERE}, row {i}: {counts}: {line.strip()}", hint="write two blanks between columns")
        for name, cell in zip(names, cells, strict=True):
            columns[name].append(_cell(cell, types[name].type, f"{WHERE}, row {i}, column `{name}`", zone))
    arrays = [to_arrow(values, types[name].type) for name, values in columns.items()]
    return pa.Table.from_arrays(arrays, names=list(columns))


def _split(line: str) -> list[str]:
    if "|" in line:
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return re.split(r" {2,}", line.strip())


def _cut(line: str, rule: str) -> list[str]:
    """The cells under the pieces of a rule; one may be blank."""
    starts = [m.start() for m in re.finditer("-+", rule)]
    ends = [*starts[1:], len(line) + 1]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _cell(text: str, dtype: DataType, where: str, zone: str) -> object:
    if text == "NULL":
        return None
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    if dtype.kind is Kind.STRING:
        return text[1:-1] if quoted else text
    try:
        if dtype.kind is Kind.BINARY:
            return bytes.fromhex(text.removeprefix("0x"))
        if dtype.kind is Kind.ARRAY:
            return json.loads(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is no {dtype}") from None
    value = scalar.fold(Cast(Literal(text, STRING), dtype, zone=zone))
    if value is None or value.value is None:
        raise InputError(f"{where}: {text!r} is no {dtype}")
    finer = dtype.kind in (Kind.TIMESTAMP, Kind.INTERVAL) and re.search(r"\.\d{6}\d*[1-9]", text)
    if finer or (dtype.kind is Kind.DECIMAL and value.value != Decimal(text)):
        raise InputError(f"{where}: {text!r} is no {dtype}", hint="an answer has no more digits than its type")
    return value.value


def _fields(schema: pa.Schema) -> Schema:
    found = [(field.name, from_arrow(field.type)) for field in schema]
    return tuple(Field(name, dtype) for name, dtype in found if dtype is not None)


def _cells(column: pa.ChunkedArray) -> list[str]:
    return ["NULL" if text is None else text for text in plain(column, separator=" ")]


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "neither ts nor op"
