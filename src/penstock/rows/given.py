"""Rows as users give them, as tables of the declared columns: objects of Python, DataFrames, Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import scalar
from penstock.model.errors import InputError, PenstockError, suggest
from penstock.model.names import Names, counted
from penstock.model.schema import Schema, arrow_schema
from penstock.model.types import STRING, TIMESTAMP, DataType, Kind
from penstock.rows.apart import BadRow, Unknown
from penstock.rows.columns import TWICE, check_texts
from penstock.rows.times import TimeForm, check_microseconds
from penstock.rows.values import BadValue, is_whole, python_value, said
from penstock.scalar.expr import Cast, Literal
from penstock.scalar.zones import UTC as UTC_ZONE


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
    return typed(given(rows, schema, where), schema, where, optional, time, unknown)


def given(rows: object, schema: Schema, where: str) -> pa.Table | list[Any]:
    """Rows as given by a user: a table, or one object for each. What the user's objects do is done here."""
    if type(rows) is list:
        return rows
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


def typed(
    rows: pa.Table | list[Any],
    schema: Schema,
    where: str,
    optional: Sequence[str] = (),
    time: TimeForm | None = None,
    unknown: Unknown = "refuse",
    names: RowNames | None = None,
) -> pa.Table:
    """Rows that ``given`` gave, as a table of the declared columns; BadRow if one does not fit. ``names``: of the
    schema, for those who keep them."""
    names = names or RowNames(schema, optional)
    if isinstance(rows, pa.Table):
        return _from_table(rows, schema, where, optional, time, unknown, names)
    return _from_rows(rows, schema, where, optional, time, unknown, names)


def check_begin(rows: pa.Table | list[Any], name: str, schema: Schema, where: str) -> None:
    """BadRow if the first time of a stream is a whole number that does not look like microseconds since 1970."""
    if not len(rows):
        return
    if isinstance(rows, pa.Table):
        known = Names(f.name for f in schema)
        column = next((c for c, n in zip(rows.columns, rows.column_names, strict=True) if known.given(n) == name), None)
        value = column[0].as_py() if column is not None and pa.types.is_integer(column.type) else None
    else:
        place = [f.name for f in schema].index(name)
        value = _row_values(rows[0], 0, RowNames(schema, ()), where, "ignore")[0][place]
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


class RowNames:
    """Which column a key of a row, or a column of a table, means. Each is looked up once.

    Bounded by the names that rows have had, which are the declared ones in some spelling, or refused.
    """

    def __init__(self, schema: Schema, optional: Sequence[str] = ()) -> None:
        self.arrow = arrow_schema(schema)
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
    row: object, number: int, names: RowNames, where: str, unknown: Unknown
) -> tuple[list[Any], list[Any]]:
    """``_values`` of a row that is the user's object, and may raise anything."""
    try:
        return _values(row, number, names, where, unknown)
    except PenstockError:
        raise
    except Exception as error:
        raise BadRow(where, number, f"the {type(row).__name__} raised {_raised(error)}") from error


def _values(
    row: object, number: int, names: RowNames, where: str, unknown: Unknown
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


def _as_declared(rows: list[Any], names: RowNames) -> list[list[Any]] | None:
    """The columns of dicts whose keys are the declared names as they are spelled; None if one row is something else."""
    count = names.declared
    for row in rows:
        if type(row) is not dict or len(row) != count:
            return None
    try:
        return [[row[name] for row in rows] for name in names.names]
    except Exception:  # of a key that is an object of the user's, too
        return None


def _from_rows(
    rows: list[Any], schema: Schema, where: str, optional: Sequence[str], time: TimeForm | None, unknown: Unknown,
    known: RowNames,
) -> pa.Table:  # fmt: skip
    columns = None if optional else _as_declared(rows, known)
    extras: list[list[Any]] = [[] for _ in optional]
    if columns is None:
        columns = [[] for _ in schema]
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
    table = pa.Table.from_arrays(arrays, schema=known.arrow)
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


_EXACT: Mapping[Kind, frozenset[type]] = {
    Kind.INT: frozenset({int, type(None)}),
    Kind.BIGINT: frozenset({int, type(None)}),
    Kind.DOUBLE: frozenset({float, type(None)}),
    Kind.BOOLEAN: frozenset({bool, type(None)}),
}
"""Types of values that Arrow refuses or takes as they are."""
_NUMPY = {Kind.BIGINT: np.dtype(np.int64), Kind.DOUBLE: np.dtype(np.float64)}
_FEW = 64
"""Up to this many values numpy needs half the time of Arrow to make a column of them; it refuses the same."""
_FAULTS = (Exception,)
"""What converting a value may raise: it may be an object of the user's, which does anything."""


def _column(
    values: list[Any], dtype: DataType, name: str, where: str, time: TimeForm | None = None
) -> pa.Array:
    if (exact := _EXACT.get(dtype.kind)) is not None and exact.issuperset(kinds := {*map(type, values)}):
        try:
            if len(values) <= _FEW and dtype.kind in _NUMPY and type(None) not in kinds:
                numbers = np.array(values, _NUMPY[dtype.kind])
                return pa.Array.from_buffers(dtype.arrow, len(values), [None, pa.py_buffer(numbers)])
            return pa.array(values, dtype.arrow, from_pandas=False)
        except _FAULTS:
            pass  # which value it is, is found out below
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
    table: pa.Table, schema: Schema, where: str, optional: Sequence[str], time: TimeForm | None, unknown: Unknown,
    known: RowNames,
) -> pa.Table:  # fmt: skip
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
    result = pa.Table.from_arrays(arrays, schema=known.arrow)
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
