"""Functions on TIMESTAMP, DATE and INTERVAL.

Those that depend on what a clock shows take the name of its time zone as their last argument; without it, it is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from penstock.scalar import patterns
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
from penstock.scalar.patterns import DAYS, MONTHS
from penstock.scalar.zones import UTC as UTC_ZONE
from penstock.scalar.zones import instant, local, offset_at, short_name, zone_name

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
    "dayofweek_iso": "isodow",
    "dow_iso": "isodow",
    "doy": "dayofyear",
    "dayofmonth": "day",
    "weekofyear": "week",
}  # fmt: skip


# What only date_trunc and trunc know, as in Spark.
TRUNC_NAMES = {**UNITS, "yyyy": "year", "yy": "year", "mm": "month", "mon": "month", "dd": "day"}


def extract(part: str, ticks: int, zone: str = UTC_ZONE) -> int | float:
    shown = ticks if part == "epoch" else local(ticks, zone)
    return PARTS[part](shown, moment(shown))


def interval_part(part: str, ticks: int) -> int | float:
    if part == "epoch":
        return ticks / SECOND
    whole, unit = INTERVAL_PARTS[part]
    size = abs(ticks) if whole is None else abs(ticks) % whole
    return size // unit if ticks >= 0 else -(size // unit)


def seconds(ticks: int, zone: str = UTC_ZONE) -> Decimal:
    """The second of the minute, with its fraction."""
    return Decimal(local(ticks, zone) % MINUTE).scaleb(-6)


def interval_seconds(ticks: int) -> Decimal:
    """As ``seconds``, with the sign of the interval."""
    return seconds(ticks) if ticks >= 0 else -seconds(-ticks)


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


def timestampdiff(unit: str, start: int, end: int, zone: str = UTC_ZONE) -> int:
    """How many whole units lie between what clocks show; negative where the end is before the start."""
    start, end = local(start, zone), local(end, zone)
    if unit not in _MONTHS:
        size = _FIXED.get(unit, 7 * DAY)
        whole = abs(end - start) // size
        return whole if end >= start else -whole
    # A month is whole when its day is reached again; the last day begun counts only with the time of day.
    (first, since), (last, until) = divmod(start, DAY), divmod(end, DAY)
    last += (last < first and until > since) - (last > first and until < since)
    (y1, m1, d1), (y2, m2, d2) = civil(first), civil(last)
    apart = ((y2 - y1) * 12 + m2 - m1) * 32 + d2 - d1
    whole = abs(apart) // (32 * _MONTHS[unit])
    return whole if apart >= 0 else -whole


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
    """Second 60 is the beginning of the next minute."""
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 60):
        raise RowError(f"there is no time of day {hour}:{minute}:{second}")
    days = days_of(year, month, day)
    return instant(days * DAY + hour * HOUR + minute * MINUTE + nearest(second * SECOND), zone)


def strptime(text: str, pattern: str, zone: str = UTC_ZONE) -> int:
    """A text read by a pattern of Python's strptime, in the zone if it names no other (``%z``)."""
    try:
        found = datetime.strptime(text, pattern)
        if found.tzinfo:
            return ticks_of(found.astimezone(UTC))
    except (ValueError, OverflowError):
        raise RowError(f"'{text[:40]}' does not have the form '{pattern}'") from None
    return instant(ticks_of(found.replace(tzinfo=UTC)), zone)


def date_format(ticks: int, pattern: str, zone: str = UTC_ZONE) -> str:
    return patterns.write(ticks, pattern, patterns.Zone(zone, short_name(ticks, zone), offset_at(ticks, zone)))


def parse_timestamp(text: str, pattern: str, zone: str = UTC_ZONE) -> int:
    """A text read by one of Spark's patterns, in the zone if it names no distance from UTC."""
    shown, offset = patterns.read(text, pattern)
    return instant(shown, zone) if offset is None else shown - offset


_BLANKS = "".join(map(chr, (*range(33), 127)))
"""What Spark takes off both ends of a text that it reads as a time."""
_DAY_TEXT = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_MOMENT_TEXT = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?)?)?)?",
    re.DOTALL,
)
_SHORT_OFFSET = re.compile(r"([+-])([0-9]{1,2}):([0-9]{1,2})")


def read_date(text: str) -> int:
    """The day of a text as Spark reads it: a year, with or without a month and a day, and whatever follows the day."""
    found = _DAY_TEXT.fullmatch(text.strip(_BLANKS))
    if found is None:
        raise RowError(f"'{text[:40]}' is not a DATE (YYYY-MM-DD)")
    return days_of(*(int(part or 1) for part in found.groups()))


def read_timestamp(text: str, zone: str = UTC_ZONE) -> int:
    """The moment of a text as Spark reads it, in the zone if it names no other; digits after the sixth are cut off.

    What is missing at the end is the beginning of the year, month, day, hour or minute. A zone follows seconds only.
    """
    found = _MOMENT_TEXT.fullmatch(text.strip(_BLANKS))
    if found is None:
        raise RowError(f"'{text[:40]}' is not a TIMESTAMP (YYYY-MM-DD HH:MM:SS)")
    year, month, day, hour, minute, second, fraction, named = found.groups()
    days = days_of(int(year), int(month or 1), int(day or 1))
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        raise RowError(f"there is no time of day {h:02d}:{m:02d}:{s:02d}")
    shown = days * DAY + h * HOUR + m * MINUTE + s * SECOND + int((fraction or "").ljust(6, "0")[:6])
    if named is not None:
        named = named.strip(_BLANKS)
        if short := _SHORT_OFFSET.fullmatch(named):
            named = f"{short[1]}{int(short[2]):02d}:{int(short[3]):02d}"
        if named[:1].islower():  # names of zones are in upper case there
            raise RowError(f"there is no time zone {named[:40]}")
        zone = zone_name(named)
    return instant(shown, zone)


def ticks_of(moment_utc: datetime) -> int:
    """Exact, where ``datetime.timestamp`` would round."""
    since = moment_utc - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds


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
    "a": lambda t, m: DAYS[iso_weekday(t // DAY) - 1][:3],
    "A": lambda t, m: DAYS[iso_weekday(t // DAY) - 1],
    "b": lambda t, m: MONTHS[m.month - 1][:3],
    "B": lambda t, m: MONTHS[m.month - 1],
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
    "extract": 2, "seconds": 1, "date_trunc": 2, "timestampdiff": 3, "add_months": 2, "make_timestamp": 6,
    "parse_timestamp": 2, "read_timestamp": 1, "strptime": 2, "date_format": 2, "strftime": 2, "current_timezone": 0,
}  # fmt: skip
"""Functions that depend on a time zone, and how many arguments come before it."""

DATES: dict[str, Callable[..., object]] = {
    "extract": extract,
    "interval_part": interval_part,
    "seconds": seconds,
    "interval_seconds": interval_seconds,
    "date_trunc": date_trunc,
    "timestampdiff": timestampdiff,
    "add_months": add_months,
    "last_day": last_day,
    "make_date": days_of,
    "make_timestamp": make_timestamp,
    "parse_timestamp": parse_timestamp,
    "read_date": read_date,
    "read_timestamp": read_timestamp,
    "strptime": strptime,
    "date_format": date_format,
    "strftime": strftime,
    "current_timezone": lambda zone=UTC_ZONE: zone,
    "from_utc_timestamp": from_utc_timestamp,
    "to_utc_timestamp": to_utc_timestamp,
}
