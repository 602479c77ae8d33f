"""From what files hold to values of the declared types.

Every conversion is tried on a whole column first. Only where that fails is it done value by value, by
``parse_text`` and ``parse_json``, which accept everything the fast way accepts (with the same value) and
name the first value that is wrong.

Text forms: numbers as usual, blanks around them ignored; BOOLEAN true, false, 1, 0; TIMESTAMP and DATE in
ISO 8601, perhaps with a zone behind it, and digits beyond the microsecond are dropped; INTERVAL
``1 hour 30 minutes``, ``[-][days] hh:mm:ss``, or a whole number of microseconds; BINARY the text in UTF-8,
or hexadecimal after ``0x``; ARRAY in JSON. An empty text is NULL, except as a quoted STRING or BINARY.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.zones import instants_in
from penstock.model.durations import parse_duration
from penstock.model.errors import BindError
from penstock.model.types import DataType, Kind, from_arrow
from penstock.scalar.casts import parse_timestamp
from penstock.scalar.context import RowError
from penstock.scalar.zones import UTC

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d(\D.*)?")
_HOUR_ALONE = re.compile(r"^(.{10}[T ]\d\d)(?![\d:])", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_CLOCK = re.compile(r"([+-])?(?:(\d+) (?:days? )?)?(\d+):([0-5]?\d)(?::([0-5]?\d)(?:\.(\d{1,6}))?)?")
_HINTS = {
    Kind.BOOLEAN: "write true or false",
    Kind.DATE: "write it as 2024-05-31",
    Kind.TIMESTAMP: "write ISO 8601, such as 2024-05-31T12:00:00Z",
    Kind.INTERVAL: "write it as 90 seconds, 00:01:30, or in microseconds",
}
_WITH_POINT = (Kind.REAL, Kind.DOUBLE, Kind.DECIMAL)
_COMMA = re.compile(r"[+-]?\d+,\d+")
_INT_RANGE = {Kind.INT: 2**31, Kind.BIGINT: 2**63, Kind.TIMESTAMP: 2**63, Kind.INTERVAL: 2**63}


_EPOCHS = ((10**9, 10**10, "seconds"), (10**12, 10**13, "milliseconds"), (10**18, 10**19, "nanoseconds"))
"""Where numbers lie that count from 1970 to our days."""


def epoch_unit(number: int) -> str | None:
    """The unit in which a number would be a time of our days, counted from 1970; None for microseconds and others."""
    return next((unit for low, high, unit in _EPOCHS if low <= number < high), None)


def said(value: object, longest: int = 200) -> str:
    """A value in a message, not too long. Its ``__repr__`` may be the user's, and fail."""
    try:
        shown = repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return shown if len(shown) <= longest else shown[: longest - 3] + "…'"


def python_value(value: pa.Scalar) -> object:
    """A value of Arrow for a message: Python has no times after 9999, and no texts that are not UTF-8."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        return bytes(error.object).decode("utf-8", "replace")
    except (ValueError, OverflowError):
        stored, unit = (pa.int32(), "days") if value.type == pa.date32() else (pa.int64(), None)
        return f"{value.cast(stored).as_py()} {unit or getattr(value.type, 'unit', 'ms')} since 1970"


class BadValue(Exception):
    """A value that the declared type does not take: its row in the column, and what to say about it.

    ``option``: what an option of a stream can do about it. ``unit``: what it seems to count, since 1970.
    """

    def __init__(
        self, index: int, value: object, dtype: DataType, reason: str | None = None, *, option: str | None = None,
        unit: str | None = None,
    ) -> None:  # fmt: skip
        article = "an" if dtype.kind in (Kind.INT, Kind.INTERVAL, Kind.ARRAY) else "a"
        shown = "NULL" if value is None else said(value, 60)
        super().__init__(f"{shown} {reason or f'is not {article} {dtype}'}")
        self.index = index
        self.hint = None if reason else _HINTS.get(dtype.kind)
        self.option, self.unit = option, unit
        if reason is None and dtype.kind is Kind.TIMESTAMP:
            self.option = "other forms are declared with the stream: WITH (time = '%d.%m.%Y %H:%M')"
        if reason is None and dtype.kind in _WITH_POINT and isinstance(value, str) and _COMMA.fullmatch(value.strip()):
            self.hint = f"write the decimal point as a point: {value.strip().replace(',', '.')}"
        if reason is None and dtype.is_integer and _has_fraction(value):
            self.hint = "round it first, or declare the column as DOUBLE"
        number = reason is None and isinstance(value, str) and len(value) < 40 and _INTEGER.fullmatch(value.strip())
        if number and dtype.kind is Kind.TIMESTAMP:
            self.hint, self.unit = None, epoch_unit(int(number[0])) or "microseconds"
            self.option = f"if it counts {self.unit} since 1970, declare the stream so: WITH (time = '{self.unit}')"

    @property
    def hints(self) -> str | None:
        """All that can be done about it."""
        return "; ".join(filter(None, (self.hint, self.option))) or None


def is_whole(value: float | Decimal) -> bool:
    """Whether a number has no fraction."""
    number = Decimal(value)
    return number.is_finite() and number == number.to_integral_value()


def _has_fraction(value: object) -> bool:
    try:
        return isinstance(value, str | float | Decimal) and math.isfinite(float(value)) and not is_whole(Decimal(value))
    except (ArithmeticError, ValueError):
        return False


class _Unfit(ValueError):
    """The value is of the type, but the type cannot hold it."""


def parse_text(text: str, dtype: DataType, zone: str = UTC) -> Any:
    """One value from its text, in a form that ``pa.array`` takes for the type, or ValueError.

    ``zone``: of a time that names none.
    """
    if text == "" and dtype.kind not in (Kind.STRING, Kind.BINARY):
        return None
    if dtype.kind is Kind.TIMESTAMP:
        return _timestamp(text.strip(), zone)
    return _PARSERS[dtype.kind](text, dtype)


def is_value(text: str, dtype: DataType) -> bool:
    """Whether the text is a value of the type."""
    try:
        parse_text(text, dtype)
    except (ValueError, KeyError, OverflowError):
        return False
    return True


def _string(text: str, dtype: DataType) -> str:
    return text


def _boolean(text: str, dtype: DataType) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()]


def _whole(value: int, dtype: DataType) -> int:
    limit = _INT_RANGE[dtype.kind]
    if not -limit <= value < limit:
        raise _Unfit(f"is out of the range of {dtype}")
    return value


def _integer(text: str, dtype: DataType) -> int:
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError
    return _whole(int(text), dtype)


def _float(text: str, dtype: DataType) -> float:
    if "_" in text:
        raise ValueError
    return float(text)


def _decimal(text: str, dtype: DataType) -> Decimal:
    if "_" in text:
        raise ValueError
    try:
        return _fitting(Decimal(text.strip()), dtype)
    except InvalidOperation:
        raise ValueError from None


def _fitting(value: Decimal, dtype: DataType) -> Decimal:
    precision, scale = dtype.precision or 38, dtype.scale or 0
    if not value.is_finite():
        raise ValueError
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)))
    shift = exponent + scale
    if number and (shift > 38 or (shift < 0 and number % 10 ** min(-shift, len(digits) + 1))):
        raise _Unfit(f"does not fit {dtype}")
    unscaled = (number * 10**shift if shift >= 0 else number // 10**-shift) if number else 0
    if unscaled >= 10**precision:
        raise _Unfit(f"does not fit {dtype}")
    return Decimal((sign, tuple(map(int, str(unscaled))), -scale))


def _binary(text: str, dtype: DataType) -> bytes:
    if text[:2] in ("0x", "0X"):
        return bytes.fromhex(text[2:])
    return text.encode()


def _date(text: str, dtype: DataType) -> date:
    if not _DATE.fullmatch(text.strip()):
        raise ValueError
    return date.fromisoformat(text.strip())


def _timestamp(text: str, zone: str) -> int:
    if not _TIMESTAMP.fullmatch(text) or text.startswith("0000"):
        raise ValueError
    try:
        return parse_timestamp(_HOUR_ALONE.sub(r"\1:00", text), zone)
    except RowError:
        raise ValueError from None


def _interval(text: str, dtype: DataType) -> int:
    text = text.strip().lower()
    if _INTEGER.fullmatch(text):
        return _whole(int(text), dtype)
    if clock := _CLOCK.fullmatch(text):
        sign, days, hours, minutes, seconds, fraction = clock.groups()
        total = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds or 0)
        ticks = total * 1_000_000 + int((fraction or "").ljust(6, "0"))
        return _whole(-ticks if sign == "-" else ticks, dtype)
    try:
        return _whole(parse_duration(text), dtype)
    except BindError:
        raise ValueError from None


def _array(text: str, dtype: DataType) -> list[Any]:
    found = parse_json(json.loads(text), dtype)
    assert isinstance(found, list)
    return found


_PARSERS: dict[Kind, Callable[[str, DataType], Any]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer,
    Kind.BIGINT: _integer,
    Kind.REAL: _float,
    Kind.DOUBLE: _float,
    Kind.DECIMAL: _decimal,
    Kind.STRING: _string,
    Kind.BINARY: _binary,
    Kind.DATE: _date,
    Kind.INTERVAL: _interval,
    Kind.ARRAY: _array,
}


def parse_json(value: Any, dtype: DataType, zone: str = UTC) -> Any:
    """One value from what JSON says: numbers for numbers and for ticks, otherwise its text as in CSV."""
    kind = dtype.kind
    if value is None:
        return None
    if kind is Kind.ARRAY and isinstance(value, list):
        assert dtype.element is not None
        return [parse_json(item, dtype.element, zone) for item in value]
    if isinstance(value, str):
        value.encode()  # JSON can spell half a surrogate pair, Arrow cannot hold it
        return parse_text(value, dtype, zone)
    if isinstance(value, bool):
        if kind is not Kind.BOOLEAN:
            raise ValueError
        return value
    if isinstance(value, int | float | Decimal):
        if kind in (Kind.REAL, Kind.DOUBLE):
            return float(value)
        if kind is Kind.DECIMAL:
            return _fitting(Decimal(repr(value)) if isinstance(value, float) else Decimal(value), dtype)
        if kind in _INT_RANGE and math.isfinite(value) and value == int(value):
            return _whole(int(value), dtype)
    raise ValueError


def _one_by_one(
    values: Sequence[Any], dtype: DataType, parse: Callable[[Any, DataType], Any]
) -> pa.Array:
    parsed = []
    for index, value in enumerate(values):
        try:
            parsed.append(None if value is None else parse(value, dtype))
        except _Unfit as unfit:
            raise BadValue(index, value, dtype, str(unfit)) from None
        except (ValueError, KeyError, OverflowError):
            raise BadValue(index, value, dtype) from None
    return pa.array(parsed, dtype.arrow)


def convert_text(column: pa.Array, dtype: DataType, zone: str = UTC) -> pa.Array:
    """A column of strings as the type; BadValue names the first that is none. ``zone``: of times that name none."""
    kind = dtype.kind
    if kind is Kind.STRING:
        return column
    if kind not in (Kind.BINARY, Kind.INTERVAL, Kind.ARRAY):
        # Arrow reads 0x1F as a number; CQL does not.
        hexadecimal = dtype.is_integer and pc.any(pc.match_substring(column, "x", ignore_case=True)).as_py()
        if not hexadecimal:
            try:
                converted = column.cast(dtype.arrow)
                return instants_in(converted, zone) if kind is Kind.TIMESTAMP else converted
            except pa.ArrowInvalid:
                pass
        if kind is Kind.TIMESTAMP:
            try:
                return column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).cast(dtype.arrow)
            except pa.ArrowInvalid:
                pass
    return _one_by_one(column.to_pylist(), dtype, partial(parse_text, zone=zone))


# Python types that pa.array takes for a kind without changing a value on the way.
_EXACT: dict[Kind, frozenset[type]] = {
    Kind.BOOLEAN: frozenset({bool}),
    Kind.INT: frozenset({int}),
    Kind.BIGINT: frozenset({int}),
    Kind.REAL: frozenset({float}),
    Kind.DOUBLE: frozenset({int, float}),
    Kind.STRING: frozenset({str}),
    Kind.TIMESTAMP: frozenset({int}),
    Kind.INTERVAL: frozenset({int}),
}


def convert_json(values: list[Any], dtype: DataType, zone: str = UTC) -> pa.Array:
    """What JSON holds for a column, as the type; BadValue names the first that is none."""
    present = set(map(type, values)) - {type(None)}
    if present <= _EXACT.get(dtype.kind, frozenset()):
        try:
            return pa.array(values, dtype.arrow)
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass
    elif present == {str}:
        try:
            return convert_text(pa.array(values, pa.string()), dtype, zone)
        except UnicodeEncodeError:
            pass
    return _one_by_one(values, dtype, partial(parse_json, zone=zone))


_FROM_KINDS: dict[Kind, tuple[Kind, ...]] = {
    Kind.BOOLEAN: (Kind.BOOLEAN,),
    Kind.INT: (Kind.INT, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.DECIMAL),
    Kind.BIGINT: (Kind.INT, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.DECIMAL, Kind.TIMESTAMP, Kind.INTERVAL),
    Kind.REAL: (Kind.INT, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.DECIMAL),
    Kind.DOUBLE: (Kind.INT, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.DECIMAL),
    Kind.DECIMAL: (Kind.INT, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.DECIMAL),
    Kind.STRING: (Kind.STRING,),
    Kind.BINARY: (Kind.BINARY,),
    Kind.DATE: (Kind.DATE,),
    Kind.TIMESTAMP: (Kind.TIMESTAMP, Kind.DATE, Kind.BIGINT, Kind.INT),
    Kind.INTERVAL: (Kind.INTERVAL, Kind.BIGINT, Kind.INT),
    Kind.ARRAY: (Kind.ARRAY,),
}


def convertible(source: pa.DataType, dtype: DataType) -> bool:
    """Whether a column of an Arrow type can be read as the declared type at all."""
    found = from_arrow(source)
    if found is None:
        return False
    return found.kind in (Kind.NULL, Kind.STRING) or found.kind in _FROM_KINDS[dtype.kind]


def convert_arrow(column: pa.Array, dtype: DataType, zone: str = UTC) -> pa.Array:
    """A typed column as the declared type, where ``convertible``; BadValue names what does not fit."""
    target = dtype.arrow
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == target:
        return column
    found = from_arrow(column.type)
    assert found is not None
    if found.kind is Kind.NULL:
        return pa.nulls(len(column), target)
    if found.kind is Kind.STRING:
        return convert_text(column.cast(pa.string()), dtype, zone)
    try:
        if found.kind is Kind.TIMESTAMP:
            # Finer than a microsecond is dropped; the zone only says how to print what is UTC already.
            column = column.cast(pa.timestamp(column.type.unit))
            if column.type.unit == "ns":
                column = pc.floor_temporal(column, unit="microsecond")
            column = column.cast(pa.timestamp("us"))
        elif found.kind is Kind.INTERVAL:
            column = column.cast(pa.duration("us"), safe=False)
        elif found.is_integer and dtype.kind in (Kind.TIMESTAMP, Kind.INTERVAL):
            column = column.cast(pa.int64())
        return column.cast(target, safe=not dtype.is_float)
    except pa.ArrowInvalid:
        if found.kind is Kind.TIMESTAMP:
            raise _out_of_range(column, dtype) from None
        if found.kind is Kind.DATE:
            raise _far_date(column, dtype) from None
        return _one_by_one(column.to_pylist(), dtype, parse_json)


def _out_of_range(column: pa.Array, dtype: DataType) -> BadValue:
    """The error for the first of some timestamps that microseconds are too fine for."""
    unit = column.type.unit
    limit = 2**63 // {"s": 10**6, "ms": 10**3}.get(unit, 1)
    counts = column.cast(pa.int64()).to_pylist()
    index = next(i for i, count in enumerate(counts) if count is not None and not -limit <= count < limit)
    return BadValue(index, counts[index], dtype, f"{unit} since 1970 is out of the range of TIMESTAMP")


def _far_date(column: pa.Array, dtype: DataType) -> BadValue:
    """The error for the first of some dates that the type has no room for."""
    for index, value in enumerate(column):
        try:
            value.cast(dtype.arrow)
        except pa.ArrowInvalid:
            stored, unit = (pa.int32(), "days") if value.type == pa.date32() else (pa.int64(), "ms")
            reason = f"{unit} since 1970 is out of the range of {dtype}"
            return BadValue(index, value.cast(stored).as_py(), dtype, reason)
    raise AssertionError("every date fits")
