"""The way into a stream: rows of any shape become typed batches in time order; late ones are set apart.

What is decided here (types, instants, order within slack, lateness, arrival numbers) is decided once for a
stream, whatever engine runs the queries. ``StreamInput`` holds only the rows that wait for slack: those less
than ``slack`` older than the newest. It forgets a row when it hands it on. Late rows, and rows that do not fit where
``on_error = 'apart'``, are kept until somebody takes them, or the newest ``apart.KEPT`` of each; how many there were is
kept for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import scalar
from penstock.apart import SCHEMA, BadRow, Kept, Rows, Unknown, apart_table, row_text, sifted
from penstock.catalog import StreamDef
from penstock.errors import InputError, PenstockError, StateError, suggest
from penstock.io.columns import TWICE, check_texts
from penstock.io.times import FIRST, LAST, OUT_OF_RANGE, TimeForm, check_microseconds, unit_of
from penstock.io.values import BadValue, is_whole, python_value, said
from penstock.kernels.batch import RowErrors
from penstock.kernels.buffers import integers
from penstock.kernels.expressions import CompiledExpr, compile_expr
from penstock.kernels.priority import priorities_of
from penstock.names import Names
from penstock.plan.expr import Cast, Literal
from penstock.plan.nodes import Field, Schema
from penstock.scalar.zones import UTC as UTC_ZONE
from penstock.types import STRING, TIMESTAMP, DataType, Kind

Instant = int | float
"""Ticks, or ±infinity."""

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
    *,
    unknown: Unknown = "refuse",
) -> pa.Table:
    """Rows as given by a user, as a table of the declared columns; refused whole if any row is wrong.

    ``optional`` columns are kept as they are where the rows have them. ``time``: how TIMESTAMP columns are written.
    """
    return _typed(given(rows, schema, where), schema, where, optional, time, unknown)


def given(rows: object, schema: Schema, where: str) -> pa.Table | list[Any]:
    """Rows as given by a user: a table, or one object for each. What the user's objects do is done here."""
    table = frame_as_table(rows)
    if table is not None:
        return _with_index(table, rows, schema)
    if isinstance(rows, Mapping):
        return [rows]
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes):
        raise InputError(
            f"{where}: cannot read rows from {type(rows).__name__}",
            hint="give a list of dicts or tuples, a pandas or polars DataFrame, or Arrow",
        )
    if type(rows) is list:
        return rows
    found: list[Any] = []
    try:
        for row in rows:
            found.append(row)
    except PenstockError:
        raise
    except Exception as error:
        hint = "nothing of this push was taken"
        raise InputError(f"{where}: after row {len(found)}, the {type(rows).__name__} raised {_raised(error)}",
                         hint=hint) from error  # fmt: skip
    return found


def _raised(error: Exception) -> str:
    """An error of somebody else in a message."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}{f': {text}' if text else ''}"


def _typed(
    rows: pa.Table | list[Any],
    schema: Schema,
    where: str,
    optional: Sequence[str] = (),
    time: TimeForm | None = None,
    unknown: Unknown = "refuse",
) -> pa.Table:
    if isinstance(rows, pa.Table):
        return _from_table(rows, schema, where, optional, time, unknown)
    return _from_rows(rows, schema, where, optional, time, unknown)


def _check_begin(rows: pa.Table | list[Any], name: str, schema: Schema, where: str) -> None:
    """BadRow if the first time of a stream is a whole number that does not look like microseconds since 1970."""
    if not len(rows):
        return
    if isinstance(rows, pa.Table):
        known = Names(f.name for f in schema)
        column = next((c for c, n in zip(rows.columns, rows.column_names, strict=True) if known.given(n) == name), None)
        value = column[0].as_py() if column is not None and pa.types.is_integer(column.type) else None
    else:
        place = [f.name for f in schema].index(name)
        value = _row_values(rows[0], 0, _Names(schema, ()), where, "ignore")[0][place]
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        try:
            check_microseconds(0, int(value))
        except BadValue as bad:
            raise BadRow(where, 0, str(bad), column=name, hint=bad.hints) from None


def _with_index(table: pa.Table, rows: object, schema: Schema) -> pa.Table:
    """A DataFrame's index of times as the column that it is declared as, if the DataFrame has no such column.

    An index without a name is the only TIMESTAMP that is missing.
    """
    if (times := index_of_times(rows)) is None:
        return table
    known = Names(f.name for f in schema)
    there = {known.given(column) for column in table.column_names}
    missing = [f.name for f in schema if f.name not in there]
    if times.name is not None:
        named = [name for name in missing if name == known.given(str(times.name))]
    else:
        named = [f.name for f in schema if f.name in missing and f.type == TIMESTAMP]
    return table.add_column(0, named[0], pa.array(times)) if len(named) == 1 else table


def index_of_times(rows: object) -> Any:
    """The DatetimeIndex of a DataFrame of pandas, if it has one."""
    index = getattr(rows, "index", None)
    pandas = type(rows).__module__.startswith("pandas") and hasattr(rows, "columns")
    return index if pandas and type(index).__name__ == "DatetimeIndex" else None


_INDEX_NAMES = ("time", "timestamp", "at", "index")
"""Not ``ts``: that is the instant of an answer."""


def is_of_spark(rows: object) -> bool:
    """Whether it is a DataFrame of Spark, which need not be installed."""
    return any(kind.__module__.startswith("pyspark.") for kind in type(rows).__mro__) and hasattr(rows, "toArrow")


def frame_as_table(rows: object, *, index: bool = False) -> pa.Table | None:
    """What is a table already, of Arrow, pandas, polars, Spark or whatever speaks Arrow; None if it is not one.

    ``index``: a DatetimeIndex of pandas is the first column: under its name, or else as the first of
    ``_INDEX_NAMES`` that no column has. An index that has the name of a column is left out.
    """
    table = _frame_as_table(rows)
    times = index_of_times(rows) if index and table is not None else None
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
            found = rows.to_arrow()
            return found if isinstance(found, pa.Table) else None  # a Series of polars is a column
        if type(rows).__module__.startswith("pandas") and hasattr(rows, "columns"):
            return pa.Table.from_pandas(rows, preserve_index=False)
        if is_of_spark(rows):
            if getattr(rows, "isStreaming", False):
                raise InputError("this DataFrame of Spark is a stream", hint="ps.sql answers queries over it")
            spark_frame: Any = rows
            return spark_frame.toArrow()
        if hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "dtype"):
            return pa.table(rows)
    except InputError:
        raise
    except Exception as problem:  # of pandas, polars, Arrow, or whatever else gave the rows
        parts = "; ".join(str(part) for part in problem.args) if isinstance(problem, pa.ArrowException) else None
        raise InputError(
            f"the {type(rows).__name__} cannot be read as a table: {parts or _raised(problem)}",
            hint="a column has one name, which no other has, and values of one kind",
        ) from None
    return None


class _Names:
    """Which column a key of a row, or a column of a table, means. Each is looked up once."""

    def __init__(self, schema: Schema, optional: Sequence[str]) -> None:
        self.names = [*(f.name for f in schema), *optional]
        self.declared = len(schema)
        self._known = Names(self.names[: self.declared])
        self._places: dict[object, int | None] = {name: i for i, name in enumerate(self.names)}

    def place(self, name: object) -> int | None:
        """The place of a column; None if there is none of this name."""
        if name not in self._places:
            declared = self._known.given(str(name))
            self._places[name] = None if declared is None else self._places[declared]
        return self._places[name]

    def hint(self, name: str) -> str | None:
        """What a name that is not known could have been."""
        return suggest(name, self.names[: self.declared])


_MISSING = object()


def _row_values(
    row: object, number: int, names: _Names, where: str, unknown: Unknown
) -> tuple[list[Any], list[Any]]:
    """``_values`` of a row that is the user's object, and may raise anything."""
    try:
        return _values(row, number, names, where, unknown)
    except PenstockError:
        raise
    except Exception as error:
        raise BadRow(where, number, f"the {type(row).__name__} raised {_raised(error)}") from error


def _values(
    row: object, number: int, names: _Names, where: str, unknown: Unknown
) -> tuple[list[Any], list[Any]]:
    """The values of a row in the order of the columns, and those of optional columns; BadRow if it is none."""
    if isinstance(row, Mapping):
        values = [_MISSING] * len(names.names)
        for key, value in row.items():
            place = names.place(key)
            if place is None:
                if unknown == "ignore":
                    continue
                raise BadRow(where, number, f"no column `{key}`", hint=names.hint(str(key)))
            if values[place] is not _MISSING:
                raise BadRow(where, number, f"column `{names.names[place]}` is there twice", hint=TWICE)
            values[place] = value
        if _MISSING in (absent := values[: names.declared]):
            name = names.names[next(i for i, v in enumerate(absent) if v is _MISSING)]
            raise BadRow(where, number, f"column `{name}` is missing", hint="None means NULL")
        return values[: names.declared], values[names.declared :]
    if isinstance(row, Sequence) and not isinstance(row, str | bytes):
        values = list(row)
        if len(values) != names.declared:
            counts = f"{counted(len(values), 'value')} for {counted(names.declared, 'column')}"
            raise BadRow(where, number, counts)
        return values, [_MISSING] * (len(names.names) - names.declared)
    raise BadRow(
        where, number, f"{said(row)} is not a row", hint="a row is a dict or a tuple",
        if_first="; put a row by itself into a list",
    )  # fmt: skip


def _from_rows(
    rows: list[Any], schema: Schema, where: str, optional: Sequence[str], time: TimeForm | None, unknown: Unknown
) -> pa.Table:
    known = _Names(schema, optional)
    columns: list[list[Any]] = [[] for _ in schema]
    extras: list[list[Any]] = [[] for _ in optional]
    for i, row in enumerate(rows):
        values, more = _row_values(row, i, known, where, unknown)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        for column, value in zip(extras, more, strict=True):
            column.append(value)
    arrays = [
        _as_written(v, time, f.name, where)
        if time is not None and not time.is_iso and f.type == TIMESTAMP
        else _column(v, f.type, f.name, where, time)
        for v, f in zip(columns, schema, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=arrow_schema(schema))
    for name, column in zip(optional, extras, strict=True):
        if any(value is not _MISSING for value in column):
            present = [None if value is _MISSING else value for value in column]
            table = table.append_column(name, _untyped(present, name, where))
    return table


def _untyped(values: list[Any], name: str, where: str) -> pa.Array:
    try:
        return pa.array(values)
    except Exception:
        raise InputError(f"{where}: column `{name}` holds values of several kinds") from None


_FAULTS = (Exception,)
"""What converting a value may raise: it may be an object of the user's, which does anything."""


def _column(
    values: list[Any], dtype: DataType, name: str, where: str, time: TimeForm | None = None
) -> pa.Array:
    if dtype.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL) and any(isinstance(v, str) for v in values):
        zone = UTC_ZONE if time is None else time.zone
        values = [_from_text(v, dtype, name, where, i, zone) if isinstance(v, str) else v for i, v in enumerate(values)]
    if dtype.kind is Kind.TIMESTAMP and any(isinstance(v, datetime) for v in values):
        values = [_in_utc(v, dtype, name, where, i) if isinstance(v, datetime) else v for i, v in enumerate(values)]
    # Arrow would cut off the fraction of a float or Decimal without a word.
    if dtype.is_integer or dtype.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL):
        for i, value in enumerate(values):
            number = float(value) if isinstance(value, np.floating) else value
            if isinstance(number, float | Decimal) and not (dtype.is_integer and is_whole(number)):
                raise _wrong(where, i, name, value, dtype)
    try:
        array = pa.array(values, dtype.arrow, from_pandas=False)
    except _FAULTS:
        for i, value in enumerate(values):
            try:
                pa.array([value], dtype.arrow)
            except _FAULTS:
                raise _wrong(where, i, name, value, dtype) from None
        raise InputError(f"{where}: column `{name}` is not {dtype}") from None
    if dtype.is_numeric or dtype.kind is Kind.BOOLEAN:
        for i, value in enumerate(values):
            if isinstance(value, bool | np.bool_) != (dtype.kind is Kind.BOOLEAN) and value is not None:
                raise _wrong(where, i, name, value, dtype)
    return array


def _in_utc(value: datetime, dtype: DataType, name: str, where: str, row: int) -> datetime:
    """A time of the calendar in UTC; at its edge there may be none."""
    try:
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    except _FAULTS:
        raise _wrong(where, row, name, value, dtype) from None


def _as_written(values: list[Any] | pa.Array, time: TimeForm, name: str, where: str) -> pa.Array:
    try:
        return time.read(values)
    except BadValue as bad:
        raise BadRow(where, bad.index, str(bad), column=name) from None


def counted(n: int, what: str) -> str:
    """``1 value``, ``2 values``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def _wrong(where: str, i: int, name: str, value: object, dtype: DataType) -> BadRow:
    hint = BadValue(i, value, dtype).hint if dtype.is_numeric else None
    return BadRow(where, i, f"{said(value)} is not {_an(dtype)}", column=name, hint=hint)


def _an(dtype: DataType) -> str:
    return f"{'an' if str(dtype)[0] in 'AEIO' else 'a'} {dtype}"


def _from_text(text: str, dtype: DataType, name: str, where: str, row: int, zone: str) -> object:
    value = scalar.fold(Cast(Literal(text, STRING), dtype, zone=zone))
    if value is None or value.value is None:
        raise _wrong(where, row, name, text, dtype)
    return value.value


def _from_table(
    table: pa.Table, schema: Schema, where: str, optional: Sequence[str], time: TimeForm | None, unknown: Unknown
) -> pa.Table:
    known = _Names(schema, optional)
    have: dict[int, int] = {}
    for i, column in enumerate(table.column_names):
        place = known.place(column)
        if place is None and unknown == "refuse":
            raise InputError(f"{where}: no column `{column}`", hint=known.hint(column))
        if place is not None and place in have:
            raise InputError(f"{where}: column `{known.names[place]}` is there twice", hint=TWICE)
        if place is not None:
            have[place] = i
    arrays: list[pa.ChunkedArray] = []
    for place, f in enumerate(schema):
        if place not in have:
            raise InputError(f"{where}: column `{f.name}` is missing", hint=suggest(f.name, table.column_names))
        column = table.column(have[place])
        check_texts(column, f.name, where)
        written = time is not None and not time.is_iso and f.type == TIMESTAMP
        if time is not None and written and not pa.types.is_temporal(column.type):
            arrays.append(pa.chunked_array([_as_written(column.combine_chunks(), time, f.name, where)]))
        else:
            arrays.append(_cast(column, f.type, f.name, where, time))
    result = pa.Table.from_arrays(arrays, schema=arrow_schema(schema))
    for place, name in enumerate(optional, len(schema)):
        if place in have:
            check_texts(table.column(have[place]), name, where)
            result = result.append_column(name, table.column(have[place]))
    return result


_TEMPORAL: Mapping[Kind, Callable[[pa.DataType], bool]] = {
    Kind.TIMESTAMP: lambda t: pa.types.is_timestamp(t) or pa.types.is_date(t) or pa.types.is_integer(t),
    Kind.DATE: lambda t: pa.types.is_timestamp(t) or pa.types.is_date(t),
    Kind.INTERVAL: lambda t: pa.types.is_duration(t) or pa.types.is_integer(t),
}
"""What Arrow has for our kinds of time."""


def _cast(
    column: pa.ChunkedArray, dtype: DataType, name: str, where: str, time: TimeForm | None
) -> pa.ChunkedArray:
    have, wanted = column.type, dtype.arrow
    if have == wanted:
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), wanted)])
    if pa.types.is_dictionary(have):
        return _cast(column.cast(have.value_type), dtype, name, where, time)
    text = pa.types.is_string(have) or pa.types.is_large_string(have) or pa.types.is_string_view(have)
    number = pa.types.is_integer(have) or pa.types.is_floating(have) or pa.types.is_decimal(have)
    fits = (
        pa.types.is_null(have)
        or (number and dtype.is_numeric)
        or (text and dtype.kind in (Kind.STRING, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL))
        or (dtype.kind in _TEMPORAL and _TEMPORAL[dtype.kind](have))
        or (pa.types.is_large_binary(have) and dtype.kind is Kind.BINARY)
        or (pa.types.is_fixed_size_binary(have) and dtype.kind is Kind.BINARY)
    )
    if not fits:
        raise InputError(f"{where}: column `{name}` is {have}, declared as {dtype}")
    if text and dtype.kind is not Kind.STRING:
        return pa.chunked_array([_column(column.to_pylist(), dtype, name, where, time)])
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
                raise _wrong(where, i, name, python_value(value), dtype) from None
        raise InputError(f"{where}: column `{name}` is {have}, declared as {dtype}") from None


@dataclass
class StreamInput:
    """The input side of one declared stream."""

    definition: StreamDef
    clock: Callable[[], int]
    progress: Instant = -math.inf
    lateness: int = 0
    """Ticks by which the latest of the late rows came too late, of those since this object is there."""
    closed: bool = False
    _arrivals: int = 0
    _newest: Instant = -math.inf
    _promised: Instant = -math.inf
    """Of a closed stream: its progress before it was closed."""
    _waiting: Batch | None = None
    late: Kept = field(init=False)
    """Rows that came too late."""
    apart: Kept = field(init=False, default=Kept(SCHEMA))
    """Rows that do not fit."""

    def __post_init__(self) -> None:
        self.late = Kept(self._arrow)

    @cached_property
    def _arrow(self) -> pa.Schema:
        return arrow_schema(self.definition.schema)

    @property
    def where(self) -> str:
        """The stream, for messages."""
        return f"stream `{self.definition.name}`"

    @property
    def waiting(self) -> int:
        """Rows that wait for slack to pass."""
        return 0 if self._waiting is None else len(self._waiting)

    @property
    def named(self) -> Instant:
        """The greatest instant ever seen, or promised by a heartbeat or the clock."""
        return max(self._newest, self._promised if self.closed else self.progress)

    @property
    def newest(self) -> Instant:
        """The same as long as the stream is open; a closed one names no instant any more."""
        return -math.inf if self.closed else self.named

    @property
    def newest_row(self) -> Instant:
        """The greatest instant of a row."""
        return self._newest

    @property
    def arrivals(self) -> int:
        """How many rows have come, with those that were late or did not fit."""
        return self._arrivals

    def waiting_since(self, arrivals: int) -> Batch | None:
        """The rows that wait for slack, of those that came after so many others."""
        if self._waiting is None:
            return None
        found = self._waiting.take(np.flatnonzero(self._waiting.arrival >= arrivals))
        return found if len(found) else None

    def restore(
        self,
        progress: Instant,
        newest: Instant,
        arrivals: int,
        closed: bool,
        waiting: Sequence[Batch],
        late: Kept,
        apart: Kept,
    ) -> None:
        """Be what an input of the same stream was."""
        self.progress, self._newest, self._arrivals, self.closed = progress, newest, arrivals, closed
        self._waiting = concat(waiting) if waiting else None
        self.late, self.apart = late, apart

    def read(self, rows: object) -> Rows:
        """Rows as given by a user, in the declared types. Nothing of the stream changes, so no lock is needed.

        What becomes of a row that does not fit is said in the declaration; where it is refused, or reading stops at the
        first row, an InputError is raised.
        """
        on_error, begun = self.definition.on_error, self._arrivals > self.apart.count
        if isinstance(rows, Rows):  # of a file, whose reader has asked ``check``
            return replace(rows, table=self._read(rows.table, True))
        found = given(rows, self.definition.schema, self.where)
        if on_error == "refuse":
            return Rows(self._read(found, begun))
        tables, bad = sifted(found, self._read, on_error, begun=begun)
        table = pa.concat_tables([self._arrow.empty_table(), *tables])
        if on_error == "apart":
            return Rows(table, tuple(b.bad(row_text(found, b.row)) for b in bad))
        if not bad:
            return Rows(table)
        kept = f"the {counted(len(table), 'row')} before it {'is' if len(table) == 1 else 'are'} kept"
        bad[0].hint = f"{bad[0].hint}; {kept}" if bad[0].hint else kept
        return Rows(table, (), bad[0])

    def _read(self, rows: pa.Table | list[Any], begun: bool) -> pa.Table:
        """Rows in the declared types; ``begun``: a row has come before them."""
        stream = self.definition
        if isinstance(rows, pa.Table) and rows.schema.equals(self._arrow):
            table = rows
            for column, f in zip(table.columns, stream.schema, strict=True):
                if f.type.kind in (Kind.STRING, Kind.ARRAY):
                    check_texts(column, f.name, self.where)
        else:
            plain = stream.time is None or stream.time.is_iso
            if not begun and stream.timestamp_by is not None and plain and stream.clock == "timestamp":
                # Of the first row only: what counts from a beginning of its own comes through every range later.
                _check_begin(rows, stream.timestamp_by, stream.schema, self.where)
            table = _typed(rows, stream.schema, self.where, time=stream.time, unknown=stream.unknown or "refuse")
        self.check(table)
        return table

    def check(self, table: pa.Table) -> None:
        """BadRow if a time in rows of the declared types is NULL where it orders them, or out of range."""
        stream = self.definition
        if stream.timestamp_by is not None:
            self._check_instants(table.column(stream.timestamp_by))
        check_calendar(table, [f for f in stream.schema if f.name != stream.timestamp_by], self.where)

    def push(self, rows: object) -> Batch:
        """Take rows in; give back those whose turn has come, in order. ``rows`` may be what ``read`` gave."""
        if self.closed:
            raise StateError(f"{self.where} is closed", hint="rows cannot follow close_stream")
        read = rows if isinstance(rows, Rows) else self.read(rows)
        table = read.table
        ts = self._instants(table)
        in_order = len(ts) <= 1 or bool((ts[1:] >= ts[:-1]).all())
        priority = self._priorities(table)
        arrival = np.arange(self._arrivals, self._arrivals + len(ts), dtype=np.int64)
        self._arrivals += len(read)
        if read.apart:
            self.apart = self.apart.plus(apart_table(read.apart))
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
                self.late = self.late.plus(table.filter(pa.array(late)))
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
        self.closed, self.progress, self._promised = True, math.inf, self.progress
        return self._release(None)

    def take_late(self) -> pa.Table:
        """The late rows since the last call."""
        rows, self.late = self.late.table, self.late.taken()
        return rows

    def take_apart(self) -> pa.Table:
        """The rows apart since the last call."""
        rows, self.apart = self.apart.table, self.apart.taken()
        return rows

    def _instants(self, table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
        column = self.definition.timestamp_by
        if column is None:
            now = max(self.clock(), -_LIMIT if self.progress == -math.inf else int(self.progress))
            return np.full(len(table), now, np.int64)
        values = table.column(column)
        return integers(values.chunk(0) if values.num_chunks == 1 else values.combine_chunks())

    def _check_instants(self, values: pa.ChunkedArray) -> None:
        """BadRow if a time that orders the stream is NULL or out of range."""
        column = self.definition.timestamp_by
        if values.null_count:
            row = pc.index(pc.is_null(values), True).as_py()
            raise BadRow(self.where, row, f"the timestamp `{column}` is NULL", column=column, named=False)
        ends = (FIRST, LAST) if self.definition.clock == "timestamp" else (1 - _LIMIT, _LIMIT - 1)
        if (found := _outside(values, ends)) is None:
            return
        row, value = found
        if ends != (FIRST, LAST):
            reason, unit = f"the timestamp {value} is out of range", None
        else:
            reason, unit = f"the timestamp {value} {OUT_OF_RANGE}", unit_of(value)
        hint = f"if it counts {unit} since 1970, declare the stream so: WITH (time = '{unit}')" if unit else None
        raise BadRow(self.where, row, reason, column=column, hint=hint, named=False)

    def _priorities(self, table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        if self._priority is None or not len(table):
            return None
        columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
        return priorities_of(self._priority(columns, len(table), RowErrors()))

    @cached_property
    def _priority(self) -> CompiledExpr | None:
        found = self.definition.priority
        return None if found is None else compile_expr(found, {})

    def _nothing(self) -> Batch:
        return Batch(self.definition.schema, self._arrow.empty_table(), _NONE, _NONE)

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


_DAYS = {Kind.TIMESTAMP: (FIRST, LAST), Kind.DATE: (-719_162, 2_932_896)}
"""The years 1 to 9999, which all times are in, as they are stored."""


def check_calendar(table: pa.Table, schema: Sequence[Field], where: str) -> None:
    """BadRow if a DATE or TIMESTAMP in rows of the declared types is not in the years 1 to 9999."""
    for f in schema:
        if f.type.kind in _DAYS and (found := _outside(table.column(f.name), _DAYS[f.type.kind])) is not None:
            row, value = found
            unit = "days" if f.type.kind is Kind.DATE else "microseconds"
            reason = f"{value} {unit} since 1970 {OUT_OF_RANGE.replace('TIMESTAMP', str(f.type))}"
            raise BadRow(where, row, reason, column=f.name)


def _outside(column: pa.ChunkedArray, ends: tuple[int, int]) -> tuple[int, int] | None:
    """The first row whose value is not between two others, and the value."""
    stored = pa.int32() if column.type == pa.date32() else pa.int64()
    counts = pa.chunked_array([chunk.view(stored) for chunk in column.chunks], stored)
    least, greatest = pc.min_max(counts).as_py().values()
    if least is None or (least >= ends[0] and greatest <= ends[1]):
        return None
    wrong = pc.or_(pc.less(counts, ends[0]), pc.greater(counts, ends[1]))
    row = pc.index(wrong, True).as_py()
    return row, counts[row].as_py()


_NONE: np.ndarray[Any, np.dtype[np.int64]] = np.empty(0, np.int64)
