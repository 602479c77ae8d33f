"""What the server holds in memory for clients is bounded, for each user and for all."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import adbc_driver_flightsql.dbapi as dbapi
import psycopg
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from penstock.model.errors import LimitExceeded
from penstock.server.flight import wire
from penstock.server.holding import Holding
from penstock.server.settings import Settings
from tests.server import over_http, pg
from tests.server.pg import until
from tests.server.test_flight import Flying, flying

MB = 1_000_000
SMALL = Settings(user_memory=5 * MB, held_memory=8 * MB, flight=0)
TWO_MB = "SELECT range AS n FROM range(250000)"
EIGHT_MB = "SELECT range AS n FROM range(1000000)"


def test_shares_are_counted_and_given_back() -> None:
    holding = Holding(100, 60)
    first, other = holding.hold("ada", 50), holding.hold("bob", 40)
    with pytest.raises(LimitExceeded, match="`ada`") as of_user:
        first.grow(11)
    assert "`user_memory` allows 60 bytes" in str(of_user.value.hint)
    with pytest.raises(LimitExceeded, match="its clients") as of_all:
        other.grow(11)
    assert "`held_memory` allows 100 bytes" in str(of_all.value.hint)
    assert (holding.of("ada"), holding.of("bob")) == (50, 40)
    first.release()
    more = holding.hold("ada", 60)
    del more
    other.grow(20)
    other.release()
    assert (holding.of("ada"), holding.of("bob")) == (0, 0)


@pytest.fixture
def served() -> Iterator[pg.Served]:
    with pg.serving(SMALL) as found:
        found.service.access.create_user("bob", "bob has a password")
        yield found


def test_cursors_of_postgresql_are_bounded_in_bytes(served: pg.Served) -> None:
    with psycopg.connect(**served.uri(), autocommit=True) as client:  # type: ignore[arg-type]
        client.execute(f"DECLARE a CURSOR WITH HOLD FOR {TWO_MB}")
        client.execute(f"DECLARE b CURSOR WITH HOLD FOR {TWO_MB}")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="the server holds 4") as refused:
            client.execute(f"DECLARE c CURSOR WITH HOLD FOR {TWO_MB}")
        assert "user_memory" in str(refused.value.diag.message_hint)
        with psycopg.connect(**served.uri("bob", "bob has a password"), autocommit=True) as other:  # type: ignore[arg-type]
            other.execute(f"DECLARE a CURSOR WITH HOLD FOR {TWO_MB}")
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="for its clients"):
                other.execute(f"DECLARE b CURSOR WITH HOLD FOR {TWO_MB}")
        client.execute("CLOSE a")
        client.execute(f"DECLARE c CURSOR WITH HOLD FOR {TWO_MB}")
        assert len(client.execute("FETCH 3 FROM c").fetchall()) == 3
    until(lambda: served.service.holding.of("admin") == 0)


def test_prepared_texts_values_and_copies_count(served: pg.Served) -> None:
    with psycopg.connect(**served.uri(), autocommit=True) as client:  # type: ignore[arg-type]
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="the server holds"):
            client.execute("SELECT %s::text", ["x" * (6 * MB)])
        with pytest.raises(psycopg.errors.ProgramLimitExceeded), client.cursor().copy("COPY rooms FROM STDIN") as copy:
            copy.write(("r" * 10_000 + "\t1\n") * 700)
    until(lambda: served.service.holding.of("admin") == 0)


def test_bodies_and_answers_of_http_are_bounded() -> None:
    """The system takes some MB of an answer that its client does not, so the bound is far above that."""
    much, too_much = ({"sql": f"SELECT range AS n FROM range({rows})"} for rows in (1_600_000, 4_000_000))
    with over_http.served(user_memory=20 * MB) as to, to.client() as client:
        to.sql("CREATE STREAM s (t STRING)")
        rows = json.dumps([{"t": "x" * (24 * MB)}])
        refused = client.post("/api/streams/s/rows", content=rows, headers={"Content-Type": "application/json"})
        assert (refused.status_code, refused.json()["error"]) == (429, "LimitExceeded")
        assert "user_memory" in refused.json()["hint"]
        assert client.post("/api/sql", json=too_much).json()["error"] == "LimitExceeded"
        until(lambda: to.service.holding.of("admin") == 0)
        # An answer that its client does not take is held, and others have to wait until it does.
        body = json.dumps(much).encode()
        head = f"POST /api/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {to.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(to.address)
            slow.sendall(head.encode() + body)
            until(lambda: to.service.holding.of("admin") > 8 * MB)
            assert client.post("/api/sql", json=much).status_code == 429
        until(lambda: to.service.holding.of("admin") == 0)
        assert client.post("/api/sql", json=much).status_code == 200


@pytest.fixture
def flight_server() -> Iterator[Flying]:
    with flying(SMALL) as made, made.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE STREAM s (t STRING)")
        yield made


def test_batches_of_flight_that_wait_for_their_key_are_bounded(flight_server: Flying) -> None:
    key = {"adbc.flight.sql.rpc.call_header.penstock-key": "me/1"}
    batch = pa.record_batch({"t": ["x" * 1_000] * 1_000})
    many = pa.RecordBatchReader.from_batches(batch.schema, [batch] * 8)
    with flight_server.connect(**key) as connection, connection.cursor() as cursor:
        with pytest.raises(dbapi.Error, match="the server holds"):
            cursor.adbc_ingest("s", many, mode="append")
        cursor.adbc_ingest("s", pa.Table.from_batches([batch] * 4), mode="append")
        cursor.execute("SELECT count(*) FROM sys.streams WHERE given = 4000")
        assert cursor.fetchone() == (1,)
    with flight_server.connect() as connection, connection.cursor() as cursor:  # one after the other there is room
        cursor.adbc_ingest("s", pa.Table.from_batches([batch] * 8), mode="append")
    until(lambda: flight_server.service.holding.of("admin") == 0)


def test_answers_of_flight_that_wait_are_bounded() -> None:
    """They are long: gRPC takes some megabytes from the server before the client reads them."""
    with flying(Settings(flight=0, user_memory=100 * MB)) as flight_server, flight_server.client() as client:
        command = wire.packed("CommandStatementQuery", wire.message(f1=b"SELECT range AS n FROM range(5000000)"))
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command), flight_server.options)
        slow = [client.do_get(info.endpoints[0].ticket, flight_server.options) for _ in range(2)]
        until(lambda: flight_server.service.holding.of("admin") > 80 * MB)
        with pytest.raises(flight.FlightUnavailableError, match="the server holds"):
            client.do_get(info.endpoints[0].ticket, flight_server.options)
        assert slow[0].read_all().num_rows == 5_000_000
        slow[1].cancel()
        until(lambda: flight_server.service.holding.of("admin") == 0)
        assert client.do_get(info.endpoints[0].ticket, flight_server.options).read_all().num_rows == 5_000_000
