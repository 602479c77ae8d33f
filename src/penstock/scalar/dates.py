"""Functions on TIMESTAMP, DATE and INTERVAL, all in UTC."""

from __future__ import annotations

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


def extract(part: str, ticks: int) -> int | float:
    return PARTS[part](ticks, moment(ticks))


def interval_part(part: str, ticks: int) -> int | float:
    if part == "epoch":
        return ticks / SECOND
    whole, unit = INTERVAL_PARTS[part]
    size = abs(ticks) if whole is None else abs(ticks) % whole
    return size // unit if ticks >= 0 else -(size // unit)


def seconds(ticks: int) -> Decimal:
    """The second of the minute, with its fraction."""
    return Decimal(ticks % MINUTE).scaleb(-6)


def interval_seconds(ticks: int) -> Decimal:
    """As ``seconds``, with the sign of the interval."""
    return seconds(ticks) if ticks >= 0 else -seconds(-ticks)


def date_trunc(unit: str, ticks: int) -> int:
    """The beginning of the unit; weeks begin on Monday."""
    if unit in _FIXED:
        return ticks - ticks % _FIXED[unit]
    if unit == "week":
        return ticks - (ticks - _MONDAY) % (7 * DAY)
    m = moment(ticks)
    months = _MONTHS[unit]
    return days_of(m.year, (m.month - 1) // months * months + 1, 1) * DAY


def timestampdiff(unit: str, start: int, end: int) -> int:
    """How many whole units lie between; negative where the end is before the start."""
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


def add_months(ticks: int, months: int) -> int:
    """The same day of another month, or its last day where it has no such day."""
    m = moment(ticks)
    year, month = divmod(m.year * 12 + m.month - 1 + months, 12)
    return days_of(year, month + 1, min(m.day, month_length(year, month + 1))) * DAY + m.ticks


def last_day(days: int) -> int:
    year, month, _ = civil(days)
    return days_of(year, month, month_length(year, month))


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> int:
    """Second 60 is the beginning of the next minute."""
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 60):
        raise RowError(f"there is no time of day {hour}:{minute}:{second}")
    days = days_of(year, month, day)
    return days * DAY + hour * HOUR + minute * MINUTE + nearest(second * SECOND)


def strptime(text: str, pattern: str) -> int:
    """A text read by a pattern of Python's strptime; with ``%z`` it is brought to UTC."""
    try:
        found = datetime.strptime(text, pattern)
        found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise RowError(f"'{text[:40]}' does not have the form '{pattern}'") from None
    return ticks_of(found)


def date_format(ticks: int, pattern: str) -> str:
    return patterns.write(ticks, pattern)


def parse_timestamp(text: str, pattern: str) -> int:
    """A text read by one of Spark's patterns; with a distance from UTC it is brought to UTC."""
    local, offset = patterns.read(text, pattern)
    return local - (offset or 0)


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
    "s": lambda t, m: str(t // SECOND),
    "%": lambda t, m: "%",
}


def strftime(ticks: int, pattern: str) -> str:
    parts, characters, m = [], iter(pattern), moment(ticks)
    for c in characters:
        if c == "%":
            directive = next(characters, "")
            if directive not in FORMATS:
                known = " ".join(f"%{d}" for d in FORMATS)
                raise RowError(f"strftime has no %{directive}, but {known}")
            c = FORMATS[directive](ticks, m)
        parts.append(c)
    return "".join(parts)


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
    "strptime": strptime,
    "date_format": date_format,
    "strftime": strftime,
}
