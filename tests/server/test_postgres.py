"""The PostgreSQL protocol with psycopg, and with a client that says what it likes."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not there")

from penstock import LimitExceeded  # noqa: E402
from penstock.server import tls  # noqa: E402
from penstock.server.postgres import connection  # noqa: E402
from penstock.server.settings import Settings  # noqa: E402
from tests.server.pg import PASSWORD, Raw, Served, fields, serving, until  # noqa: E402

START = datetime(2024, 5, 1, 10, tzinfo=UTC)


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as found:
        yield found
        until(lambda: found.sessions() == 0)  # none is left


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with psycopg.connect(**served.uri(), autocommit=True) as found:
        yield found


ROW = (
    START, "bö'\\x", 31.5, 2**40, Decimal("-3.25"), b"\x00\xff", True, timedelta(hours=26, microseconds=5),
    date(2024, 2, 29), 0.5, -7,
)  # fmt: skip
COLUMNS = "at, sensor, v, n, d, b, ok, i, day, r, k"
INSERT = f"INSERT INTO readings ({COLUMNS}) VALUES ({', '.join(['%s'] * len(ROW))})"
EVERY = f"CREATE QUERY every AS SELECT ISTREAM {COLUMNS} FROM readings [NOW]"
READ = 'SELECT "at", sensor, v, n, d, b, ok, i, day, r, k FROM every'


@pytest.mark.parametrize("binary", [False, True])
def test_values_go_in_and_come_out(client: Any, binary: bool) -> None:
    client.execute(EVERY)
    cursor = client.cursor(binary=binary)
    assert cursor.execute(INSERT, ROW).statusmessage == "INSERT 0 1"
    nulls = (START + timedelta(seconds=1), *[None] * (len(ROW) - 1))
    assert cursor.execute(INSERT.replace("%s", "%b") if binary else INSERT, nulls).rowcount == 1
    assert cursor.execute(READ).fetchall() == [ROW, nulls]
    assert cursor.execute(f"{READ} WHERE n > %s AND sensor = %s", (1, ROW[1])).fetchall() == [ROW]
    assert cursor.execute(f"{READ} WHERE n > 1", prepare=True).fetchall() == [ROW]
    assert cursor.execute(f"{READ} WHERE v < 0").fetchall() == []
    cursor.executemany(INSERT, [(START + timedelta(seconds=2 + i), *ROW[1:]) for i in range(3)])
    assert cursor.execute("SELECT count(*) FROM every").fetchone() == (5,)


def test_nothing_that_is_a_value_is_a_statement(client: Any) -> None:
    client.execute(EVERY)
    for at, text in enumerate(("'); DROP STREAM readings; --", "\\'); --", "%s $1 ?", "/* */")):
        client.execute(
            "INSERT INTO readings (at, sensor, n) VALUES (%s, %s, 1 -%s)", (START + timedelta(seconds=at), text, -5)
        )
        assert client.execute("SELECT n FROM every WHERE sensor = %s", (text,)).fetchall() == [(6,)]


def test_names_in_unicode(client: Any) -> None:
    client.execute('CREATE STREAM "Größe ✓" ("Maß x" DOUBLE)')
    client.execute('CREATE QUERY "zählt ✓" AS SELECT ISTREAM * FROM "Größe ✓"')
    with client.cursor().copy('COPY "Größe ✓" ("Maß x") FROM STDIN') as rows:
        rows.write("1.5\n\\N\n")
    cursor = client.execute('SELECT "Maß x" FROM "zählt ✓"')
    assert cursor.description[0].name == "Maß x"
    assert cursor.fetchall() == [(1.5,), (None,)]
    found = client.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'Größe ✓'").fetchall()
    assert ("Maß x",) in found


def test_errors_have_a_state_a_place_and_a_hint(client: Any) -> None:
    text = "SELECT 1;\n  INSERT INTO nowhere VALUES (1)"
    with pytest.raises(psycopg.Error) as caught:
        client.execute(text)
    diag = caught.value.diag
    assert (diag.sqlstate, diag.severity) == ("42P01", "ERROR")
    assert int(diag.statement_position) == text.index("nowhere") + 1
    assert "readings" in diag.message_hint
    for text, state in (("SELEC 1", "42601"), ("CREATE STREAM readings (x INT)", "42710"), ("FETCH 1 FROM c", "34000"),
                        ("SET nonsense = 1", "42704"), ("COPY readings FROM '/etc/passwd'", "42601"),
                        ("SELECT * FROM read_csv('/etc/passwd')", None), ("EXECUTE x", "42601")):  # fmt: skip
        with pytest.raises(psycopg.Error) as caught:
            client.execute(text)
        assert state in (None, caught.value.sqlstate)
    assert client.execute("SELECT 1").fetchone() == (1,)


def test_the_extended_protocol_goes_on_after_an_error(client: Any) -> None:
    with pytest.raises(psycopg.Error), client.pipeline():  # noqa: PT012
        first = client.execute("SELECT %s::BIGINT", (1,))
        client.execute("SELECT nonsense FROM lately")
        second = client.execute("SELECT %s::BIGINT", (2,))
        client.execute("INSERT INTO readings (at) VALUES (%s)", (START,))
    assert first.fetchone() == (1,)
    assert second.pgresult is None or second.statusmessage is None
    assert client.execute("SELECT count(*) FROM lately").fetchone() == (0,), "what came behind the error did not run"
    with client.pipeline():
        many = [client.execute("SELECT %s::BIGINT", (i,)) for i in range(20)]
    assert [c.fetchone() for c in many] == [(i,) for i in range(20)]


def test_there_are_no_transactions(served: Served) -> None:
    said: list[str] = []
    with psycopg.connect(**served.uri()) as held:
        held.add_notice_handler(lambda d: said.append(f"{d.severity} {d.message_primary}"))
        held.execute("INSERT INTO readings (at, sensor) VALUES (%s, 'a')", (START,))
        assert held.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        held.rollback()
        assert said == ["WARNING there are no transactions here: 1 statement since BEGIN stays done"]
        assert held.execute("SELECT n FROM lately").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.SyntaxError):
            held.execute("nonsense")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            held.execute("SELECT 1")
        held.rollback()
        with held.transaction(), held.transaction():
            held.execute("SELECT 1")
        held.commit()
        assert len(said) == 1


def test_parameters_of_the_connection(served: Served) -> None:
    options = {"options": "-c TimeZone=Europe/Vienna -c statement_timeout=5s", "application_name": "tests"}
    with psycopg.connect(**served.uri(), **options, autocommit=True) as held:
        assert held.execute("SHOW TimeZone").fetchone() == ("Europe/Vienna",)
        assert held.info.parameter_status("application_name") == "tests"
        held.execute("INSERT INTO readings (at, sensor) VALUES ('2024-05-01 10:00:00+00', 'a')")
        assert held.execute('SELECT "at"::VARCHAR FROM lately').fetchone() is not None
        held.execute("SET TIME ZONE 'UTC'")
        assert held.info.parameter_status("TimeZone") == "UTC"
        held.execute("RESET ALL")
        assert held.info.parameter_status("TimeZone") == "Europe/Vienna"
        asked = held.execute("SELECT current_setting('statement_timeout'), current_user, current_database()")
        assert asked.fetchone() == ("5s", "admin", "admin")
        held.execute("SELECT set_config('application_name', 'other', false)")
        assert held.info.parameter_status("application_name") == "other"
        assert len(held.execute("SHOW ALL").fetchall()) > 20
        held.execute("DISCARD ALL")


def test_a_statement_takes_no_longer_than_it_may(client: Any) -> None:
    client.execute("SET statement_timeout = '200ms'")
    with pytest.raises(psycopg.Error):
        client.execute("SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range % 7 = b.range % 11")
    client.execute("RESET statement_timeout")
    assert client.execute("SELECT 1").fetchone() == (1,)


# -- results as they come -----------------------------------------------------------------------------


def push(served: Served, *rows: tuple[int, str, float]) -> None:
    """Rows of the stream: seconds, sensor, value."""
    for second, sensor, value in rows:
        served.db.push("readings", [(START + timedelta(seconds=second), sensor, value, *[None] * (len(ROW) - 3))])


def test_a_cursor_follows_a_query(served: Served, client: Any) -> None:
    push(served, (0, "a", 31.0), (1, "b", 32.0), (2, "c", 33.0))
    client.execute("DECLARE c CURSOR FOR SUBSCRIBE hot FROM START")
    client.execute("DECLARE later CURSOR FOR SUBSCRIBE hot")
    cursor = client.execute("FETCH 2 FROM c")
    assert [c.name for c in cursor.description] == ["position", "ts", "op", "sensor", "v"]
    assert cursor.fetchall() == [(0, START, "+", "a", 31.0), (1, START + timedelta(seconds=1), "+", "b", 32.0)]
    assert [row[0] for row in client.execute("FETCH ALL FROM c")] == [2]
    assert client.execute("FETCH ALL FROM c").statusmessage == "FETCH 0"
    assert client.execute("FETCH 1 FROM later WITH (timeout = '1 ms')").fetchall() == []
    threading.Timer(0.2, push, (served, (3, "d", 34.0))).start()
    assert [row[:4] for row in client.execute("FETCH 10 FROM later WITH (timeout = '20 s')")] == [
        (3, START + timedelta(seconds=3), "+", "d")
    ]
    assert client.execute("DECLARE d CURSOR FOR SUBSCRIBE hot FROM 1").statusmessage == "DECLARE CURSOR"
    assert client.execute("MOVE 1 IN d").statusmessage == "MOVE 1"
    assert [row[0] for row in client.execute("FETCH 1 FROM d")] == [2]
    for name in ("c", "later", "d"):
        client.execute(f"CLOSE {name}")
    with pytest.raises(psycopg.errors.InvalidCursorName):
        client.execute("FETCH 1 FROM c")
    with client.cursor("named") as named:
        named.execute("SUBSCRIBE hot FROM START")
        named.itersize = 2
        assert [row[0] for row in named] == [0, 1, 2, 3]


def test_copy_follows_a_query_until_it_is_cancelled(served: Served, client: Any) -> None:
    push(served, (0, "a\tb", 31.0))
    found: list[tuple[Any, ...]] = []
    with (  # noqa: PT012
        pytest.raises(psycopg.errors.QueryCanceled),
        client.cursor().copy("COPY (SUBSCRIBE hot FROM START) TO STDOUT") as rows,
    ):
        for row in rows.rows():
            found.append(row)
            if len(found) == 1:
                push(served, (1, "c", 32.5))
            else:
                client.cancel_safe()  # cancel() would hold the interpreter, in which the server runs, too
    assert found == [
        ("0", "2024-05-01 10:00:00+00", "+", "a\tb", "31.0"),
        ("1", "2024-05-01 10:00:01+00", "+", "c", "32.5"),
    ]
    assert client.execute("SELECT 1").fetchone() == (1,)


def test_copy_ends_with_its_query(served: Served, client: Any) -> None:
    push(served, (0, "a", 31.0))
    with client.cursor().copy("COPY (SUBSCRIBE hot FROM START) TO STDOUT WITH (FORMAT csv, HEADER)") as rows:
        data = [bytes(next(iter(rows))) for _ in range(2)]
        served.db.execute("STOP QUERY hot")
        data += [bytes(row) for row in rows]
    assert b"".join(data) == b"position,ts,op,sensor,v\n0,2024-05-01 10:00:00+00,+,a,31.0\n"


def test_a_client_that_goes_ends_its_subscription(served: Served) -> None:
    with Raw(served.port) as raw:
        raw.login_with_token(served.token)
        raw.send(b"Q", b"COPY (SUBSCRIBE hot) TO STDOUT\0")
        assert raw.read()[0] == b"H"
        assert served.sessions() == 1


def test_who_comes_too_late_is_told_and_goes_on(served: Served, client: Any) -> None:
    client.execute("CREATE QUERY few AS SELECT ISTREAM sensor FROM readings [NOW] WITH (results = '3 rows')")
    client.execute("DECLARE c CURSOR FOR SUBSCRIBE few FROM START")
    push(served, *((i, "a", 1.0) for i in range(10)))
    with pytest.raises(psycopg.Error) as caught:
        client.execute("FETCH ALL FROM c")
    assert caught.value.diag.source_function == "ResultsGone"
    assert [row[0] for row in client.execute("FETCH ALL FROM c")] == [7, 8, 9]


# -- COPY FROM ----------------------------------------------------------------------------------------


def test_copy_takes_all_rows_or_none(served: Served, client: Any) -> None:
    client.execute(EVERY)
    good = "2024-05-01 10:00:00\ta\t1\n"
    with (
        pytest.raises(psycopg.DataError, match="line 2, column `v`: 'x' is not a DOUBLE"),
        client.cursor().copy("COPY readings (at, sensor, v) FROM STDIN") as rows,
    ):
        rows.write(good + "2024-05-01 10:00:01\tb\tx\n")
    assert client.execute("SELECT count(*) FROM every").fetchone() == (0,)
    with pytest.raises(RuntimeError), client.cursor().copy("COPY readings (at, sensor, v) FROM STDIN") as rows:  # noqa: PT012
        rows.write(good)
        raise RuntimeError("the client thinks again")
    assert client.execute("SELECT count(*) FROM every").fetchone() == (0,)
    with client.cursor().copy("COPY readings (v, at, sensor) FROM STDIN (FORMAT csv, HEADER)") as rows:
        rows.write('v,at,sensor\n1,2024-05-01 10:00:00,"a,""b"""\n,2024-05-01 10:00:01,\n')
    assert client.execute("SELECT v, sensor, n FROM every").fetchall() == [(1.0, 'a,"b"', None), (None, None, None)]
    with client.cursor().copy(f"COPY readings ({COLUMNS}) FROM STDIN (FORMAT binary)") as rows:
        rows.set_types(
            ["timestamptz", "text", "float8", "int8", "numeric", "bytea", "bool", "interval", "date", "float4", "int4"]
        )
        rows.write_row((START + timedelta(seconds=5), *ROW[1:]))
    assert client.execute(READ).fetchall()[-1] == (START + timedelta(seconds=5), *ROW[1:])
    with client.cursor().copy("COPY rooms FROM STDIN") as rows:
        rows.write("r1\t2\n")
    with client.cursor().copy("COPY rooms TO STDOUT") as out:
        assert list(out.rows()) == [("r1", "2")]
    for text, state in (("COPY nowhere FROM STDIN", "42P01"), ("COPY readings (x) FROM STDIN", "42703")):
        with pytest.raises(psycopg.Error) as caught, client.cursor().copy(text) as rows:
            rows.write("1\n")
        assert caught.value.sqlstate == state


def test_a_copy_that_is_too_large_is_refused() -> None:
    with (
        serving(replace(Settings(), rows=10, body=5_000)) as served,
        psycopg.connect(**served.uri(), autocommit=True) as client,
    ):
        for lines, words in ((11, "at most 10"), (1_000, "5000 bytes")):
            with (  # noqa: PT012
                pytest.raises(psycopg.Error, match=words),
                client.cursor().copy("COPY readings (at) FROM STDIN") as rows,
            ):
                for _ in range(lines):
                    rows.write("2024-05-01 10:00:00\n")
        assert client.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.Error):
            client.execute("SELECT '" + "x" * 6_000 + "'")


# -- who it is ----------------------------------------------------------------------------------------


def test_logins(served: Served) -> None:
    for user, password in (("admin", "wrong"), ("nobody", PASSWORD), ("admin", served.token), ("token", "pst_wrong")):
        with pytest.raises(psycopg.OperationalError) as caught:
            psycopg.connect(**served.uri(user, password))
        assert "failed" in str(caught.value)
    with psycopg.connect(**served.uri("token", served.token)) as held:
        assert held.execute("SELECT current_user").fetchone() == ("admin",)
        held.execute("CREATE USER eve PASSWORD 'password of eve'")
        (token,) = held.execute("CREATE TOKEN hers FOR eve").fetchone() or ("",)
    with psycopg.connect(**served.uri("eve", "password of eve"), autocommit=True) as hers:
        with pytest.raises(psycopg.Error):
            hers.execute("INSERT INTO readings (at) VALUES ('2024-05-01 10:00:00')")
        assert (
            hers.execute("SELECT relname FROM pg_class WHERE relkind IN ('r', 'm') AND relnamespace = 2200").fetchall()
            == []
        )
    with psycopg.connect(**served.uri("token", token), autocommit=True) as by_token:
        assert by_token.execute("SELECT session_user").fetchone() == ("eve",)
        served.service.access.drop_token("hers")
        with pytest.raises(psycopg.OperationalError, match="the session is over"):
            by_token.execute("SELECT 1")


def test_the_token_is_the_admins_password_until_another_is_set() -> None:
    with serving() as served:
        served.service.access.set_password("admin", None)
        with psycopg.connect(**served.uri("admin", served.token)) as held:
            assert held.execute("SELECT 1").fetchone() == (1,)


def test_users_that_are_not_there_look_like_others(served: Served) -> None:
    def messages(user: bytes) -> list[tuple[bytes, int]]:
        with Raw(served.port) as raw:
            body = struct.pack("!i", 196608) + b"user\0" + user + b"\0\0"
            raw.socket.sendall(struct.pack("!i", len(body) + 4) + body)
            found = [raw.read()]
            first = b"n,,n=,r=abcdefgh"
            raw.send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
            found.append(raw.read())
            nonce = found[-1][1][4:].split(b",")[0]
            raw.send(b"p", b"c=biws," + nonce + b",p=" + b"A" * 43 + b"=")
            found.append(raw.read())
            assert raw.read() == (b"", b"")
        return [(letter, len(body.replace(user, b""))) for letter, body in found]

    assert messages(b"admin") == messages(b"nobody")


def test_tls(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not there")
    how = tls.prepared(replace(Settings(), tls_self_signed=True), tmp_path)
    assert how.tls_cert is not None
    with serving(how) as served:
        uri = {**served.uri(), "sslmode": "verify-full", "sslrootcert": str(how.tls_cert)}
        with psycopg.connect(**uri) as held:
            assert held.pgconn.ssl_in_use
            assert held.execute("SHOW ssl").fetchone() == ("on",)
        old = how.tls_cert.read_text()
        for file in tmp_path.iterdir():
            file.unlink()
        tls.prepared(replace(Settings(), tls_self_signed=True), tmp_path)
        tls.reload(how)
        with Raw(served.port) as raw:
            raw.socket.sendall(struct.pack("!ii", 8, 80877103))
            assert raw.socket.recv(1) == b"S"
            with pytest.raises(ssl.SSLCertVerificationError):
                ssl.create_default_context(cadata=old).wrap_socket(raw.socket, server_hostname="localhost")
        with psycopg.connect(**uri) as held:
            assert held.pgconn.ssl_in_use
        with Raw(served.port) as raw:  # what is not encrypted behind the request is never taken for encrypted
            raw.socket.sendall(struct.pack("!ii", 8, 80877103) + b"\0\0\0\x08\x04\xd2\x16\x2f")
            assert raw.socket.recv(1) in (b"E", b"")


# -- clients that do not behave -------------------------------------------------------------------------


def test_limits_of_connections() -> None:
    with serving(replace(Settings(), sessions=2)) as served:
        held = [psycopg.connect(**served.uri()) for _ in range(2)]
        with pytest.raises(psycopg.OperationalError, match="2 sessions already"):
            psycopg.connect(**served.uri())
        for each in held:
            each.close()

        def gone() -> bool:
            try:
                return served.sessions() == 0
            except LimitExceeded:  # there is no room to ask yet
                return False

        until(gone)
        idle = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(12)]
        with Raw(served.port) as raw:
            letter, body = raw.read()
            assert (letter, fields(body)["C"]) == (b"E", "53300")
        for each_socket in idle:
            each_socket.close()


def test_a_client_that_does_not_log_in_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STARTUP_SECONDS", 0.2)
    with Raw(served.port) as raw:
        assert raw.socket.recv(1) == b""
    with Raw(served.port) as raw:
        raw.socket.sendall(b"\0\0\0")
        assert raw.socket.recv(1) == b""


def test_a_message_that_does_not_end_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED_SECONDS", 0.2)
    with Raw(served.port) as raw:
        raw.login_with_token(served.token)
        raw.socket.sendall(b"Q\0\0\0\x20SELECT")
        assert raw.socket.recv(1) == b""


def test_a_slow_reader_holds_nobody(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for far more than buffers hold and reads nothing: others go on, and it is cut off."""
    monkeypatch.setattr(connection, "STALLED_SECONDS", 0.5)
    with Raw(served.port) as raw:
        raw.login_with_token(served.token)
        raw.send(b"Q", b"SELECT repeat('x', 100000) FROM range(1000)\0")
        with psycopg.connect(**served.uri()) as other:
            assert other.execute("SELECT 1").fetchone() == (1,)


def test_cancel_needs_the_secret(served: Served) -> None:
    with Raw(served.port) as raw:
        raw.login_with_token(served.token)
        raw.send(b"Q", b"COPY (SUBSCRIBE hot) TO STDOUT\0")
        assert raw.read()[0] == b"H"
        with Raw(served.port) as other:
            other.socket.sendall(struct.pack("!iiii", 16, 80877102, 1, 12345))
            assert other.socket.recv(1) == b""
        push(served, (0, "a", 31.0))
        assert raw.read()[0] == b"d", "it still runs"


def test_the_server_ends_with_clients_connected() -> None:
    with serving() as served:
        idle = psycopg.connect(**served.uri())
        with Raw(served.port) as raw:
            raw.login_with_token(served.token)
            raw.send(b"Q", b"COPY (SUBSCRIBE hot) TO STDOUT\0")
            assert raw.read()[0] == b"H"
            served.listener.stop(time.monotonic() + 20)
            letter, body = raw.read()
            assert (letter, fields(body)["C"]) == (b"E", "57P01")
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")
        assert served.sessions() == 0
        served.listener.stop = lambda deadline: None  # type: ignore[method-assign]
