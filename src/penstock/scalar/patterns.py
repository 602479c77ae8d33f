"""Spark's datetime patterns: ``yyyy-MM-dd HH:mm``, for writing (``date_format``) and reading (``to_timestamp``).

A pattern is compiled once. Letters stand for fields, and their number says how a field is written; ``'text'`` is
literal, ``''`` a quote, and what is in ``[ ]`` may be absent from a text that is read. Names are always in English.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.scalar.calendar import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Moment,
    civil,
    day_of_year,
    days_of,
    iso_weekday,
    moment,
)
from penstock.scalar.context import RowError

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
_QUARTERS = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
_ERAS = {False: ("BC", "AD"), True: ("Before Christ", "Anno Domini")}

# Letter: how many of it there may be, and what it is.
LETTERS: dict[str, tuple[tuple[int, ...], str]] = {
    "G": ((1, 2, 3, 4), "era"),
    "y": ((1, 2, 3, 4, 5, 6), "year"),
    "Q": ((1, 2, 3, 4), "quarter"),
    "q": ((1, 2, 3, 4), "quarter"),
    "M": ((1, 2, 3, 4), "month"),
    "L": ((1, 2, 3, 4), "month"),
    "d": ((1, 2), "day of the month"),
    "D": ((1, 2, 3), "day of the year"),
    "E": ((1, 2, 3, 4), "day of the week"),
    "F": ((1,), "aligned day of the week in the month"),
    "a": ((1,), "AM or PM"),
    "h": ((1, 2), "hour 1 to 12"),
    "K": ((1, 2), "hour 0 to 11"),
    "H": ((1, 2), "hour 0 to 23"),
    "k": ((1, 2), "hour 1 to 24"),
    "m": ((1, 2), "minute"),
    "s": ((1, 2), "second"),
    "S": (tuple(range(1, 10)), "fraction of the second"),
    "V": ((2,), "time zone"),
    "z": ((1, 2, 3), "short name of the time zone"),
    "O": ((1, 4), "distance from GMT"),
    "X": ((1, 2, 3, 4, 5), "distance from UTC, Z for none"),
    "x": ((1, 2, 3, 4, 5), "distance from UTC"),
    "Z": ((1, 2, 3, 4, 5), "distance from UTC"),
}
"""Spark has one more way to write a time zone, ``zzzz``."""
ONLY_WRITTEN = frozenset("EFQqVzO")
"""What says nothing definite about a moment, and zones other than by their distance from UTC."""

# What users of other systems' patterns write, and what they mean by it.
_INSTEAD = {"Y": "yyyy", "u": "yyyy", "n": "SSS", "A": "a", "p": "a", "w": None, "W": None, "e": "E", "c": "E"}


class PatternError(Exception):
    """A text that is no pattern."""


@dataclass(frozen=True)
class Field:
    """One run of a letter."""

    letter: str
    count: int
    reserved: int = 0
    """Digits that the fields of fixed width right after this one need."""


@dataclass(frozen=True)
class Optional:
    items: tuple[Item, ...]


Item = str | Field | Optional


@dataclass(frozen=True)
class Zone:
    """The zone that a moment is shown in: its name, and then and there its short name and distance from UTC."""

    name: str = "UTC"
    short: str = "UTC"
    offset: int = 0


UTC = Zone()


@lru_cache(maxsize=512)
def pattern_of(text: str, reading: bool = False) -> tuple[Item, ...]:
    """The pattern that a text is; ``reading`` leaves out the letters that can only be written."""
    stack: list[list[Item]] = [[]]
    at = 0
    while at < len(text):
        c, end = text[at], at + 1
        if c == "'":
            end = _quoted(text, at, stack[-1])
        elif c == "[":
            stack.append([])
        elif c == "]":
            if len(stack) == 1:
                raise PatternError("`]` without `[`")
            inner = stack.pop()
            stack[-1].append(Optional(_adjacent(inner)))
        elif c in "{}#":
            raise PatternError(f"`{c}` is reserved; write '{c}' in quotes")
        elif c.isascii() and c.isalpha():
            while end < len(text) and text[end] == c:
                end += 1
            stack[-1].append(_letters(c, end - at, reading))
        else:
            _literal(stack[-1], c)
        at = end
    while len(stack) > 1:
        inner = stack.pop()
        stack[-1].append(Optional(_adjacent(inner)))
    return _adjacent(stack[0])


def _quoted(text: str, at: int, items: list[Item]) -> int:
    """The literal that begins with the quote at a place; gives where it ends. Two quotes are one in the text."""
    end = at + 1
    while (close := text.find("'", end)) >= 0:
        if text[close + 1 : close + 2] != "'":
            _literal(items, text[at + 1 : close].replace("''", "'") or "'")
            return close + 1
        end = close + 2
    raise PatternError("a quote `'` that nothing closes")


def _literal(items: list[Item], text: str) -> None:
    if items and isinstance(items[-1], str):
        items[-1] += text
    else:
        items.append(text)


def _letters(letter: str, count: int, reading: bool) -> Field:
    run = letter * count
    if letter not in LETTERS or (reading and letter in ONLY_WRITTEN):
        there = " ".join(k for k in LETTERS if not reading or k not in ONLY_WRITTEN)
        instead = _INSTEAD.get(letter)
        what = f"the letter `{letter}` can be written but not read" if letter in LETTERS else f"no letter `{letter}`"
        advice = f"write {instead}, or " if instead else ""
        raise PatternError(f"{what}; {advice}quote it if it is text: '{run}'; the letters are {there}")
    allowed = LETTERS[letter][0]
    if count not in allowed:
        counts = f"{allowed[0]}" if len(allowed) == 1 else f"{allowed[0]} to {allowed[-1]}"
        raise PatternError(f"`{run}` has {count} letters; `{letter}` ({LETTERS[letter][1]}) is written with {counts}")
    return Field(letter, count)


def _digits(item: Field) -> tuple[int, int] | None:
    """The least and the greatest number of digits of a number; None for what is no number."""
    match item.letter, item.count:
        case "y", 2:
            return 2, 2
        case "y", n:
            return n, 19
        case "D", n:
            return n, 19 if n == 1 else 3
        case ("M" | "L" | "d" | "h" | "K" | "H" | "k" | "m" | "s"), n if n <= 2:
            return n, 19 if n == 1 else 2
    return None


def _adjacent(items: list[Item]) -> tuple[Item, ...]:
    """Numbers without anything between them: the first one leaves the digits that the others need."""
    found = list(items)
    first: int | None = None
    for i, item in enumerate(items):
        width = _digits(item) if isinstance(item, Field) else None
        if width is None:
            first = None
        elif first is not None and width[0] == width[1]:
            base = found[first]
            assert isinstance(base, Field)
            found[first] = replace(base, reserved=base.reserved + width[0])
        else:
            first = i
    return tuple(found)


# Writing.


def write(ticks: int, pattern: str, zone: Zone = UTC) -> str:
    """A TIMESTAMP by a pattern, in a zone."""
    local = ticks + zone.offset
    shown = _Shown(local // DAY, moment(local), zone)
    try:
        return _written(pattern_of(pattern), shown, "G" in _fields(pattern))
    except PatternError as e:
        raise RowError(f"'{pattern}' is not a pattern: {e}") from None


@dataclass(frozen=True)
class _Shown:
    days: int
    moment: Moment
    zone: Zone


@lru_cache(maxsize=512)
def _fields(pattern: str) -> frozenset[str]:
    def letters(items: tuple[Item, ...]) -> set[str]:
        inner = (letters(i.items) for i in items if isinstance(i, Optional))
        return {i.letter for i in items if isinstance(i, Field)}.union(*inner)

    return frozenset(letters(pattern_of(pattern)))


def _written(items: tuple[Item, ...], shown: _Shown, era: bool) -> str:
    parts = []
    for item in items:
        match item:
            case str():
                parts.append(item)
            case Optional(inner):
                parts.append(_written(inner, shown, era))
            case Field("y", count):
                parts.append(_year(shown.moment.year, count, era))
            case Field(letter, count):
                parts.append(_WRITE[letter](shown, count))
    return "".join(parts)


def _year(year: int, count: int, era: bool) -> str:
    if era and year <= 0:
        year = 1 - year
    if count == 2:
        return f"{abs(year) % 100:02d}"
    sign = "-" if year < 0 else "+" if count >= 4 and year >= 10**count else ""
    return f"{sign}{abs(year):0{count}d}"


def _number(value: Callable[[_Shown], int]) -> Callable[[_Shown, int], str]:
    return lambda shown, count: f"{value(shown):0{count}d}"


def _named(names: tuple[str, ...], value: Callable[[_Shown], int]) -> Callable[[_Shown, int], str]:
    """A number, from three letters on the beginning of a name, and with four all of it."""

    def write(shown: _Shown, count: int) -> str:
        number = value(shown)
        return f"{number:0{count}d}" if count < 3 else names[number - 1][:3] if count == 3 else names[number - 1]

    return write


def _quarter(shown: _Shown, count: int) -> str:
    number = (shown.moment.month + 2) // 3
    return f"{number:0{count}d}" if count < 3 else f"Q{number}" if count == 3 else _QUARTERS[number - 1]


def _offset(letter: str) -> Callable[[_Shown, int], str]:
    """Which of minutes and seconds are written, and with what between, depends on the number of letters."""

    def write(shown: _Shown, count: int) -> str:
        offset = shown.zone.offset
        if letter == "Z":
            if count == 4:
                return _gmt(shown, 4)
            count = 2 if count < 4 else 5
        if offset == 0 and (letter == "X" or (letter == "Z" and count == 5)):
            return "Z"
        size = abs(offset)
        hours, minutes, seconds = size // HOUR, size // MINUTE % 60, size // SECOND % 60
        colon = ":" if count in (3, 5) else ""
        text = f"{'-' if offset < 0 else '+'}{hours:02d}"
        if count > 1 or minutes:
            text += f"{colon}{minutes:02d}"
        return text + (f"{colon}{seconds:02d}" if count > 3 and seconds else "")

    return write


def _gmt(shown: _Shown, count: int) -> str:
    offset = shown.zone.offset
    size = abs(offset)
    hours, minutes, seconds = size // HOUR, size // MINUTE % 60, size // SECOND % 60
    if not size:
        return "GMT"
    text = f"GMT{'-' if offset < 0 else '+'}{hours:0{2 if count == 4 else 1}d}"
    if count == 4 or minutes or seconds:
        text += f":{minutes:02d}"
    return text + (f":{seconds:02d}" if seconds else "")


_MONTH = _named(MONTHS, lambda s: s.moment.month)

_WRITE: dict[str, Callable[[_Shown, int], str]] = {
    "G": lambda s, n: _ERAS[n == 4][s.moment.year > 0],
    "Q": _quarter,
    "q": _quarter,
    "M": _MONTH,
    "L": _MONTH,
    "d": _number(lambda s: s.moment.day),
    "D": _number(lambda s: day_of_year(s.days)),
    "E": lambda s, n: DAYS[iso_weekday(s.days) - 1][: None if n == 4 else 3],
    "F": _number(lambda s: (s.moment.day - 1) % 7 + 1),
    "a": lambda s, n: "AM" if s.moment.hour < 12 else "PM",
    "h": _number(lambda s: (s.moment.hour + 11) % 12 + 1),
    "K": _number(lambda s: s.moment.hour % 12),
    "H": _number(lambda s: s.moment.hour),
    "k": _number(lambda s: (s.moment.hour + 23) % 24 + 1),
    "m": _number(lambda s: s.moment.minute),
    "s": _number(lambda s: s.moment.second),
    "S": lambda s, n: f"{s.moment.microsecond:06d}000"[:n],
    "V": lambda s, n: s.zone.name,
    "z": lambda s, n: s.zone.short,
    "O": _gmt,
    "X": _offset("X"),
    "x": _offset("x"),
    "Z": _offset("Z"),
}


# Reading.


@dataclass
class _Read:
    """The fields that a text has named so far."""

    text: str
    fields: dict[str, int] = field(default_factory=dict)

    def put(self, letter: str, value: int) -> bool:
        """False where the text says two things of one field."""
        return self.fields.setdefault("M" if letter == "L" else letter, value) == value


def read(text: str, pattern: str) -> tuple[int, int | None]:
    """The date and time that a text names by a pattern, in ticks, and its distance from UTC if it names that too."""
    try:
        items = pattern_of(pattern, reading=True)
    except PatternError as e:
        raise RowError(f"'{pattern}' is not a pattern: {e}") from None
    found = _Read(text)
    if _take(items, found, 0) != len(text):
        raise _bad(text, pattern)
    days, time = _days(found.fields), _time(found.fields)
    if days is None or time is None:
        raise _bad(text, pattern)
    return days * DAY + time, found.fields.get("X")


def _bad(text: str, pattern: str) -> RowError:
    return RowError(f"'{text[:40]}' does not have the form '{pattern}'")


def _take(items: tuple[Item, ...], found: _Read, at: int) -> int | None:
    """Where the text goes on after the items; None where they are not there."""
    place: int | None = at
    for item in items:
        assert place is not None
        match item:
            case str():
                end = place + len(item)
                place = end if found.text[place:end].lower() == item.lower() else None
            case Optional(inner):
                before = dict(found.fields)
                after = _take(inner, found, place)
                if after is None:
                    found.fields = before
                else:
                    place = after
            case Field():
                place = _field(item, found, place)
        if place is None:
            return None
    return place


def _field(item: Field, found: _Read, at: int) -> int | None:
    width = _digits(item)
    if width is not None:
        return _whole(item, width, found, at)
    match item.letter:
        case "M" | "L":
            names = tuple(n[:3] for n in MONTHS) if item.count == 3 else MONTHS
            return _one_of(names, "M", 1, found, at)
        case "a":
            return _one_of(("AM", "PM"), "a", 0, found, at)
        case "G":
            return _one_of(_ERAS[item.count == 4], "G", 0, found, at)
        case "S":
            end = at
            while end < min(len(found.text), at + item.count) and found.text[end] in "0123456789":
                end += 1
            value = int(found.text[at:end].ljust(9, "0")) // 1000 if end > at else 0
            return end if end > at and found.put("S", value) else None
    return _zone(item, found, at)


def _one_of(names: tuple[str, ...], letter: str, first: int, found: _Read, at: int) -> int | None:
    lower = found.text[at:].lower()
    for i, name in sorted(enumerate(names, first), key=lambda pair: -len(pair[1])):
        if lower.startswith(name.lower()):
            return at + len(name) if found.put(letter, i) else None
    return None


def _whole(item: Field, width: tuple[int, int], found: _Read, at: int) -> int | None:
    """A number; the sign is for years, and a year of more digits than letters needs one."""
    text, (least, most) = found.text, width
    sign = text[at : at + 1]
    exceeds = item.letter == "y" and item.count >= 4
    signed = (sign == "-" and least != most) or (sign == "+" and exceeds)
    start = end = at + signed
    while end < min(len(text), start + most + item.reserved) and text[end] in "0123456789":
        end += 1
    if item.reserved:
        end = min(end, start + max(least, end - start - item.reserved))
    if end - start < least or (exceeds and not signed and end - start > least):
        return None
    if sign == "+" and signed and end - start <= least:
        return None
    value = int(text[start:end])
    if signed and sign == "-":
        if not value:
            return None
        value = -value
    if item.letter == "y" and item.count == 2:
        value += 2000
    return end if found.put(item.letter, value) else None


def _zone(item: Field, found: _Read, at: int) -> int | None:
    """A distance from UTC. It is kept as ``X``, whatever the letter."""
    text, count = found.text, item.count
    if item.letter == "Z":
        if count == 4:
            if text[at : at + 3].upper() != "GMT":
                return None
            if text[at + 3 : at + 4] not in ("+", "-"):
                return at + 3 if found.put("X", 0) else None
            at, count = at + 3, 3
        else:
            count = 2 if count < 4 else 5
    if text[at : at + 1] in ("Z", "z") and (item.letter == "X" or item.count == 5):
        return at + 1 if item.letter != "x" and found.put("X", 0) else None
    sign = text[at : at + 1]
    if sign not in ("+", "-"):
        return None
    colon = count in (3, 5)
    parts, end = [], at + 1
    for i in range(3 if count > 3 else 2):
        start = end + (colon and i > 0)
        if (colon and i > 0 and text[end : end + 1] != ":") or not _two(text, start):
            if i == 0 or (i == 1 and count > 1):
                return None
            break
        parts.append(int(text[start : start + 2]))
        end = start + 2
    hours, minutes, seconds = [*parts, 0, 0][:3]
    offset = hours * HOUR + minutes * MINUTE + seconds * SECOND
    if minutes > 59 or seconds > 59 or offset > 18 * HOUR:
        return None
    return end if found.put("X", -offset if sign == "-" else offset) else None


def _two(text: str, at: int) -> bool:
    return len(text) >= at + 2 and all(c in "0123456789" for c in text[at : at + 2])


def _days(fields: dict[str, int]) -> int | None:
    """The day of the fields; a year that is not named is 1970, a month or day the first."""
    year = fields.get("y", 1970)
    if "G" in fields and "y" in fields:
        if year < 1:
            return None
        year = year if fields["G"] else 1 - year
    if abs(year) > 999_999_999:
        return None
    try:
        if "D" in fields:
            days = days_of(year, 1, 1) + fields["D"] - 1
            inside = fields["D"] >= 1 and civil(days)[0] == year
            said = [(1, fields.get("M")), (2, fields.get("d"))]
            return days if inside and all(v is None or civil(days)[i] == v for i, v in said) else None
        return days_of(year, fields.get("M", 1), fields.get("d", 1))
    except RowError:
        return None


def _time(fields: dict[str, int]) -> int | None:
    """The time of day; what is not named is 0."""
    ranges = {"H": (0, 23), "k": (1, 24), "h": (1, 12), "K": (0, 11), "m": (0, 59), "s": (0, 59)}
    if any(not low <= fields.get(letter, low) <= high for letter, (low, high) in ranges.items()):
        return None
    half = fields.get("a")
    hours = []
    if "H" in fields:
        hours.append(fields["H"])
    if "k" in fields:
        hours.append(fields["k"] % 24)
    halves = [v for v in (fields.get("K"), fields["h"] % 12 if "h" in fields else None) if v is not None]
    if half is not None:
        hours += [half * 12 + v for v in halves]
    elif not hours:
        hours += halves
    if any(h != hours[0] for h in hours) or any(hours[0] % 12 != v for v in halves):
        return None
    if half is not None and hours and hours[0] // 12 != half:
        return None
    hour = hours[0] if hours else 12 * (half or 0)
    return hour * HOUR + fields.get("m", 0) * MINUTE + fields.get("s", 0) * SECOND + fields.get("S", 0)
