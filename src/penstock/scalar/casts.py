"""CAST: which types convert, and what each conversion gives.

Conversions to REAL go through DOUBLE, from REAL and DOUBLE to DECIMAL through the shortest text, so that
0.1 becomes 0.1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

import numpy as np

from penstock.model.types import DataType, Kind
from penstock.scalar.calendar import DAY, HOUR, MINUTE, SECOND, civil, days_of, moment
from penstock.scalar.context import RowError
from penstock.scalar.numbers import fit, fit_decimal, truncate_to_int
from penstock.scalar.zones import UTC, instant, local, zone_name

_INTEGERS = {Kind.INT, Kind.BIGINT}
_NUMBERS = _INTEGERS | {Kind.REAL, Kind.DOUBLE, Kind.DECIMAL}

# What each kind converts to, besides itself; NULL converts to everything.
CASTS: dict[Kind, set[Kind]] = {
    Kind.BOOLEAN: _INTEGERS | {Kind.STRING},
    Kind.INT: _NUMBERS | {Kind.BOOLEAN, Kind.STRING, Kind.TIMESTAMP, Kind.INTERVAL},
    Kind.BIGINT: _NUMBERS | {Kind.BOOLEAN, Kind.STRING, Kind.TIMESTAMP, Kind.INTERVAL},
    Kind.REAL: _NUMBERS | {Kind.STRING},
    Kind.DOUBLE: _NUMBERS | {Kind.STRING},
    Kind.DECIMAL: _NUMBERS | {Kind.STRING},
    Kind.STRING: _NUMBERS | {Kind.BOOLEAN, Kind.BINARY, Kind.DATE, Kind.TIMESTAMP, Kind.INTERVAL},
    Kind.BINARY: {Kind.STRING},
    Kind.DATE: {Kind.STRING, Kind.TIMESTAMP},
    Kind.TIMESTAMP: {Kind.STRING, Kind.DATE, Kind.BIGINT},
    Kind.INTERVAL: {Kind.STRING, Kind.BIGINT},
    Kind.ARRAY: set(),
}

_BLANKS = " \t\n\r\f\v"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan)", re.IGNORECASE)
_DATE = r"(?P<year>[+-]?[0-9]{4,6})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(:(?P<second>[0-9]{2})([.,](?P<fraction>[0-9]+))?)?"
_ZONE = r" ?(?P<zone>[a-z][a-z0-9_+/:-]*|[+-][0-9:]{1,8})"
_DATE_TEXT = re.compile(_DATE)
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}([T ]{_TIME}({_ZONE})?)?", re.IGNORECASE)
_CLOCK_TEXT = r"(?P<sign>[+-]?)(?P<hours>[0-9]+):(?P<minutes>[0-9]{2})(:(?P<seconds>[0-9]{2}(\.[0-9]{1,6})?))?"
_AMOUNT_TEXT = r"(?P<amount>[+-]?[0-9]+(\.[0-9]*)?)\s*(?P<unit>[a-zµ]+)"
_INTERVAL_TEXT = re.compile(rf"\s*({_CLOCK_TEXT}|{_AMOUNT_TEXT})\s*,?", re.IGNORECASE)

_TRUE = {"true", "t", "yes", "y", "1"}
_FALSE = {"false", "f", "no", "n", "0"}

UNIT_TICKS = {
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds", "tick", "ticks"), 1),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), SECOND // 1000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * DAY),
}


_ZONED = frozenset({
    (Kind.STRING, Kind.TIMESTAMP), (Kind.DATE, Kind.TIMESTAMP), (Kind.TIMESTAMP, Kind.STRING),
    (Kind.TIMESTAMP, Kind.DATE),
})  # fmt: skip


def is_zoned(source: DataType, target: DataType) -> bool:
    """Whether a conversion depends on a time zone."""
    if source.kind is Kind.ARRAY and source.element is not None and target.element is not None:
        return is_zoned(source.element, target.element)
    return (source.kind, target.kind) in _ZONED


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether CAST between the types exists at all; single values may still fail."""
    if source.kind is Kind.NULL:
        return True
    if source.kind is target.kind is Kind.ARRAY:
        assert source.element is not None
        assert target.element is not None
        return can_cast(source.element, target.element)
    return source.kind is target.kind or target.kind in CASTS.get(source.kind, ())


def cast_value(value: object, source: DataType, target: DataType, zone: str = UTC) -> object:
    """The value in the other type; raises ``RowError`` where it has none. ``zone``: of clocks, where that matters."""
    if value is None or source == target:
        return value
    if source.kind is Kind.ARRAY:
        assert isinstance(value, tuple)
        assert source.element is not None
        assert target.element is not None
        return tuple(cast_value(v, source.element, target.element, zone) for v in value)
    if zone != UTC and (source.kind, target.kind) in _ZONED:
        return _in_zone(value, source, target, zone)
    return _TO[target.kind](value, source, target)


def _in_zone(value: object, source: DataType, target: DataType, zone: str) -> object:
    if isinstance(value, str):
        return fit(parse_timestamp(value, zone), target)
    assert isinstance(value, int)
    if source.kind is Kind.DATE:
        return fit(instant(value * DAY, zone), target)
    return _TO[target.kind](local(value, zone), source, target)


def _to_boolean(value: object, source: DataType, target: DataType) -> bool:
    if isinstance(value, str):
        text = value.strip(_BLANKS).lower()
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        raise _bad(value, target)
    return bool(value)


def _to_integer(value: object, source: DataType, target: DataType) -> object:
    match value:
        case str():
            text = value.strip(_BLANKS)
            # The limit keeps int() linear; no 64-bit number needs as many digits.
            if not _INTEGER.fullmatch(text) or len(text) > 1000:
                raise _bad(value, target)
            return fit(int(text), target)
        case float():
            return fit(truncate_to_int(value), target)
        case Decimal():
            return fit(math.trunc(value), target)
        case _:
            assert isinstance(value, int)
            return fit(int(value), target)


def _to_float(value: object, source: DataType, target: DataType) -> object:
    if isinstance(value, str):
        text = value.strip(_BLANKS)
        if not _FLOAT.fullmatch(text):
            raise _bad(value, target)
        return fit(float(text), target)
    assert isinstance(value, int | float | Decimal)
    return fit(float(value), target)


def _to_decimal(value: object, source: DataType, target: DataType) -> Decimal:
    match value:
        case str():
            text = value.strip(_BLANKS)
            if not _FLOAT.fullmatch(text) or text[-1] not in "0123456789.":
                raise _bad(value, target)
            try:
                return fit_decimal(Decimal(text), target)
            except InvalidOperation:  # an exponent beyond what Decimal holds
                raise _bad(value, target) from None
        case float():
            if not math.isfinite(value):
                raise RowError(f"{value} is out of range of {target}")
            return fit_decimal(Decimal(float_text(value, source)), target)
        case _:
            assert isinstance(value, int | Decimal)
            return fit_decimal(Decimal(value), target)


def _to_string(value: object, source: DataType, target: DataType) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return float_text(value, source)
        case Decimal():
            return f"{value:f}"
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise RowError("the bytes are not UTF-8") from None
    assert isinstance(value, int)
    match source.kind:
        case Kind.DATE:
            return date_text(value)
        case Kind.TIMESTAMP:
            return timestamp_text(value)
        case Kind.INTERVAL:
            return interval_text(value)
    return str(value)


def _to_binary(value: object, source: DataType, target: DataType) -> bytes:
    assert isinstance(value, str)
    return value.encode()


def _to_date(value: object, source: DataType, target: DataType) -> object:
    if isinstance(value, str):
        found = _DATE_TEXT.fullmatch(value.strip(_BLANKS))
        if not found:
            raise _bad(value, target, "YYYY-MM-DD")
        return fit(_days(found), target)
    assert isinstance(value, int)
    return fit(value // DAY, target)


def _to_timestamp(value: object, source: DataType, target: DataType) -> object:
    if isinstance(value, str):
        return fit(parse_timestamp(value), target)
    assert isinstance(value, int)
    return fit(value * DAY if source.kind is Kind.DATE else value, target)


def _to_interval(value: object, source: DataType, target: DataType) -> object:
    if isinstance(value, str):
        return fit(parse_interval(value), target)
    return fit(value, target)


def _bad(value: str, target: DataType, form: str = "") -> RowError:
    shown = value if len(value) <= 40 else value[:40] + "…"
    article = "an" if target.kind in (Kind.INT, Kind.INTERVAL) else "a"
    return RowError(f"'{shown}' is not {article} {target}" + (f" ({form})" if form else ""))


def _days(found: re.Match[str]) -> int:
    return days_of(int(found["year"]), int(found["month"]), int(found["day"]))


def parse_timestamp(text: str, zone: str = UTC) -> int:
    """Ticks of an ISO 8601 text, in the zone if it names no other. Digits after the sixth are cut off."""
    found = _TIMESTAMP_TEXT.fullmatch(text.strip(_BLANKS))
    if not found:
        raise _bad(text, DataType(Kind.TIMESTAMP), "YYYY-MM-DD HH:MM:SS")
    ticks = _days(found) * DAY
    if found["hour"] is None:
        return instant(ticks, zone)
    hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise RowError(f"there is no time of day {hour:02d}:{minute:02d}:{second:02d}")
    ticks += hour * HOUR + minute * MINUTE + second * SECOND
    ticks += int((found["fraction"] or "").ljust(6, "0")[:6])
    return instant(ticks, zone if found["zone"] is None else zone_name(found["zone"]))


def parse_interval(text: str) -> int:
    """Ticks of texts like ``1 day 2 hours``, ``100 ms`` and ``-1 days -02:03:04.5``."""
    bad = _bad(text, DataType(Kind.INTERVAL), "such as 1 day 2 hours, 100 ms, 02:03:04")
    at, ticks, stripped = 0, Decimal(0), text.strip(_BLANKS)
    if not stripped or len(stripped) > 1000:
        raise bad
    while at < len(stripped):
        found = _INTERVAL_TEXT.match(stripped, at)
        if not found:
            raise bad
        at = found.end()
        if found["unit"] is not None:
            unit = found["unit"].lower()
            if unit not in UNIT_TICKS:
                raise bad
            ticks += Decimal(found["amount"]) * UNIT_TICKS[unit]
        else:
            part = Decimal(found["hours"]) * HOUR + int(found["minutes"]) * MINUTE
            part += Decimal(found["seconds"] or 0) * SECOND
            ticks += -part if found["sign"] == "-" else part
    return round(ticks)


def float_text(value: float, dtype: DataType) -> str:
    """The shortest text that reads back as the same REAL or DOUBLE, in Python's notation."""
    return str(np.float32(value)) if dtype.kind is Kind.REAL else repr(value)


def date_text(days: int) -> str:
    """YYYY-MM-DD; years before 0 have a sign."""
    year, month, day = civil(days)
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}"


def timestamp_text(ticks: int) -> str:
    """YYYY-MM-DD HH:MM:SS, and six digits of a second that is not whole."""
    m = moment(ticks)
    text = f"{date_text(ticks // DAY)} {m.hour:02d}:{m.minute:02d}:{m.second:02d}"
    return text + (f".{m.microsecond:06d}" if m.microsecond else "")


def interval_text(ticks: int) -> str:
    """``2 days 03:04:05.000006``; a negative interval has the sign on each part."""
    sign, ticks = ("-", -ticks) if ticks < 0 else ("", ticks)
    days, rest = divmod(ticks, DAY)
    text = f"{sign}{rest // HOUR:02d}:{rest // MINUTE % 60:02d}:{rest // SECOND % 60:02d}"
    if rest % SECOND:
        text += f".{rest % SECOND:06d}"
    if not days:
        return text
    whole = f"{sign}{days} day{'s' if days != 1 else ''}"
    return f"{whole} {text}" if rest else whole


_TO: dict[Kind, Callable[[object, DataType, DataType], object]] = {
    Kind.BOOLEAN: _to_boolean,
    Kind.INT: _to_integer,
    Kind.BIGINT: _to_integer,
    Kind.REAL: _to_float,
    Kind.DOUBLE: _to_float,
    Kind.DECIMAL: _to_decimal,
    Kind.STRING: _to_string,
    Kind.BINARY: _to_binary,
    Kind.DATE: _to_date,
    Kind.TIMESTAMP: _to_timestamp,
    Kind.INTERVAL: _to_interval,
}
