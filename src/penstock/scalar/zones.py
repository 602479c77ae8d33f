"""Time zones: what a clock shows at an instant, and at which instant a clock shows something.

A TIMESTAMP is an instant, microseconds since 1970 in UTC, and has no zone. What a clock shows in a zone is counted in
microseconds too, as if that clock were in UTC: so its parts are found as those of any TIMESTAMP.

Where clocks are put forward there is a gap, where they are put back some times of day are there twice. A time in a gap
is as much later as the gap is long; of a time that is there twice the earlier one is meant, unless ``near`` says which
offset it has come from. (Java and Spark have the same rules.)

The zones are those of the tz database, as ``zoneinfo`` has them, and offsets such as ``+02:00``. Before their first
entry they have the mean time of the place; after their last one, its rule goes on for ever.
"""

from __future__ import annotations

import re
from datetime import UTC as _UTC
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from penstock.model.errors import PenstockError, typo
from penstock.scalar.calendar import DAY, HOUR, MINUTE, SECOND
from penstock.scalar.context import RowError

UTC = "UTC"
_SAME = frozenset({
    "UTC", "UT", "GMT", "Z", "UCT", "ZULU", "UNIVERSAL", "GREENWICH", "GMT0", "GMT+0", "GMT-0",
    "ETC/UTC", "ETC/GMT", "ETC/UCT", "ETC/ZULU", "ETC/UNIVERSAL", "ETC/GREENWICH",
})  # fmt: skip
"""Other names of UTC."""
_OFFSET = re.compile(r"(UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-5][0-9])(?::?([0-5][0-9]))?)?", re.IGNORECASE)
_NO_PLACES = ("right/", "posix/", "localtime", "posixrules", "Factory")
"""Files of the tz database that are no zones, or another one on another machine."""

_EPOCH = datetime(1970, 1, 1)
_CYCLE = 146_097 * DAY // SECOND
_EARLY = (datetime(2, 1, 1) - _EPOCH) // timedelta(seconds=1)
_LATE = (datetime(9500, 1, 1) - _EPOCH) // timedelta(seconds=1)


def zone_name(text: str) -> str:
    """The name of a zone as plans have it: ``UTC``, ``Europe/Vienna`` or ``+02:00``; RowError if there is none."""
    text = text.strip()
    if text.upper() in _SAME:
        return UTC
    if found := _OFFSET.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[2:])
        if hours > 23:
            raise RowError(f"there is no time zone {text}")
        if not hours and not minutes and not seconds:
            return UTC
        return f"{found[2]}{hours:02d}:{minutes:02d}" + (f":{seconds:02d}" if seconds else "")
    try:
        if text.startswith(_NO_PLACES):
            raise ValueError
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise RowError(f"there is no time zone {text}") from None
    return text


def checked(text: object, error: type[PenstockError]) -> str:
    """The name of a zone that somebody has given; the error says what would be one."""
    if not isinstance(text, str):
        raise error(f"{text!r} is not a time zone", hint="give its name, such as 'Europe/Vienna', or '+02:00'")
    try:
        return zone_name(text)
    except RowError:
        known = {name.lower(): name for name in available_timezones() if not name.startswith(_NO_PLACES)}
        # The name of a city is enough to know what is meant.
        places = {name.rpartition("/")[2]: key for key, name in known.items()}
        key = text.strip().lower().replace(" ", "_")
        close = known.get(key) or known.get(places.get(key.title(), ""))
        region, _, city = key.rpartition("/")
        if close is None and (slip := typo(city, [k.rpartition("/")[2] for k in known if k.startswith(f"{region}/")])):
            close = known.get(f"{region}/{slip}")
        hint = "names are those of the tz database, such as Europe/Vienna; or an offset, such as +02:00"
        raise error(f"there is no time zone `{text}`", hint=f"did you mean `{close}`?" if close else hint) from None


@lru_cache(maxsize=1024)
def zone_info(name: str) -> tzinfo:
    """The zone of a name, for Python's datetimes; RowError if there is none."""
    name = zone_name(name)
    if name == UTC:
        return _UTC
    if found := _OFFSET.fullmatch(name):
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[2:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(offset if found[2] == "+" else -offset)
    return ZoneInfo(name)


def _within(ticks: int) -> datetime:
    """A time of day that is the same in all years with the same rules, in a year that Python has dates for."""
    seconds = max(ticks // SECOND, _EARLY)
    if seconds > _LATE:
        seconds -= -((_LATE - seconds) // _CYCLE) * _CYCLE
    return _EPOCH + timedelta(seconds=seconds)


def _ticks(offset: timedelta | None) -> int:
    assert offset is not None
    return (offset.days * 86_400 + offset.seconds) * SECOND


def offset_at(ticks: int, zone: str) -> int:
    """By how much clocks of the zone are ahead of UTC at an instant."""
    if zone == UTC:
        return 0
    return _ticks(_within(ticks).replace(tzinfo=_UTC).astimezone(zone_info(zone)).utcoffset())


def short_name(ticks: int, zone: str) -> str:
    """What clocks of the zone are called at an instant: ``CET``, ``CEST``."""
    return UTC if zone == UTC else _within(ticks).replace(tzinfo=_UTC).astimezone(zone_info(zone)).tzname() or zone


def local(ticks: int, zone: str) -> int:
    """What a clock of the zone shows at an instant."""
    return ticks + offset_at(ticks, zone)


def instant(shown: int, zone: str, near: int | None = None) -> int:
    """The instant at which a clock of the zone shows this. ``near``: the offset that is taken if it is possible."""
    if zone == UTC:
        return shown
    if near is not None and offset_at(shown - near, zone) == near:
        return shown - near
    # Python's fold=0: in a gap the offset before it, of a time that is there twice the first.
    return shown - _ticks(_within(shown).replace(tzinfo=zone_info(zone)).utcoffset())


def offset_text(offset: int) -> str:
    """``+02:00``; UTC is ``Z``."""
    if not offset:
        return "Z"
    size = abs(offset)
    text = f"{'-' if offset < 0 else '+'}{size // HOUR:02d}:{size // MINUTE % 60:02d}"
    return text + (f":{size // SECOND % 60:02d}" if size % MINUTE else "")
