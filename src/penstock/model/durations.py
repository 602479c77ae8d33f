"""Lengths of time in a text, as ticks."""

from __future__ import annotations

import re
from decimal import Context, Decimal

from penstock.model.errors import BindError

TICKS = {
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
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([^\W\d]+)\s*", re.UNICODE)
UNITS_OF_TIME = frozenset(unit.lower() for unit in (*TICKS, *MONTHS))
UNITS = "microseconds, milliseconds, seconds, minutes, hours, days, weeks"
_LONGEST = f"at most {2**62 // TICKS['DAY']} days; a window of all rows is RANGE UNBOUNDED"
MOST_MONTHS = 2**31
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
    if singular in TICKS or singular in MONTHS:
        return singular
    raise BindError(f"`{text}` is not a unit of time", hint=f"there are {UNITS}")


def parse_duration(text: str) -> int:
    """Ticks of a text like ``100 ms`` or ``1 hour 30 min``."""
    months, ticks = duration_parts(text)
    if months:
        raise no_length("month")
    return ticks


def duration_parts(text: str) -> tuple[int, int]:
    """(months, ticks) of a text like ``1 month 2 days``."""
    total, months, at = Decimal(0), Decimal(0), 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        unit = unit_name(part.group(2))
        if unit in MONTHS:
            months = _EXACT.add(months, _EXACT.multiply(Decimal(part.group(1)), MONTHS[unit]))
        else:
            total = _EXACT.add(total, _EXACT.multiply(Decimal(part.group(1)), TICKS[unit]))
        at = part.end()
    if at < len(text) or not text.strip():
        raise BindError(f"'{shortened(text)}' is not a length of time", hint="write for example '10 seconds'")
    return whole(months, 1, text, MOST_MONTHS), whole(total, 1, text)


def no_length(unit: str) -> BindError:
    """What is raised for a unit that has no fixed length."""
    return BindError(f"a {unit} has no fixed length", hint=f"use {UNITS}")


def whole(number: Decimal, unit: int, text: str, most: int = 2**62) -> int:
    """So many units as a whole number, if it is one."""
    if number.adjusted() > 18 or abs(ticks := _EXACT.multiply(number, unit)) >= most:
        raise BindError(f"`{shortened(text)}` is longer than time itself", hint=_LONGEST)
    if number.adjusted() < -18 or ticks != int(ticks):
        raise BindError(f"`{shortened(text)}` is not a whole number of microseconds")
    return int(ticks)
