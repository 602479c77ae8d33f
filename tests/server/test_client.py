"""The Python client against a server over loopback: the interface, the errors and the answers of the same process."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import Database, PenstockError
from penstock.client.flight import Flight, Unreachable
from penstock.server.flight.listener import FlightListener
from penstock.server.http.listener import listener
from penstock.server.service import Service
from penstock.server.settings import Settings
from tests.budget import examples

DECLARE = "CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE, g STRING) TIMESTAMP BY t"
TOTALS = "SELECT k, sum(v) AS total, count(*) AS n FROM s [ROWS 3] WHERE v > 0 GROUP BY k"


class Serving:
    """A server over a local database, in this process; it can be ended and started again on the same port. ``flight``:
    whether it offers Flight, on another port each time."""

    def __init__(self, folder: Path | None = None, *, flight: bool = False) -> None:
        self._folder, self.port, self.token = folder, 0, ""
        self._flight = FlightListener() if flight else None
        self.start()

    def start(self) -> None:
        self.db = penstock.connect(self._folder, engine="local")
        chosen = replace(Settings(), http=self.port)
        self.service = Service(self.db, chosen)
        if self.service.access.is_new:
            self.token = self.service.access.first_start() or ""
        self._listener = listener()
        address = self._listener.start(self.service, chosen)
        self.port = int(address.rpartition(":")[2])
        if self._flight is not None:
            reached = self._flight.start(self.service, replace(Settings(), flight=0))
            self.service.ports["flight"] = int(reached.rpartition(":")[2])

    def stop(self) -> None:
        if self._flight is not None:
            self._flight.stop(time.monotonic() + 5)
        self._listener.stop(time.monotonic() + 5)
        self.service.close()
        self.db.close()

    def client(self, port: int | None = None) -> Database:
        return penstock.connect(f"http://127.0.0.1:{port or self.port}", token=self.token)


@pytest.fixture(params=["http", "flight"])
def serving(request: pytest.FixtureRequest) -> Iterator[Serving]:
    server = Serving(flight=request.param == "flight")
    yield server
    server.stop()


@pytest.fixture
def db(serving: Serving) -> Iterator[Database]:
    with serving.client() as found:
        yield found


def rows(table: pa.Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = table.to_pylist()
    return found


def test_what_a_user_does_first(db: Database) -> None:
    assert str(db.execute(DECLARE)) == "stream s created"
    query = db.query(TOTALS, name="totals", priority=3)
    db.push("s", [{"t": 1, "k": 1, "v": 2.5, "g": "ä"}, {"t": 2, "k": 2, "v": 1.0, "g": None}])
    db.push("s", pa.table({"t": [3], "k": [1], "v": [4.0], "g": ["z"]}))
    db.close_stream("s")
    assert query.fetch().num_rows == 4
    assert query.fetch().num_rows == 0
    assert sorted(rows(query.current()), key=lambda r: str(r["k"])) == [
        {"k": 1, "total": 6.5, "n": 2}, {"k": 2, "total": 1.0, "n": 1},
    ]  # fmt: skip
    assert query.options.priority == 3
    assert query.answered == 4
    assert (query.status, list(db.queries)) == ("ended", ["totals"])
    assert db.stream("s").given == 3
    once = db.execute("SELECT k, total FROM totals WHERE total > $1", [2.0])  # type: ignore[call-arg]
    assert once.table is not None
    assert rows(once.table) == [{"k": 1, "total": 6.5}]


def test_partitions_and_queues_are_chosen_as_in_the_same_process(db: Database) -> None:
    db.execute(DECLARE)
    db.query(TOTALS, name="totals")
    edges = [(e.source, e.target) for e in db.graph().edges]
    db.configure(threading="hybrid", partitions={"mine": ["totals"]}, queues=dict.fromkeys(edges, True))
    assert all(e.buffer is not None for e in db.graph().edges)
    assert "penstock-worker-partition-mine" in {p.worker for p in db.graph().partitions}
    with pytest.raises(penstock.InputError, match="in queues is no edge"):
        db.configure(queues={(1, 2, 3): True})


@pytest.mark.parametrize("name", ["self", "session", "settings"])
def test_a_setting_that_is_not_there_is_refused_whatever_its_name(db: Database, name: str) -> None:
    with pytest.raises(PenstockError, match="no setting"):
        db.request("PATCH", "/api/settings", {"settings": {name: 1}})  # type: ignore[attr-defined]


def test_rows_of_every_kind_arrive_as_they_are(db: Database) -> None:
    db.execute("CREATE STREAM many (at TIMESTAMP, x DOUBLE, d DECIMAL(10, 2), b BINARY, day DATE) TIMESTAMP BY at")
    query = db.query("SELECT ISTREAM * FROM many [NOW]", name="all")
    when = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    db.push("many", [{"at": when, "x": float("nan"), "d": Decimal("1.50"), "b": None, "day": date(2026, 1, 2)}])
    db.push("many", [{"at": when, "x": None, "d": None, "b": b"\x00\xff", "day": None}])
    db.close_stream("many")
    first, second = rows(query.fetch())
    assert first["x"] != first["x"]
    assert str(first["d"]) == "1.50"
    assert (first["at"], first["day"]) == (when.replace(tzinfo=None), date(2026, 1, 2))
    assert (second["b"], second["x"], second["day"]) == (b"\x00\xff", None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda db: db.execute("CREATE STREM x (a INT)"),
        lambda db: db.query("SELECT z FROM s"),
        lambda db: db.query("SELECT k FROM nowhere [NOW]"),
        lambda db: db.push("s", [{"t": "soon", "k": 1, "v": 1.0, "g": ""}]),
        lambda db: db.push("s", [{"t": 1, "k": 1, "v": 1.0, "g": "", "more": 1}]),
        lambda db: db.query("SELECT k FROM s [NOW]", name="totals"),
        lambda db: db.queries["totals"].alter(colour="red"),
        lambda db: db.stream("nowhere"),
        lambda db: db.explain("nowhere"),
        lambda db: db.execute("SUSPEND QUERY nowhere"),
        lambda db: db.query("SELECT k FROM s [NOW]", priority=12),
        lambda db: db.push("s", pa.table({"t": ["soon"], "k": [1], "v": [1.0], "g": [""]})),
        lambda db: db.push("s", pa.table({"t": [1], "k": [1], "v": [1.0], "g": [""], "more": [1]})),
        lambda db: db.push("s", pa.table({"t": pa.array([1, None]), "k": [1, 1], "v": [1.0, 1.0], "g": ["", ""]})),
    ],
)
def test_errors_are_those_of_the_same_process(db: Database, wrong: Callable[[Database], object]) -> None:
    with penstock.connect(engine="local") as here:
        errors = []
        for each in (here, db):
            each.execute(DECLARE)
            each.query(TOTALS, name="totals")
            with pytest.raises(PenstockError) as raised:
                wrong(each)
            errors.append(raised.value)
        mine, theirs = errors
        assert theirs.code == mine.code
        assert (theirs.message, theirs.hint, theirs.position) == (mine.message, mine.hint, mine.position)
        assert str(theirs) == str(mine)


def test_who_does_not_say_who_it_is_stays_out(serving: Serving) -> None:
    url = f"http://127.0.0.1:{serving.port}"
    with pytest.raises(penstock.EngineError, match="token"):
        penstock.connect(url)
    with pytest.raises(penstock.LoginFailed):
        penstock.connect(url, token="wrong")
    with pytest.raises(penstock.LoginFailed):
        penstock.connect(url, user="admin", password="wrong")


def test_a_server_that_is_not_there_is_told() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(penstock.EngineError, match="does not answer"):
            penstock.connect(f"http://127.0.0.1:{port}", token="x", patience=0.1)


ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1.0, 0.5, 2.0])), max_size=6)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(pushes=st.lists(ROWS, max_size=5), where=st.integers(0, 4))
def test_answers_are_those_of_the_same_process(
    serving: Serving, pushes: list[list[tuple[int, float]]], where: int
) -> None:
    """``where``: the push before which a subscriber comes."""
    name = f"g{len(list(serving.db.catalog.names()))}"
    declare, text = DECLARE.replace(" s ", f" {name} ", 1), TOTALS.replace("FROM s", f"FROM {name}")
    with penstock.connect(engine="local") as here, serving.client() as db:
        answers = []
        for each in (here, db):
            each.execute(declare)
            query = each.query(text, name=f"q_{name}")
            told: list[pa.Table] = []
            subscription = None
            t = 0
            for place, push in enumerate(pushes):
                if place == where:
                    query.fetch()
                    subscription = query.subscribe(told.append)
                batch = []
                for k, v in push:
                    t += 1
                    batch.append((t, k, v, "x"))
                each.push(name, batch)
            each.close_stream(name)
            fetched = rows(query.fetch())
            if subscription is not None:
                wanted = len(fetched)
                until(lambda told=told, wanted=wanted: sum(map(len, told)) >= wanted)  # type: ignore[misc]
                subscription.cancel()
            answers.append((fetched, [row for table in told for row in rows(table)], rows(query.current())))
        assert answers[0] == answers[1]
        assert answers[1][1] == (answers[1][0] if where < len(pushes) else [])


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@pytest.mark.parametrize("flight", [False, True])
def test_clients_go_on_when_the_server_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flight: bool
) -> None:
    monkeypatch.setattr("penstock.client.flight._AGAIN", 0.05)  # the way back to Flight is tried, too
    serving = Serving(tmp_path / "plant", flight=flight)
    with serving.client() as db:
        db.execute(DECLARE)
        query = db.query("SELECT ISTREAM t, v FROM s [NOW]", name="each")
        told: list[int] = []
        query.subscribe(lambda table: told.extend(table.column("t").to_pylist()))
        for t in range(40):
            if t in (10, 25):
                serving.stop()
                threading.Timer(0.2, serving.start).start()
            db.push("s", pa.table({"t": [t], "k": [1], "v": [1.0], "g": [""]}))
        db.close_stream("s")
        until(lambda: len(told) >= 40)
        assert told == list(range(40))
        assert query.fetch().column("t").to_pylist() == list(range(40))
    serving.stop()


@contextmanager
def cutting(port: int, after: int) -> Iterator[int]:
    """A way to a server that loses the ``after``-th answer: the request arrives, and the connection is cut."""
    listening = socket.create_server(("127.0.0.1", 0))
    answers = [0]

    def carry(client: socket.socket) -> None:
        with closing(client), closing(socket.create_connection(("127.0.0.1", port))) as server:
            done = threading.Event()

            def back() -> None:
                try:
                    while data := server.recv(65536):
                        if data.startswith(b"HTTP/1.1"):
                            answers[0] += 1
                        if answers[0] == after:
                            answers[0] += 1
                            return
                        client.sendall(data)
                except OSError:
                    pass
                finally:
                    done.set()
                    with suppress(OSError):
                        client.shutdown(socket.SHUT_RDWR)

            threading.Thread(target=back, daemon=True).start()
            try:
                while data := client.recv(65536):
                    server.sendall(data)
            except OSError:
                pass
            done.wait(10)

    def accept() -> None:
        try:
            while True:
                client, _ = listening.accept()
                threading.Thread(target=carry, args=(client,), daemon=True).start()
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    with closing(listening):
        yield listening.getsockname()[1]


@pytest.mark.parametrize("lost", range(2, 9))
def test_a_push_whose_acknowledgement_is_lost_counts_once(serving: Serving, lost: int) -> None:
    with serving.client() as db:
        db.execute(DECLARE)
        db.query("SELECT ISTREAM t FROM s [NOW]", name="each")
    with cutting(serving.port, lost) as port, serving.client(port) as db:
        for t in range(6):
            db.push("s", [(t, 1, 1.0, "")])
    with serving.client() as db:
        assert db.stream("s").given == 6
        assert db.queries["each"].fetch().column("t").to_pylist() == list(range(6))


def test_a_statement_is_not_sent_twice(serving: Serving) -> None:
    """The client cannot know whether it was carried out, and says so."""
    with cutting(serving.port, 2) as port, serving.client(port) as db:
        with pytest.raises(penstock.EngineError, match="may have been carried out"):
            db.execute(DECLARE)
        assert list(db.execute("SHOW STREAMS").table.column(0).to_pylist()) == ["s"]  # type: ignore[union-attr]


def test_a_reader_that_is_too_late_is_told_once(db: Database) -> None:
    db.execute(DECLARE)
    query = db.query("SELECT ISTREAM t FROM s [NOW]", name="each", results="2 rows")
    query.fetch()
    for t in range(5):
        db.push("s", [(t, 1, 1.0, "")])
    db.close_stream("s")
    with pytest.raises(penstock.ResultsGone):
        query.fetch()
    assert query.fetch().column("t").to_pylist() == [3, 4]


def test_the_graph_and_what_was_measured(db: Database) -> None:
    db.execute(DECLARE)
    query = db.query(TOTALS, name="totals")
    db.push("s", [(1, 1, 1.0, "")])
    db.settle()
    view = db.graph()
    assert [q.name for q in view.queries] == ["totals"]
    assert view.text()
    assert view.svg().startswith("<svg")
    assert db.metrics("queries").num_rows >= 1
    assert query.latency.count >= 0
    assert "sum" in db.explain("totals")
    assert "sum" in query.explain()


def test_orders_to_queries(db: Database) -> None:
    db.execute(DECLARE)
    query = db.query("SELECT ISTREAM t FROM s [NOW]", name="each")
    query.suspend()
    assert query.status == "suspended"
    query.resume()
    query.alter(priority=7)
    assert (query.status, query.options.priority) == ("running", 7)
    query.stop()
    assert (query.status, list(db.queries)) == ("stopped", [])


def test_a_client_that_is_closed_says_so(serving: Serving) -> None:
    db = serving.client()
    db.close()
    with pytest.raises(penstock.StateError, match="closed"):
        db.execute("SHOW STREAMS")


def test_a_connection_that_the_server_has_closed_is_not_used(tmp_path: Path) -> None:
    serving = Serving(tmp_path / "plant")
    with serving.client() as db:
        db.execute(DECLARE)
        serving.stop()
        serving.start()
        assert db.execute("SHOW STREAMS").table is not None  # a statement is never sent twice
    serving.stop()


def test_keys_of_producers_with_any_name(db: Database) -> None:
    db.execute(DECLARE)
    for producer in ("sensor-ä", "sensor-ö", "传感器", 'a"', "a"):
        for _ in range(2):
            db.push("s", [(1, 1, 1.0, "")], key=(producer, 1))
    assert db.stream("s").given == 5


TABLE = pa.table({"t": [1, 2], "k": [1, 2], "v": [1.5, 2.5], "g": ["a", None]})


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that went by Flight."""
    found: list[str] = []
    push, page = Flight.push, Flight.page

    def pushed(self: Flight, *given: object) -> None:
        push(self, *given)  # type: ignore[arg-type]
        found.append("push")

    def paged(self: Flight, *given: object) -> object:
        made = page(self, *given)  # type: ignore[arg-type]
        found.append("page")
        return made

    monkeypatch.setattr(Flight, "push", pushed)
    monkeypatch.setattr(Flight, "page", paged)
    return found


def test_tables_and_results_go_by_flight_where_it_is_there(serving: Serving, counted: list[str]) -> None:
    with serving.client() as db:
        db.execute(DECLARE)
        query = db.query("SELECT ISTREAM t, g FROM s [NOW]", name="each")
        for _ in range(2):
            db.push("s", TABLE, key=("me", 1))
        db.push("s", TABLE.slice(0, 0))
        db.close_stream("s")
        assert rows(query.fetch().select(["t", "g"])) == [{"t": 1, "g": "a"}, {"t": 2, "g": None}]
        assert db.stream("s").given == 2
    offered = "flight" in serving.service.ports
    assert set(counted) == ({"push", "page"} if offered else set())


def test_what_a_table_is_does_not_depend_on_the_way(serving: Serving) -> None:
    with serving.client() as db, penstock.connect(engine="local") as here:
        schemas = []
        for each in (db, here):
            each.execute(DECLARE)
            query = each.query(TOTALS, name="totals")
            each.push("s", TABLE)
            each.close_stream("s")
            schemas.append((query.fetch().schema, query.schema))
        assert schemas[0][0].equals(schemas[1][0], check_metadata=True)
        assert schemas[0][1].equals(schemas[1][1])


@pytest.mark.parametrize("away", ["no listener", "nobody answers", "no library"])
def test_http_takes_over_where_flight_is_not_reached(
    monkeypatch: pytest.MonkeyPatch, counted: list[str], away: str
) -> None:
    monkeypatch.setattr("penstock.client.flight._FIRST", 0.2)
    serving = Serving()
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, serving.client() as db:
        if away == "nobody answers":
            serving.service.ports["flight"] = silent.getsockname()[1]
        elif away == "no library":
            serving.service.ports["flight"] = 1
            monkeypatch.setitem(sys.modules, "pyarrow.flight", None)
        db.execute(DECLARE)
        query = db.query("SELECT ISTREAM t FROM s [NOW]", name="each")
        told: list[int] = []
        query.subscribe(lambda table: told.extend(table.column("t").to_pylist()))
        db.push("s", TABLE)
        db.close_stream("s")
        assert query.fetch().num_rows == 2
        until(lambda: told == [1, 2])
    assert counted == []
    serving.stop()


def test_a_push_that_flight_lost_is_sent_over_http_and_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows have arrived, and the acknowledgement has not."""
    serving = Serving(flight=True)
    push, lost = serving.service.push, [True]

    def pushed(*given: Any, **more: Any) -> object:
        done = push(*given, **more)
        if lost[0]:
            lost[0] = False
            raise flight.FlightInternalError("the connection is cut")
        return done

    monkeypatch.setattr(serving.service, "push", pushed)
    with serving.client() as db:
        db.execute(DECLARE)
        db.push("s", TABLE)
        assert lost == [False]
        assert db.stream("s").given == 2
    serving.stop()


def test_nobody_waits_for_a_thread_that_connects_by_flight() -> None:
    asked, go = threading.Event(), threading.Event()

    def where() -> str | None:
        asked.set()
        assert go.wait(60)
        return None

    client, rows = Flight(where, "Bearer x", None, 10.0), pa.table({"v": [1]})
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(client.push, "s", rows, ("me", 1))
        assert asked.wait(60)
        with pytest.raises(Unreachable):
            client.push("s", rows, ("me", 2))
        client.close()
        assert not first.done()
        go.set()
        assert isinstance(first.exception(60), Unreachable)
