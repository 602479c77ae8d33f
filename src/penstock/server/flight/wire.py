"""Messages of Flight SQL in Protocol Buffers' wire format: the few that a server reads and writes.

A message is read into its fields; unknown ones are left alone, as Protocol Buffers want it. Anything that is not a
message is an ``InputError``: what clients send is checked here before anything else looks at it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.errors import InputError

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
"""What the type of a command begins with."""

Fields = dict[int, list[int | bytes]]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise InputError("the command is cut off or is no message of Flight SQL")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at


def fields(data: bytes) -> Fields:
    """The fields of a message by their numbers, each with all its values: whole numbers or bytes."""
    found: Fields = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 2, 5):
            size, at = _varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
            if size > len(data) - at:
                raise InputError("the command is cut off or is no message of Flight SQL")
            value, at = data[at : at + size], at + size
        else:
            raise InputError("the command is no message of Flight SQL")
        if not number:
            raise InputError("the command is no message of Flight SQL")
        found.setdefault(number, []).append(value)
    return found


def as_bytes(found: Fields, number: int) -> bytes | None:
    """A field of bytes; the last one counts."""
    values = found.get(number)
    if not values:
        return None
    if not isinstance(values[-1], bytes):
        raise InputError(f"field {number} of the command is not of bytes")
    return values[-1]


def as_text(found: Fields, number: int) -> str | None:
    """A field of text."""
    value = as_bytes(found, number)
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise InputError(f"field {number} of the command is not in UTF-8") from None


def as_int(found: Fields, number: int) -> int:
    """A field of a whole number, an enum or a boolean; 0 where it is absent."""
    values = found.get(number)
    if not values:
        return 0
    if not isinstance(values[-1], int):
        raise InputError(f"field {number} of the command is not a number")
    return values[-1]


def all_texts(found: Fields, number: int) -> list[str]:
    return [as_text({number: [v]}, number) or "" for v in found.get(number, [])]


def all_ints(found: Fields, number: int) -> list[int]:
    """A repeated field of whole numbers, packed or not."""
    values: list[int] = []
    for value in found.get(number, []):
        if isinstance(value, int):
            values.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            values.append(one)
    return values


def command(data: bytes) -> tuple[str, Fields]:
    """The name of a command and its fields, out of ``google.protobuf.Any``."""
    outer = fields(data)
    kind, inner = as_text(outer, 1), as_bytes(outer, 2)
    if kind is None or not kind.startswith(PREFIX):
        raise InputError("the command is no message of Flight SQL")
    return kind.removeprefix(PREFIX), fields(inner or b"")


def varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def message(**values: int | bytes | str | None) -> bytes:
    """A message of fields ``f1``, ``f2`` …; what is None is left out."""
    made = b""
    for name, value in values.items():
        number = int(name[1:])
        if isinstance(value, int):
            made += varint(number << 3) + varint(value)
        elif value is not None:
            data = value.encode() if isinstance(value, str) else value
            made += varint(number << 3 | 2) + varint(len(data)) + data
    return made


def packed(name: str, data: bytes) -> bytes:
    """A message in ``google.protobuf.Any``."""
    return message(f1=PREFIX + name, f2=data)


@dataclass(frozen=True)
class Ingest:
    """CommandStatementIngest: rows into a table."""

    table: str
    schema: str | None
    create: bool
    """Make the table where it is not there."""
    if_exists: int
    """0: not said, 1: fail, 2: append, 3: replace."""
    temporary: bool

    @staticmethod
    def of(found: Fields) -> Ingest:
        options = fields(as_bytes(found, 1) or b"")
        table = as_text(found, 2)
        if not table:
            raise InputError("the ingest names no stream and no relation")
        return Ingest(table, as_text(found, 3), as_int(options, 1) == 1, as_int(options, 2), bool(as_int(found, 5)))
