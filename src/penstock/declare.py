"""The CREATE statement for data that are there already: a file, a DataFrame, a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cql.text import parse
from penstock.errors import InputError, PenstockError, suggest
from penstock.ingest import frame_as_table
from penstock.io.sample import ROWS, Sample, sample_file, sample_table
from penstock.io.times import TimeForm
from penstock.io.values import BadValue, convert_arrow, epoch_unit
from penstock.plan.nodes import Field
from penstock.plan.show import show_duration
from penstock.types import STRING, TIMESTAMP, DataType, Kind

_TIMES = ("ts", "timestamp", "event_time", "eventtime", "time", "datetime", "at", "t", "date")
_TIME_LIKE = re.compile(r"(^|_|\b)(ts|at|t|time|timestamp|datetime|date|when)(_|\b|$)", re.IGNORECASE)
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")
_PATTERNS = (*(f"{day} {clock}" for day in _DAYS for clock in ("%H:%M:%S", "%H:%M")), *_DAYS)
"""Texts that are tried as times."""
_DIGITS = (("%Y%m%d", 19000101, 21010101), ("%Y%m%d%H%M%S", 19000101000000, 21010101000000))
"""Whole numbers that are tried as times, and between which they lie."""
_FRACTIONS = (Kind.REAL, Kind.DOUBLE, Kind.DECIMAL)


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
    # Remarks are comments in a script: they may not go over their lines, whatever the names.
    remarks = [_line(f"left out: {reason}") for reason in sample.left_out]
    if not sample.whole:
        remarks.append(f"types are those of the first {ROWS:,} rows")
    if key:
        if timestamp or slack:
            raise InputError(f"`{name}` has a key, so it is a relation, which takes no timestamp and no slack")
        names = [_column(sample, column, _what(data)).name for column in key]
        clause = f"KEY ({', '.join(_name(n, sample.fields) for n in names)})"
        return Declaration(f"CREATE RELATION {_name(name)} ({_columns(sample.fields)}) {clause}", tuple(remarks))
    fields = list(sample.fields)
    orders = _column(sample, timestamp, _what(data)) if timestamp else _best(fields)
    form = None
    times = [f for f in fields if f.type.kind is Kind.TIMESTAMP]
    if not times or (orders is not None and orders.type.kind in (Kind.STRING, *_FRACTIONS)):
        found, form, more = _written(sample, [orders] if orders else [f for f in fields if _TIME_LIKE.search(f.name)])
        if found is not None:
            fields[fields.index(found)] = orders = Field(found.name, TIMESTAMP)
            remarks += more
            # One form is for all times of a stream that are texts.
            for other in () if sample.typed else times:
                fields[fields.index(other)] = Field(other.name, STRING)
                remarks.append(f"`{_line(other.name)}` is a STRING, because its times are written otherwise")
    if orders is None:
        if slack:
            raise InputError(
                f"{_what(data)} has no column that tells the time, so there is no order for slack",
                hint="name a column with timestamp",
            )
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
        column = _values(sample, field).drop_null()
        if not len(column):
            continue
        shown = _line(field.name)
        if field.type.is_numeric:
            middle = float(np.median(column.cast(pa.float64(), safe=False).to_numpy()))
            unit = epoch_unit(int(middle)) if np.isfinite(middle) else None
            if unit and _reads(TimeForm(unit), column):
                return field, TimeForm(unit), [f"`{shown}` is taken for {unit} since 1970"]
        forms = []
        if field.type.kind is Kind.STRING:
            forms = [form for form in map(TimeForm, _PATTERNS) if _reads(form, column)]
        elif field.type.is_integer:
            low, high = pc.min(column).as_py(), pc.max(column).as_py()
            forms = [TimeForm(text) for text, first, end in _DIGITS if first <= low and high < end]
            forms = [form for form in forms if _reads(form, column)]
        if forms:
            others = "".join(f"; it could be '{other.text}' too" for other in forms[1:])
            return field, forms[0], [f"`{shown}` is read as '{forms[0].text}'{others}"]
    return None, None, []


def _values(sample: Sample, field: Field, dtype: DataType | None = None) -> pa.Array:
    """What the sample has of a column, as its type or another."""
    before, chunks = 0, []
    for chunk in sample.rows[field.name].chunks:
        try:
            chunks.append(convert_arrow(chunk, dtype or field.type))
        except BadValue as bad:
            raise InputError(f"row {before + bad.index + 1}, column `{field.name}`: {bad}") from None
        before += len(chunk)
    return pa.concat_arrays(chunks) if chunks else pa.array([], (dtype or field.type).arrow)


def _reads(form: TimeForm, column: pa.Array) -> bool:
    try:
        form.read(column)
    except BadValue:
        return False
    return True


def _ordering(sample: Sample, orders: Field, slack: str | None, form: TimeForm | None) -> tuple[str, list[str]]:
    """The clauses for the column that orders the rows, and remarks about it."""
    remarks = []
    field = next(f for f in sample.fields if f.name == orders.name)
    column = _values(sample, field, None if form else orders.type)
    if column.null_count:
        remarks.append(f"column `{_line(orders.name)}` has NULLs, which the column that orders a stream may not have")
    given = column.drop_null()
    if form is not None:
        given = form.read(given)
    ticks = given.cast(pa.int64()).to_numpy()
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


def _line(name: str) -> str:
    """A name on one line."""
    return " ".join(name.split())


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
