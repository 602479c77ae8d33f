"""Which column of some data tells the time of its rows, and how the times are written in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.io.sample import Sample
from penstock.io.time_forms import PATTERNS, read_all
from penstock.model.errors import InputError
from penstock.model.schema import Field
from penstock.model.types import TIMESTAMP, DataType, Kind
from penstock.rows.times import TimeForm
from penstock.rows.values import BadValue, convert_arrow, convert_text, epoch_unit, is_value

_NAMES = (
    "ts", "timestamp", "event_time", "eventtime", "time", "datetime", "at", "t", "date",
    "zeitstempel", "zeit", "datum", "day",
)  # fmt: skip
_NAME_LIKE = re.compile(r"(^|_|\b)(ts|at|t|time|timestamp|datetime|date|when)(_|\b|$)", re.IGNORECASE)
_NUMBER_LIKE = re.compile(r"(id|nr|no|num|number|nummer|key|code|phone|tel)$", re.IGNORECASE)
"""Numbers with such names are no times, however large."""

_DIGITS = (("%Y%m%d", 19000101, 21010101), ("%Y%m%d%H%M%S", 19000101000000, 21010101000000))
"""Whole numbers that are tried as times, and between which they lie."""
_OUR_DAYS = tuple(datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1990, 2060))
"""In seconds since 1970: numbers between them are times, whatever their column is called."""
_PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "nanoseconds": 10**9}


@dataclass(frozen=True)
class TimeColumn:
    """A column that may order rows: its instants, and how they are written if not as a TIMESTAMP or a number is."""

    field: Field
    instants: pa.Array
    form: TimeForm | None = None
    others: tuple[TimeForm, ...] = ()
    """Forms that these texts could have as well."""

    @property
    def has_clock(self) -> bool:
        """Whether it has times of day, not days alone."""
        return self.form is None or "%" not in self.form.text or "%H" in self.form.text or "%I" in self.form.text


def read_times(sample: Sample, field: Field) -> TimeColumn | None:
    """A column as one of times; None if its values are none."""
    kind, time = field.type.kind, Field(field.name, TIMESTAMP)
    if kind in (Kind.TIMESTAMP, Kind.DATE):
        return TimeColumn(time, _values(sample, field, TIMESTAMP).drop_null())
    column = _values(sample, field, field.type).drop_null()
    if field.type.is_numeric:
        form = _form_of_numbers(field, column) if len(column) else None
        if form is not None:
            return TimeColumn(time, form.read(column), form)
        return TimeColumn(field, column.cast(pa.int64())) if field.type.kind in (Kind.BIGINT, Kind.INT) else None
    if kind is not Kind.STRING or not len(column) or pc.any(pc.equal(column, "")).as_py():
        return None
    if is_value(column[0].as_py(), TIMESTAMP):
        try:
            return TimeColumn(time, convert_text(column, TIMESTAMP))
        except BadValue:
            return None
    forms = [(form, found) for form in map(TimeForm, PATTERNS) if (found := read_all(form, column)) is not None]
    return TimeColumn(time, forms[0][1], forms[0][0], tuple(form for form, _ in forms[1:])) if forms else None


def _values(sample: Sample, field: Field, dtype: DataType) -> pa.Array:
    """What the sample has of a column, as a type."""
    before, chunks = 0, []
    for chunk in sample.rows[field.name].chunks:
        try:
            chunks.append(convert_arrow(chunk, dtype))
        except BadValue as bad:
            raise InputError(f"row {before + bad.index + 1}, column `{field.name}`: {bad}") from None
        before += len(chunk)
    return pa.concat_arrays(chunks) if chunks else pa.array([], dtype.arrow)


def _form_of_numbers(field: Field, column: pa.Array) -> TimeForm | None:
    """A unit in which the numbers count from 1970, or a pattern of their digits."""
    middle = float(np.median(column.cast(pa.float64(), safe=False).to_numpy()))
    unit = epoch_unit(int(middle)) if np.isfinite(middle) else None
    if unit and read_all(TimeForm(unit), column) is not None:
        return TimeForm(unit)
    if field.type.is_integer:
        low, high = pc.min(column).as_py(), pc.max(column).as_py()
        for text, first, end in _DIGITS:
            if first <= low and high < end and read_all(TimeForm(text), column) is not None:
                return TimeForm(text)
    return None


def find_times(sample: Sample) -> tuple[TimeColumn | None, list[str]]:
    """The column that most likely orders the rows, and the names of others that could do so as well.

    Times of TIMESTAMP first, then such as are written otherwise, whatever they are called; a number that does not count
    from 1970 needs the name of a time.
    """
    timestamps = [f for f in sample.fields if f.type.kind is Kind.TIMESTAMP]
    if timestamps:
        timestamps = [f for f in timestamps if not sample.rows[f.name].null_count] or timestamps
        return read_times(sample, _named_first(timestamps)[0]), _rivals(timestamps)
    clocks: list[TimeColumn] = []
    numbers: list[TimeColumn] = []
    days: list[TimeColumn] = []
    for field in sample.fields:
        named = bool(_rank(field))
        read = read_times(sample, field)
        if read is None or not len(read.instants):
            continue
        if read.form is None and field.type.is_numeric:
            if named:
                numbers.append(read)
        elif field.type.is_numeric:
            if named or _is_of_our_days(sample, read):
                (clocks if read.has_clock else days).append(read)
        elif named or not sample.rows[field.name].null_count:
            (days if field.type.kind is Kind.DATE or not read.has_clock else clocks).append(read)
    # What goes up and down under the name of a time, such as `t`, may be anything.
    rising = [n for n in numbers if not _falls(n)]
    for columns in (clocks, rising, days, numbers):
        if columns:
            best = _named_first([c.field for c in columns])[0]
            return next(c for c in columns if c.field == best), _rivals([c.field for c in columns])
    return None, []


def _rank(field: Field) -> int:
    """How much the name of a column is that of a time: 0 not at all."""
    if field.name.lower() in _NAMES:
        return 1 + len(_NAMES) - _NAMES.index(field.name.lower())
    return 1 if _NAME_LIKE.search(field.name) else 0


def _named_first(fields: Iterable[Field]) -> list[Field]:
    return sorted(fields, key=_rank, reverse=True)


def _rivals(fields: Sequence[Field]) -> list[str]:
    """The names of those that were not taken, if no name told which to take."""
    best, *others = _named_first(fields)
    return [f.name for f in others if _rank(f) == _rank(best)]


def _is_of_our_days(sample: Sample, read: TimeColumn) -> bool:
    """Whether all numbers of a column count from 1970 to our days, and its name does not say that they are numbers."""
    assert read.form is not None
    column = sample.rows[read.field.name]
    if column.null_count or _NUMBER_LIKE.search(read.field.name):
        return False
    if read.form.text not in _PER_SECOND:
        return True
    ends = pc.min_max(column).as_py()
    low, high = (second * _PER_SECOND[read.form.text] for second in _OUR_DAYS)
    return bool(low <= ends["min"] and ends["max"] <= high)


def _falls(read: TimeColumn) -> bool:
    numbers = read.instants.to_numpy()
    return bool((numbers[1:] < numbers[:-1]).any())


def one_line(name: str) -> str:
    """A name on one line."""
    return " ".join(name.split())
