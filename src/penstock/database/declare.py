"""The CREATE statement for data that are there already: a file, a DataFrame, a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa

from penstock.cql.declarations import parse_type
from penstock.cql.names import written_name, written_names
from penstock.io.files import Piece
from penstock.io.sample import Sample, sample_file, sample_table
from penstock.io.time_columns import TimeColumn, find_times, one_line, read_times
from penstock.model.errors import InputError, suggest
from penstock.model.schema import Field
from penstock.model.types import STRING, Kind
from penstock.plan.show import show_duration
from penstock.rows.apart import OnError
from penstock.rows.given import frame_as_table, index_of_times

STAMPED = "no column tells the time, so rows are stamped when they arrive"


@dataclass(frozen=True)
class Declaration:
    """A CREATE statement, and what its reader should know about how it came about."""

    statement: str
    remarks: tuple[str, ...]
    """What was found out and decided."""
    warnings: tuple[str, ...] = ()
    """What may not be as it is meant."""
    stamped: bool = False
    """Whether rows are of the time when they arrive, because no column tells theirs."""
    ordering: str | None = None
    """The column that orders the rows of a stream."""

    def __str__(self) -> str:
        return "".join(f"-- {remark}\n" for remark in self.warnings + self.remarks) + f"{self.statement};\n"


def declaration(
    name: str,
    data: object,
    *,
    timestamp: str | None = None,
    slack: str | None = None,
    key: Sequence[str] = (),
    retain: bool = False,
    on_error: str | None = None,
    types: Mapping[str, str] | None = None,
) -> Declaration:
    """The statement that declares ``data`` as a stream, or with a key as a relation.

    ``data``: the path of a file or folder, or what ``push`` takes as a table: pandas, polars, Arrow. ``timestamp``: the
    column that orders the rows; by default a column of times. ``slack``: how far rows may be out of order, such as
    ``5 seconds``; by default as far as these are. ``retain``: a stream keeps all its rows for queries to come.
    ``on_error``: what becomes of rows that do not fit. ``types``: of columns that have another than these rows show.
    """
    faults = "refuse" if on_error is None else _on_error(on_error)
    sample = _sample(name, data, faults)
    if not sample.fields:
        raise InputError(f"{_what(data)} has no columns that could be declared", hint="; ".join(sample.left_out))
    # Remarks are comments in a script: they may not go over their lines, whatever the names.
    warnings = [one_line(f"left out: {reason}") for reason in sample.left_out]
    remarks = [one_line(remark) for remark in sample.remarks]
    if not sample.whole:
        rows = "row" if len(sample.rows) == 1 else f"{len(sample.rows):,} rows"
        remarks.append(f"types are those of the first {rows}")
    if key:
        if timestamp or slack or on_error:
            raise InputError(f"`{name}` has a key, so it is a relation, which takes no timestamp, slack or on_error")
        names = [_column(sample, column, _what(data)).name for column in key]
        clause = f"KEY ({', '.join(written_name(n, sample.names) for n in names)})"
        columns = _columns(_retyped(sample, sample.fields, types or {}, None, _what(data)))
        statement = f"CREATE RELATION {written_name(name)} ({columns}) {clause}"
        return Declaration(statement, tuple(remarks), tuple(warnings))
    orders, others = _asked(sample, timestamp, _what(data)) if timestamp else find_times(sample)
    fields, clause = list(sample.fields), ""
    options = ["retain = 'all'"] if retain else []
    if orders is None:
        if slack:
            raise InputError(
                f"{_what(data)} has no column that tells the time, so there is no order for slack",
                hint="name a column with timestamp",
            )
        warnings.append(STAMPED)
    else:
        if others:
            also = " or ".join(f"`{one_line(other)}`" for other in others)
            remarks.append(f"`{one_line(orders.field.name)}` is taken for the time of a row; it could be {also} too")
        fields = [orders.field if f.name == orders.field.name else f for f in fields]
        if orders.form is not None:
            (warnings if orders.others else remarks).append(_written(orders))
            fields, more = _no_other_times(sample, fields, orders)
            remarks += more
            options.append(f"time = '{orders.form.text}'")
        clause, more, wrong = _ordering(sample, orders, slack)
        remarks += more
        warnings += wrong if faults == "refuse" else []
    if on_error:
        options.append(f"on_error = '{faults}'")
    clause += f" WITH ({', '.join(options)})" if options else ""
    ordering = None if orders is None else orders.field.name
    columns = _columns(_retyped(sample, fields, types or {}, ordering, _what(data)))
    statement = f"CREATE STREAM {written_name(name)} ({columns}){clause}"
    return Declaration(statement, tuple(remarks), tuple(warnings), orders is None, ordering)


def _retyped(
    sample: Sample, fields: Sequence[Field], types: Mapping[str, str], ordering: str | None, where: str
) -> list[Field]:
    """The columns with the types that are asked for."""
    wanted = {_column(sample, column, where).name: parse_type(text) for column, text in types.items()}
    if ordering in wanted:
        raise InputError(f"`{ordering}` orders the rows of {where}", hint="it keeps the type that its times have")
    return [Field(f.name, wanted.get(f.name, f.type)) for f in fields]


def _on_error(text: str) -> OnError:
    if text not in get_args(OnError):
        raise InputError(f"on_error is {text!r}", hint=f"it is one of {', '.join(map(repr, get_args(OnError)))}")
    found: OnError = text  # type: ignore[assignment]
    return found


def _sample(name: str, data: object, on_error: OnError) -> Sample:
    if isinstance(data, str | Path | Piece):
        return sample_file(Path(data) if isinstance(data, str) else data, on_error)
    table = frame_as_table(data, index=True)
    if table is None:
        raise InputError(
            f"`{name}` cannot be declared from {_what(data)}",
            hint="give the path of a file, or a table of pandas, polars, Spark or Arrow",
        )
    return sample_table(table, _lost_index(data, table))


def _lost_index(data: object, table: pa.Table) -> list[str]:
    """A word on an index of times that is no column, because a column of other values has its name."""
    index = index_of_times(data)
    if index is None or index.name is None:
        return []
    same = [column for column in table.column_names if column.lower() == str(index.name).lower()]
    if any(table[column].combine_chunks().equals(pa.array(index)) for column in same):
        return []
    return [f"the index `{index.name}`, because a column has its name; rename one of them"]


def _what(data: object) -> str:
    return str(data) if isinstance(data, str | Path | Piece) else f"the {type(data).__name__}"


def _column(sample: Sample, name: str, where: str) -> Field:
    same = [f for f in sample.fields if f.name == name]
    for field in same or [f for f in sample.fields if f.name.lower() == name.lower()]:
        return field
    raise InputError(f"{where} has no column `{name}`", hint=suggest(name, [f.name for f in sample.fields]))


def _asked(sample: Sample, timestamp: str, where: str) -> tuple[TimeColumn, list[str]]:
    """The column that somebody has named."""
    field = _column(sample, timestamp, where)
    found = read_times(sample, field)
    if found is None:
        raise InputError(
            f"column `{field.name}` of {where} holds {field.type}, which is no time",
            hint="TIMESTAMP BY takes times such as 2024-05-31T12:00:00Z, or whole numbers",
        )
    return found, []


def _written(orders: TimeColumn) -> str:
    """How the times of a column are read."""
    assert orders.form is not None
    name = one_line(orders.field.name)
    if "%" not in orders.form.text:
        return f"`{name}` is taken for {orders.form.text} since 1970"
    others = "".join(f"; it could be '{other.text}' too" for other in orders.others)
    return f"`{name}` is read as '{orders.form.text}'{others}"


def _no_other_times(sample: Sample, fields: list[Field], orders: TimeColumn) -> tuple[list[Field], list[str]]:
    """Columns of times that are written otherwise are texts: the form is that of all TIMESTAMP columns of a stream."""
    if sample.typed:
        return fields, []
    others = [f.name for f in fields if f.type.kind is Kind.TIMESTAMP and f != orders.field]
    remarks = [f"`{one_line(name)}` stays STRING: WITH (time = …) is for all times of a stream" for name in others]
    return [Field(f.name, STRING) if f.name in others else f for f in fields], remarks


def _ordering(sample: Sample, orders: TimeColumn, slack: str | None) -> tuple[str, list[str], list[str]]:
    """The clauses for the column that orders the rows, remarks about it, and warnings."""
    name, is_time = orders.field.name, orders.field.type.kind is Kind.TIMESTAMP
    wrong = []
    if sample.rows[name].null_count:
        wrong.append(f"column `{one_line(name)}` has NULLs, which the column that orders a stream may not have")
    ticks = orders.instants.cast(pa.int64()).to_numpy()
    clause = f" TIMESTAMP BY {written_name(name, sample.names)}"
    if slack is not None:
        return f"{clause} SLACK {slack}", [], wrong
    behind = int((np.maximum.accumulate(ticks) - ticks).max()) if len(ticks) else 0
    if not behind:
        return clause, [], wrong
    wait = show_duration(_rounded(behind), "timestamp") if is_time else str(behind)
    remark = f"rows are out of order by up to {wait.lower()}; SLACK {wait} is used, so that none is late"
    return f"{clause} SLACK {wait}", [remark], wrong


def _rounded(ticks: int) -> int:
    """The next whole second, minute or hour, or for less than a second millisecond."""
    units = [u for u in (1_000, 1_000_000, 60_000_000, 3_600_000_000) if u <= ticks] or [1]
    return -(-ticks // units[-1]) * units[-1]


def _columns(fields: Sequence[Field]) -> str:
    names = written_names([f.name for f in fields])
    columns = [f"{name} {f.type}" for name, f in zip(names, fields, strict=True)]
    one_line = ", ".join(columns)
    return one_line if len(one_line) <= 72 else "\n  " + ",\n  ".join(columns) + "\n"
