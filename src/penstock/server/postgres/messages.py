"""The frames of PostgreSQL's protocol 3: reading them from a client within limits, and building the server's.

A message is one letter, a length that counts itself, and a body; the first message of a connection has no letter. A
length beyond the limit is refused before anything of the body is read, so a client cannot make the server hold more
than ``Limits`` says.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

PROTOCOL_3 = 196608
CANCEL_REQUEST = 80877102
SSL_REQUEST = 80877103
GSSENC_REQUEST = 80877104
MOST_STARTUP = 10_000
"""Bytes of a startup packet, as in PostgreSQL."""
MOST_UNKNOWN = 65_536
"""Bytes of a message before the client has said who it is."""
FULL = 64 * 1024
"""Bytes that are gathered before they are written."""

_INT16 = struct.Struct("!h")
_UINT16 = struct.Struct("!H")
_INT32 = struct.Struct("!i")


class Malformed(Exception):
    """What a client sent is not the protocol. The connection ends: where the next message begins is unknown."""


class Incoming(asyncio.StreamReader):
    """A reader that also says how much is waiting in it, and when the client has gone."""

    def __init__(self) -> None:
        super().__init__(limit=FULL, loop=asyncio.get_running_loop())
        self.gone = asyncio.Event()
        self._received = 0
        self._taken = 0

    @property
    def waiting(self) -> int:
        """Bytes that have come and were not read."""
        return self._received - self._taken

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """The transport gives bytes."""
        held = bytes(data)
        self._received += len(held)
        super().feed_data(held)

    def feed_eof(self) -> None:
        """The client has closed its side."""
        self.gone.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        """The connection broke."""
        self.gone.set()
        super().set_exception(exc)

    async def take(self, count: int) -> bytes:
        """Exactly this many bytes, or IncompleteReadError."""
        found = await self.readexactly(count)
        self._taken += count
        return found

    async def startup(self) -> tuple[int, Body]:
        """The first packet: its code, and what is behind it."""
        (length,) = _INT32.unpack(await self.take(4))
        if not 8 <= length <= MOST_STARTUP:
            raise Malformed(f"a startup packet of {length} bytes; there are 8 to {MOST_STARTUP}")
        body = Body(await self.take(length - 4))
        return body.int32(), body

    async def message(self, most: int, seconds: float | None = None) -> tuple[bytes, Body]:
        """The letter and the body of the next message; ``seconds``: how long the body may take."""
        head = await self.take(5)
        (length,) = _INT32.unpack_from(head, 1)
        if head[:1] not in _FRONTEND:
            raise Malformed(f"no message begins with {head[:1]!r}")
        if not 4 <= length <= most:
            raise Malformed(f"a message of {length} bytes; there are 4 to {most}")
        async with asyncio.timeout(seconds):
            return head[:1], Body(await self.take(length - 4))


_FRONTEND = frozenset(b"%c" % c for c in b"BCDEFHPQSXcdfp")


class Body:
    """The body of a message, read from its beginning. ``Malformed`` where it is shorter than it says."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """This many bytes."""
        end = self._at + count
        if count < 0 or end > len(self.data):
            raise Malformed("a message is shorter than its fields")
        found = self.data[self._at : end]
        self._at = end
        return found

    def rest(self) -> bytes:
        """All that was not read yet."""
        return self.take(len(self.data) - self._at)

    def int16(self) -> int:
        """A signed number of two bytes."""
        return int(_INT16.unpack(self.take(2))[0])

    def count(self) -> int:
        """How many fields follow: 0 to 65,535."""
        return int(_UINT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        """A signed number of four bytes."""
        return int(_INT32.unpack(self.take(4))[0])

    def text(self) -> str:
        """A text up to its zero byte."""
        end = self.data.find(0, self._at)
        if end < 0:
            raise Malformed("a text in a message has no end")
        found = self.take(end - self._at)
        self._at += 1
        try:
            return found.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a text in a message is not UTF-8: {error.reason}") from None

    def value(self) -> bytes | None:
        """A value with its length before it; a length of -1 is NULL."""
        length = self.int32()
        return None if length == -1 else self.take(length)

    def end(self) -> None:
        """Nothing may be left."""
        if self._at != len(self.data):
            raise Malformed("a message is longer than its fields")


@dataclass(frozen=True)
class Parsed:
    """Parse: a text becomes a prepared statement. ``types``: oids that the client names, 0 where it does not."""

    name: str
    text: str
    types: tuple[int, ...]

    @classmethod
    def read(cls, body: Body) -> Parsed:
        """From the body of the message."""
        found = cls(body.text(), body.text(), tuple(body.int32() & 0xFFFFFFFF for _ in range(body.count())))
        body.end()
        return found


@dataclass(frozen=True)
class Bound:
    """Bind: a prepared statement gets values and becomes a portal. Formats: 0 is text, 1 is binary."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]

    @classmethod
    def read(cls, body: Body) -> Bound:
        """From the body of the message."""
        portal, statement = body.text(), body.text()
        formats = tuple(body.int16() for _ in range(body.count()))
        values = tuple(body.value() for _ in range(body.count()))
        results = tuple(body.int16() for _ in range(body.count()))
        body.end()
        if not {*formats, *results} <= {0, 1}:
            raise Malformed("a format is 0 (text) or 1 (binary)")
        if len(formats) not in (0, 1, len(values)):
            raise Malformed(f"{len(formats)} formats for {len(values)} values")
        return cls(portal, statement, formats, values, results)


def spread(formats: Sequence[int], count: int) -> list[int]:
    """One format for each of ``count`` columns: none given is text for all, one is for all."""
    if len(formats) <= 1:
        return [formats[0] if formats else 0] * count
    if len(formats) != count:
        raise Malformed(f"{len(formats)} formats for {count} columns")
    return list(formats)


def text(value: str) -> bytes:
    """A text with the zero byte that ends it. A zero byte inside would end it too early."""
    return value.replace("\0", "").encode("utf-8", "replace") + b"\0"


def message(letter: bytes, *parts: bytes) -> bytes:
    """One whole message."""
    body = b"".join(parts)
    return letter + _INT32.pack(len(body) + 4) + body


@dataclass(frozen=True)
class Column:
    """A column of a result as clients see it."""

    name: str
    oid: int
    size: int
    modifier: int = -1


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """What the rows that follow consist of."""
    parts = [_UINT16.pack(len(columns))]
    for column, form in zip(columns, formats, strict=True):
        field = struct.pack("!ihIhih", 0, 0, column.oid, column.size, column.modifier, form)
        parts += [text(column.name), field]
    return message(b"T", *parts)


def parameter_description(oids: Sequence[int]) -> bytes:
    """The types of the parameters of a prepared statement."""
    return message(b"t", _UINT16.pack(len(oids)), *(struct.pack("!I", oid) for oid in oids))


def data_rows(columns: Sequence[Sequence[bytes | None]], count: int) -> list[bytes]:
    """A DataRow for each row of encoded columns."""
    if not columns:
        return [message(b"D", b"\0\0")] * count
    cells = [[_NULL if v is None else _INT32.pack(len(v)) + v for v in column] for column in columns]
    head = _UINT16.pack(len(columns))
    return [message(b"D", head, *row) for row in zip(*cells, strict=True)]


_NULL = _INT32.pack(-1)


def copy_response(letter: bytes, form: int, columns: int) -> bytes:
    """That rows go in (G) or out (H) from now on."""
    return message(letter, b"\1" if form else b"\0", _UINT16.pack(columns), _INT16.pack(form) * columns)


def parameter_status(name: str, value: str) -> bytes:
    """That a parameter has this value."""
    return message(b"S", text(name), text(value))


def authentication(kind: int, data: bytes = b"") -> bytes:
    """What the client must do to be let in, or that it is (kind 0)."""
    return message(b"R", _INT32.pack(kind), data)


def backend_key(process: int, secret: int) -> bytes:
    """What a client shows to cancel what runs in this connection."""
    return message(b"K", struct.pack("!II", process, secret))


def command_complete(tag: str) -> bytes:
    """That a statement is done."""
    return message(b"C", text(tag))


def ready(status: bytes) -> bytes:
    """That the next statement may come."""
    return message(b"Z", status)


def notice(letter: bytes, fields: Iterable[tuple[str, str]]) -> bytes:
    """An error (E) or a notice (N): a letter and a text for each field."""
    return message(letter, *(key.encode() + text(value) for key, value in fields), b"\0")


PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
PORTAL_SUSPENDED = message(b"s")
COPY_DONE = message(b"c")
