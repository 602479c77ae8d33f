"""Lengths of time in a text, as ticks."""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation, Overflow

from sqlglot import exp

from penstock.errors import BindError

_TICKS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_ALIASES = {
    "US": "MICROSECOND", "µS": "MICROSECOND", "MS": "MILLISECOND", "S": "SECOND", "SEC": "SECOND",
    "MIN": "MINUTE", "H": "HOUR", "D": "DAY", "W": "WEEK", "MON": "MONTH", "Y": "YEAR",
}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([^\W\d]+)\s*", re.UNICODE)
UNITS_OF_TIME = frozenset(unit.lower() for unit in (*_TICKS, *_MONTHS))
UNITS = "microseconds, milliseconds, seconds, minutes, hours, days, weeks"
_LONGEST = f"at most {2**62 // _TICKS['DAY']} days; a window of all rows is RANGE UNBOUNDED"
_MOST_MONTHS = 2**31
# As many digits as can matter, so that nothing is rounded.
_EXACT = Context(prec=100)


def shortened(text: str) -> str:
    """What a message shows of a text."""
    return text if len(text) <= 50 else text[:50] + "…"


def unit_name(text: str) -> str:
    """The canonical name of a unit, singular and upper case, whatever was written."""
    name = text.upper()
    if name in _ALIASES:
        return _ALIASES[name]
    singular = name.removesuffix("S")
    singular = _ALIASES.get(singular, singular)
    if singular in _TICKS or singular in _MONTHS:
        return singular
    raise BindError(f"`{text}` is not a unit of time", hint=f"there are {UNITS}")


def parse_duration(text: str) -> int:
    """Ticks of a text like ``100 ms`` or ``1 hour 30 min``."""
    months, ticks = _parts(text)
    if months:
        raise _no_length("month")
    return ticks


def _parts(text: str) -> tuple[int, int]:
    """(months, ticks) of a text like ``1 month 2 days``."""
    total, months, at = Decimal(0), Decimal(0), 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        unit = unit_name(part.group(2))
        if unit in _MONTHS:
            months = _EXACT.add(months, _EXACT.multiply(Decimal(part.group(1)), _MONTHS[unit]))
        else:
            total = _EXACT.add(total, _EXACT.multiply(Decimal(part.group(1)), _TICKS[unit]))
        at = part.end()
    if at < len(text) or not text.strip():
        raise BindError(f"'{shortened(text)}' is not a length of time", hint="write for example '10 seconds'")
    return _whole(months, 1, text, _MOST_MONTHS), _whole(total, 1, text)


def _no_length(unit: str) -> BindError:
    return BindError(f"a {unit} has no fixed length", hint=f"use {UNITS}")


def interval_ticks(node: exp.Interval) -> int:
    """Ticks of an interval literal of fixed length."""
    months, ticks = interval_parts(node)
    if months:
        raise _no_length("month")
    return ticks


def interval_parts(node: exp.Interval) -> tuple[int, int]:
    """(months, ticks) of an interval literal."""
    value, unit = node.this, node.args.get("unit")
    if unit is None:
        return _parts(str(value.this) if value is not None else "")
    sign = 1
    while isinstance(value, exp.Neg | exp.Paren):
        sign = -sign if isinstance(value, exp.Neg) else sign
        value = value.this
    if not isinstance(value, exp.Literal):
        raise BindError("an INTERVAL needs a constant number", hint="write for example INTERVAL '10' MINUTE")
    name = unit_name(unit.name)
    try:
        number = Decimal(value.name.strip())
    except (InvalidOperation, Overflow):
        raise BindError(f"'{shortened(value.name)}' is not a number of {name.lower()}s") from None
    number = number.copy_negate() if sign < 0 else number
    if name in _MONTHS:
        return _whole(number, _MONTHS[name], f"{value.name} {name}", _MOST_MONTHS), 0
    return 0, _whole(number, _TICKS[name], f"{value.name} {name}")


def _whole(number: Decimal, unit: int, text: str, most: int = 2**62) -> int:
    if number.adjusted() > 18 or abs(ticks := _EXACT.multiply(number, unit)) >= most:
        raise BindError(f"`{shortened(text)}` is longer than time itself", hint=_LONGEST)
    if number.adjusted() < -18 or ticks != int(ticks):
        raise BindError(f"`{shortened(text)}` is not a whole number of microseconds")
    return int(ticks)
