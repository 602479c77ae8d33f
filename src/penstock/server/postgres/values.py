"""Values that clients send: parameters in text or binary, as the Python values that the service takes."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from penstock.model import types as cql
from penstock.model.errors import InputError
from penstock.rows.values import parse_text, said
from penstock.server.postgres.types import BY_ARRAY, BY_OID, EPOCH_DAYS, EPOCH_MICROSECONDS, LONG_NAMES, Type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = frozenset({"text", "varchar", "bpchar", "name", "char", "unknown", "json", "jsonb", "time"})


def decode(data: bytes, oid: int, form: int, where: str) -> object:
    """One value that is not NULL; ``where`` says in an error which it is."""
    array = BY_ARRAY.get(oid)
    known = BY_OID.get(oid) if array is None else array
    if known is None:
        raise InputError(f"{where} is of a type with number {oid}, which is not known here", hint="send it as text")
    try:
        if array is not None:
            return _binary_array(data, array) if form else _text_array(data.decode(), array)
        return _binary(data, known) if form else of_text(data.decode(), known)
    except (ValueError, struct.error, OverflowError, IndexError, RecursionError):
        shown = "binary value" if form else f"text {said(data.decode('utf-8', 'replace'), 60)}"
        name = LONG_NAMES.get(known.name, known.name) + ("[]" if array else "")
        raise InputError(f"{where}: the {shown} is not of type {name}") from None


def of_text(text: str, known: Type) -> object:
    """A value from its text, or ValueError."""
    if known.name in _TEXTS:
        return _whole_text(text)
    return _READ[known.name](text.strip())


def _whole_text(text: str) -> str:
    if "\0" in text:  # as in PostgreSQL
        raise ValueError
    return text


def _bool(text: str) -> bool:
    text = text.lower()
    for word, value in (("true", True), ("false", False), ("yes", True), ("no", False)):
        if text and word.startswith(text):
            return value
    return {"on": True, "off": False, "of": False, "1": True, "0": False}[text] if text in _BOOLS else _fail()


_BOOLS = frozenset({"on", "off", "of", "1", "0"})


def _fail() -> bool:
    raise ValueError


def _whole(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,19}", text):
            raise ValueError
        value = int(text)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError
        return value

    return read


def _float(text: str) -> float:
    if "_" in text:
        raise ValueError
    return float(text)


def _numeric(text: str) -> Decimal:
    if "_" in text or len(text) > 1000:
        raise ValueError
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError from None
    if not value.is_finite() or abs(value.adjusted()) > 1000:
        raise ValueError
    return value


def bytea(text: str) -> bytes:
    """From ``\\x`` and hexadecimal, or from the older form with escapes."""
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    found = bytearray()
    for part in re.finditer(r"\\\\|\\([0-3][0-7]{2})|[^\\]+|\\", text):
        if part[0] == "\\":
            raise ValueError
        found += bytes([int(part[1], 8)]) if part[1] else b"\\" if part[0] == "\\\\" else part[0].encode()
    return bytes(found)


def _date(text: str) -> date:
    found = parse_text(text[:10] if len(text) > 10 else text, cql.DATE)
    if not isinstance(found, date):
        raise ValueError
    return found


def timestamp(text: str) -> datetime:
    """An instant; one without a zone is in UTC."""
    found = parse_text(text, cql.TIMESTAMP)
    if not isinstance(found, int):
        raise ValueError
    return _EPOCH + timedelta(microseconds=found)


_UNITS = {
    "week": 7 * 86_400_000_000, "day": 86_400_000_000, "hour": 3_600_000_000, "hr": 3_600_000_000, "h": 3_600_000_000,
    "minute": 60_000_000, "min": 60_000_000, "m": 60_000_000, "second": 1_000_000, "sec": 1_000_000, "s": 1_000_000,
    "d": 86_400_000_000, "w": 7 * 86_400_000_000, "millisecond": 1_000, "ms": 1_000, "microsecond": 1, "us": 1,
    "year": 0, "mon": 0, "month": 0, "y": 0,
}  # fmt: skip
_PART = re.compile(r"\s*,?\s*(?:([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d*)?))?|([+-]?\d+(?:\.\d*)?)\s*([a-z]+))")


def interval(text: str) -> timedelta:
    """``1 day 02:03:04.5``, ``1 days 2 hours``, ``P1DT2H``. Years and months have no fixed length: ValueError."""
    text = text.strip().lower()
    if iso := re.fullmatch(r"p(?:(\d+)w)?(?:(-?\d+)d)?(?:t(?:(-?\d+)h)?(?:(-?\d+)m)?(?:(-?\d+(?:\.\d+)?)s)?)?", text):
        parts = zip(iso.groups(), ("w", "d", "h", "m", "s"), strict=True)
        return _length([(Decimal(n), unit) for n, unit in parts if n])
    at = 0
    found: list[tuple[Decimal, str]] = []
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            if text[at:].strip() == "ago" and found:
                return -_length(found)
            raise ValueError
        sign, hours, minutes, seconds, number, unit = part.groups()
        if number:
            found.append((Decimal(number), unit))
        else:
            minus = -1 if sign == "-" else 1
            found += [(minus * Decimal(n or 0), u) for n, u in ((hours, "h"), (minutes, "m"), (seconds, "s"))]
        at = part.end()
    if not found:
        raise ValueError
    return _length(found)


def _length(parts: list[tuple[Decimal, str]]) -> timedelta:
    ticks = Decimal(0)
    for number, unit in parts:
        size = _UNITS.get(unit, _UNITS.get(unit.removesuffix("s")))
        if size is None or (size == 0 and number):
            raise ValueError
        ticks += number * size
    if abs(ticks) >= 2**63:
        raise ValueError
    return timedelta(microseconds=int(ticks))


_READ: dict[str, Callable[[str], object]] = {
    "bool": _bool, "int2": _whole(16), "int4": _whole(32), "int8": _whole(64), "oid": _whole(33),
    "regclass": _whole(33), "float4": _float, "float8": _float, "numeric": _numeric, "bytea": bytea, "date": _date,
    "timestamp": timestamp, "timestamptz": timestamp, "interval": interval, "uuid": lambda text: str(uuid.UUID(text)),
}  # fmt: skip


def _text_array(text: str, element: Type) -> list[object]:
    """``{1,NULL,"a b"}``, of one dimension."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError
    found: list[object] = []
    at = 1
    if text[1:-1].strip() == "":
        return found
    item = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))\s*([,}])', re.DOTALL)
    while at < len(text):
        part = item.match(text, at)
        if part is None:
            raise ValueError
        quoted, bare, closing = part.groups()
        if quoted is not None:
            found.append(of_text(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), element))
        else:
            found.append(None if bare.strip().upper() == "NULL" else of_text(bare.strip(), element))
        at = part.end()
        if (closing == "}") != (at == len(text)):
            raise ValueError
    return found


def _binary_array(data: bytes, element: Type) -> list[object]:
    dimensions, _, oid = struct.unpack_from("!iiI", data)
    if oid != element.oid or dimensions not in (0, 1):
        raise ValueError
    if dimensions == 0:
        return []
    count, _ = struct.unpack_from("!ii", data, 12)
    at = 20
    found: list[object] = []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", data, at)
        at += 4
        if length < 0:
            found.append(None)
            continue
        if at + length > len(data):
            raise ValueError
        found.append(_binary(data[at : at + length], element))
        at += length
    if at != len(data):
        raise ValueError
    return found


def _binary(data: bytes, known: Type) -> object:
    if known.name == "jsonb":
        return data[1:].decode()
    if known.name in _TEXTS:
        return _whole_text(data.decode())
    return _UNPACKED[known.name](data)


def _number(form: str) -> Callable[[bytes], object]:
    return lambda data: struct.unpack(form, data)[0]


def _unpack_numeric(data: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHH", data)
    digits = struct.unpack(f"!{count}h", data[8:])
    if sign not in (0, 0x4000) or not all(0 <= d < 10_000 for d in digits) or abs(weight) > 250 or scale > 1000:
        raise ValueError
    number = 0
    for digit in digits:
        number = number * 10_000 + digit
    exponent = 4 * (weight - count + 1)
    shift = exponent + scale
    number = number * 10**shift if shift >= 0 else number // 10**-shift
    return Decimal((int(sign == 0x4000), tuple(map(int, str(number))), -scale))


def _unpack_timestamp(data: bytes) -> datetime:
    (ticks,) = struct.unpack("!q", data)
    return _EPOCH + timedelta(microseconds=ticks + EPOCH_MICROSECONDS)


def _unpack_date(data: bytes) -> date:
    (days,) = struct.unpack("!i", data)
    return date.fromordinal(days + EPOCH_DAYS + 719_163)


def _unpack_interval(data: bytes) -> timedelta:
    ticks, days, months = struct.unpack("!qii", data)
    if months:
        raise ValueError
    return timedelta(days=days, microseconds=ticks)


def _unpack_bool(data: bytes) -> bool:
    return {b"\0": False, b"\1": True}[data] if data in (b"\0", b"\1") else _fail()


_UNPACKED: dict[str, Callable[[bytes], object]] = {
    "bool": _unpack_bool, "int2": _number("!h"), "int4": _number("!i"), "int8": _number("!q"), "oid": _number("!I"),
    "regclass": _number("!I"), "float4": _number("!f"), "float8": _number("!d"), "numeric": _unpack_numeric,
    "bytea": bytes, "date": _unpack_date, "timestamp": _unpack_timestamp, "timestamptz": _unpack_timestamp,
    "interval": _unpack_interval, "uuid": lambda data: str(uuid.UUID(bytes=data)),
}  # fmt: skip
