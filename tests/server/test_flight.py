"""Flight SQL with the real ADBC driver and with pyarrow.flight, over loopback."""

from __future__ import annotations

import base64
import json
import random
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import adbc_driver_flightsql as adbc
import adbc_driver_flightsql.dbapi as dbapi
import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import penstock
from penstock.model.errors import InputError
from penstock.server.flight import wire
from penstock.server.flight.listener import FlightListener, listener
from penstock.server.service import Service
from penstock.server.settings import Settings
from penstock.server.tls import prepared
from penstock.storage.packing import packed
from tests.server.pg import until

ROWS = pa.table({"room": ["a", "ß", None], "temp": [1.5, None, float("inf")]})


@dataclass
class Flying:
    """A server of Flight over a database in this process."""

    address: str
    token: str
    service: Service
    listener: FlightListener
    scheme: str = "grpc"

    def connect(self, user: str = "admin", password: str | None = None, **more: str) -> dbapi.Connection:
        given = {"username": user, "password": self.token if password is None else password, **more}
        return self.open(given)

    def open(self, given: dict[str, str]) -> dbapi.Connection:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there are no transactions
            return dbapi.connect(f"{self.scheme}://{self.address}", db_kwargs=given)

    def client(self) -> flight.FlightClient:
        return flight.connect(f"{self.scheme}://{self.address}")

    @property
    def options(self) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + self.token.encode())], timeout=30)


@contextmanager
def flying(settings: Settings | None = None, clock: Callable[[], int] | None = None) -> Iterator[Flying]:
    used = settings or Settings(flight=0)
    with penstock.connect(engine="local") as db:
        service = Service(db, used, clock=clock or (lambda: time.time_ns() // 1_000))
        token = service.access.first_start()
        assert token is not None
        made = listener()
        address = made.start(service, used)
        try:
            yield Flying(address, token, service, made, "grpc+tls" if used.tls_cert else "grpc")
        finally:
            made.stop(time.monotonic() + 10)
            service.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Flying]:
    with flying() as made, made.connect() as connection, connection.cursor() as cursor:
        for text in (
            "CREATE STREAM readings (room STRING, temp DOUBLE)",
            "CREATE RELATION rooms (room STRING, floor INT) KEY (room)",
            "CREATE QUERY counts AS SELECT room, count(*) AS n FROM readings GROUP BY room",
        ):
            cursor.execute(text)
        cursor.adbc_ingest("readings", ROWS, mode="append")
        yield made


def rows(cursor: dbapi.Cursor, text: str, *parameters: object) -> list[tuple[object, ...]]:
    cursor.execute(text, parameters or None)
    return list(cursor.fetchall())


def test_statements(server: Flying) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        assert rows(cursor, "SELECT room, n FROM counts ORDER BY room") == [(None, 1), ("a", 1), ("ß", 1)]
        assert rows(cursor, "SELECT n FROM public.counts WHERE room = 'ß'") == [(1,)]
        assert rows(cursor, "SELECT 1 WHERE false") == []
        assert rows(cursor, "/* what */ (SELECT 'x')") == [("x",)]
        assert rows(cursor, "SHOW STREAMS")[0][0] == "readings"
        assert rows(cursor, "CREATE STREAM other (x INT)") == [("CREATE STREAM", "stream other created")]
        assert rows(cursor, "INSERT INTO other VALUES (1), (NULL)")[0][0] == "INSERT 0 2"
        assert rows(cursor, "SELECT count(*) FROM sys.streams") == [(2,)]
        cursor.execute("DROP STREAM other")


def test_a_statement_is_run_once(server: Flying) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE STREAM once (x INT)")
        cursor.execute("CREATE QUERY seen AS SELECT count(*) AS n FROM once")
        cursor.execute("INSERT INTO once VALUES (1)")
        cursor.fetchall()
        assert rows(cursor, "SELECT n FROM seen") == [(1,)]
        cursor.execute("DROP QUERY seen")
        cursor.execute("DROP STREAM once")


def test_parameters(server: Flying) -> None:
    values = [("é'; DROP", 1, 2.5, None, True, Decimal("1.25"), b"\0\xff")]
    with server.connect() as connection, connection.cursor() as cursor:
        assert rows(cursor, "SELECT ?, ?, ?, ?, ?, ?, ?", *values[0]) == values
        assert rows(cursor, "SELECT room FROM counts WHERE n >= ? AND room = ?", 1, "a") == [("a",)]
        cursor.execute("CREATE STREAM many (x INT, s STRING)")
        cursor.execute("CREATE QUERY taken AS SELECT x, s FROM many")
        cursor.executemany("INSERT INTO many VALUES (?, ?)", [(1, "ä"), (None, None), (3, "")])
        assert rows(cursor, "SELECT x, s FROM taken ORDER BY x") == [(None, None), (1, "ä"), (3, "")]
        cursor.execute("DROP QUERY taken")
        cursor.execute("DROP STREAM many")


def test_ingest(server: Flying) -> None:
    table = pa.table({"room": ["x", None, "日本"], "temp": [1.0, 2.0, None]})
    with server.connect() as connection, connection.cursor() as cursor:
        assert cursor.adbc_ingest("made", table, mode="create") == 3
        with pytest.raises(adbc_driver_manager.Error, match="there already"):
            cursor.adbc_ingest("made", table, mode="create")
        with pytest.raises(adbc_driver_manager.Error, match="does not replace"):
            cursor.adbc_ingest("made", table, mode="replace")
        with pytest.raises(adbc_driver_manager.Error, match="no stream `nowhere`"):
            cursor.adbc_ingest("nowhere", table, mode="append")
        with pytest.raises(adbc_driver_manager.Error, match="temporary"):
            cursor.adbc_ingest("made", table, mode="append", temporary=True)
        assert cursor.adbc_ingest("made", table.to_reader(max_chunksize=1), mode="create_append") == 3
        assert cursor.adbc_ingest("rooms", pa.table({"room": ["a"], "floor": [1]}), mode="append") == 1
        assert rows(cursor, "SELECT * FROM rooms") == [("a", 1)]
        with pytest.raises(adbc_driver_manager.Error, match="floor"):
            cursor.adbc_ingest("rooms", pa.table({"room": ["a"], "floor": ["first"]}), mode="append")
        cursor.execute("DROP STREAM made")


def test_an_ingest_with_a_key_counts_once(server: Flying) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE STREAM keyed (x BIGINT)")
        cursor.execute("CREATE QUERY total AS SELECT count(*) AS n FROM keyed")
        table = pa.table({"x": [1, 2, 3]})
        for sequence in (1, 1, 2):
            key = {f"{adbc.DatabaseOptions.RPC_CALL_HEADER_PREFIX.value}penstock-key": f"me/{sequence}"}
            with server.connect(**key) as other, other.cursor() as keyed:
                keyed.adbc_ingest("keyed", table, mode="append")
        assert rows(cursor, "SELECT n FROM total") == [(6,)]
        client = server.client()
        for sequence in (3, 3):
            writer, reader = client.do_put(flight.FlightDescriptor.for_path("keyed"), table.schema, server.options)
            for batch in table.to_batches():
                writer.write_with_metadata(batch, json.dumps({"key": ["me", sequence]}).encode())
            writer.done_writing()
            assert json.loads(reader.read().to_pybytes())["rows"] >= 0
            writer.close()
        assert rows(cursor, "SELECT n FROM total") == [(9,)]
        cursor.execute("DROP QUERY total")
        cursor.execute("DROP STREAM keyed")


def test_an_endless_stream_of_changes(server: Flying) -> None:
    with server.connect() as connection, connection.cursor() as cursor, connection.cursor() as other:
        other.execute("CREATE STREAM ticks (x INT)")
        other.execute("CREATE QUERY changes AS SELECT x FROM ticks WHERE x > 0")
        cursor.execute("SUBSCRIBE changes FROM START")
        reader = cursor.fetch_record_batch()
        assert reader.schema.metadata[b"penstock.position"] == b"0"
        for x in (1, 2):
            other.execute(f"INSERT INTO ticks VALUES ({x}), (-{x})")
            assert reader.read_next_batch().column("x").to_pylist() == [x]
        cursor.adbc_cancel()
        with pytest.raises((pa.ArrowException, OSError)):
            reader.read_next_batch()
        other.execute("DROP QUERY changes")
        other.execute("DROP STREAM ticks")


def test_a_reader_goes_on_and_confirms(server: Flying) -> None:
    """Positions come with each batch; a named subscription remembers what was confirmed."""
    client, options = server.client(), server.options
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE STREAM feed (x INT)")
        cursor.execute("CREATE QUERY fed AS SELECT x FROM feed")
        cursor.execute("CREATE SUBSCRIPTION mine FOR fed FROM START")
        cursor.execute("INSERT INTO feed VALUES (1), (2), (3)")
        reader = client.do_get(flight.Ticket(b'{"changes": "fed", "from": 1}'), options)
        chunk = reader.read_chunk()
        assert chunk.data.column("x").to_pylist() == [2, 3]
        position = json.loads(chunk.app_metadata.to_pybytes())["position"]
        assert position == 3
        reader.cancel()
        list(client.do_action(("confirm", json.dumps({"name": "mine", "position": position}).encode()), options))
        cursor.execute("INSERT INTO feed VALUES (4)")
        cursor.execute("SUBSCRIBE fed AS mine")
        assert cursor.fetch_record_batch().read_next_batch().column("x").to_pylist() == [4]
        cursor.adbc_cancel()
        cursor.execute("DROP SUBSCRIPTION mine")
        cursor.execute("DROP QUERY fed")
        cursor.execute("DROP STREAM feed")


def test_an_endless_stream_ends_with_its_query_and_by_cancel(server: Flying) -> None:
    client, options = server.client(), server.options
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE STREAM short (x INT)")
        cursor.execute("CREATE QUERY brief AS SELECT x FROM short")
        reader = client.do_get(flight.Ticket(b'{"changes": "brief", "stream": "s1"}'), options)
        list(client.do_action(("cancel", b'{"stream": "nobody"}'), options))
        list(client.do_action(("cancel", b'{"stream": "s1"}'), options))
        again = client.do_get(flight.Ticket(b'{"changes": "brief"}'), options)
        cursor.execute("STOP QUERY brief")
        assert again.read_all().num_rows == 0
        reader.cancel()
        cursor.execute("DROP STREAM short")


def test_tickets_of_pyarrow(server: Flying) -> None:
    client, options = server.client(), server.options
    found = client.do_get(flight.Ticket(b'{"current": "counts"}'), options).read_all()
    assert found.num_rows == 3
    info = client.get_flight_info(flight.FlightDescriptor.for_path("counts"), options)
    assert client.do_get(info.endpoints[0].ticket, options).read_all().column_names == info.schema.names
    names = {bytes(i.descriptor.path[0]).decode() for i in client.list_flights(b"", options)}
    assert names == {"counts"}
    assert client.get_schema(flight.FlightDescriptor.for_path("counts"), options).schema.names == ["room", "n"]


def test_names_that_are_not_utf_8_are_refused(server: Flying) -> None:
    client, options = server.client(), server.options
    columns = pa.schema([pa.field("at", pa.int64()), pa.field(b"\xd8", pa.int64())])
    ingest = wire.packed("CommandStatementIngest", wire.message(f1=wire.message(f1=1, f2=2), f2="made"))
    bound = wire.packed("CommandPreparedStatementUpdate", wire.message(f1=b'{"text": "SELECT ?, ?"}'))

    def put(to: flight.FlightDescriptor) -> None:
        writer, answers = client.do_put(to, columns, options)
        with writer:
            writer.write_batch(pa.record_batch([[1], [2]], schema=columns))
            writer.done_writing()
            answers.read()

    commands = [flight.FlightDescriptor.for_command(each) for each in (ingest, bound)]
    for to in (flight.FlightDescriptor.for_path("readings"), *commands):
        with pytest.raises(flight.FlightServerError, match="is not in UTF-8"):
            put(to)
    rows = base64.b64encode(packed(pa.table([[1], [2]], columns))).decode()
    for ticket in ({"run": "SELECT ?, ?", "rows": rows}, {"table": rows}):
        with pytest.raises(flight.FlightServerError, match="is not one of this server"):
            client.do_get(flight.Ticket(json.dumps(ticket).encode()), options).read_all()
    with pytest.raises(flight.FlightServerError, match="is not JSON"):
        client.do_get(flight.Ticket(rb'{"current": "\ud800"}'), options).read_all()
    with server.connect() as connection:
        assert "made" not in {each["table_name"] for each in _tables(connection)}


def _tables(connection: dbapi.Connection) -> list[dict[str, str]]:
    found = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
    return [table for schema in found[0]["catalog_db_schemas"] for table in schema["db_schema_tables"]]


def test_metadata(server: Flying) -> None:
    with server.connect() as connection:
        info = connection.adbc_get_info()
        assert info["vendor_name"] == "penstock"
        assert connection.adbc_get_table_types() == ["STREAM", "RELATION", "QUERY", "SYSTEM"]
        found = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        assert [c["catalog_name"] for c in found] == ["penstock"]
        tables = {
            s["db_schema_name"]: [t["table_name"] for t in s["db_schema_tables"]]
            for s in found[0]["catalog_db_schemas"]
        }
        assert {"counts", "readings", "rooms"} <= set(tables["public"])
        assert "queries" in tables["sys"]
        some = connection.adbc_get_objects(depth="all", table_name_filter="room%").read_all().to_pylist()
        (schema,) = [s for s in some[0]["catalog_db_schemas"] if s["db_schema_name"] == "public"]
        (table,) = schema["db_schema_tables"]
        assert [c["column_name"] for c in table["table_columns"]] == ["room", "floor"]
        assert connection.adbc_get_table_schema("rooms").names == ["room", "floor"]
    client, options = server.client(), server.options
    for name in ("CommandGetXdbcTypeInfo", "CommandGetPrimaryKeys", "CommandGetExportedKeys", "CommandGetCatalogs",
                 "CommandGetDbSchemas", "CommandGetTableTypes", "CommandGetTables", "CommandGetSqlInfo"):  # fmt: skip
        data = wire.message(f3="rooms") if name.endswith("Keys") else b""
        info = client.get_flight_info(flight.FlightDescriptor.for_command(wire.packed(name, data)), options)
        table = client.do_get(info.endpoints[0].ticket, options).read_all()
        assert table.schema == info.schema
        assert table.num_rows or name == "CommandGetExportedKeys"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"username": "admin", "password": "wrong"},
        {"username": "nobody", "password": "x"},
        {"username": "", "password": ""},
        {adbc.DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer wrong"},
        {adbc.DatabaseOptions.AUTHORIZATION_HEADER.value: "Basic !!!"},
        {adbc.DatabaseOptions.AUTHORIZATION_HEADER.value: "Digest x"},
    ],
)
def test_without_a_credential_nothing_answers(server: Flying, given: dict[str, str]) -> None:
    def ask() -> None:
        with server.open(given) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    with pytest.raises(adbc_driver_manager.ProgrammingError, match="UNAUTHENTICATED"):
        ask()


def test_every_call_wants_a_credential_but_health(server: Flying) -> None:
    client = server.client()
    command = flight.FlightDescriptor.for_command(wire.packed("CommandGetCatalogs", b""))
    calls: list[Callable[[], object]] = [
        lambda: client.get_flight_info(command),
        lambda: client.get_schema(command),
        lambda: client.do_get(flight.Ticket(b'{"current": "counts"}')).read_all(),
        lambda: list(client.list_flights()),
        lambda: list(client.do_action("confirm")),
        lambda: client.do_put(flight.FlightDescriptor.for_path("readings"), ROWS.schema)[0].close(),
    ]
    for call in calls:
        with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="log in") as caught:
            call()
        assert ".py" not in str(caught.value)
    (health,) = client.do_action("health")
    assert json.loads(health.body.to_pybytes())["ready"] is True


def test_a_token_and_rights(server: Flying) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER eve PASSWORD 'eve-password'")
        (token,) = rows(cursor, "CREATE TOKEN t FOR eve")[0]
        header = {adbc.DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}
        with server.open(header) as other:
            eve = other.cursor()
            assert rows(eve, "SELECT 1") == [(1,)]
            with pytest.raises(adbc_driver_manager.Error, match="counts"):
                eve.execute("SELECT * FROM counts")
            with pytest.raises(adbc_driver_manager.Error):
                eve.adbc_ingest("readings", ROWS, mode="append")
            cursor.execute("GRANT READ ON QUERY counts TO eve")
            assert len(rows(eve, "SELECT * FROM counts")) == 3
            eve.close()
            late = other.cursor()
            cursor.execute("DROP TOKEN t")
            with pytest.raises(adbc_driver_manager.ProgrammingError, match="UNAUTHENTICATED"):
                late.execute("SELECT 1")
            late.close()
        cursor.execute("DROP USER eve")


def test_errors_have_our_json(server: Flying) -> None:
    client = server.client()
    text = wire.packed("CommandStatementQuery", wire.message(f1="SELECT ä\nFROM nix"))
    with pytest.raises(flight.FlightError) as caught:
        client.get_flight_info(flight.FlightDescriptor.for_command(text), server.options)
    said = json.loads(caught.value.extra_info)
    assert said["code"] == "CatalogError"
    assert said["position"] == {"line": 2, "column": 6, "length": 3}
    with server.connect() as connection:
        cursor = connection.cursor()
        with pytest.raises(adbc_driver_manager.Error, match="CREATE QUERY"):
            cursor.execute("SELECT * FROM readings [RANGE 5 MINUTES]")
        cursor.close()


def test_limits() -> None:
    settings = Settings(flight=0, rows=5, statement=100)
    with flying(settings) as made, made.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE STREAM s (x BIGINT)")
        with pytest.raises(adbc_driver_manager.Error, match="at most 5 rows"):
            cursor.adbc_ingest("s", pa.table({"x": list(range(6))}), mode="append")
        with pytest.raises(adbc_driver_manager.Error, match="at most 100"):
            cursor.execute(f"SELECT '{'x' * 100}'")


def test_a_server_that_ends_ends_its_readers() -> None:
    with flying() as made:
        with made.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE STREAM s (x INT)")
            cursor.execute("CREATE QUERY q AS SELECT x FROM s")
        reader = made.client().do_get(flight.Ticket(b'{"changes": "q"}'), made.options)
        caught: list[BaseException] = []

        def read() -> None:
            try:
                reader.read_all()
            except flight.FlightError as error:
                caught.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        made.listener.stop(time.monotonic() + 10)
        thread.join(10)
        assert isinstance(caught[0], flight.FlightUnavailableError)


def test_tls(tmp_path: Path) -> None:
    settings = prepared(Settings(flight=0, tls_self_signed=True), tmp_path)
    assert settings.tls_cert is not None
    with flying(settings) as made:
        trusted = {adbc.DatabaseOptions.TLS_ROOT_CERTS.value: settings.tls_cert.read_text()}
        with made.connect(**trusted) as connection, connection.cursor() as cursor:
            assert rows(cursor, "SELECT 'ü'") == [("ü",)]
        with pytest.raises(adbc_driver_manager.Error):
            made.connect().cursor().execute("SELECT 1")


def test_a_new_certificate_is_taken_without_a_restart(tmp_path: Path) -> None:
    settings = prepared(Settings(flight=0, tls_self_signed=True), tmp_path)
    assert settings.tls_cert is not None
    assert settings.tls_key is not None
    before = settings.tls_cert.read_text()
    with flying(settings) as made:
        settings.tls_cert.unlink()
        settings.tls_key.unlink()
        prepared(Settings(flight=0, tls_self_signed=True), tmp_path)
        made.listener.reload()
        for certificate in (before, settings.tls_cert.read_text()):
            trusted = {adbc.DatabaseOptions.TLS_ROOT_CERTS.value: certificate}
            if certificate == before:
                with pytest.raises(adbc_driver_manager.Error):
                    made.connect(**trusted)
            else:
                with made.connect(**trusted) as connection, connection.cursor() as cursor:
                    assert rows(cursor, "SELECT 1") == [(1,)]


def test_a_server_that_ends_while_its_certificate_changes_listens_no_more(tmp_path: Path) -> None:
    settings = prepared(Settings(flight=0, tls_self_signed=True, grace=600.0, adhoc_seconds=600.0), tmp_path)
    assert settings.tls_cert is not None
    certificate = settings.tls_cert.read_bytes()
    ticket = flight.Ticket(b'{"run": "SELECT count(*) FROM range(100000000) a, range(100000) b"}')
    with (
        flying(settings) as made, flight.connect(f"grpc+tls://{made.address}", tls_root_certs=certificate) as client,
        ThreadPoolExecutor(2) as threads,
    ):  # fmt: skip
        asked = threads.submit(lambda: client.do_get(ticket, made.options).read_all())
        until(lambda: any(t.name == "penstock-select-watch" for t in threading.enumerate()))
        reloading = threads.submit(made.listener.reload)
        until(lambda: any(t.name == "penstock-flight-stop" for t in threading.enumerate()))
        made.listener.stop(time.monotonic() + 0.2)
        reloading.result(60)
        assert asked.exception(60) is not None
        host, port = made.address.rsplit(":", 1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 10)


def test_a_certificate_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    settings = prepared(Settings(flight=0, tls_self_signed=True), tmp_path)
    assert settings.tls_cert is not None
    content = settings.tls_cert.read_bytes()
    with flying(settings) as made:
        settings.tls_cert.unlink()
        with pytest.raises(InputError, match="cannot listen"):
            made.listener.reload()
        settings.tls_cert.write_bytes(content)
        made.listener.reload()
        trusted = {adbc.DatabaseOptions.TLS_ROOT_CERTS.value: content.decode()}
        with made.connect(**trusted) as connection, connection.cursor() as cursor:
            assert rows(cursor, "SELECT 1") == [(1,)]


def test_random_and_mutated_calls(server: Flying) -> None:
    """The server answers each with an error of its own, and goes on."""
    chance = random.Random(7)
    client, options = server.client(), server.options
    seeds = [
        wire.packed("CommandStatementQuery", wire.message(f1="SELECT room FROM counts")),
        wire.packed("CommandPreparedStatementQuery", wire.message(f1=b'{"text": "SELECT 1", "rows": null}')),
        wire.packed("CommandGetTables", wire.message(f1="penstock", f2="%", f3="%", f5=1)),
        wire.packed("TicketStatementQuery", wire.message(f1=b'{"run": "SELECT 1", "rows": "AAAA"}')),
        wire.packed("ActionCreatePreparedStatementRequest", wire.message(f1="SELECT 1")),
        b'{"changes": "nobody", "from": -1}',
        b'{"current": 5}',
    ]
    kinds = ["CreatePreparedStatement", "ClosePreparedStatement", "confirm", "cancel", "x"]
    said: list[str] = []
    for _ in range(300):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            data = data[: chance.randrange(len(data) + 1)]
        given = bytes(data)
        for call in (
            lambda g=given: client.get_flight_info(flight.FlightDescriptor.for_command(g), options),
            lambda g=given: client.do_get(flight.Ticket(g), options).read_all(),
            lambda g=given: list(client.do_action((chance.choice(kinds), g), options)),
        ):
            try:
                call()
            except (flight.FlightError, pa.ArrowException) as error:
                said.append(f"{error} {given!r}")
    assert not [s for s in said if "its log says why" in s]
    with server.connect() as connection, connection.cursor() as cursor:
        assert rows(cursor, "SELECT 1") == [(1,)]
