"""The CREATE statement for data that are there already: a file, a DataFrame, a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.cql.text import parse
from penstock.errors import InputError, PenstockError, suggest
from penstock.ingest import frame_as_table
from penstock.io.sample import ROWS, Sample, sample_file, sample_table
from penstock.io.times import TimeForm
from penstock.io.values import BadValue, epoch_unit
from penstock.plan.nodes import Field
from penstock.plan.show import show_duration
from penstock.types import TIMESTAMP, Kind

_TIMES = ("ts", "timestamp", "event_time", "eventtime", "time", "datetime", "at", "t", "date")
_TIME_LIKE = re.compile(r"(^|_|\b)(ts|at|t|time|timestamp|datetime|date|when)(_|\b|$)", re.IGNORECASE)
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")
_PATTERNS = (*(f"{day} {clock}" for day in _DAYS for clock in ("%H:%M:%S", "%H:%M")), *_DAYS)
"""Texts that are tried as times."""


@dataclass(frozen=True)
class Declaration:
    """A CREATE statement, and what its reader should know about how it came about."""

    statement: str
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f"-- {remark}\n" for remark in self.remarks) + f"{self.statement};\n"


def declaration(
    name: str, data: object, *, timestamp: str | None = None, slack: str | None = None, key: Sequence[str] = ()
) -> Declaration:
    """The statement that declares ``data`` as a stream, or with a key as a relation.

    ``data``: the path of a file or folder, or what ``push`` takes as a table: pandas, polars, Arrow. ``timestamp``: the
    column that orders the rows; by default a column of times. ``slack``: how far rows may be out of order, such as
    ``5 seconds``; by default as far as these are.
    """
    sample = _sample(name, data)
    if not sample.fields:
        raise InputError(f"{_what(data)} has no columns that could be declared", hint="; ".join(sample.left_out))
    remarks = [f"left out: {reason}" for reason in sample.left_out]
    if not sample.whole:
        remarks.append(f"types are those of the first {ROWS:,} rows")
    if key:
        names = [_column(sample, column, _what(data)).name for column in key]
        clause = f"KEY ({', '.join(_name(n, sample.fields) for n in names)})"
        return Declaration(f"CREATE RELATION {_name(name)} ({_columns(sample.fields)}) {clause}", tuple(remarks))
    fields = list(sample.fields)
    orders = _column(sample, timestamp, _what(data)) if timestamp else _best(fields)
    form = None
    if not any(f.type.kind is Kind.TIMESTAMP for f in fields):
        found, form, more = _written(sample, [orders] if orders else [f for f in fields if _TIME_LIKE.search(f.name)])
        if found is not None:
            fields[fields.index(found)] = orders = Field(found.name, TIMESTAMP)
            remarks += more
    if orders is None:
        remarks.append("no column tells the time, so rows are stamped when they arrive")
        clause = ""
    else:
        if orders.type.kind is Kind.DATE:
            fields[fields.index(orders)] = orders = Field(orders.name, TIMESTAMP)
        elif orders.type.kind not in (Kind.TIMESTAMP, Kind.BIGINT, Kind.INT):
            raise InputError(
                f"column `{orders.name}` of {_what(data)} holds {orders.type}, which is no time",
                hint="TIMESTAMP BY takes times such as 2024-05-31T12:00:00Z, or whole numbers",
            )
        clause, more = _ordering(sample, orders, slack, form)
        remarks += more
    return Declaration(f"CREATE STREAM {_name(name)} ({_columns(fields)}){clause}", tuple(remarks))


def _sample(name: str, data: object) -> Sample:
    if isinstance(data, str | Path):
        return sample_file(Path(data))
    table = frame_as_table(data)
    if table is None:
        raise InputError(
            f"`{name}` cannot be declared from {_what(data)}",
            hint="give the path of a file, or a table of pandas, polars or Arrow",
        )
    return sample_table(table)


def _what(data: object) -> str:
    return str(data) if isinstance(data, str | Path) else f"the {type(data).__name__}"


def _column(sample: Sample, name: str, where: str) -> Field:
    same = [f for f in sample.fields if f.name == name]
    for field in same or [f for f in sample.fields if f.name.lower() == name.lower()]:
        return field
    raise InputError(f"{where} has no column `{name}`", hint=suggest(name, [f.name for f in sample.fields]))


def _best(fields: Sequence[Field]) -> Field | None:
    """The column that most likely orders the rows."""
    for kinds in ((Kind.TIMESTAMP,), (Kind.BIGINT, Kind.INT), (Kind.DATE,)):
        candidates = [f for f in fields if f.type.kind in kinds]
        named = [f for name in _TIMES for f in candidates if f.name.lower() == name]
        like = [f for f in candidates if _TIME_LIKE.search(f.name)]
        # A time is one whatever its name; a number is one only by its name.
        found = named + like + (candidates if Kind.TIMESTAMP in kinds else [])
        if found:
            return found[0]
    return None


def _written(sample: Sample, columns: Sequence[Field]) -> tuple[Field | None, TimeForm | None, list[str]]:
    """The first column with times that are no TIMESTAMP by themselves, how they are written, and remarks about it."""
    for field in columns:
        column = sample.rows[field.name].drop_null()
        if not len(column):
            continue
        if field.type.kind in (Kind.BIGINT, Kind.INT) and (unit := epoch_unit(int(np.median(column.to_numpy())))):
            return field, TimeForm(unit), [f"`{field.name}` is taken for {unit} since 1970"]
        if field.type.kind is Kind.STRING:
            forms = [form for form in map(TimeForm, _PATTERNS) if _reads(form, column)]
            if forms:
                others = "".join(f"; it could be '{other.text}' too" for other in forms[1:])
                return field, forms[0], [f"`{field.name}` is read as '{forms[0].text}'{others}"]
    return None, None, []


def _reads(form: TimeForm, column: pa.ChunkedArray) -> bool:
    try:
        form.read(column.combine_chunks())
    except BadValue:
        return False
    return True


def _ordering(sample: Sample, orders: Field, slack: str | None, form: TimeForm | None) -> tuple[str, list[str]]:
    """The clauses for the column that orders the rows, and remarks about it."""
    remarks = []
    column = sample.rows[orders.name]
    if column.null_count:
        remarks.append(f"column `{orders.name}` has NULLs, which the column that orders a stream may not have")
    given = column.drop_null()
    if form is not None:
        given = form.read(given.combine_chunks())
    instants = given.cast(TIMESTAMP.arrow if orders.type.kind is Kind.TIMESTAMP else pa.int64())
    ticks = instants.cast(pa.int64()).to_numpy()
    clause = f" TIMESTAMP BY {_name(orders.name, sample.fields)}"
    written = "" if form is None else f" WITH (time = '{form.text}')"
    if slack is not None:
        return f"{clause} SLACK {slack}{written}", remarks
    behind = int((np.maximum.accumulate(ticks) - ticks).max()) if len(ticks) else 0
    if not behind:
        return clause + written, remarks
    wait = show_duration(_rounded(behind), "timestamp") if orders.type.kind is Kind.TIMESTAMP else str(behind)
    remarks.append(f"rows are out of order by up to {wait.lower()}; with SLACK each waits so long for earlier ones")
    return f"{clause} SLACK {wait}{written}", remarks


def _rounded(ticks: int) -> int:
    """The next whole second, minute or hour, or for less than a second millisecond."""
    units = [u for u in (1_000, 1_000_000, 60_000_000, 3_600_000_000) if u <= ticks] or [1]
    return -(-ticks // units[-1]) * units[-1]


def _columns(fields: Sequence[Field]) -> str:
    columns = [f"{_name(f.name, fields)} {f.type}" for f in fields]
    one_line = ", ".join(columns)
    return one_line if len(one_line) <= 72 else "\n  " + ",\n  ".join(columns) + "\n"


def _name(name: str, among: Sequence[Field] = ()) -> str:
    """A name as it is written in CQL: in quotes where it has to be, so that it is not another one ``among`` others."""
    quoted = '"' + name.replace('"', '""') + '"'
    if not re.fullmatch(r"[a-zA-Z_]\w*", name) or sum(f.name.lower() == name.lower() for f in among) > 1:
        return quoted
    try:
        parse(f"CREATE STREAM {name} ({name} INT) TIMESTAMP BY {name}; SELECT {name} FROM {name}")
    except PenstockError:
        return quoted
    return name
