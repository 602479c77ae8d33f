"""``date_format`` and ``to_timestamp`` by patterns whose fields have a fixed width: bytes in columns, no text per row.

``yyyy-MM-dd HH:mm:ss.SSS`` is such a pattern. Other patterns are left to the row-wise meaning, and so are the rows
whose text or year does not have the width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.vectors import Bools, Data, Fixed, Partial, repaired, validity
from penstock.kernels.zones import zone_of
from penstock.model.types import Kind
from penstock.scalar.calendar import DAY, HOUR, MINUTE, SECOND
from penstock.scalar.expr import Call, Literal
from penstock.scalar.patterns import DAYS, MONTHS, Field, Item, pattern_of

Kernel = Callable[..., Any]

_FIRST_YEAR = -62_167_219_200_000_000
"""The beginning of year 0; up to year 9999 a year has four digits."""
_AFTER_YEARS = 253_402_300_800_000_000


def _months(days: Data) -> Data:
    return days.view("M8[D]").astype("M8[M]").view(np.int64)


def _start_of_month(months: Data) -> Data:
    return months.view("M8[M]").astype("M8[D]").view(np.int64)


class _Moments:
    """Moments taken apart, each part computed once."""

    def __init__(self, ticks: Data) -> None:
        self.length = len(ticks)
        self.days, self.time = np.divmod(ticks, DAY)

    @cached_property
    def months(self) -> Data:
        return _months(self.days)

    @cached_property
    def day(self) -> Data:
        return self.days - _start_of_month(self.months) + 1

    @cached_property
    def hour(self) -> Data:
        return self.time // HOUR


# Letters and their number: the digits, and the number they show.
_NUMBERS: dict[tuple[str, int], tuple[int, Callable[[_Moments], Data]]] = {
    ("y", 4): (4, lambda m: m.months // 12 + 1970),
    ("M", 2): (2, lambda m: m.months % 12 + 1),
    ("L", 2): (2, lambda m: m.months % 12 + 1),
    ("d", 2): (2, lambda m: m.day),
    ("D", 3): (3, lambda m: m.days - _start_of_month(m.months // 12 * 12) + 1),
    ("H", 2): (2, lambda m: m.hour),
    ("h", 2): (2, lambda m: (m.hour + 11) % 12 + 1),
    ("m", 2): (2, lambda m: m.time % HOUR // MINUTE),
    ("s", 2): (2, lambda m: m.time % MINUTE // SECOND),
    **{("S", n): (n, lambda m, n=n: m.time % SECOND // 10 ** (6 - n)) for n in range(1, 7)},  # type: ignore[misc]
}
# Letters and their number: the texts, all of one width, and which of them it is.
_TEXTS: dict[tuple[str, int], tuple[tuple[str, ...], Callable[[_Moments], Data]]] = {
    ("a", 1): (("AM", "PM"), lambda m: m.hour // 12),
    **{("E", n): (tuple(d[:3] for d in DAYS), lambda m: (m.days + 3) % 7) for n in (1, 2, 3)},
    **{(m, 3): (tuple(n[:3] for n in MONTHS), lambda m: m.months % 12) for m in "ML"},
}


def _bytes(text: str) -> Data:
    return np.frombuffer(text.encode(), np.uint8)


def _constant(call: Call, position: int, reading: bool) -> tuple[Item, ...] | None:
    pattern = call.args[position]
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        return None
    return pattern_of(pattern.value, reading)


def date_format(call: Call) -> Kernel | None:
    """Bytes of all rows in a table, column by column."""
    items = _constant(call, 1, reading=False)
    if items is None or call.args[0].type.kind is not Kind.TIMESTAMP or zone_of(call, 2) is None:
        return None
    columns: list[Callable[[_Moments], Data]] = []
    for item in items:
        match item:
            case str():
                columns.append(_literal(_bytes(item)))
            case Field(letter, count) if (letter, count) in _NUMBERS:
                columns.append(_digits(*_NUMBERS[letter, count]))
            case Field(letter, count) if (letter, count) in _TEXTS:
                columns.append(_chosen(*_TEXTS[letter, count]))
            case _:
                return None

    zone = zone_of(call, 2)

    def kernel(a: Fixed, *_: Any) -> pa.Array | None:
        ticks, valid = np.atleast_1d(a.data), a.valid
        beyond = (ticks < _FIRST_YEAR + DAY) | (ticks >= _AFTER_YEARS - DAY)
        if zone:
            ticks, far = zone.local(ticks)
            beyond |= far
        if beyond.any():
            if valid is None or (beyond & valid).any():
                return None
            ticks = np.where(beyond, 0, ticks)
        moments = _Moments(ticks)
        return _strings([c(moments) for c in columns], len(ticks), valid)

    return kernel


def _literal(content: Data) -> Callable[[_Moments], Data]:
    return lambda moments: np.broadcast_to(content, (moments.length, len(content)))


@cache
def _written(width: int) -> Data:
    """All numbers of so many digits, written."""
    powers = 10 ** np.arange(width - 1, -1, -1)
    return (np.arange(10**width)[:, None] // powers % 10 + 48).astype(np.uint8)


def _digits(width: int, number: Callable[[_Moments], Data]) -> Callable[[_Moments], Data]:
    if width <= 4:
        return lambda moments: _written(width)[number(moments)]

    def in_two(moments: _Moments) -> Data:
        high, low = np.divmod(number(moments), 1000)
        return np.concatenate([_written(width - 3)[high], _written(3)[low]], axis=1)

    return in_two


def _chosen(texts: Sequence[str], which: Callable[[_Moments], Data]) -> Callable[[_Moments], Data]:
    table = np.stack([_bytes(t) for t in texts])
    return lambda moments: table[which(moments)]


def _strings(columns: Sequence[Data], length: int, valid: Bools | None) -> pa.Array | None:
    table = np.concatenate(columns, axis=1) if columns else np.zeros((length, 0), np.uint8)
    if table.size > 2**31 - 1:
        return None
    offsets = np.arange(length + 1, dtype=np.int32) * np.int32(table.shape[1])
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(table))]
    return pa.Array.from_buffers(pa.string(), length, buffers)


def parse_timestamp(call: Call) -> Kernel | None:
    """Texts of exactly the width of the pattern, digit by digit; what is not as it should be is suspect."""
    items = _constant(call, 1, reading=True)
    if items is None or call.args[0].type.kind is not Kind.STRING or zone_of(call, 2) is None:
        return None
    zone = zone_of(call, 2)
    fields: dict[str, tuple[int, int]] = {}
    literals: list[tuple[int, Data]] = []
    width = 0
    for before, item in zip((None, *items), items, strict=False):
        match item:
            case str():
                literals.append((width, _bytes(item)))
                width += len(literals[-1][1])
            case Field(letter, count) if (letter, count) in _NUMBERS and letter in "yMdHmsS" and letter not in fields:
                if letter == "S" and isinstance(before, Field):
                    return None
                fields[letter] = width, _NUMBERS[letter, count][0]
                width += fields[letter][1]
            case _:
                return None
    if not fields:
        return None

    def kernel(a: pa.Array, *_: Any) -> Fixed | Partial | None:
        if not isinstance(a, pa.Array):
            return None
        table, suspect = _table(a, width)
        if table is None:
            return None
        for at, content in literals:
            for place, byte in enumerate(content, at):
                suspect |= table[:, place] != byte
        found: dict[str, Data] = {}
        for letter, (at, count) in fields.items():
            number = np.zeros(len(table), np.int64)
            for place in range(at, at + count):
                digit = table[:, place] - np.uint8(48)
                suspect |= digit > 9
                number = number * 10 + digit
            found[letter] = number
        ticks = _ticks(found, fields, suspect)
        if zone:
            ticks, far = zone.instant(ticks)
            suspect |= far
        return repaired(ticks, validity(a), suspect)

    return kernel


def _table(texts: pa.Array, width: int) -> tuple[Data | None, Bools]:
    """The bytes of all texts that have the width, in a table; the others are suspect, and there stands anything."""
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    good = ends[1:] - ends[:-1] == width
    if not good.any():
        return None, ~good
    if good.all():
        return np.frombuffer(content, np.uint8, int(ends[-1] - ends[0]), int(ends[0])).reshape(-1, width), ~good
    starts = np.where(good, ends[:-1], ends[:-1][good][0])
    return np.frombuffer(content, np.uint8)[starts[:, None] + np.arange(width)], ~good


def _ticks(found: dict[str, Data], fields: dict[str, tuple[int, int]], suspect: Bools) -> Data:
    """The moments; adds to the suspects what is no date or no time of day."""
    one = np.int64(1)
    year, month, day = found.get("y", np.int64(1970)), found.get("M", one), found.get("d", one)
    suspect |= (month < 1) | (month > 12) | (day < 1) | (day > 31)
    months = np.asarray((year - 1970) * 12 + np.clip(month, 1, 12) - 1 + np.zeros(len(suspect), np.int64))
    days = _start_of_month(months) + day - 1
    suspect |= _months(days) != months
    hour, minute, second = (found.get(k, np.int64(0)) for k in "Hms")
    suspect |= (hour > 23) | (minute > 59) | (second > 59)
    fraction = found["S"] * 10 ** (6 - fields["S"][1]) if "S" in found else np.int64(0)
    ticks: Data = days * DAY + hour * HOUR + minute * MINUTE + second * SECOND + fraction
    return ticks
