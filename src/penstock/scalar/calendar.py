"""The proleptic Gregorian calendar over all years that 64-bit microseconds reach.

``datetime`` knows the years 1 to 9999. The calendar repeats every 400 years (146097 days), so any day is
moved by whole cycles into that range, looked up there, and its year moved back. Year 0 is 1 BC.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import date

from penstock.model.types import TICKS_PER_SECOND
from penstock.scalar.context import RowError

SECOND = TICKS_PER_SECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_CYCLE_YEARS = 400
_CYCLE_DAYS = 146_097
_BASE_YEAR = 2000
_EPOCH = date(1970, 1, 1).toordinal()
_BASE = date(_BASE_YEAR, 1, 1).toordinal() - _EPOCH


@dataclass(frozen=True)
class Moment:
    """A TIMESTAMP taken apart. ``ticks`` is the time of day in microseconds."""

    year: int
    month: int
    day: int
    ticks: int

    @property
    def hour(self) -> int:
        return self.ticks // HOUR

    @property
    def minute(self) -> int:
        return self.ticks // MINUTE % 60

    @property
    def second(self) -> int:
        return self.ticks // SECOND % 60

    @property
    def microsecond(self) -> int:
        return self.ticks % SECOND


def _within(days: int) -> tuple[date, int]:
    cycles, rest = divmod(days - _BASE, _CYCLE_DAYS)
    return date.fromordinal(_EPOCH + _BASE + rest), cycles * _CYCLE_YEARS


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a DATE."""
    inside, years = _within(days)
    return inside.year + years, inside.month, inside.day


def moment(ticks: int) -> Moment:
    """The parts of a TIMESTAMP."""
    days, rest = divmod(ticks, DAY)
    return Moment(*civil(days), rest)


def days_of(year: int, month: int, day: int) -> int:
    """The DATE of a year, month and day."""
    cycles, rest = divmod(year - _BASE_YEAR, _CYCLE_YEARS)
    try:
        inside = date(_BASE_YEAR + rest, month, day)
    except (ValueError, OverflowError):
        raise RowError(f"there is no day {year:04d}-{month:02d}-{day:02d}") from None
    return inside.toordinal() - _EPOCH + cycles * _CYCLE_DAYS


def month_length(year: int, month: int) -> int:
    """The number of days of a month."""
    return calendar.monthrange(_BASE_YEAR + year % _CYCLE_YEARS, month)[1]


def iso_week(days: int) -> tuple[int, int]:
    """ISO 8601 year and week: week 1 has the year's first Thursday."""
    inside, years = _within(days)
    found = inside.isocalendar()
    return found.year + years, found.week


def iso_weekday(days: int) -> int:
    """1 is Monday, 7 is Sunday."""
    return (days + 3) % 7 + 1


def day_of_year(days: int) -> int:
    return days - days_of(civil(days)[0], 1, 1) + 1
