"""TIMESTAMP, DATE and INTERVAL: parts, beginnings of units, differences.

The calendar is numpy's, which is proleptic Gregorian over all 64 bits as ours is, except that it takes the lowest
number for "not a time": that one is left to the row-wise meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.casts import cast_kernel
from penstock.kernels.patterns import date_format, parse_timestamp
from penstock.kernels.vectors import Data, Fixed, Partial, both, checked, repaired
from penstock.kernels.zones import zone_of
from penstock.model.types import Kind
from penstock.scalar.calendar import DAY, HOUR, MINUTE, SECOND
from penstock.scalar.dates import INTERVAL_PARTS, ZONED
from penstock.scalar.expr import Call, Literal

Kernel = Callable[..., Any]
Outcome = Fixed | Partial

_LOWEST = -(2**63)
_GREATEST = 2**63 - 2 * DAY
"""Beyond it, adding the offset of a zone may be too much."""
_WEEK = 7 * DAY
_MONDAY = 4 * DAY
_FIXED = {"microsecond": 1, "millisecond": SECOND // 1000, "second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def _months(ticks: Data) -> Data:
    """Months since 1970-01."""
    return ticks.view("M8[us]").astype("M8[M]").view(np.int64)


def _start_of_month(months: Data) -> Data:
    """The day on which a month begins."""
    return months.view("M8[M]").astype("M8[D]").view(np.int64)


def _days(ticks: Data) -> Data:
    return ticks // DAY


def _week(ticks: Data) -> Data:
    """ISO 8601: the week belongs to the year that its Thursday is in."""
    days = _days(ticks)
    thursday = days - (days + 3) % 7 + 3
    years = thursday.view("M8[D]").astype("M8[Y]").astype("M8[D]").view(np.int64)
    weeks: Data = (thursday - years) // 7 + 1
    return weeks


def _day_of_year(ticks: Data) -> Data:
    return _days(ticks) - _start_of_month(_months(ticks) // 12 * 12) + 1


_PARTS: dict[str, Callable[[Data], Data]] = {
    "year": lambda t: _months(t) // 12 + 1970,
    "quarter": lambda t: _months(t) % 12 // 3 + 1,
    "month": lambda t: _months(t) % 12 + 1,
    "week": _week,
    "day": lambda t: _days(t) - _start_of_month(_months(t)) + 1,
    "dayofweek": lambda t: (_days(t) + 4) % 7 + 1,
    "isodow": lambda t: (_days(t) + 3) % 7 + 1,
    "dayofyear": _day_of_year,
    "hour": lambda t: t % DAY // HOUR,
    "minute": lambda t: t % HOUR // MINUTE,
    "second": lambda t: t % MINUTE // SECOND,
    "millisecond": lambda t: t % MINUTE // (SECOND // 1000),
    "microsecond": lambda t: t % MINUTE,
    "epoch": lambda t: t / SECOND,
}


def _unit(call: Call) -> str | None:
    unit = call.args[0]
    return unit.value if isinstance(unit, Literal) and isinstance(unit.value, str) else None


def _ticks(call: Call, *kinds: Kind) -> bool:
    return all(a.type.kind in kinds for a in call.args[1:])


def _zoned(build: Callable[[Call], Kernel | None]) -> Callable[[Call], Kernel | None]:
    """The kernel of a function of a unit and TIMESTAMPs, with or without the zone by whose clocks it is meant."""

    def make(call: Call) -> Kernel | None:
        if len(call.args) == ZONED[call.function]:
            return build(call)
        table, inner = zone_of(call, ZONED[call.function]), build(replace(call, args=call.args[:-1]))
        if inner is None or not table:
            return None
        if _unit(call) == "epoch":
            return lambda unit, a, _: inner(unit, a)
        gives_instants = call.type.kind is Kind.TIMESTAMP

        def kernel(unit: Any, first: Fixed, *rest: Any) -> Outcome:
            offsets, far = table.offsets(first.data)
            shown = [Fixed(first.data + offsets, first.valid)]
            for other in rest[:-1]:
                more, unknown = table.offsets(other.data)
                shown.append(Fixed(other.data + more, other.valid))
                far = far | unknown | (other.data > _GREATEST) | (other.data < -_GREATEST)
            found = inner(unit, *shown)
            data, suspect = found.data, far
            if type(found) is Partial:
                for doubtful in (found.failed, found.suspect):
                    suspect = suspect if doubtful is None else suspect | doubtful
            if gives_instants:
                data, unknown = table.instant(data, offsets)
                suspect = suspect | unknown
            return repaired(data, found.valid, suspect)

        return kernel

    return make


def _by_clocks(to: bool) -> Callable[[Call], Kernel | None]:
    """``from_utc_timestamp``, or ``to_utc_timestamp``."""

    def make(call: Call) -> Kernel | None:
        table = zone_of(call, 1)
        if not table:
            return None

        def kernel(a: Fixed, _: Any) -> Outcome:
            data, far = table.instant(a.data) if to else table.local(a.data)
            return repaired(data, a.valid, far)

        return kernel

    return make


def _inexact(ticks: Data, part: str) -> Any:
    # A number of ticks beyond 53 bits is rounded before it is divided.
    return np.abs(ticks) > 2**53 if part == "epoch" else ticks == _LOWEST


def _extract(call: Call) -> Kernel | None:
    part = _unit(call)
    if part not in _PARTS or not _ticks(call, Kind.TIMESTAMP):
        return None
    function = _PARTS[part]

    def kernel(_: Any, a: Fixed) -> Outcome:
        suspect = _inexact(a.data, part) | (a.data == _LOWEST)
        return repaired(function(a.data), a.valid, suspect)

    return kernel


def _interval_part(call: Call) -> Kernel | None:
    part = _unit(call)
    if part is None or not _ticks(call, Kind.INTERVAL):
        return None
    if part == "epoch":
        return lambda _, a: repaired(a.data / SECOND, a.valid, _inexact(a.data, part) | (a.data == _LOWEST))
    if part not in INTERVAL_PARTS:
        return None
    whole, size = INTERVAL_PARTS[part]

    def kernel(_: Any, a: Fixed) -> Outcome:
        length = np.abs(a.data)
        found = (length if whole is None else length % whole) // size
        return repaired(np.where(a.data < 0, -found, found), a.valid, a.data == _LOWEST)

    return kernel


def _date_trunc(call: Call) -> Kernel | None:
    unit = _unit(call)
    if unit is None or not _ticks(call, Kind.TIMESTAMP):
        return None
    if unit in _MONTHS:
        months = _MONTHS[unit]

        def calendar(_: Any, a: Fixed) -> Outcome:
            begin = _start_of_month(_months(a.data) // months * months)
            # Before the first representable microsecond the product wraps to a later one.
            result = begin * DAY
            return repaired(result, a.valid, (a.data == _LOWEST) | (result > a.data))

        return calendar
    if unit not in _FIXED and unit != "week":
        return None
    size = _FIXED.get(unit, _WEEK)
    origin = _MONDAY if unit == "week" else 0

    def kernel(_: Any, a: Fixed) -> Outcome:
        since = (a.data % size - origin) % size if origin else a.data % size
        result = a.data - since
        return checked(result, a.valid, result > a.data)

    return kernel


def _timestampdiff(call: Call) -> Kernel | None:
    unit = _unit(call)
    if unit is None or not _ticks(call, Kind.TIMESTAMP):
        return None
    if unit in _MONTHS:
        size = 32 * _MONTHS[unit]

        def calendar(_: Any, a: Fixed, b: Fixed) -> Outcome:
            first, last = _days(a.data), _days(b.data)
            since, until = a.data % DAY, b.data % DAY
            last = last + ((last < first) & (until > since)) - ((last > first) & (until < since))
            apart = _packed(last) - _packed(first)
            whole = np.abs(apart) // size
            return Fixed(np.where(apart < 0, -whole, whole), both(a.valid, b.valid))

        return calendar
    size = _WEEK if unit == "week" else _FIXED[unit]

    def kernel(_: Any, a: Fixed, b: Fixed) -> Outcome:
        apart = b.data - a.data
        far = ((b.data ^ a.data) & (b.data ^ apart)) < 0
        whole = np.abs(apart) // size
        return repaired(np.where(apart < 0, -whole, whole), both(a.valid, b.valid), far | (apart == _LOWEST))

    return kernel


def _packed(days: Data) -> Data:
    """A day as 32 times its month, plus its day of the month."""
    months = days.view("M8[D]").astype("M8[M]").view(np.int64)
    return months * 32 + days - _start_of_month(months)


def _seconds(kind: Kind) -> Callable[[Call], Kernel | None]:
    """The second with its fraction, as a DECIMAL; of an INTERVAL with its sign."""

    def build(call: Call) -> Kernel | None:
        zone = zone_of(call, 1)
        if call.args[0].type.kind is not kind or zone is None:
            return None

        def kernel(a: Fixed, *_: Any) -> pa.Array | None:
            shown = a.data
            if zone:
                shown, far = zone.local(a.data)
                if np.any(far if a.valid is None else far & a.valid):
                    return None
            ticks = np.atleast_1d(shown % MINUTE if kind is Kind.TIMESTAMP else np.fmod(shown, MINUTE))
            # A microsecond is the last digit of the DECIMAL; its upper half is the sign.
            words = np.stack([ticks, ticks >> 63], axis=1)
            bits = None if a.valid is None else pa.py_buffer(np.packbits(a.valid, bitorder="little"))
            return pa.Array.from_buffers(pa.decimal128(8, 6), len(ticks), [bits, pa.py_buffer(words)])

        return kernel

    return build


def _last_day(call: Call) -> Kernel | None:
    if call.args[0].type.kind is not Kind.DATE:
        return None

    def kernel(a: Fixed) -> Outcome:
        months = a.data.astype(np.int64).view("M8[D]").astype("M8[M]").view(np.int64)
        result = _start_of_month(months + 1) - 1
        fitting = result.astype(np.int32)
        return checked(fitting, a.valid, fitting != result)

    return kernel


def _read(call: Call) -> Kernel | None:
    """What CAST reads has the same meaning here, so its kernel serves; it declines other texts."""
    return cast_kernel(call.args[0].type, call.type) if len(call.args) == 1 else None


TEMPORAL: dict[str, Callable[[Call], Kernel | None]] = {
    "extract": _zoned(_extract),
    "interval_part": _interval_part,
    "date_trunc": _zoned(_date_trunc),
    "timestampdiff": _zoned(_timestampdiff),
    "seconds": _seconds(Kind.TIMESTAMP),
    "interval_seconds": _seconds(Kind.INTERVAL),
    "last_day": _last_day,
    "date_format": date_format,
    "parse_timestamp": parse_timestamp,
    "read_date": _read,
    "read_timestamp": _read,
    "from_utc_timestamp": _by_clocks(to=False),
    "to_utc_timestamp": _by_clocks(to=True),
}
