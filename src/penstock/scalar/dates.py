"""Functions on TIMESTAMP, DATE and INTERVAL.

Those that depend on what a clock shows take the name of its time zone as their last argument; without it, it is UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from penstock.scalar.calendar import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Moment,
    civil,
    day_of_year,
    days_of,
    iso_week,
    iso_weekday,
    moment,
    month_length,
)
from penstock.scalar.casts import UNIT_TICKS, date_text
from penstock.scalar.context import RowError
from penstock.scalar.numbers import nearest
from penstock.scalar.zones import UTC as UTC_ZONE
from penstock.scalar.zones import instant, local, offset_at, zone_name

_FIXED = {"microsecond": 1, "millisecond": SECOND // 1000, "second": SECOND, "minute": MINUTE, "hour": HOUR,
          "day": DAY}  # fmt: skip
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
# 1970-01-05, the first Monday: weeks are counted from there.
_MONDAY = 4 * DAY

PARTS: dict[str, Callable[[int, Moment], int | float]] = {
    "year": lambda t, m: m.year,
    "quarter": lambda t, m: (m.month + 2) // 3,
    "month": lambda t, m: m.month,
    "week": lambda t, m: iso_week(t // DAY)[1],
    "day": lambda t, m: m.day,
    "dayofweek": lambda t, m: iso_weekday(t // DAY) % 7 + 1,
    "isodow": lambda t, m: iso_weekday(t // DAY),
    "dayofyear": lambda t, m: day_of_year(t // DAY),
    "hour": lambda t, m: m.hour,
    "minute": lambda t, m: m.minute,
    "second": lambda t, m: m.second,
    "millisecond": lambda t, m: m.ticks % MINUTE // (SECOND // 1000),
    "microsecond": lambda t, m: m.ticks % MINUTE,
    "epoch": lambda t, m: t / SECOND,
}

# For each part, the size of the whole it is taken from and its own; signs follow the interval's.
INTERVAL_PARTS: dict[str, tuple[int | None, int]] = {
    "day": (None, DAY),
    "hour": (DAY, HOUR),
    "minute": (HOUR, MINUTE),
    "second": (MINUTE, SECOND),
    "millisecond": (MINUTE, SECOND // 1000),
    "microsecond": (MINUTE, 1),
}

TRUNC_UNITS = (*_FIXED, "week", *_MONTHS)

# Other spellings of the units, each to the one used in plans.
UNITS: dict[str, str] = {
    **{u: u for u in (*PARTS, *TRUNC_UNITS)},
    **{f"{u}s": u for u in TRUNC_UNITS},
    **{name: u for u in (*_FIXED, "week") for name, ticks in UNIT_TICKS.items()
       if ticks == _FIXED.get(u, 7 * DAY) and len(name) > 1},
    "dow": "dayofweek",
    "weekday": "dayofweek",
    "doy": "dayofyear",
    "dayofmonth": "day",
    "weekofyear": "week",
}  # fmt: skip


def extract(part: str, ticks: int, zone: str = UTC_ZONE) -> int | float:
    shown = ticks if part == "epoch" else local(ticks, zone)
    return PARTS[part](shown, moment(shown))


def interval_part(part: str, ticks: int) -> int | float:
    if part == "epoch":
        return ticks / SECOND
    whole, unit = INTERVAL_PARTS[part]
    size = abs(ticks) if whole is None else abs(ticks) % whole
    return size // unit if ticks >= 0 else -(size // unit)


def date_trunc(unit: str, ticks: int, zone: str = UTC_ZONE) -> int:
    """The beginning of the unit; weeks begin on Monday."""
    offset = offset_at(ticks, zone)
    return instant(_beginning(unit, ticks + offset), zone, near=offset)


def _beginning(unit: str, ticks: int) -> int:
    if unit in _FIXED:
        return ticks - ticks % _FIXED[unit]
    if unit == "week":
        return ticks - (ticks - _MONDAY) % (7 * DAY)
    m = moment(ticks)
    months = _MONTHS[unit]
    return days_of(m.year, (m.month - 1) // months * months + 1, 1) * DAY


def date_diff(unit: str, start: int, end: int, zone: str = UTC_ZONE) -> int:
    """How many beginnings of the unit lie after the start and up to the end.

    Less than a day is counted as time passes, whatever clocks do meanwhile: from what they show at the start.
    """
    offset = offset_at(start, zone)
    start, end = start + offset, end + offset if _FIXED.get(unit, DAY) < DAY else local(end, zone)
    if unit in _FIXED:
        return end // _FIXED[unit] - start // _FIXED[unit]
    if unit == "week":
        return (end - _MONDAY) // (7 * DAY) - (start - _MONDAY) // (7 * DAY)
    a, b = moment(start), moment(end)
    months = _MONTHS[unit]
    return (b.year * 12 + b.month - 1) // months - (a.year * 12 + a.month - 1) // months


def add_months(ticks: int, months: int, zone: str = UTC_ZONE) -> int:
    """The same day of another month, or its last day where it has no such day."""
    offset = offset_at(ticks, zone)
    m = moment(ticks + offset)
    year, month = divmod(m.year * 12 + m.month - 1 + months, 12)
    shown = days_of(year, month + 1, min(m.day, month_length(year, month + 1))) * DAY + m.ticks
    return instant(shown, zone, near=offset)


def last_day(days: int) -> int:
    year, month, _ = civil(days)
    return days_of(year, month, month_length(year, month))


def make_timestamp(
    year: int, month: int, day: int, hour: int, minute: int, second: float, zone: str = UTC_ZONE
) -> int:
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second < 60):
        raise RowError(f"there is no time of day {hour}:{minute}:{second}")
    days = days_of(year, month, day)
    return instant(days * DAY + hour * HOUR + minute * MINUTE + nearest(second * SECOND), zone)


def parse_with(text: str, pattern: str, zone: str = UTC_ZONE) -> int:
    """A text read by a strptime pattern, in the zone if it names no other (``%z``)."""
    try:
        found = datetime.strptime(text, pattern)
        if found.tzinfo:
            return ticks_of(found.astimezone(UTC))
    except (ValueError, OverflowError):
        raise RowError(f"'{text[:40]}' does not have the form '{pattern}'") from None
    return instant(ticks_of(found.replace(tzinfo=UTC)), zone)


def ticks_of(moment_utc: datetime) -> int:
    """Exact, where ``datetime.timestamp`` would round."""
    since = moment_utc - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds


def parse_date_with(text: str, pattern: str, zone: str = UTC_ZONE) -> int:
    return local(parse_with(text, pattern, zone), zone) // DAY


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTH_NAMES = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
                "October", "November", "December")  # fmt: skip

# Always in English and the same on every platform, which the C library's strftime is not.
FORMATS: dict[str, Callable[[int, Moment], str]] = {
    "Y": lambda t, m: date_text(t // DAY).rsplit("-", 2)[0],
    "y": lambda t, m: f"{m.year % 100:02d}",
    "m": lambda t, m: f"{m.month:02d}",
    "d": lambda t, m: f"{m.day:02d}",
    "H": lambda t, m: f"{m.hour:02d}",
    "I": lambda t, m: f"{(m.hour + 11) % 12 + 1:02d}",
    "p": lambda t, m: "AM" if m.hour < 12 else "PM",
    "M": lambda t, m: f"{m.minute:02d}",
    "S": lambda t, m: f"{m.second:02d}",
    "f": lambda t, m: f"{m.microsecond:06d}",
    "j": lambda t, m: f"{day_of_year(t // DAY):03d}",
    "a": lambda t, m: _DAYS[iso_weekday(t // DAY) - 1][:3],
    "A": lambda t, m: _DAYS[iso_weekday(t // DAY) - 1],
    "b": lambda t, m: _MONTH_NAMES[m.month - 1][:3],
    "B": lambda t, m: _MONTH_NAMES[m.month - 1],
    "u": lambda t, m: str(iso_weekday(t // DAY)),
    "w": lambda t, m: str(iso_weekday(t // DAY) % 7),
    "G": lambda t, m: f"{iso_week(t // DAY)[0]:04d}",
    "V": lambda t, m: f"{iso_week(t // DAY)[1]:02d}",
    "F": lambda t, m: date_text(t // DAY),
    "T": lambda t, m: f"{m.hour:02d}:{m.minute:02d}:{m.second:02d}",
    "%": lambda t, m: "%",
}


def strftime(ticks: int, pattern: str, zone: str = UTC_ZONE) -> str:
    shown = local(ticks, zone)
    parts, characters, m = [], iter(pattern), moment(shown)
    for c in characters:
        if c == "%":
            directive = next(characters, "")
            if directive not in FORMATS and directive != "s":
                known = " ".join(f"%{d}" for d in (*FORMATS, "s"))
                raise RowError(f"strftime has no %{directive}, but {known}")
            c = str(ticks // SECOND) if directive == "s" else FORMATS[directive](shown, m)
        parts.append(c)
    return "".join(parts)


def from_utc_timestamp(ticks: int, zone: str) -> int:
    """What a clock of the zone shows, as if it were in UTC."""
    return local(ticks, zone_name(zone))


def to_utc_timestamp(shown: int, zone: str) -> int:
    """The instant at which a clock of the zone shows this."""
    return instant(shown, zone_name(zone))


ZONED: dict[str, int] = {
    "extract": 2, "date_trunc": 2, "date_diff": 3, "add_months": 2, "make_timestamp": 6, "to_timestamp": 2,
    "to_date": 2, "strftime": 2, "current_timezone": 0,
}  # fmt: skip
"""Functions that depend on a time zone, and how many arguments come before it."""

DATES: dict[str, Callable[..., object]] = {
    "extract": extract,
    "interval_part": interval_part,
    "date_trunc": date_trunc,
    "date_diff": date_diff,
    "add_months": add_months,
    "last_day": last_day,
    "make_date": days_of,
    "make_timestamp": make_timestamp,
    "to_timestamp": parse_with,
    "to_date": parse_date_with,
    "strftime": strftime,
    "current_timezone": lambda zone=UTC_ZONE: zone,
    "from_utc_timestamp": from_utc_timestamp,
    "to_utc_timestamp": to_utc_timestamp,
}
