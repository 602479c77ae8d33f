"""The types of CQL as PostgreSQL's: their numbers, and columns as text and as binary.

``of`` says which type clients see for an Arrow type. A TIMESTAMP of CQL is an instant and therefore a ``timestamptz``,
shown in UTC. What has no type of its own (a struct of an ad-hoc query) goes out as text.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.model.types import DataType, Kind, from_arrow
from penstock.rows.text import jsonable, plain
from penstock.scalar.zones import UTC
from penstock.server.postgres.messages import Column

EPOCH_DAYS = 10_957
"""From 1970 to 2000, where PostgreSQL counts from."""
EPOCH_MICROSECONDS = EPOCH_DAYS * 86_400_000_000


@dataclass(frozen=True)
class Type:
    """A type of PostgreSQL: its number, name, size (-1: as long as the value) and the number of its array type."""

    oid: int
    name: str
    size: int
    array: int
    category: str = "U"


TYPES = {t.name: t for t in (
    Type(16, "bool", 1, 1000, "B"), Type(17, "bytea", -1, 1001), Type(18, "char", 1, 1002, "Z"),
    Type(19, "name", 64, 1003, "S"), Type(20, "int8", 8, 1016, "N"), Type(21, "int2", 2, 1005, "N"),
    Type(23, "int4", 4, 1007, "N"), Type(25, "text", -1, 1009, "S"), Type(26, "oid", 4, 1028, "N"),
    Type(114, "json", -1, 199), Type(700, "float4", 4, 1021, "N"), Type(701, "float8", 8, 1022, "N"),
    Type(705, "unknown", -2, 0, "X"), Type(1042, "bpchar", -1, 1014, "S"), Type(1043, "varchar", -1, 1015, "S"),
    Type(1082, "date", 4, 1182, "D"), Type(1083, "time", 8, 1183, "D"), Type(1114, "timestamp", 8, 1115, "D"),
    Type(1184, "timestamptz", 8, 1185, "D"), Type(1186, "interval", 16, 1187, "T"),
    Type(1700, "numeric", -1, 1231, "N"), Type(2205, "regclass", 4, 2210, "N"), Type(2950, "uuid", 16, 2951),
    Type(3802, "jsonb", -1, 3807),
)}  # fmt: skip
BY_OID = {t.oid: t for t in TYPES.values()}
BY_ARRAY = {t.array: t for t in TYPES.values() if t.array}
LONG_NAMES = {
    "bool": "boolean", "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real", "float8":
    "double precision", "bpchar": "character", "varchar": "character varying", "timestamp":
    "timestamp without time zone", "timestamptz": "timestamp with time zone", "time": "time without time zone",
    "char": '"char"',
}  # fmt: skip
"""What ``format_type`` calls a type, where that is another name."""

_OF_KIND = {
    Kind.NULL: "text", Kind.BOOLEAN: "bool", Kind.INT: "int4", Kind.BIGINT: "int8", Kind.REAL: "float4", Kind.DOUBLE:
    "float8", Kind.DECIMAL: "numeric", Kind.STRING: "text", Kind.BINARY: "bytea", Kind.DATE: "date", Kind.TIMESTAMP:
    "timestamptz", Kind.INTERVAL: "interval",
}  # fmt: skip


def of_cql(dtype: DataType) -> tuple[int, int, int]:
    """The number, size and modifier of the type that clients see for a type of CQL."""
    if dtype.element is not None:
        return TYPES[_OF_KIND[dtype.element.kind]].array if dtype.element.element is None else 25, -1, -1
    found = TYPES[_OF_KIND[dtype.kind]]
    modifier = ((dtype.precision or 38) << 16 | (dtype.scale or 0)) + 4 if dtype.kind is Kind.DECIMAL else -1
    return found.oid, found.size, modifier


def of(dtype: pa.DataType) -> tuple[int, int, int]:
    """The number, size and modifier of the type that clients see for a column of Arrow."""
    if pa.types.is_int16(dtype) or pa.types.is_int8(dtype) or pa.types.is_uint8(dtype):
        return 21, 2, -1
    if pa.types.is_uint32(dtype):
        return 26, 4, -1
    found = from_arrow(dtype)
    return (25, -1, -1) if found is None else of_cql(found)


def columns(schema: pa.Schema) -> list[Column]:
    """What clients see of a result's columns."""
    return [Column(field.name, *of(field.type)) for field in schema]


def encode(table: pa.Table, formats: Sequence[int], zone: str = UTC) -> list[list[bytes | None]]:
    """The columns of a table, each in its format (0: text, 1: binary). ``zone``: in which texts show times."""
    pairs = zip(table.columns, formats, strict=True)
    return [as_binary(column) if form else as_text(column, zone) for column, form in pairs]


def as_text(column: pa.ChunkedArray, zone: str = UTC) -> list[bytes | None]:
    """A column as PostgreSQL writes it for people."""
    return [None if text is None else text.encode() for text in texts(column, zone)]


def texts(column: pa.ChunkedArray, zone: str = UTC) -> list[str | None]:
    """A column in the text form of its type."""
    dtype = from_arrow(column.type)
    if dtype is None:
        return [None if v is None else _other(v) for v in column.to_pylist()]
    match dtype.kind:
        case Kind.BOOLEAN:
            return [None if v is None else "t" if v else "f" for v in column.to_pylist()]
        case Kind.BINARY:
            return [None if v is None else "\\x" + v.hex() for v in column.to_pylist()]
        case Kind.TIMESTAMP:
            if zone != UTC:
                shown = plain(column.cast(pa.timestamp("us", zone), safe=False))
                return [None if text is None else text.replace("T", " ") for text in shown]
            instants = column.cast(pa.timestamp("us"), safe=False)
            return [None if text is None else text + "+00" for text in plain(instants, separator=" ")]
        case Kind.ARRAY:
            return _array_texts(column, zone)
        case Kind.NULL:
            return [None] * len(column)
    return plain(column, separator=" ")


def _other(value: object) -> str:
    """A value of a type that neither CQL nor this table knows."""
    return value if isinstance(value, str) else json.dumps(jsonable(value), ensure_ascii=False)


def _array_texts(column: pa.ChunkedArray, zone: str) -> list[str | None]:
    found: list[str | None] = []
    for chunk in column.chunks:
        items = texts(pa.chunked_array([chunk.values]), zone)
        inner = pa.types.is_list(chunk.type.value_type)
        said = [("NULL" if t is None else t if inner else _quoted(t)) for t in items]
        bounds = zip(chunk.offsets.to_pylist()[:-1], chunk.offsets.to_pylist()[1:], chunk.is_valid(), strict=True)
        found += ["{" + ",".join(said[a:b]) + "}" if valid.as_py() else None for a, b, valid in bounds]
    return found


def _quoted(text: str) -> str:
    plain_enough = text and text.upper() != "NULL" and not any(c in '{}",\\' or c.isspace() for c in text)
    return text if plain_enough else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def as_binary(column: pa.ChunkedArray) -> list[bytes | None]:
    """A column in the binary form of its type."""
    if of(column.type)[0] == 25:
        return as_text(column)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _array_binaries(column)
    pack = _PACKED[BY_OID[of(column.type)[0]].name]
    return [None if v is None else pack(v) for v in _counted(column)]


def _counted(column: pa.ChunkedArray) -> list[Any]:
    """The values, with times as the numbers that they are."""
    dtype = column.type
    if pa.types.is_date(dtype):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(dtype):
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    elif pa.types.is_duration(dtype):
        column = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    return list(column.to_pylist())


def _array_binaries(column: pa.ChunkedArray) -> list[bytes | None]:
    """One dimension from 1; PostgreSQL has no dimension for an empty array."""
    found: list[bytes | None] = []
    element = of(column.type.value_type)[0]
    for chunk in column.chunks:
        items = [
            _NULL if v is None else struct.pack("!i", len(v)) + v for v in as_binary(pa.chunked_array([chunk.values]))
        ]
        offsets = chunk.offsets.to_pylist()
        for start, stop, valid in zip(offsets[:-1], offsets[1:], chunk.is_valid().to_pylist(), strict=True):
            held = items[start:stop]
            if not valid:
                found.append(None)
            elif not held:
                found.append(struct.pack("!iiI", 0, 0, element))
            else:
                nulls = int(_NULL in held)
                found.append(struct.pack("!iiIii", 1, nulls, element, len(held), 1) + b"".join(held))
    return found


_NULL = struct.pack("!i", -1)


def numeric(value: Decimal) -> bytes:
    """PostgreSQL's numeric: digits to the base of 10,000, the first with a weight, and how many decimals are shown."""
    if not value.is_finite():
        return struct.pack("!hhHH", 0, 0, 0xC000, 0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    number = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    whole = scale + -scale % 4
    number *= 10 ** (whole - scale)
    groups: list[int] = []
    while number:
        number, group = divmod(number, 10_000)
        groups.append(group)
    weight = len(groups) - whole // 4 - 1
    groups.reverse()
    while groups and groups[-1] == 0:
        groups.pop()
    head = struct.pack("!hhHH", len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale)
    return head + struct.pack(f"!{len(groups)}h", *groups)


_PACKED: dict[str, Callable[[Any], bytes]] = {
    "bool": lambda v: b"\1" if v else b"\0",
    "int2": struct.Struct("!h").pack,
    "int4": struct.Struct("!i").pack,
    "int8": struct.Struct("!q").pack,
    "oid": struct.Struct("!I").pack,
    "float4": struct.Struct("!f").pack,
    "float8": struct.Struct("!d").pack,
    "numeric": numeric,
    "text": str.encode,
    "bytea": bytes,
    "date": lambda days: struct.pack("!i", days - EPOCH_DAYS),
    "timestamptz": lambda ticks: struct.pack("!q", ticks - EPOCH_MICROSECONDS),
    "interval": lambda ticks: struct.pack("!qii", ticks, 0, 0),
}
