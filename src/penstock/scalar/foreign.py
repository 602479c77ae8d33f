"""Values as a user's Python function sees them: ``datetime``, ``date``, ``timedelta``, lists."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from penstock.model.types import DOUBLE, DataType, Kind
from penstock.scalar.calendar import SECOND
from penstock.scalar.casts import cast_value
from penstock.scalar.context import RowError
from penstock.scalar.dates import ticks_of
from penstock.scalar.numbers import fit

_EPOCH = datetime(1970, 1, 1)


def to_user(value: object, dtype: DataType) -> object:
    """TIMESTAMP as a naive UTC ``datetime``; NULL is None."""
    if value is None:
        return None
    try:
        match dtype.kind:
            case Kind.TIMESTAMP:
                assert isinstance(value, int)
                return _EPOCH + timedelta(microseconds=value)
            case Kind.DATE:
                assert isinstance(value, int)
                return _EPOCH.date() + timedelta(days=value)
            case Kind.INTERVAL:
                assert isinstance(value, int)
                return timedelta(microseconds=value)
            case Kind.ARRAY:
                assert isinstance(value, tuple)
                assert dtype.element is not None
                return [to_user(v, dtype.element) for v in value]
    except OverflowError:
        raise RowError(f"{value} is out of range of Python's {dtype.kind.value.lower()}") from None
    return value


def from_user(value: object, dtype: DataType) -> object:
    """What the function returned, as a value of its declared type; anything else fails on the row."""
    if value is None:
        return None
    match dtype.kind, value:
        case Kind.BOOLEAN, bool():
            return value
        case ((Kind.INT | Kind.BIGINT), int()) if not isinstance(value, bool):
            return fit(value, dtype)
        case ((Kind.REAL | Kind.DOUBLE), int() | float()) if not isinstance(value, bool):
            return fit(float(value), dtype)
        case Kind.DECIMAL, int() | Decimal() if not isinstance(value, bool):
            return fit(Decimal(value), dtype)
        case Kind.DECIMAL, float():
            return cast_value(value, DOUBLE, dtype)
        case Kind.STRING, str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise RowError("the function gave a text with lone surrogates") from None
            return str(value)
        case Kind.BINARY, bytes() | bytearray():
            return bytes(value)
        case Kind.TIMESTAMP, datetime():
            return ticks_of(value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC))
        case Kind.DATE, date() if not isinstance(value, datetime):
            return (value - _EPOCH.date()).days
        case Kind.INTERVAL, timedelta():
            return fit((value.days * 86_400 + value.seconds) * SECOND + value.microseconds, dtype)
        case Kind.ARRAY, list() | tuple():
            assert dtype.element is not None
            return tuple(from_user(v, dtype.element) for v in value)
    item = getattr(value, "item", None)
    if callable(item):  # numpy's scalars
        return from_user(item(), dtype)
    raise RowError(f"the function gave {type(value).__name__} {value!r}, which is not a value of {dtype}")
