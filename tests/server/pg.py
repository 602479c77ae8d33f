"""A server of the PostgreSQL protocol in this process, on a free port of loopback."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import penstock
from penstock.database.database import Database
from penstock.server.postgres.listener import PostgresListener, listener
from penstock.server.service import Service
from penstock.server.settings import Settings

PASSWORD = "a password of tests"
SCRIPT = """
CREATE STREAM readings (at TIMESTAMP, sensor STRING, v DOUBLE, n BIGINT, d DECIMAL(10, 2), b BINARY, ok BOOLEAN,
    i INTERVAL, day DATE, r REAL, k INT) TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, floor INT) KEY (room);
CREATE QUERY lately AS SELECT sensor, count(*) AS n, max(at) AS at FROM readings [ROWS 3] GROUP BY sensor;
CREATE QUERY hot AS SELECT ISTREAM sensor, v FROM readings [NOW] WHERE v > 30;
"""


@dataclass
class Served:
    """A server, and how to reach it."""

    service: Service
    db: Database
    listener: PostgresListener
    port: int
    token: str

    def sessions(self) -> int:
        """How many clients are logged in."""
        admin = self.service.login("admin", PASSWORD, protocol="python", remote="test")
        try:
            return len(self.service.sessions(admin)) - 1
        finally:
            self.service.logout(admin)

    def uri(self, user: str = "admin", password: str = PASSWORD) -> dict[str, object]:
        """For clients in Python."""
        return {"host": "127.0.0.1", "port": self.port, "user": user, "password": password}


@contextmanager
def serving(
    settings: Settings | None = None, script: str = SCRIPT, clock: Callable[[], int] | None = None,
    path: Path | None = None,
) -> Iterator[Served]:  # fmt: skip
    """A server while the block runs."""
    settings = replace(settings or Settings(), postgres=0, engine="local")
    with penstock.connect(path, engine="local") as db:
        service = Service(db, settings, directory=path, clock=clock or (lambda: time.time_ns() // 1_000))
        token = service.access.first_start()
        assert token is not None
        service.access.set_password("admin", PASSWORD)
        made = listener()
        address = made.start(service, settings)
        session = service.login("admin", PASSWORD, protocol="python", remote="test")
        service.execute(session, script)
        service.logout(session)
        try:
            yield Served(service, db, made, int(address.rpartition(":")[2]), token)
        finally:
            made.stop(time.monotonic() + 5)
            service.close()


def until(there: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + 20
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


class Raw:
    """A client that says what it likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, letter: bytes, body: bytes = b"") -> None:
        self.socket.sendall(letter + struct.pack("!i", len(body) + 4) + body)

    def login_with_token(self, token: str) -> None:
        """As user ``token``, which sends its password as it is."""
        body = struct.pack("!i", 196608) + b"user\0token\0database\0plant\0\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        assert self.read() == (b"R", struct.pack("!i", 3))
        self.send(b"p", token.encode() + b"\0")
        self.until(b"Z")

    def read(self) -> tuple[bytes, bytes]:
        """The next message; nothing at the end."""
        head = self.file.read(5)
        if len(head) < 5:
            return b"", b""
        return head[:1], self.file.read(struct.unpack("!i", head[1:])[0] - 4)

    def until(self, letter: bytes) -> list[tuple[bytes, bytes]]:
        """All messages up to one with this letter, or to the end."""
        found = []
        while True:
            found.append(self.read())
            if found[-1][0] in (letter, b""):
                return found


def fields(body: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}
