"""A plain SELECT that runs is given up as soon as its client cancels it, goes, or its time is over.

DuckDB stops, and its place is free for the next one. Over loopback, with psycopg, httpx and ADBC."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import adbc_driver_flightsql.dbapi as dbapi
import httpx
import psycopg
import pyarrow.flight as flight
import pytest

import penstock
from penstock.database.database import Database
from penstock.hosts.options import SparkOptions
from penstock.model.errors import BindError, QueryFailed, StateError
from penstock.server.http.app import WORKERS
from penstock.server.postgres.listener import THREADS
from penstock.server.service import Service
from penstock.server.settings import Settings
from penstock.server.stop import Stop
from tests.server import over_http, pg
from tests.server.pg import until
from tests.server.serving import served
from tests.server.test_flight import Flying, flying

ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000) b"
"""Days of work."""
PATIENT = Settings(adhoc_seconds=600.0, flight=0)


def running() -> int:
    """Statements that DuckDB runs: each has a thread that watches it."""
    return sum(t.name == "penstock-select-watch" for t in threading.enumerate())


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    until(lambda: running() == 0)
    yield
    until(lambda: running() == 0)


@contextmanager
def connected(to: pg.Served, count: int) -> Iterator[list[psycopg.Connection]]:
    made = [psycopg.connect(**to.uri(), autocommit=True) for _ in range(count)]  # type: ignore[arg-type]
    try:
        yield made
    finally:
        for each in made:
            each.close()


def raised(client: psycopg.Connection, text: str) -> str:
    with pytest.raises(psycopg.Error) as caught:
        client.execute(text)
    return caught.value.sqlstate or "the connection is closed"


def test_cancelled_selects_of_postgresql_free_the_pool() -> None:
    with pg.serving(PATIENT) as to, connected(to, THREADS) as clients, ThreadPoolExecutor(THREADS) as threads:
        asked = [threads.submit(raised, client, ENDLESS) for client in clients]
        until(lambda: running() == THREADS)
        for client in clients:
            client.cancel_safe()
        assert {each.result(60) for each in asked} == {"57014"}
        until(lambda: running() == 0)
        assert clients[0].execute("SELECT 1").fetchone() == (1,)


def test_what_is_prepared_and_cursors_are_cancelled_too() -> None:
    with pg.serving(PATIENT) as to, connected(to, 3) as clients, ThreadPoolExecutor(3) as threads:
        texts = [f"DECLARE c CURSOR WITH HOLD FOR {ENDLESS}", f"COPY ({ENDLESS}) TO STDOUT"]
        catalogs = ", ".join(f"pg_catalog.pg_type t{i}" for i in range(9))
        texts.append(f"SELECT count(*) FROM {catalogs}")
        asked = [threads.submit(raised, client, text) for client, text in zip(clients, texts, strict=True)]
        until(lambda: running() == 3)
        for client in clients:
            client.cancel_safe()
        assert {each.result(60) for each in asked} == {"57014"}


def test_a_closed_connection_of_postgresql_ends_its_select() -> None:
    with pg.serving(PATIENT) as to, pg.Raw(to.port) as raw:
        raw.login_with_token(to.token)
        raw.send(b"Q", ENDLESS.encode() + b"\0")
        until(lambda: running() == 1)
        raw.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: running() == 0)


def test_closed_connections_of_http_free_the_pool() -> None:
    with over_http.served(adhoc_seconds=600.0) as to:
        body = json.dumps({"sql": ENDLESS}).encode()
        head = f"POST /api/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {to.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        clients = [socket.create_connection(to.address) for _ in range(WORKERS + 4)]
        for client in clients:
            client.sendall(head.encode() + body)
        until(lambda: running() == WORKERS)
        for client in clients:
            client.close()
        until(lambda: running() == 0)
        assert to.sql("SELECT 1 AS one")[0]["rows"] == [[1]]


def test_a_client_that_goes_leaves_declarations_whole() -> None:
    with over_http.served(adhoc_seconds=600.0) as to, to.client() as client:
        text = f"CREATE STREAM a (n BIGINT); {ENDLESS}; CREATE STREAM b (n BIGINT)"
        with pytest.raises(httpx.ReadTimeout):
            client.post("/api/sql", json={"sql": text}, timeout=1.0)
        until(lambda: running() == 0)
        assert [s["name"] for s in client.get("/api/streams").json()["streams"]] == ["a"]


@pytest.fixture
def flight_server() -> Iterator[Flying]:
    with flying(PATIENT) as made:
        yield made


def test_a_cancelled_call_of_flight_ends_its_select(flight_server: Flying) -> None:
    with flight_server.connect() as connection, connection.cursor() as cursor, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(cursor.execute, ENDLESS)
        until(lambda: running() == 1)
        cursor.adbc_cancel()
        assert isinstance(asked.exception(60), dbapi.Error)
        until(lambda: running() == 0)


def test_a_closed_connection_of_flight_ends_its_select(flight_server: Flying) -> None:
    client, failed = flight_server.client(), threading.Event()
    info = client.get_flight_info(flight.FlightDescriptor.for_command(_statement(ENDLESS)), flight_server.options)

    def read() -> None:
        try:
            client.do_get(info.endpoints[0].ticket, options).read_all()
        except (flight.FlightError, OSError):
            failed.set()

    options = flight.FlightCallOptions(headers=flight_server.options.headers, timeout=1.0)
    reading = threading.Thread(target=read)
    reading.start()
    until(lambda: running() == 1)
    reading.join(60)
    assert failed.is_set()
    until(lambda: running() == 0)
    client.close()


def _statement(text: str) -> bytes:
    from penstock.server.flight import wire

    return wire.packed("CommandStatementQuery", wire.message(f1=text.encode()))


def test_the_time_limit_ends_it_and_a_stop_that_came_before_it_began() -> None:
    with served(settings=Settings(adhoc_seconds=0.3)) as to, pytest.raises(QueryFailed, match="did not end within"):
        to.run(ENDLESS)
    with served(settings=PATIENT) as to:
        assert to.admin is not None
        stop = Stop()
        stop.set()
        with pytest.raises(QueryFailed, match="given up"):
            to.service.execute(to.admin, ENDLESS, stop=stop)


def test_postgresql_knows_a_statement_whose_time_is_over_and_rows_that_are_too_many() -> None:
    with pg.serving(replace(PATIENT, rows=2)) as to, connected(to, 1) as (client,):
        client.execute("SET statement_timeout = 300")
        assert raised(client, ENDLESS) == "57014"
        with pytest.raises(psycopg.errors.ProgramLimitExceeded), client.cursor().copy("COPY rooms FROM STDIN") as copy:
            copy.write("a\t1\nb\t2\nc\t3\n")


def test_a_server_that_ends_gives_selects_up() -> None:
    with over_http.served(adhoc_seconds=600.0) as to:

        def ask() -> None:
            with to.client() as client, pytest.raises(httpx.HTTPError):
                client.post("/api/sql", json={"sql": ENDLESS}).raise_for_status()

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: running() == 1)
    asking.join(60)
    assert not asking.is_alive()


@pytest.mark.parametrize("text", ["SELECT range(1000000000)", "SELECT unnest(generate_series(1, 1000000000))"])
def test_lists_that_could_not_be_given_up_are_refused(text: str) -> None:
    with served() as to, pytest.raises(BindError, match="write FROM"):
        to.run(text)


@pytest.mark.parametrize("call", ["range(1000000000)", "repeat('x', 1000000000)", "lpad('x', 1000000000)"])
def test_the_catalogs_make_no_such_lists_either(call: str) -> None:
    with pg.serving(PATIENT) as to, connected(to, 1) as clients:
        assert raised(clients[0], f"SELECT {call} FROM pg_catalog.pg_type") == "0A000"


# -- a SELECT that waits for rows before it -----------------------------------------------------------------


class Held:
    """A function for queries that does not return until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, value: int) -> int:
        self.entered.set()
        assert self.go.wait(60)
        return value

    def held_up(self, db: Database, way: str = "operator") -> threading.Thread:
        """Let a query work on a row that it does not get done; gives the thread that pushed it."""
        db.create_function("held", self, args=["BIGINT"], returns="BIGINT")
        db.configure(threading=way)
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        db.execute("CREATE QUERY slow AS SELECT held(v) AS v FROM s [ROWS 1]")
        db.execute("CREATE RELATION r (k BIGINT) KEY (k)")
        pushing = threading.Thread(target=db.push, args=("s", [(1, 7)]))
        pushing.start()
        assert self.entered.wait(60)
        return pushing


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.go.set()


WAITING = [
    ("operator", "SELECT * FROM slow", "not worked on yet by query `slow`"),
    ("direct", "SELECT * FROM r", "is busy"),
]
"""With workers the query is behind; without them the one who pushes has the database's lock."""


@pytest.mark.parametrize(("way", "text", "why"), WAITING)
def test_a_select_that_waits_for_rows_before_it_ends_with_its_time(held: Held, way: str, text: str, why: str) -> None:
    with served(settings=Settings(adhoc_seconds=0.3)) as to:
        pushing = held.held_up(to.db, way)
        with pytest.raises(QueryFailed, match="did not end within") as caught:
            to.run(text)
        assert why in caught.value.message
        assert caught.value.hint
        held.go.set()
        pushing.join(60)
        to.db.settle()
        assert to.run("SELECT * FROM slow")[0].table.to_pylist() == [{"v": 7}]  # type: ignore[union-attr]


@pytest.mark.parametrize(("way", "text", "why"), WAITING)
def test_a_select_that_waits_for_rows_before_it_is_stopped(held: Held, way: str, text: str, why: str) -> None:
    with served(settings=PATIENT) as to, ThreadPoolExecutor(1) as threads:
        pushing = held.held_up(to.db, way)
        asked = Asked()
        assert to.admin is not None
        done = threads.submit(to.service.execute, to.admin, text, stop=asked)
        assert asked.looked.wait(60), "it waits"
        asked.set()
        assert "given up" in str(done.exception(60))
        held.go.set()
        pushing.join(60)


class Asked(Stop):
    """Tells when a statement that waits has looked at it twice."""

    def __init__(self) -> None:
        super().__init__()
        self.looked, self._times = threading.Event(), 0

    @property
    def is_set(self) -> bool:
        self._times += 1
        if self._times > 2:
            self.looked.set()
        return super().is_set


_ENTERED, _GO = threading.Event(), threading.Event()


def _blocked(value: int) -> int:
    """For functions that are named, not sent: does not return until it is let go."""
    _ENTERED.set()
    assert _GO.wait(60)
    return value


def test_a_select_ends_before_a_micro_batch_does(tmp_path: Path) -> None:
    """On the host of Spark, whose micro-batches are made in this process."""
    options = SparkOptions(inline=True, trigger=0.0)
    with penstock.Database("spark", path=tmp_path, options=options) as db:
        db.create_function("blocked", _blocked, args=["BIGINT"], returns="BIGINT")
        service = Service(db, Settings(adhoc_seconds=0.3))
        session = service.login_token(service.access.first_start() or "", protocol="python", remote="test")
        service.execute(session, "CREATE STREAM s (v BIGINT); CREATE QUERY q AS SELECT blocked(v) AS v FROM s [ROWS 1]")
        service.push(session, "s", [{"v": 7}])
        try:
            assert _ENTERED.wait(60)
            with pytest.raises(QueryFailed, match="not worked on yet by query `q`"):
                service.execute(session, "SELECT * FROM q")
            stop = Stop()
            stop.set()
            with pytest.raises(QueryFailed, match="given up"):
                service.current(session, "q", stop=stop)
        finally:
            _GO.set()
        service.settle(session)
        assert service.current(session, "q").to_pylist() == [{"v": 7}]
        service.close()


def test_the_hint_of_a_select_that_waits_works(held: Held) -> None:
    with served(settings=Settings(adhoc_seconds=0.3)) as to:
        pushing = held.held_up(to.db)
        with pytest.raises(QueryFailed) as caught:
            to.run("SELECT * FROM slow")
        assert "SUBSCRIBE slow FROM START" in str(caught.value.hint)
        assert to.run("SUBSCRIBE slow FROM START")[0].subscribe is not None
        assert to.admin is not None
        assert len(to.service.feed(to.admin, "slow").read(0, 10)) == 0
        held.go.set()
        pushing.join(60)


def test_what_stands_waits_no_longer_than_a_select_and_nobody_settles_for_a_client_that_has_gone(held: Held) -> None:
    with served(settings=Settings(adhoc_seconds=0.3)) as to:
        pushing = held.held_up(to.db)
        assert to.admin is not None
        with pytest.raises(QueryFailed, match="not worked on yet"):
            to.service.current(to.admin, "slow")
        stop = Stop()
        stop.set()
        for query in (None, "slow"):
            with pytest.raises(StateError, match="nobody waits"):
                to.service.settle(to.admin, query, stop=stop)
        held.go.set()
        pushing.join(60)
        to.service.settle(to.admin)
        assert to.service.current(to.admin, "slow").to_pylist() == [{"v": 7}]


def test_selects_of_postgresql_that_wait_are_cancelled_and_free_the_pool(held: Held) -> None:
    with pg.serving(PATIENT) as to, connected(to, THREADS) as clients, ThreadPoolExecutor(THREADS) as threads:
        pushing = held.held_up(to.db)
        asked = [threads.submit(raised, client, "SELECT * FROM slow") for client in clients[1:]]
        clients[0].execute("SET statement_timeout = 300")
        assert raised(clients[0], "SELECT * FROM slow") == "57014"
        for client in clients[1:]:
            client.cancel_safe()
        assert {each.result(60) for each in asked} == {"57014"}
        assert clients[0].execute("SELECT 1").fetchone() == (1,)
        held.go.set()
        pushing.join(60)


def test_closed_connections_of_http_that_wait_free_the_pool(held: Held) -> None:
    with over_http.served(adhoc_seconds=600.0) as to, to.client() as client:
        pushing = held.held_up(to.service._db)
        requests = [
            ("POST", "/api/sql", {"sql": "SELECT * FROM slow"}), ("POST", "/api/settle", {"query": "slow"}),
            ("GET", "/api/queries/slow/current", None),
        ]  # fmt: skip
        for method, path, body in requests * (WORKERS // 3 + 1):
            with pytest.raises(httpx.ReadTimeout):
                client.request(method, path, json=body, timeout=0.1)
        assert to.sql("SELECT 1 AS one")[0]["rows"] == [[1]]
        held.go.set()
        pushing.join(60)


def test_calls_of_flight_that_wait_end_with_their_clients(held: Held, flight_server: Flying) -> None:
    """A server that ends waits for calls that run: none does any more."""
    pushing = held.held_up(flight_server.service._db)
    info = flight.FlightDescriptor.for_command(_statement("SELECT * FROM slow"))
    with flight_server.client() as client:
        ticket = client.get_flight_info(info, flight_server.options).endpoints[0].ticket
        hurried = flight.FlightCallOptions(headers=flight_server.options.headers, timeout=0.5)
        for each in (ticket, flight.Ticket(b'{"current": "slow"}')):
            with pytest.raises(flight.FlightTimedOutError):
                client.do_get(each, hurried).read_all()
    stopping = threading.Thread(target=flight_server.listener.stop, args=(time.monotonic() + 600,))
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
    held.go.set()
    pushing.join(60)
