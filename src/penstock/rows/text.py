"""Columns as text, the way the readers take it back.

TIMESTAMP in ISO 8601, the fraction only where there is one; without a zone it is UTC, a column with a zone has the
offset behind its times, but not for people; INTERVAL
``[-]hh:mm:ss[.ffffff]``; DOUBLE as short as it can be without changing; BINARY as ``0x`` and hexadecimal.
In JSON numbers are numbers, DECIMAL with all its digits; NaN and the infinities, which JSON has no number
for, are strings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.zones import shown_in
from penstock.model.types import Kind, from_arrow
from penstock.scalar.zones import offset_text, zone_name


def plain(column: pa.ChunkedArray, *, separator: str = "T") -> list[str | None]:
    """The values as plain text, None for NULL. ``separator`` stands between date and time."""
    kind = _kind(column)
    if kind is Kind.STRING:
        found: list[str | None] = column.to_pylist()
        return found
    if kind is Kind.TIMESTAMP:
        return _timestamps(column, separator)
    if kind is Kind.DATE:
        return list(column.cast(pa.string()).to_pylist())
    form = _PLAIN.get(kind, str)
    if kind is Kind.INTERVAL:
        column = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    return [None if value is None else form(value) for value in column.to_pylist()]


def as_json(column: pa.ChunkedArray) -> list[str]:
    """The values as JSON texts."""
    kind = _kind(column)
    if kind is Kind.ARRAY:
        return [json.dumps(jsonable(value), ensure_ascii=False) for value in column.to_pylist()]
    if kind in (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DECIMAL):
        return ["null" if text is None else text for text in plain(column)]
    if kind in (Kind.REAL, Kind.DOUBLE):
        return [_json_number(text) for text in plain(column)]
    return ["null" if text is None else json.dumps(text, ensure_ascii=False) for text in plain(column)]


def is_numeric(dtype: pa.DataType) -> bool:
    """Whether people expect such a column to be aligned to the right."""
    found = from_arrow(dtype)
    return found is not None and found.is_numeric


def _kind(column: pa.ChunkedArray) -> Kind:
    found = from_arrow(column.type)
    return Kind.NULL if found is None else found.kind


def _timestamps(column: pa.ChunkedArray, separator: str) -> list[str | None]:
    if column.type.tz is not None:
        return _in_zone(column, zone_name(column.type.tz), separator)
    column = column.cast(pa.timestamp("us"))
    texts = pc.replace_substring_regex(column.cast(pa.string()), r"\.0+$", "")
    found: list[str | None] = pc.replace_substring(texts, " ", separator).to_pylist()
    if pc.any(pc.starts_with(texts, "<")).as_py():
        # Arrow has no text for years far away, numpy does.
        numbers = column.cast(pa.int64()).to_pylist()
        for i, (number, text) in enumerate(zip(numbers, found, strict=True)):
            if text is not None and text.startswith("<"):
                far = str(np.datetime64(number, "us")).removesuffix(".000000")
                found[i] = far.replace("T", separator)
    return found


def _in_zone(column: pa.ChunkedArray, zone: str, separator: str) -> list[str | None]:
    instants = column.cast(pa.timestamp("us"))
    shown = shown_in(instants, zone)
    texts = _timestamps(shown, separator)
    if separator == " ":
        return texts
    pairs = zip(texts, shown.cast(pa.int64()).to_pylist(), instants.cast(pa.int64()).to_pylist(), strict=True)
    return [None if text is None else text + offset_text(at - ticks) for text, at, ticks in pairs]


def _interval(ticks: int) -> str:
    seconds, fraction = divmod(abs(ticks), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{'-' if ticks < 0 else ''}{hour:02}:{minute:02}:{second:02}"
    return f"{text}.{fraction:06}" if fraction else text


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else _NOT_FINITE[str(value)]


def _real(value: float) -> str:
    """As short as a REAL needs: the digits that tell it from the other 32-bit numbers."""
    return _number(float(str(np.float32(value))))


def _json_number(text: str | None) -> str:
    if text is None:
        return "null"
    return f'"{text}"' if text in _NOT_FINITE.values() else text


def jsonable(value: Any, other: Callable[[Any], str] = str) -> Any:
    """A value in the types of JSON; ``other``: what is written for what has no form of its own."""
    if isinstance(value, list | tuple):
        return [jsonable(item, other) for item in value]
    if isinstance(value, dict):
        return {str(key): jsonable(item, other) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return _number(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else other(value)


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_PLAIN: dict[Kind, Callable[[Any], str]] = {
    Kind.BOOLEAN: lambda value: "true" if value else "false",
    Kind.REAL: _real,
    Kind.DOUBLE: _number,
    Kind.DECIMAL: lambda value: format(value, "f"),
    Kind.BINARY: lambda value: "0x" + value.hex(),
    Kind.INTERVAL: _interval,
    Kind.ARRAY: lambda value: json.dumps(jsonable(value), ensure_ascii=False),
}
