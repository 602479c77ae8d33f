"""The way into a stream: rows of any shape become typed batches in time order; late ones are set apart.

What is decided here (types, instants, order within slack, lateness, arrival numbers) is decided once for a
stream, whatever engine runs the queries. ``StreamInput`` holds only the rows that wait for slack: those less
than ``slack`` older than the newest. It forgets a row when it hands it on. Late rows are kept until somebody
takes them, or the newest ``LATE_KEPT`` of them; the count is kept for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import scalar
from penstock.catalog import StreamDef
from penstock.errors import InputError, StateError, suggest
from penstock.io.times import FIRST, LAST, OUT_OF_RANGE, TimeForm, check_microseconds, unit_of
from penstock.io.values import BadValue
from penstock.kernels.batch import RowErrors
from penstock.kernels.buffers import integers
from penstock.kernels.expressions import CompiledExpr, compile_expr
from penstock.kernels.priority import priorities_of
from penstock.names import Names
from penstock.plan.expr import Cast, Literal
from penstock.plan.nodes import Schema
from penstock.types import STRING, TIMESTAMP, DataType, Kind

Instant = int | float
"""Ticks, or ±infinity."""

LATE_KEPT = 100_000
_LIMIT = 2**62


@dataclass(slots=True, eq=False)
class Batch:
    """Rows of one stream in order of (ts, arrival), with what every element has."""

    schema: Schema
    table: pa.Table
    ts: np.ndarray[Any, np.dtype[np.int64]]
    arrival: np.ndarray[Any, np.dtype[np.int64]]
    priority: np.ndarray[Any, np.dtype[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, indices: np.ndarray[Any, Any]) -> Batch:
        """The rows at these places."""
        priority = None if self.priority is None else self.priority[indices]
        return Batch(self.schema, self.table.take(pa.array(indices)), self.ts[indices], self.arrival[indices], priority)


def concat(batches: Sequence[Batch]) -> Batch:
    """Batches one after the other."""
    priority = None
    if any(b.priority is not None for b in batches):
        parts = [b.priority if b.priority is not None else np.zeros(len(b), np.int64) for b in batches]
        priority = np.concatenate(parts)
    return Batch(
        batches[0].schema,
        pa.concat_tables([b.table for b in batches]),
        np.concatenate([b.ts for b in batches]),
        np.concatenate([b.arrival for b in batches]),
        priority,
    )


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of rows with these columns."""
    return pa.schema([pa.field(f.name, f.type.arrow) for f in schema])


def as_table(
    rows: object,
    schema: Schema,
    where: str,
    optional: Sequence[str] = (),
    time: TimeForm | None = None,
    begins: str | None = None,
) -> pa.Table:
    """Rows as given by a user, as a table of the declared columns; refused whole if any row is wrong.

    ``optional`` columns are kept as they are where the rows have them. ``time``: how TIMESTAMP columns are written.
    ``begins``: a column whose first value, if it is a number, must look like microseconds since 1970.
    """
    table = frame_as_table(rows)
    if table is not None:
        table = _with_index(table, rows, schema)
        if begins is not None and len(table) and (first := Names(table.column_names).given(begins)) is not None:
            column = table.column(table.column_names.index(first))
            _check_first(column[0].as_py() if pa.types.is_integer(column.type) else None, begins, where)
        return _from_table(table, schema, where, optional, time)
    if isinstance(rows, Mapping):
        rows = [rows]
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes):
        raise InputError(
            f"{where}: cannot read rows from {type(rows).__name__}",
            hint="give a list of dicts or tuples, a pandas or polars DataFrame, or Arrow",
        )
    rows = list(rows)
    if begins is not None and rows:
        _check_first(_value(rows[0], begins, schema), begins, where)
    return _from_rows(rows, schema, where, optional, time)


def _value(row: object, name: str, schema: Schema) -> object:
    """The value of a column in a row as given by a user, if it has one."""
    if isinstance(row, Mapping):
        known = Names(f.name for f in schema)
        return next((value for key, value in row.items() if known.given(str(key)) == name), None)
    place = [f.name for f in schema].index(name)
    return row[place] if isinstance(row, Sequence) and place < len(row) else None


def _check_first(value: object, name: str, where: str) -> None:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        try:
            check_microseconds(0, int(value))
        except BadValue as bad:
            raise InputError(f"{where}, row 1, column `{name}`: {bad}") from None


def _with_index(table: pa.Table, rows: object, schema: Schema) -> pa.Table:
    """A DataFrame's index of times as the column that it is declared as, if the DataFrame has no such column.

    An index without a name is the only TIMESTAMP that is missing.
    """
    if (times := _index_of_times(rows)) is None:
        return table
    known = Names(f.name for f in schema)
    there = {known.given(column) for column in table.column_names}
    missing = [f.name for f in schema if f.name not in there]
    if times.name is not None:
        named = [name for name in missing if name == known.given(str(times.name))]
    else:
        named = [f.name for f in schema if f.name in missing and f.type == TIMESTAMP]
    return table.add_column(0, named[0], pa.array(times)) if len(named) == 1 else table


def _index_of_times(rows: object) -> Any:
    """The DatetimeIndex of a DataFrame of pandas, if it has one."""
    index = getattr(rows, "index", None)
    pandas = type(rows).__module__.startswith("pandas") and hasattr(rows, "columns")
    return index if pandas and type(index).__name__ == "DatetimeIndex" else None


_INDEX_NAMES = ("time", "timestamp", "at", "index")
"""Not ``ts``: that is the instant of an answer."""


def frame_as_table(rows: object, *, index: bool = False) -> pa.Table | None:
    """What is a table already, of Arrow, pandas, polars or whatever speaks Arrow; None if it is not one.

    ``index``: a DatetimeIndex of pandas is the first column: under its name, or else as the first of
    ``_INDEX_NAMES`` that no column has. An index that has the name of a column is left out.
    """
    table = _frame_as_table(rows)
    times = _index_of_times(rows) if index and table is not None else None
    if times is None or table is None:
        return table
    taken = {column.lower() for column in table.column_names}
    names = [str(times.name)] if times.name is not None else list(_INDEX_NAMES)
    free = [name for name in names if name.lower() not in taken]
    return table.add_column(0, free[0], pa.array(times)) if free else table


def _frame_as_table(rows: object) -> pa.Table | None:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    try:
        if hasattr(rows, "to_arrow"):
            return rows.to_arrow()
        if type(rows).__module__.startswith("pandas") and hasattr(rows, "columns"):
            return pa.Table.from_pandas(rows, preserve_index=False)
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
        said = "; ".join(str(part) for part in problem.args) or type(problem).__name__
        raise InputError(
            f"the {type(rows).__name__} cannot be read as a table: {said}",
            hint="a column has one name, which no other has, and values of one kind",
        ) from None
    return None


def _from_rows(
    rows: list[Any], schema: Schema, where: str, optional: Sequence[str], time: TimeForm | None
) -> pa.Table:
    names = [f.name for f in schema]
    extra = [n for n in optional if any(isinstance(r, Mapping) and n in r for r in rows)]
    columns: list[list[Any]] = [[] for _ in names]
    extras: list[list[Any]] = [[] for _ in extra]
    known = Names(names)
    means: dict[object, str] = {}
    for i, row in enumerate(rows):
        if isinstance(row, Mapping):
            for key in row:
                if key not in means:
                    means[key] = key if key in extra else known.given(str(key)) or str(key)
            keys = {means[k]: v for k, v in row.items()}
            if len(keys) < len(row):
                raise _twice(f"{where}, row {i + 1}", [means[k] for k in row])
            for name in keys:
                if name not in names and name not in extra:
                    raise InputError(f"{where}, row {i + 1}: no column `{name}`", hint=suggest(name, names))
            missing = [n for n in names if n not in keys]
            if missing:
                raise InputError(f"{where}, row {i + 1}: column `{missing[0]}` is missing", hint="None means NULL")
            values = [keys[n] for n in names]
            for column, name in zip(extras, extra, strict=True):
                column.append(keys.get(name))
        elif isinstance(row, Sequence) and not isinstance(row, str | bytes):
            if len(row) != len(names):
                counts = f"{counted(len(row), 'value')} for {counted(len(names), 'column')}"
                raise InputError(f"{where}, row {i + 1}: {counts}")
            values = list(row)
            for column in extras:
                column.append(None)
        else:
            alone = "" if i else "; put a row by itself into a list"
            raise InputError(f"{where}, row {i + 1}: {row!r} is not a row", hint=f"a row is a dict or a tuple{alone}")
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    arrays = [
        _as_written(v, time, f.name, where) if time and f.type == TIMESTAMP else _column(v, f.type, f.name, where)
        for v, f in zip(columns, schema, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=arrow_schema(schema))
    for name, column in zip(extra, extras, strict=True):
        table = table.append_column(name, pa.array(column))
    return table


def _column(values: list[Any], dtype: DataType, name: str, where: str) -> pa.Array:
    if dtype.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL) and any(isinstance(v, str) for v in values):
        values = [_from_text(v, dtype, name, where, i) if isinstance(v, str) else v for i, v in enumerate(values)]
    if dtype.kind is Kind.TIMESTAMP and any(getattr(v, "tzinfo", None) is not None for v in values):
        values = [v.astimezone(UTC).replace(tzinfo=None) if getattr(v, "tzinfo", None) else v for v in values]
    # Arrow would cut off the fraction of a float without a word.
    if dtype.is_integer or dtype.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL):
        for i, value in enumerate(values):
            if isinstance(value, float | np.floating) and not (dtype.is_integer and float(value).is_integer()):
                raise _wrong(where, i, name, value, dtype)
    try:
        array = pa.array(values, dtype.arrow, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for i, value in enumerate(values):
            try:
                pa.array([value], dtype.arrow)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise _wrong(where, i, name, value, dtype) from None
        raise InputError(f"{where}: column `{name}` is not {dtype}") from None
    if dtype.is_numeric or dtype.kind is Kind.BOOLEAN:
        for i, value in enumerate(values):
            if isinstance(value, bool) != (dtype.kind is Kind.BOOLEAN) and value is not None:
                raise _wrong(where, i, name, value, dtype)
    return array


def _twice(where: str, columns: Sequence[str]) -> InputError:
    name = next(c for i, c in enumerate(columns) if c in columns[:i])
    return InputError(f"{where}: column `{name}` is there twice", hint="case makes no difference in names")


def _as_written(values: list[Any] | pa.Array, time: TimeForm, name: str, where: str) -> pa.Array:
    try:
        return time.read(values)
    except BadValue as bad:
        raise InputError(f"{where}, row {bad.index + 1}, column `{name}`: {bad}") from None


def counted(n: int, what: str) -> str:
    """``1 value``, ``2 values``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def _wrong(where: str, i: int, name: str, value: object, dtype: DataType) -> InputError:
    hint = BadValue(i, value, dtype).hint if isinstance(value, str) and dtype.is_numeric else None
    return InputError(f"{where}, row {i + 1}, column `{name}`: {value!r} is not {_an(dtype)}", hint=hint)


def _an(dtype: DataType) -> str:
    return f"{'an' if str(dtype)[0] in 'AEIO' else 'a'} {dtype}"


def _from_text(text: str, dtype: DataType, name: str, where: str, row: int) -> object:
    value = scalar.fold(Cast(Literal(text, STRING), dtype))
    if value is None or value.value is None:
        raise _wrong(where, row, name, text, dtype)
    return value.value


def _from_table(
    table: pa.Table, schema: Schema, where: str, optional: Sequence[str], time: TimeForm | None
) -> pa.Table:
    names = [f.name for f in schema]
    known = Names(names)
    columns = [c if c in optional else known.given(c) or c for c in table.column_names]
    have = {c: i for i, c in enumerate(columns)}
    if len(have) < len(columns):
        raise _twice(where, columns)
    for column in have:
        if column not in names and column not in optional:
            raise InputError(f"{where}: no column `{column}`", hint=suggest(column, names))
    arrays: list[pa.ChunkedArray] = []
    for f in schema:
        if f.name not in have:
            raise InputError(f"{where}: column `{f.name}` is missing", hint=suggest(f.name, table.column_names))
        column = table.column(have[f.name])
        if time is not None and f.type == TIMESTAMP and not pa.types.is_temporal(column.type):
            arrays.append(pa.chunked_array([_as_written(column.combine_chunks(), time, f.name, where)]))
        else:
            arrays.append(_cast(column, f.type, f.name, where))
    result = pa.Table.from_arrays(arrays, schema=arrow_schema(schema))
    for name in optional:
        if name in have:
            result = result.append_column(name, table.column(have[name]))
    return result


def _cast(column: pa.ChunkedArray, dtype: DataType, name: str, where: str) -> pa.ChunkedArray:
    have, wanted = column.type, dtype.arrow
    if have == wanted:
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), wanted)])
    if pa.types.is_dictionary(have):
        return _cast(column.cast(have.value_type), dtype, name, where)
    text = pa.types.is_string(have) or pa.types.is_large_string(have) or pa.types.is_string_view(have)
    number = pa.types.is_integer(have) or pa.types.is_floating(have) or pa.types.is_decimal(have)
    fits = (
        pa.types.is_null(have)
        or (number and dtype.is_numeric)
        or (text and dtype.kind in (Kind.STRING, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL))
        or (pa.types.is_temporal(have) and dtype.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL))
        or (pa.types.is_integer(have) and dtype.kind in (Kind.TIMESTAMP, Kind.INTERVAL))
        or (pa.types.is_large_binary(have) and dtype.kind is Kind.BINARY)
        or (pa.types.is_fixed_size_binary(have) and dtype.kind is Kind.BINARY)
    )
    if not fits:
        raise InputError(f"{where}: column `{name}` is {have}, declared as {dtype}")
    if text and dtype.kind is not Kind.STRING:
        return pa.chunked_array([_column(column.to_pylist(), dtype, name, where)])
    try:
        if pa.types.is_timestamp(have) and have.unit == "ns" and wanted == pa.timestamp("us"):
            # Time has microseconds; what is finer is cut off, as in rows of Python values.
            column = pc.floor_temporal(column, unit="microsecond")
        if pa.types.is_timestamp(have) and have.tz is not None and wanted == pa.timestamp("us"):
            return column.cast(pa.timestamp("us", "UTC")).cast(wanted)
        return column.cast(wanted)
    except (pa.ArrowException, OverflowError):
        for i, value in enumerate(column):
            try:
                value.cast(wanted)
            except (pa.ArrowException, OverflowError):
                raise _wrong(where, i, name, _shown(value), dtype) from None
        raise InputError(f"{where}: column `{name}` is {have}, declared as {dtype}") from None


def _shown(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # a time that Python has no date for
        return f"{value.value} {value.type.unit} since 1970"


@dataclass
class StreamInput:
    """The input side of one declared stream."""

    definition: StreamDef
    clock: Callable[[], int]
    progress: Instant = -math.inf
    late_count: int = 0
    lateness: int = 0
    """Ticks by which the latest of the late rows came too late, of those since this object is there."""
    closed: bool = False
    _arrivals: int = 0
    _newest: Instant = -math.inf
    _waiting: Batch | None = None
    _late: list[pa.Table] | None = None

    @cached_property
    def _arrow(self) -> pa.Schema:
        return arrow_schema(self.definition.schema)

    @property
    def waiting(self) -> int:
        """Rows that wait for slack to pass."""
        return 0 if self._waiting is None else len(self._waiting)

    @property
    def newest(self) -> Instant:
        """The greatest instant seen, or promised by a heartbeat."""
        return max(self._newest, -math.inf if self.closed else self.progress)

    @property
    def newest_row(self) -> Instant:
        """The greatest instant of a row."""
        return self._newest

    @property
    def arrivals(self) -> int:
        """How many rows have come, late ones included."""
        return self._arrivals

    def waiting_since(self, arrivals: int) -> Batch | None:
        """The rows that wait for slack, of those that came after so many others."""
        if self._waiting is None:
            return None
        found = self._waiting.take(np.flatnonzero(self._waiting.arrival >= arrivals))
        return found if len(found) else None

    def late_since(self, count: int) -> pa.Table | None:
        """The late rows after the first ``count``, as far as they are kept."""
        if self.late_count == count or not self._late:
            return None
        kept = pa.concat_tables(self._late)
        return kept.slice(max(0, len(kept) - (self.late_count - count)))

    def restore(
        self,
        progress: Instant,
        newest: Instant,
        arrivals: int,
        late_count: int,
        closed: bool,
        waiting: Sequence[Batch],
        late: Sequence[pa.Table],
    ) -> None:
        """Be what an input of the same stream was."""
        self.progress, self._newest, self._arrivals = progress, newest, arrivals
        self.late_count, self.closed = late_count, closed
        self._waiting = concat(waiting) if waiting else None
        self._late = list(late) or None

    def push(self, rows: object) -> Batch:
        """Take rows in; give back those whose turn has come, in order."""
        where = f"stream `{self.definition.name}`"
        if self.closed:
            raise StateError(f"{where} is closed", hint="rows cannot follow close_stream")
        if isinstance(rows, pa.Table) and rows.schema.equals(self._arrow):
            table = rows
        else:
            begins = None
            if self._arrivals == 0 and self.definition.time is None and self.definition.clock == "timestamp":
                # Of the first row only: what counts from a beginning of its own comes through every range later.
                begins = self.definition.timestamp_by
            table = as_table(rows, self.definition.schema, where, time=self.definition.time, begins=begins)
        ts = self._instants(table, where)
        in_order = len(ts) <= 1 or bool((ts[1:] >= ts[:-1]).all())
        is_time = self.definition.timestamp_by is not None and self.definition.clock == "timestamp"
        _check_range(ts, in_order, where, (FIRST, LAST) if is_time else (1 - _LIMIT, _LIMIT - 1))
        priority = self._priorities(table)
        arrival = np.arange(self._arrivals, self._arrivals + len(ts), dtype=np.int64)
        self._arrivals += len(ts)
        batch = Batch(self.definition.schema, table, ts, arrival, priority)
        if len(ts) == 0:
            if self.definition.timestamp_by is None and self.progress > -math.inf:
                self.progress = max(self.progress, self.clock())
            return batch
        slack, last = self.definition.slack, int(ts[-1])
        if not in_order or ts[0] < self.progress:
            newest = np.maximum.accumulate(ts)
            floor = -_LIMIT if self.progress == -math.inf else int(self.progress)
            so_far = np.concatenate(([np.int64(floor)], np.maximum(newest[:-1] - slack, floor)))
            late = ts < so_far
            last = int(newest[-1])
            if late.any():
                self.lateness = max(self.lateness, int((so_far - ts)[late].max()))
                self._set_late(table.filter(pa.array(late)))
                batch = batch.take(np.flatnonzero(~late))
        self._newest = max(self._newest, last)
        self.progress = max(self.progress, last - slack)
        return self._release(batch)

    def heartbeat(self, at: Instant) -> Batch:
        """No more rows before ``at`` will come."""
        if self.closed:
            raise StateError(f"stream `{self.definition.name}` is closed", hint="its progress is infinite already")
        self.progress = max(self.progress, at)
        return self._release(None)

    def close(self) -> Batch:
        """No more rows will come at all."""
        self.closed, self.progress = True, math.inf
        return self._release(None)

    def take_late(self) -> pa.Table:
        """The late rows since the last call."""
        late, self._late = self._late or [], None
        return pa.concat_tables([arrow_schema(self.definition.schema).empty_table(), *late])

    def _instants(self, table: pa.Table, where: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        column = self.definition.timestamp_by
        if column is None:
            now = max(self.clock(), -_LIMIT if self.progress == -math.inf else int(self.progress))
            return np.full(len(table), now, np.int64)
        values = table.column(column)
        if values.null_count:
            row = pc.index(pc.is_null(values), True).as_py()
            raise InputError(f"{where}, row {row + 1}: the timestamp `{column}` is NULL")
        chunk = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
        return integers(chunk)

    def _priorities(self, table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        if self._priority is None or not len(table):
            return None
        columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
        return priorities_of(self._priority(columns, len(table), RowErrors()))

    @cached_property
    def _priority(self) -> CompiledExpr | None:
        found = self.definition.priority
        return None if found is None else compile_expr(found, {})

    def _set_late(self, rows: pa.Table) -> None:
        self.late_count += len(rows)
        kept = pa.concat_tables([*(self._late or []), rows])
        self._late = [kept.slice(max(0, len(kept) - LATE_KEPT))]

    def _nothing(self) -> Batch:
        schema = self.definition.schema
        return Batch(schema, arrow_schema(schema).empty_table(), _NONE, _NONE)

    def _release(self, batch: Batch | None) -> Batch:
        if self.definition.slack == 0 and self._waiting is None:
            return batch if batch is not None else self._nothing()
        parts = [b for b in (self._waiting, batch) if b is not None and len(b)]
        if not parts:
            return self._nothing()
        everything = concat(parts)
        everything = everything.take(np.argsort(everything.ts, kind="stable"))
        ready = int(np.searchsorted(everything.ts, self.progress, side="right"))
        ready = len(everything) if self.progress == math.inf else ready
        rest = everything.take(np.arange(ready, len(everything)))
        self._waiting = rest if len(rest) else None
        return everything.take(np.arange(ready))


def _check_range(
    ts: np.ndarray[Any, np.dtype[np.int64]], in_order: bool, where: str, ends: tuple[int, int]
) -> None:
    if not len(ts):
        return
    least, greatest = (ts[0], ts[-1]) if in_order else (ts.min(), ts.max())
    if least < ends[0] or greatest > ends[1]:
        value = int(ts[row := int(np.flatnonzero((ts < ends[0]) | (ts > ends[1]))[0])])
        if ends != (FIRST, LAST):
            raise InputError(f"{where}, row {row + 1}: the timestamp {value} is out of range")
        unit = unit_of(value)
        raise InputError(
            f"{where}, row {row + 1}: the timestamp {value} {OUT_OF_RANGE}",
            hint=f"if it counts {unit} since 1970, declare the stream so: WITH (time = '{unit}')" if unit else None,
        )


_NONE: np.ndarray[Any, np.dtype[np.int64]] = np.empty(0, np.int64)
