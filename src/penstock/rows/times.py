"""How times are written in what comes in: as numbers that count from 1970, or as texts of some form, in some zone.

``WITH (time = 'milliseconds')``, ``WITH (time = '%d.%m.%Y %H:%M', zone = 'Europe/Vienna')`` of a stream. Only what
comes in is meant: values that are times already stay what they are, and numbers in CQL and in heartbeats are
microseconds as ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import BindError, InputError
from penstock.model.types import TIMESTAMP
from penstock.rows.values import BadValue, convert_arrow, epoch_unit, said
from penstock.scalar.casts import parse_timestamp
from penstock.scalar.context import RowError
from penstock.scalar.zones import UTC as UTC_ZONE
from penstock.scalar.zones import instant

_PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_ABBREVIATIONS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds since 1970 that are in the years 1 to 9999."""
_MOMENTS = tuple(datetime(*day, 12, 34, 56, tzinfo=UTC) for day in ((2024, 5, 31), (2024, 11, 2), (2023, 11, 2)))
"""What a pattern makes of them must be read as the same days by it."""
_HOW = "it is seconds, milliseconds, microseconds or nanoseconds (since 1970), or a form such as '%d.%m.%Y %H:%M:%S'"


@dataclass(frozen=True)
class TimeForm:
    """How a stream's times are written: in a unit that is counted from 1970, by a pattern of strptime, or in ISO 8601
    if ``text`` is empty. ``zone``: of texts that name none."""

    text: str
    zone: str = UTC_ZONE

    @property
    def is_iso(self) -> bool:
        """Written as usual, only perhaps in another zone."""
        return not self.text

    @property
    def counts(self) -> bool:
        """Written as numbers, which have no zone."""
        return self.text in _PER_SECOND

    @classmethod
    def parse(cls, text: str) -> TimeForm:
        """From the text of the option; BindError if it is none."""
        unit = text.strip().lower()
        unit = _ABBREVIATIONS.get(unit, unit if unit.endswith("s") else f"{unit}s")
        if unit in _PER_SECOND:
            return cls(unit)
        try:
            read = [datetime.strptime(moment.strftime(text), text) for moment in _MOMENTS]
        except (ValueError, re.error):
            raise BindError(f"`time` is {text!r}", hint=_HOW) from None
        if any(found.date() != moment.date() for found, moment in zip(read, _MOMENTS, strict=True)):
            minutes = " (%M are minutes, %m is the month)" if "%M" in text and "%m" not in text else ""
            raise BindError(f"`time` is {text!r}, which names no day of a year{minutes}", hint=_HOW)
        return cls(text)

    def read(self, values: Sequence[Any] | pa.Array) -> pa.Array:
        """A column as TIMESTAMP; BadValue names the first that is none."""
        column = values if isinstance(values, pa.Array) else _array(values)
        if column is not None:
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if pa.types.is_integer(column.type) and self.text in _PER_SECOND:
                ticks = self._whole(column)
                if ticks is not None:
                    return ticks
            if (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) and len(column) > 1:
                return self._texts(column)
            values = column.to_pylist()
        return self._one_by_one(values)

    def _whole(self, column: pa.Array) -> pa.Array | None:
        """Numbers without a fraction all at once; None if one is out of range."""
        per = _PER_SECOND[self.text]
        try:
            ticks = column.cast(pa.int64())
            if per <= 10**6:
                ticks = pc.multiply_checked(ticks, 10**6 // per)
            else:
                mask = np.asarray(ticks.is_null())
                ticks = pa.array(np.floor_divide(ticks.fill_null(0).to_numpy(), per // 10**6), mask=mask)
        except pa.ArrowInvalid:
            return None
        ends = pc.min_max(ticks).as_py()
        if ends["min"] is not None and not FIRST <= ends["min"] <= ends["max"] <= LAST:
            return None
        return ticks.cast(TIMESTAMP.arrow)

    def _texts(self, column: pa.Array) -> pa.Array:
        """Texts, each that is there several times once."""
        found = pc.dictionary_encode(column)
        try:
            return self._one_by_one(found.dictionary.to_pylist()).take(found.indices)
        except BadValue as bad:
            bad.index = pc.index(column, found.dictionary[bad.index]).as_py()
            raise

    def _one_by_one(self, values: Sequence[Any]) -> pa.Array:
        ticks = []
        for index, value in enumerate(values):
            try:
                ticks.append(None if _is_null(value) else self._ticks(value))
            except (ValueError, TypeError, ArithmeticError, BadValue):
                raise BadValue(index, value, TIMESTAMP, self._reason()) from None
            if ticks[-1] is not None and not FIRST <= ticks[-1] <= LAST:
                raise BadValue(index, value, TIMESTAMP, self._far(ticks[-1]))
        return pa.array(ticks, pa.int64()).cast(TIMESTAMP.arrow)

    def _reason(self) -> str:
        if self.text in _PER_SECOND:
            return f"is not a number of {self.text}, as WITH (time = '{self.text}') says"
        return f"is not written as WITH (time = '{self.text}') says"

    def _far(self, ticks: int) -> str:
        """What to say about a time that is not in the years 1 to 9999."""
        unit = unit_of(ticks * _PER_SECOND[self.text] // 10**6) if self.text in _PER_SECOND else None
        if unit is None or unit == self.text:
            return OUT_OF_RANGE
        return f"looks like {unit} since 1970, but WITH (time = '{self.text}') was said in CREATE STREAM"

    def _ticks(self, value: Any) -> int:
        if isinstance(value, datetime):
            since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
            return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
        if isinstance(value, date):
            return self._ticks(datetime(value.year, value.month, value.day))
        if isinstance(value, np.datetime64):
            return int(convert_arrow(pa.array(np.array([value])), TIMESTAMP)[0].value)
        if isinstance(value, np.generic):
            return self._ticks(value.item())
        if self.text not in _PER_SECOND:
            # 20240531 is as good as '20240531'.
            text = str(value) if isinstance(value, int) else value.strip() if isinstance(value, str) else value
            return self._local(datetime.strptime(text, self.text))
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str) or "_" in str(value):
            raise ValueError
        count = Decimal(repr(value) if isinstance(value, float) else value)
        return int((count * 10**6 / _PER_SECOND[self.text]).to_integral_value("ROUND_FLOOR"))

    def _local(self, found: datetime) -> int:
        """What a text says by the clocks of the zone, if it does not say by which."""
        ticks = self._ticks(found)
        names_one = found.tzinfo is not None or "%Z" in self.text or self.text.endswith("Z")
        return ticks if names_one else instant(ticks, self.zone)


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value) or (
        isinstance(value, np.datetime64) and bool(np.isnat(value))
    )


OUT_OF_RANGE = "is out of the range of TIMESTAMP, the years 1 to 9999"


def unit_of(number: int) -> str | None:
    """The unit in which a number would be a time of our days, counted from 1970."""
    return "microseconds" if 10**15 <= number < 10**16 else epoch_unit(number)


def check_microseconds(index: int, number: int) -> None:
    """BadValue if a number that is taken for microseconds looks like another unit."""
    if unit := epoch_unit(number):
        say = f"say WITH (time = '{unit}') in CREATE STREAM, or 'microseconds' if it is so"
        reason = f"looks like {unit} since 1970, and would be taken for microseconds"
        raise BadValue(index, number, TIMESTAMP, reason, option=say, unit=unit)


def _array(values: Sequence[Any]) -> pa.Array | None:
    """Values of one kind as an array; None for a mixture."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds != {str} and kinds != {int}:
        return None
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None


def to_instant(value: object, zone: str = "UTC") -> int:
    """The ticks of an instant as a user gives it: ticks, a datetime (without a zone it is UTC), a date, or ISO text.

    ``zone``: of texts that name none.
    """
    if isinstance(value, bool):
        raise InputError(f"{said(value)} is not an instant", hint="give ticks, a datetime, or ISO text")
    if isinstance(value, int | np.integer):
        if abs(int(value)) >= 2**62:
            raise InputError(f"the instant {value} is out of range")
        return int(value)
    if isinstance(value, str):
        try:
            return parse_timestamp(value, zone)
        except RowError as error:
            problem = str(error) if "time zone" in str(error) else f"{said(value)} is not an instant"
            raise InputError(problem, hint="write it as 2024-05-01T10:00:00") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        try:
            delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
        except Exception as error:  # its zone may be the user's
            hint = f"its zone raised {type(error).__name__}"
            raise InputError(f"{said(value)} is not an instant", hint=hint) from error
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    raise InputError(f"{said(value)} is not an instant", hint="give ticks, a datetime, or ISO text")
