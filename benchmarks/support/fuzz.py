"""Bytes that nobody would send, at the two binary protocols of a server: random ones, and messages that make sense,
changed in a few places, in any order. The server refuses them, holds nothing for them, and serves everybody else."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.support.served import Served, until
from penstock.server.flight import wire

SETUP = """
CREATE STREAM readings (at TIMESTAMP, v DOUBLE, room STRING) TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, floor INT) KEY (room);
CREATE QUERY lately AS SELECT room, count(*) AS n FROM readings [ROWS 3] GROUP BY room WITH (results = '1 MB');
INSERT INTO readings VALUES ('2024-05-01 10:00:00', 1.5, 'hall');
"""
BODIES: dict[bytes, list[bytes]] = {
    b"Q": [b"SELECT * FROM lately\0", b"COPY readings (at, v) FROM STDIN\0",
           b"DECLARE c CURSOR FOR SELECT 1\0", b"FETCH 1 FROM c\0",
           b"BEGIN\0", b"ROLLBACK\0", b"SELECT relname FROM pg_class\0", b"SET x.y = 1\0", b"SHOW ALL\0", b"\0"],
    b"P": [b"s\0SELECT $1::BIGINT + n FROM lately\0\0\1\0\0\0\x14",
           b"\0INSERT INTO readings (at, v) VALUES ($1, $2)\0\0\0"],
    b"B": [b"\0s\0\0\0\0\1\0\0\0\1\x31\0\0", b"p\0\0\0\1\0\1\0\2\0\0\0\x08\0\0\0\0\0\0\0\0\xff\xff\xff\xff\0\1\0\1"],
    b"D": [b"Ss\0", b"P\0", b"Sx\0"],
    b"E": [b"\0\0\0\0\0", b"p\0\0\0\0\1"],
    b"C": [b"Ss\0", b"Pp\0"],
    b"S": [b""],
    b"H": [b""],
    b"d": [b"2024-05-01 10:00:00\t1\n"],
    b"c": [b""],
    b"f": [b"no\0"],
    b"F": [b"\0\0\0\1\0\0\0\0\0\0"],
    b"p": [b"secret\0"],
}  # fmt: skip
"""What follows the letter and the length of messages of PostgreSQL that make sense."""
GOOD = [letter + struct.pack("!i", len(body) + 4) + body for letter, bodies in BODIES.items() for body in bodies]
_STARTS = [
    struct.pack("!ii", 8, 80877103), struct.pack("!ii", 8, 80877104), struct.pack("!iiii", 16, 80877102, 1, 2),
    struct.pack("!ii", 41, 196608) + b"user\0admin\0database\0plant\0\0p\0\0\0\x06\0\0",
    struct.pack("!ii", 33, 196608) + b"user\0token\0database\0plant\0\0", struct.pack("!ii", 8, 131072),
]  # fmt: skip
"""What connections to PostgreSQL begin with."""
_TOGETHER = 20
"""Messages of one connection after its login."""
_COMMANDS = [
    wire.packed("CommandStatementQuery", wire.message(f1="SELECT room FROM lately")),
    wire.packed("CommandPreparedStatementQuery", wire.message(f1=b'{"text": "SELECT 1", "rows": null}')),
    wire.packed("CommandGetTables", wire.message(f1="penstock", f2="%", f3="%", f5=1)),
    wire.packed("CommandGetSqlInfo", wire.message(f1=b"\0\1\2")),
    wire.packed("CommandStatementIngest", wire.message(f1=wire.message(f1=1, f2=2), f2="readings")),
    wire.packed("CommandStatementUpdate", wire.message(f1="INSERT INTO rooms VALUES ('hall', 1)")),
    wire.packed("TicketStatementQuery", wire.message(f1=b'{"run": "SELECT 1", "rows": "AAAA"}')),
    wire.packed("ActionCreatePreparedStatementRequest", wire.message(f1="SELECT n FROM lately WHERE n > ?")),
    b'{"changes": "nobody", "from": -1}', b'{"current": "lately"}', b'{"name": "mine", "position": 3}',
]  # fmt: skip
_ACTIONS = ["CreatePreparedStatement", "ClosePreparedStatement", "confirm", "cancel", "health", "x"]
_UNFORESEEN = "its log says why"
"""Stands in the answer where the server met something that it did not foresee."""


@dataclass
class Fuzzed:
    """What became of it."""

    messages: int
    refused: int
    """Connections, and calls of Flight, that ended with an error."""
    unforeseen: int
    """Errors that the server did not foresee."""
    megabytes: float
    """Of memory, more than after the first tenth."""
    threads: int
    """More than after the first tenth, when all clients are gone."""
    files: int
    sessions: int
    """That are left."""


def changed(data: bytes, chance: random.Random) -> bytes:
    """With a few bytes changed, inserted or cut out; sometimes with none."""
    made = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(3):
            case 0 if at < len(made):
                made[at] = chance.randrange(256)
            case 1:
                made[at:at] = chance.randbytes(chance.randint(1, 4))
            case _:
                del made[at : at + chance.randint(1, 4)]
    return bytes(made[: chance.randrange(len(made) + 1)] if chance.random() < 0.1 else made)


# -- PostgreSQL ---------------------------------------------------------------------------------------


def postgres(port: int, token: str, messages: int, chance: random.Random) -> int:
    """Send that many; a fifth of them before the login. Gives how many connections the server ended."""
    sent = refused = 0
    while sent < messages:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            if chance.random() < 0.8:
                count = chance.randint(1, 2)
                good = [chance.choice(_STARTS) for _ in range(count)]
                data = chance.randbytes(chance.randrange(100)) if chance.random() < 0.3 else b"".join(good)
            else:
                count = min(_TOGETHER, messages - sent)
                data = b"".join(chance.choice(GOOD) for _ in range(count))
                _log_in(client, token)
            with contextlib.suppress(ConnectionError):
                client.sendall(changed(data, chance))
                client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while client.recv(65536):
                    pass
            sent += count
            refused += 1
    return refused


def _log_in(client: socket.socket, token: str) -> None:
    """As user ``token``, which sends its password as it is."""
    body = struct.pack("!i", 196608) + b"user\0token\0database\0plant\0\0"
    secret = token.encode() + b"\0"
    client.sendall(struct.pack("!i", len(body) + 4) + body + b"p" + struct.pack("!i", len(secret) + 4) + secret)
    told = b""
    while b"Z\0\0\0\x05I" not in told:
        data = client.recv(65536)
        if not data:
            raise RuntimeError(f"the login failed: {told!r}")
        told += data


# -- Flight -------------------------------------------------------------------------------------------


class Changing:
    """A way to a port that changes some bytes of what clients send: of the frames of HTTP/2, their headers, and Arrow's
    messages. One thread for each connection, which ends with it; ``close`` ends all."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self._to, self._chance = port, chance
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to), 10) as server:
            while True:
                for each in select.select([client, server], [], [], 60)[0]:
                    data = bytearray(each.recv(65536))
                    if not data:
                        return
                    if each is client and len(data) > 200:  # where rows are in it, and not only how the two begin
                        for _ in range(self._chance.randint(1, 3)):
                            data[self._chance.randrange(len(data))] = self._chance.randrange(256)
                    (client if each is server else server).sendall(data)

    def close(self) -> None:
        self._listening.close()


def flight_sql(port: int, token: str, messages: int, chance: random.Random) -> tuple[int, int]:
    """Send that many; gives how many were refused, and of these how many with an error that was not foreseen."""
    headers = [(b"authorization", f"Bearer {token}".encode())]
    options = flight.FlightCallOptions(timeout=20, headers=headers)
    refused = unforeseen = 0
    way = Changing(port, chance)
    rows = pa.table({"at": pa.array([10**15] * 50, pa.timestamp("us")), "v": [1.0] * 50, "room": ["hall"] * 50})
    rows = rows.cast(pa.schema([("at", pa.timestamp("us")), ("v", pa.float64()), ("room", pa.string())]))
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:

        def put(to: Any, descriptor: flight.FlightDescriptor, said: bytes) -> None:
            writer, answers = to.do_put(descriptor, rows.schema, options)
            try:
                writer.write_with_metadata(rows.to_batches()[0], said)
                writer.done_writing()
                while answers.read() is not None:
                    pass
            finally:
                writer.close()

        def put_changed() -> None:
            with flight.connect(f"grpc://127.0.0.1:{way.port}") as other:
                put(other, flight.FlightDescriptor.for_path("readings"), b"{}")

        def strange() -> None:
            with socket.create_connection(("127.0.0.1", port), 10) as other, contextlib.suppress(ConnectionError):
                begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if chance.random() < 0.7 else b""
                other.sendall(begin + chance.randbytes(chance.randrange(200)))
                other.shutdown(socket.SHUT_WR)
                while other.recv(65536):
                    pass

        def one() -> None:
            given = changed(chance.choice(_COMMANDS), chance)
            if chance.random() < 0.1:
                given = chance.randbytes(chance.randrange(100))
            command = flight.FlightDescriptor.for_command(given)
            readings = flight.FlightDescriptor.for_path("readings")
            calls: list[Callable[[], object]] = [
                lambda: client.get_flight_info(command, options),
                lambda: client.get_schema(command, options),
                lambda: client.do_get(flight.Ticket(given), options).read_all(),
                lambda: list(client.do_action((chance.choice(_ACTIONS), given), options)),
                lambda: put(client, command, b"{}"),
                lambda: put(client, readings, changed(b'{"key": ["x", 1]}', chance)),
            ]  # fmt: skip
            chance.choice(calls)()

        for _ in range(messages):
            kind = chance.random()
            try:
                (put_changed if kind < 0.02 else strange if kind < 0.1 else one)()
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                refused += 1
                unforeseen += _UNFORESEEN in str(error)
    way.close()
    return refused, unforeseen


# -- both ---------------------------------------------------------------------------------------------


def run(directory: Path, protocol: str, messages: int, chance: random.Random, say: Callable[[str], None]) -> Fuzzed:
    """Send that many messages to a new server, and look what it holds when all clients are gone."""
    served = Served(directory / "db", "local", errors=directory / "errors", postgres=True)
    served.start()
    served.wait()
    try:
        served.sql(SETUP)
        usual(served)
        refused = unforeseen = 0
        before = 0.0, 0, 0
        for part in range(10):
            if protocol == "postgres":
                assert served.postgres is not None
                refused += postgres(served.postgres, served.token, messages // 10, chance)
            else:
                some, worse = flight_sql(served.flight, served.token, messages // 10, chance)
                refused, unforeseen = refused + some, unforeseen + worse
            if part == 0:
                before = served.memory, served.threads, served.files
            say(f"{protocol}: {messages // 10 * (part + 1):,} of {messages:,} messages, {served.memory:.0f} MB")
        usual(served)
        left = "SELECT count(*) AS n FROM sys.sessions WHERE protocol = 'postgres'"
        with contextlib.suppress(RuntimeError):
            until(lambda: served.sql(left)[0]["rows"][0][0] == 0, 30)
        sessions = int(served.sql(left)[0]["rows"][0][0])
        log = (directory / "errors").read_text(errors="replace")
        unforeseen += sum(line.startswith("Traceback") for line in log.splitlines())
        if unforeseen:
            print(log[-20_000:], file=sys.stderr)
        return Fuzzed(
            messages, refused, unforeseen, served.memory - before[0], served.threads - before[1],
            served.files - before[2], sessions,
        )  # fmt: skip
    finally:
        served.close()


def usual(served: Served) -> None:
    """What a usual client of each protocol does works."""
    import adbc_driver_flightsql.dbapi as adbc
    import psycopg

    login: dict[str, Any] = {"username": "admin", "password": served.token}
    address = f"grpc://127.0.0.1:{served.flight}"
    with (
        adbc.connect(address, db_kwargs=login, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT room FROM lately")
        assert cursor.fetchone() is not None
    with psycopg.connect(
        host="127.0.0.1", port=served.postgres, user="admin", password=served.token, dbname="plant", autocommit=True
    ) as other:
        assert other.execute("SELECT 40 + 2").fetchall() == [(42,)]
