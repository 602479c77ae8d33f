"""Buffers of a database: bounds, budgets, back-pressure, slow readers, files and what goes wrong with them."""

from __future__ import annotations

import _thread
import errno
import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts.local.host import LocalHost
from penstock.ingest.streams import StreamInput
from penstock.model.amounts import Bound
from penstock.model.errors import (
    BindError,
    BufferFullError,
    EngineError,
    InputError,
    QueryFailed,
    SpillError,
    StateError,
)
from penstock.runtime.storage import files
from penstock.runtime.storage.storage import Storage
from penstock.testing import full_disk
from tests.conftest import ROOT

STREAM = "CREATE STREAM s (t BIGINT, v BIGINT, n STRING) TIMESTAMP BY t"


def host(db: penstock.Database) -> LocalHost:
    found = core_of(db).host
    assert isinstance(found, LocalHost)
    return found


def storage(db: penstock.Database) -> Storage:
    return host(db).runtime.storage


def rows(first: int, count: int) -> list[tuple[int, int, str]]:
    return [(i, i, f"no. {i}") for i in range(first, first + count)]


def operator(db: penstock.Database, kind: str, query: str | None = None) -> int:
    return next(o.id for o in db.graph().operators if o.kind == kind and (query is None or o.queries == (query,)))


class Gate:
    """A function for queries that lets rows pass when it is told to."""

    def __init__(self, db: penstock.Database) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        db.create_function("gate", self.call, args=["BIGINT"], returns="BIGINT")

    def fill(self, db: penstock.Database) -> None:
        """Push 500 rows: some are being worked on, the others wait."""
        db.push("s", rows(0, 10))
        self.reached.wait()
        db.push("s", rows(10, 490))

    def call(self, v: int) -> int:
        self.reached.set()
        self.open.wait()
        return v


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., penstock.Database]]:
    made: list[penstock.Database] = []

    def make(**options: Any) -> penstock.Database:
        db = penstock.connect(engine="local", spill=tmp_path, **options)
        made.append(db)
        return db

    yield make
    for db in made:
        db.close()
    assert list(tmp_path.iterdir()) == []


class Pushing(threading.Thread):
    """Pushes in a thread of its own. ``waits``: it has been told to wait for room."""

    def __init__(self, db: penstock.Database, rows: object) -> None:
        super().__init__(daemon=True)
        self.db, self.rows = db, rows
        self.waits = threading.Event()
        self.error: Exception | None = None
        watched(db, self.waits.set)
        self.start()

    def run(self) -> None:
        try:
            self.db.push("s", self.rows)
        except Exception as error:
            self.error = error


def fill(db: penstock.Database, count: int) -> tuple[int, BufferFullError]:
    """Push so many rows again and again until they are refused; gives how many were taken, and what was said."""
    for given in range(0, 100_000, count):
        try:
            db.push("s", rows(given, count))
        except BufferFullError as refused:
            return given, refused
    raise AssertionError("there was always room")


def watched(db: penstock.Database, waits: Callable[[], object]) -> None:
    """Hear when a push has to wait."""
    admits = core_of(db).host.admits

    def asked(source: Any, rows: object) -> bool:
        found = admits(source, rows)
        if not found:
            waits()
        return found

    core_of(db).host.admits = asked  # type: ignore[method-assign]


# -- bounds -------------------------------------------------------------------------------------------------

EVERY = """CREATE STREAM "größe 温度" (t TIMESTAMP, b BOOLEAN, i INT, l BIGINT, r REAL, d DOUBLE, e DECIMAL(12, 3),
  s STRING, y BINARY, a DATE, v INTERVAL) TIMESTAMP BY t"""


def every(i: int) -> tuple[object, ...]:
    at = datetime(2026, 1, 1) + timedelta(seconds=i)
    if i % 5 == 0:
        return (at, *[None] * 10)
    return (
        at, i % 2 == 0, i, i << 40, i / 2, i / 3, Decimal(i) / 8, f"žluť {i}", bytes([i % 256]) * i,
        date(2026, 1, 1 + i % 28), timedelta(microseconds=i),
    )  # fmt: skip


@pytest.mark.parametrize("bound", [None, "0 rows", "2 rows", "1 KB"])
@pytest.mark.parametrize("threading", ["direct", "graph", "hybrid"])
def test_values_of_all_types_come_back(
    connect: Callable[..., penstock.Database], threading: str, bound: str | None
) -> None:
    found = []
    for memory in (None, 0):
        db = connect(memory=memory)
        db.execute(EVERY if bound is None else f"{EVERY} WITH (buffer = '{bound}')")
        query = db.query('SELECT * FROM "größe 温度"')
        db.configure(threading=threading)
        db.suspend(operator(db, "intake"))
        for i in range(0, 40, 8):
            db.push("größe 温度", [every(i + j) for j in range(8)])
            db.push("größe 温度", [])
            db.push("größe 温度", [every(i + 8)])
        used = storage(db).disk_used
        assert used == 0 if memory is None and bound is None else used > 0
        db.resume(operator(db, "intake"))
        found.append(query.fetch().to_pylist())
        assert storage(db).disk_used == 0
    assert len(found[0]) == 45
    assert found[0] == found[1]


@pytest.mark.parametrize(("text", "bound", "spills"), [
    ("'64 MB'", Bound(bytes=64 * 10**6), False), ("'100_000 rows'", Bound(rows=100_000), False),
    ("'1 row'", Bound(rows=1), True), ("'1.5 GiB'", Bound(bytes=3 * 2**29), False), ("'100'", Bound(bytes=100), True),
])  # fmt: skip
def test_a_stream_says_how_much_of_it_may_wait_in_memory(
    connect: Callable[..., penstock.Database], text: str, bound: Bound, spills: bool
) -> None:
    db = connect()
    db.execute(f"{STREAM} WITH (buffer = {text})")
    assert db.catalog.stream("s").buffer == bound
    query = db.query("SELECT v FROM s")
    db.configure(threading="graph")
    db.suspend(operator(db, "intake"))
    db.push("s", rows(0, 100))
    db.push("s", rows(100, 100))
    assert (storage(db).disk_used > 0) == spills
    db.resume(operator(db, "intake"))
    assert query.fetch().column("v").to_pylist() == list(range(200))


@pytest.mark.parametrize("option", [
    "buffer = '64 bananas'", "buffer = 'many'", "buffer = '-1 MB'", "buffer = '1.5 rows'", "buffer = true",
    "overflow = 'drop newest'", "overflow = 1",
])  # fmt: skip
def test_what_no_bound_is_is_refused_where_it_stands(option: str) -> None:
    with penstock.connect(engine="local") as db:
        with pytest.raises((BindError, InputError)) as caught:
            db.execute(f"{STREAM} WITH ({option})")
        assert caught.value.hint
        assert caught.value.position is not None
        assert "s" not in db.catalog.streams


def test_prioritised_rows_are_not_dropped() -> None:
    with penstock.connect(engine="local") as db, pytest.raises(BindError, match="priorities"):
        db.execute(f"{STREAM} PRIORITY BY v WITH (overflow = 'drop oldest')")


@pytest.mark.parametrize("options", [
    {"memory": "lots"}, {"memory": -1}, {"memory": True}, {"disk": "1 parsec"}, {"memory": "100 rows"},
    {"when_full": "explode"}, {"spill": "/nowhere/at/all"}, {"spill": 5},
])  # fmt: skip
def test_what_no_budget_is_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        penstock.connect(engine="local", **options)
    assert caught.value.hint


@pytest.mark.parametrize("settings", [{"read_ahead": 101}, {"read_ahead": "all"}, {"lag": "far"}, {"on_lag": "shout"}])
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with penstock.connect(engine="local") as db:
        with pytest.raises(InputError) as caught:
            db.configure(experiments=settings)
        assert caught.value.hint


def test_other_engines_have_no_such_budgets() -> None:
    with pytest.raises(EngineError, match="belong to engine='local'"):
        penstock.connect(engine="reference", memory="1 GB")


def test_on_spark_rows_wait_in_the_log() -> None:
    from tests.spark.direct import directly

    with directly(), penstock.connect(engine="spark") as db:
        with pytest.raises(EngineError, match="drops no rows"):
            db.execute(f"{STREAM} WITH (overflow = 'drop oldest')")
        assert "s" not in db.catalog.streams
        db.execute(f"{STREAM} WITH (buffer = '1 MB')")


# -- budgets ------------------------------------------------------------------------------------------------


def test_what_exceeds_the_memory_goes_to_disk_and_is_seen(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="20 KB")
    db.execute(STREAM)
    query = db.query("SELECT count(*) AS c FROM s [ROWS 3]", name="slow")
    other = db.query("SELECT v FROM s WHERE v % 100 = 0", name="other")
    resting = operator(db, "window", "slow")
    db.suspend(resting)
    for i in range(20):
        db.push("s", rows(100 * i, 100))
    buffer = next(e.buffer for e in db.graph().edges if e.target == resting and e.buffer is not None)
    assert buffer.elements == buffer.peak == 2_000
    assert 0 < buffer.spilled < 2_000
    assert 0 < buffer.spilled_bytes < buffer.bytes
    assert storage(db).used < 40_000
    assert "on disk" in db.graph().text()
    assert [q.status for q in db.graph().queries] == ["suspended", "running"]
    measured = next(m for m in db.metrics().to_pylist() if m["reader"] == resting)
    assert measured["rows"] == 2_000
    assert measured["spilled_rows"] == buffer.spilled
    assert measured["queries"] == ["slow"]
    assert measured["lag"] > 0
    assert other.fetch()["v"].to_pylist() == list(range(0, 2_000, 100))
    db.resume(resting)
    assert query.fetch().num_rows == 5
    assert db.graph().text().count("on disk") == 0


def test_push_waits_for_room(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="10 KB", disk="20 KB")
    db.execute(STREAM)
    gate = Gate(db)
    query = db.query("SELECT gate(v) AS v FROM s")
    db.configure(threading="graph")
    gate.fill(db)
    pushing = Pushing(db, rows(500, 1_600))  # more than there is room for, ever: let in once nothing waits
    pushing.waits.wait()
    assert db.stream("s").given == 500  # the lock is free
    gate.open.set()
    pushing.join()
    assert pushing.error is None
    assert query.fetch()["v"].to_pylist() == list(range(2_100))


def test_push_raises_if_told_to_and_takes_nothing(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="10 KB", disk="20 KB", when_full="raise")
    db.execute(STREAM)
    gate = Gate(db)
    query = db.query("SELECT gate(v) AS v FROM s", name="gated")
    db.configure(threading="graph")
    given, refused = fill(db, 10)
    assert db.stream("s").given == given
    assert db.stream("s").progress == given - 1
    assert storage(db).disk_used <= 20_000
    for said in ("stream `s`", "in memory", "on disk", "operator"):
        assert said in str(refused)
    gate.open.set()
    db.settle()
    db.push("s", rows(given, 10))
    assert query.fetch()["v"].to_pylist() == list(range(given + 10))


@pytest.mark.parametrize("threading", ["direct", "graph", "hybrid"])
def test_push_does_not_wait_for_what_nobody_does(connect: Callable[..., penstock.Database], threading: str) -> None:
    db = connect(memory="5 KB", disk="5 KB")
    db.execute(STREAM)
    db.execute("CREATE STREAM free (t BIGINT) TIMESTAMP BY t")
    query, other = db.query("SELECT v FROM s WHERE v >= 0", name="a"), db.query("SELECT t FROM free", name="b")
    db.configure(threading=threading)
    resting = operator(db, "query", "a")
    db.suspend(resting)
    given, refused = fill(db, 20)
    assert "suspended; nobody would make room" in str(refused)
    if threading == "direct":
        db.push("free", [(1,)])  # what comes into no buffer needs no room
        assert other.fetch().num_rows == 1
    db.resume(resting)
    db.push("s", rows(given, 1))
    assert query.fetch()["v"].to_pylist() == list(range(given + 1))


def test_push_does_not_wait_for_another_input(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="10 KB", disk="20 KB")
    db.execute(STREAM)
    db.execute("CREATE STREAM r (t BIGINT, v BIGINT) TIMESTAMP BY t")
    query = db.query("SELECT s.v FROM s [RANGE 5], r [RANGE 5] WHERE s.v = r.v")
    db.configure(threading="graph")
    db.push("r", [(0, 0)])
    given, refused = fill(db, 20)
    assert "nobody would make room" in str(refused)
    db.push("r", [(given + 10, -1)])  # it is what the others wait for
    db.push("s", rows(given, 20))
    assert query.fetch().num_rows == 2


def test_push_waits_for_another_input_that_another_thread_pushes(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="10 KB", disk="20 KB")
    db.execute(STREAM)
    db.execute("CREATE STREAM r (t BIGINT, v BIGINT) TIMESTAMP BY t")
    query = db.query("SELECT s.v FROM s [RANGE 5], r [RANGE 5] WHERE s.v = r.v")
    db.configure(threading="graph")
    waits, over = threading.Event(), threading.Event()

    def others() -> None:
        at = 0
        while not over.is_set():
            db.push("r", [(at, -1)])
            at += 500
            waits.wait()
            waits.clear()

    thread = threading.Thread(target=others)
    thread.start()
    watched(db, waits.set)
    for i in range(200):
        db.push("s", rows(20 * i, 20))
    over.set()
    waits.set()
    thread.join()
    db.close_stream("r")
    db.close_stream("s")
    assert query.fetch().num_rows == 0
    assert query.status == "ended"


def test_closing_ends_a_push_that_waits(
    connect: Callable[..., penstock.Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A push that looks for room again after a while would end without being told.
    monkeypatch.setattr("penstock.runtime.run.LOOK_AGAIN", 3_600)
    db = connect(memory="10 KB", disk="10 KB")
    db.execute(STREAM)
    gate = Gate(db)
    db.query("SELECT gate(v) AS v FROM s")
    db.configure(threading="graph")
    gate.fill(db)
    pushing = Pushing(db, rows(500, 500))
    assert pushing.waits.wait(30)
    closing = threading.Thread(target=db.close, daemon=True)
    closing.start()
    pushing.join(30)
    ended = not pushing.is_alive()
    gate.open.set()
    closing.join(30)
    assert ended
    assert not closing.is_alive()
    assert isinstance(pushing.error, StateError)
    assert "closed" in str(pushing.error)


def test_more_memory_ends_a_push_that_waits(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="10 KB", disk="10 KB")
    db.execute(STREAM)
    gate = Gate(db)
    query = db.query("SELECT gate(v) AS v FROM s WHERE v >= 0")
    db.configure(threading="graph")
    gate.fill(db)
    pushing = Pushing(db, rows(500, 500))
    pushing.waits.wait()
    threading.Timer(0.05, gate.open.set).start()  # to change a setting, it waits for what is being worked on
    db.configure(memory="10 MB")
    pushing.join()
    assert pushing.error is None
    assert query.fetch().num_rows == 1_000


def test_ctrl_c_ends_a_push_that_waits(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="10 KB", disk="10 KB")
    db.execute(STREAM)
    gate = Gate(db)
    query = db.query("SELECT gate(v) AS v FROM s")
    db.configure(threading="graph")
    gate.fill(db)
    once = iter([_thread.interrupt_main])
    watched(db, lambda: next(once, lambda: None)())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            db.push("s", rows(500, 500))
    finally:
        signal.signal(signal.SIGINT, before)
    gate.open.set()
    db.push("s", rows(500, 1))
    assert query.fetch()["v"].to_pylist() == list(range(501))


def test_ctrl_c_leaves_no_lock_behind(connect: Callable[..., penstock.Database]) -> None:
    db = connect()
    db.execute(STREAM)
    query = db.query("SELECT v FROM s")
    before = sys.gettrace()

    def interrupt(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is not StreamInput.push.__code__ or event != "return":
            return interrupt
        sys.settrace(before)
        raise KeyboardInterrupt

    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            db.push("s", rows(0, 10))
    finally:
        sys.settrace(before)
    other = threading.Thread(target=db.push, args=("s", rows(0, 10)), daemon=True)
    other.start()
    other.join(10)
    assert not other.is_alive()
    assert query.fetch().num_rows == 10


def test_ctrl_c_while_something_is_written_leaves_no_file_behind(
    connect: Callable[..., penstock.Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = connect(memory=0)
    query = waiting(db)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            db.push("s", rows(500, 100))
    db.resume(operator(db, "query"))
    assert query.fetch().num_rows == 500
    assert storage(db).disk_used == 0
    assert spilled(db) == []


@pytest.mark.parametrize("bound", ["buffer = '250 rows', overflow = 'drop oldest'", "overflow = 'Drop Oldest'"])
def test_a_stream_may_drop_its_oldest_rows(
    connect: Callable[..., penstock.Database], bound: str, caplog: pytest.LogCaptureFixture
) -> None:
    db = connect(memory="30 KB", disk=0)
    db.execute(f"{STREAM} WITH ({bound})")
    query = db.query("SELECT v FROM s")
    db.suspend(operator(db, "intake"))
    with caplog.at_level(logging.WARNING):
        for i in range(50):
            db.push("s", rows(100 * i, 100))
    assert sum("dropped" in r.message for r in caplog.records) == 1
    (measured,) = db.metrics().to_pylist()
    dropped = measured["dropped"]
    assert dropped > 0
    assert measured["rows"] == 5_000 - dropped
    assert "dropped" in db.graph().text()
    if "250" in bound:
        assert measured["rows"] == 250
    db.resume(operator(db, "intake"))
    assert query.fetch()["v"].to_pylist() == list(range(dropped, 5_000))
    for way in ("direct", "graph", "direct"):  # it is not forgotten with the buffers
        db.configure(threading=way)
        assert sum(db.metrics()["dropped"].to_pylist()) == dropped
        assert [(d.stream, d.rows) for d in db.graph().dropped] == [("s", dropped)]
    query.stop()
    assert db.metrics()["dropped"].to_pylist() == [dropped]


def test_rows_that_overtake_take_up_room(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="20 KB", disk=0)
    db.execute(f"{STREAM} PRIORITY BY v % 2")
    gate = Gate(db)
    query = db.query("SELECT gate(v) AS v FROM s")
    db.configure(threading="graph")
    resting = operator(db, "intake")
    db.suspend(resting)
    given, refused = fill(db, 20)
    assert 0 < given < 2_000
    assert "in memory" in str(refused)
    gate.open.set()
    db.resume(resting)
    assert sorted(query.fetch()["v"].to_pylist()) == list(range(given))
    assert storage(db).used == 0


# -- slow readers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", ["250 rows", "20 KB"])
def test_a_query_that_lags_is_suspended(connect: Callable[..., penstock.Database], lag: str) -> None:
    db = connect()
    db.execute(STREAM)
    opened = threading.Event()

    def slowly(v: int) -> int:
        """Goes on when somebody who suspends waits for it."""
        while not opened.is_set() and host(db).runtime._control._pauser is None:
            opened.wait(0.001)
        return v

    db.create_function("slowly", slowly, args=["BIGINT"], returns="BIGINT")
    slow = db.execute(f"CREATE QUERY slow AS SELECT slowly(v) AS v FROM s WITH (lag = '{lag}')").query
    assert slow is not None
    fast = db.query("SELECT v FROM s WHERE v % 10 = 0", name="fast")
    db.configure(threading="operator")
    watched: list[str] = []
    for i in range(40):
        db.push("s", rows(100 * i, 100))
        while any(m["rows"] for m in db.metrics().to_pylist() if "fast" in m["queries"]):
            opened.wait(0.001)  # what the slow one alone needs waits behind what both need
        watched.append(next(q.status for q in db.graph().queries if q.name == "slow"))
        if watched[-1] == "suspended":
            break
    opened.set()
    assert watched[-1] == "suspended"
    resting = [o.id for o in db.graph().operators if o.state == "suspended"]
    assert resting
    given = db.stream("s").given
    assert fast.fetch()["v"].to_pylist() == list(range(0, given, 10))
    assert slow.status == "suspended"
    slow.resume()
    assert slow.fetch()["v"].to_pylist() == list(range(given))
    db.push("s", rows(given, 10))
    assert slow.fetch().num_rows == 10


@pytest.mark.parametrize(("option", "message"), [
    ("lag = 'far'", "`lag` is 'far'"), ("lag = TRUE", "`lag` is 'TRUE'"), ("on_lag = 'shout'", "`on_lag` is 'shout'"),
    ("lag = '1 row', lag = '2 rows'", "stands twice"),
])  # fmt: skip
def test_what_no_lag_is_is_refused(
    connect: Callable[..., penstock.Database], option: str, message: str
) -> None:
    db = connect()
    db.execute(STREAM)
    with pytest.raises(penstock.PenstockError, match=message) as caught:
        db.execute(f"CREATE QUERY q AS SELECT v FROM s WITH ({option})")
    assert caught.value.position is not None
    assert not db.queries


def test_a_lag_counts_also_for_an_operator_that_is_suspended_before_anything_else(
    connect: Callable[..., penstock.Database],
) -> None:
    """Without threads, and without a call of ``configure``."""
    db = connect()
    db.execute(STREAM)
    query = db.execute("CREATE QUERY q AS SELECT v FROM s WITH (on_lag = 'stop', lag = '10 rows')").query
    assert query is not None
    db.suspend(operator(db, "query"))
    for i in range(3):
        db.push("s", rows(10 * i, 10))
        assert query.status == ("running" if i == 0 else "failed")


def test_a_query_that_was_resumed_may_catch_up(connect: Callable[..., penstock.Database]) -> None:
    db = connect()
    db.execute(STREAM)
    db.configure(experiments={"lag": "50 rows"})
    query = db.query("SELECT v FROM s", name="q")
    sink = operator(db, "query")
    db.suspend(sink)
    for i in range(3):
        db.push("s", rows(100 * i, 100))
    db.resume(sink)
    db.push("s", rows(300, 100))
    assert query.fetch().num_rows == 400


@pytest.mark.parametrize("threading", ["graph", "operator"])
def test_a_query_that_is_resumed_behind_its_limit_may_catch_up(
    connect: Callable[..., penstock.Database], threading: str
) -> None:
    db = connect()
    db.execute(STREAM)
    gate = Gate(db)
    query = db.query("SELECT gate(v) AS v FROM s", name="q")
    db.configure(threading=threading)
    sink = operator(db, "query")
    db.suspend(sink)
    gate.open.set()
    for i in range(3):
        db.push("s", rows(100 * i, 100))
    db.settle()
    db.configure(query="q", experiments={"lag": "50 rows"})
    db.resume(sink)
    assert [q.status for q in db.graph().queries] == ["running"]
    assert query.fetch().num_rows == 300


def test_a_query_that_lags_is_stopped_with_a_reason(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory="5 KB")
    db.execute(STREAM)
    lag = "WITH (lag = '1000 rows', on_lag = 'stop')"
    slow = db.execute(f"CREATE QUERY slow AS SELECT v FROM s WHERE v >= 0 {lag}").query
    assert slow is not None
    other = db.query("SELECT v FROM s", name="other")
    db.suspend(operator(db, "query", "slow"))
    for i in range(30):
        db.push("s", rows(100 * i, 100))
        if slow.status != "running":
            break
    assert db.stream("s").given == 1_100
    assert slow.status == "failed"
    assert slow.trouble is not None
    assert "1,100 rows" in slow.trouble
    assert "lag = '1,000 rows'" in slow.trouble
    with pytest.raises(QueryFailed, match="fell behind"):
        slow.fetch()
    assert storage(db).disk_used == storage(db).used == 0  # what it held is gone
    assert other.fetch().num_rows == 1_100


# -- files --------------------------------------------------------------------------------------------------


def waiting(db: penstock.Database, stream: str = "s") -> penstock.Query:
    """A query for which rows wait on disk."""
    db.execute(STREAM.replace(" s ", f' "{stream}" '))
    query = db.query(f'SELECT v FROM "{stream}"', name=f"of {stream}")
    number = operator(db, "query", f"of {stream}")
    db.suspend(number)
    for i in range(5):
        db.push(stream, rows(100 * i, 100))
    return query


def test_a_damaged_file_ends_the_queries_that_need_it(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory=0)
    query = waiting(db, "größe")
    damaged, = spilled(db)
    other = waiting(db, "other")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(bytes(content))
    for name in ("of größe", "of other"):
        db.resume(operator(db, "query", name))
    assert query.status == "failed"
    assert query.trouble is not None
    assert "cannot be read back" in query.trouble
    assert "checksum" in query.trouble
    assert 0 < query.answered < 500
    table = query.fetch()
    assert table["v"].to_pylist() == list(range(query.answered))  # what came before the damage
    with pytest.raises(SpillError, match="of größe"):
        query.fetch()
    assert other.fetch()["v"].to_pylist() == list(range(500))
    db.push("größe", rows(500, 1))


@pytest.mark.parametrize("threading", ["graph", "operator"])
def test_a_file_that_is_gone_ends_the_queries_that_need_it(
    connect: Callable[..., penstock.Database], threading: str
) -> None:
    db = connect(memory=0)
    db.configure(threading=threading)
    query = waiting(db)
    other = db.query("SELECT v FROM s WHERE v > 0", name="other")
    db.settle()
    for file in spilled(db):
        file.unlink()
    db.resume(operator(db, "query", "of s"))
    with pytest.raises(SpillError, match="cannot be read back"):
        query.fetch()
    db.push("s", rows(500, 10))
    assert other.fetch()["v"].to_pylist() == list(range(500, 510))


def test_rows_on_disk_are_found_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spill").mkdir()
    monkeypatch.chdir(tmp_path)
    with penstock.connect(engine="local", spill="spill", memory=0) as db:
        query = waiting(db)
        monkeypatch.chdir("/")
        db.resume(operator(db, "query"))
        assert query.fetch().num_rows == 500
    assert list((tmp_path / "spill").iterdir()) == []


@pytest.mark.parametrize("times", [2, 100])
def test_reading_is_tried_again_if_the_reason_may_pass(
    connect: Callable[..., penstock.Database], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    db = connect(memory=0)
    query = waiting(db)
    fetch, left = files.fetch, [times]

    def failing(path: Path, offset: int, length: int) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return fetch(path, offset, length)

    monkeypatch.setattr(files, "fetch", failing)
    db.resume(operator(db, "query"))
    if times == 2:
        assert query.fetch().num_rows == 500
        return
    with pytest.raises(SpillError, match="Too many open files"):
        query.fetch()
    assert 0 < left[0] < times - 2


def test_a_directory_that_is_removed_is_made_again(connect: Callable[..., penstock.Database]) -> None:
    db = connect(memory=0)
    waiting(db)
    path = storage(db).directory.path
    assert path is not None
    shutil.rmtree(path)
    db.push("s", rows(500, 100))
    other = waiting(db, "other")
    assert spilled(db)
    assert storage(db).trouble is None
    db.resume(operator(db, "query", "of other"))
    assert other.fetch().num_rows == 500


ENDING = """
import sys, penstock
db = penstock.connect(engine="local", memory="100 KB", spill=sys.argv[1])
db.configure(threading="operator")
db.execute("CREATE STREAM s (t BIGINT, x STRING) TIMESTAMP BY t")
db.query("SELECT x, count(*) FROM s [RANGE 1000] GROUP BY x")
for k in range(100):
    db.push("s", [(1000 * k + j, str(j % 7)) for j in range(1000)])
"""


def test_a_process_ends_quietly_while_rows_wait_on_disk(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        [sys.executable, "-c", ENDING, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout + ended.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no list of open files")
def test_closing_closes_all_files(connect: Callable[..., penstock.Database]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()
    try:
        for _ in range(5):
            db = connect(memory=0)
            db.configure(threading="operator")
            waiting(db)
            db.close()
            assert len(os.listdir("/proc/self/fd")) <= before
    finally:
        gc.enable()


def spilled(db: penstock.Database) -> list[Path]:
    path = storage(db).directory.path
    assert path is not None
    return sorted(path.glob("*.arrows"))


def test_a_full_disk_is_like_a_budget_that_is_reached(
    connect: Callable[..., penstock.Database], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with full_disk(40_000) as disk:
        db = connect(memory="10 KB", when_full="raise")
        monkeypatch.setattr("penstock.runtime.storage.storage.RETRY", 60.0)
        db.execute(STREAM)
        query = db.query("SELECT v FROM s")
        resting = operator(db, "query")
        db.suspend(resting)
        given, refused = fill(db, 100)
        assert "No space left on device" in str(refused)
        assert given < 9_000
        assert db.stream("s").given == given
        assert any("stays in memory" in r.message for r in caplog.records)
        db.resume(resting)
        db.push("s", rows(given, 100))
        assert query.fetch()["v"].to_pylist() == list(range(given + 100))
        disk.room = 10**9
        db.suspend(resting)
        for i in range(10):
            db.push("s", rows(given + 100 + 100 * i, 100))
        assert storage(db).disk_used > 0
        db.resume(resting)
        assert query.fetch().num_rows == 1_000


def test_inside_nothing_is_lost_when_the_disk_is_full(connect: Callable[..., penstock.Database]) -> None:
    with full_disk(20_000):
        db = connect(memory="5 KB")
        db.execute(STREAM)
        queries = [db.query(f"SELECT v FROM s WHERE v % {n} = 0") for n in (1, 2, 3)]
        db.configure(threading="operator")
        for i in range(50):
            db.push("s", rows(100 * i, 100))
        for n, query in enumerate(queries, 1):
            assert query.fetch()["v"].to_pylist() == list(range(0, 5_000, n))


KILLED = """
import os, signal, sys, penstock
db = penstock.connect(engine="local", memory=0, spill=sys.argv[1])
db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
db.query("SELECT t FROM s")
db.suspend(next(o.id for o in db.graph().operators if o.kind == "query"))
db.push("s", [(i,) for i in range(1000)])
print(len(os.listdir(sys.argv[1])), flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["killed", "forgotten"])
def test_leftovers_of_other_processes_are_removed(
    connect: Callable[..., penstock.Database], tmp_path: Path, end: str
) -> None:
    living = connect(memory=0)
    query = waiting(living)
    mine = storage(living).directory.path
    assert mine is not None
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), end], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "2", done.stderr
    left = sorted(tmp_path.iterdir())
    assert len(left) == (2 if end == "killed" else 1)
    removed = files.remove_leftovers(tmp_path)
    assert removed == [path for path in left if path != mine]
    assert list(tmp_path.iterdir()) == [mine]
    living.resume(operator(living, "query"))
    assert query.fetch().num_rows == 500


def test_a_directory_that_is_being_made_is_nobodys_leftover(tmp_path: Path) -> None:
    (tmp_path / f"{files.PREFIX}{os.getpid()}-abc").mkdir()
    (tmp_path / f"{files.PREFIX}something else").mkdir()
    (tmp_path / "penstock-1-abc").mkdir()
    assert files.remove_leftovers(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 3


def test_nothing_is_made_where_nothing_is_written(tmp_path: Path) -> None:
    with penstock.connect(engine="local", spill=tmp_path) as db:
        db.execute(STREAM)
        query = db.query("SELECT v FROM s")
        db.configure(threading="graph")
        db.push("s", rows(0, 1_000))
        assert query.fetch().num_rows == 1_000
        assert list(tmp_path.iterdir()) == []
