"""A database has a clock: streams move on with it when a query waits for them, by themselves, and never else."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pyarrow as pa
import pytest

import penstock
from penstock.database.database import core_of
from penstock.testing import Clock, answers

_LONG = 60.0
"""Seconds that a test waits for what comes at once."""
TWO = "CREATE STREAM stocks (k BIGINT, price BIGINT); CREATE STREAM news (k BIGINT)"
ASK = """SELECT ISTREAM stocks.k, price FROM stocks [RANGE 1 HOUR], news [NOW]
WHERE stocks.k = news.k MASTER news"""


def clocks() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "penstock-clock"]


class Heard:
    """A subscriber that can be waited for."""

    def __init__(self, query: penstock.Query) -> None:
        self.rows: list[tuple[object, ...]] = []
        self._more = threading.Condition()
        query.subscribe(self._take)

    def _take(self, table: pa.Table) -> None:
        with self._more:
            self.rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
            self._more.notify_all()

    def has(self, count: int) -> bool:
        with self._more:
            return self._more.wait_for(lambda: len(self.rows) >= count, _LONG)


def test_a_master_s_arrival_is_answered_by_itself(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(TWO)
        heard = Heard(db.query(ASK))
        db.push("stocks", [(1, 10), (2, 20)])
        db.push("news", [(2,)])
        assert heard.has(1)
        assert [row[2:] for row in heard.rows] == [(2, 20)]


def test_an_iteration_goes_on_by_itself(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(TWO)
        query = db.query(ASK)
        db.push("stocks", [(1, 10)])
        db.push("news", [(1,)])
        assert next(iter(query)).column("price").to_pylist() == [10]


def test_rows_leave_and_windows_end_by_themselves(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (k BIGINT)")
        leaving = Heard(db.query("SELECT k FROM s [RANGE 50 MILLISECONDS]"))
        ending = Heard(db.query("SELECT k, count(*) FROM s [TUMBLING 50 MILLISECONDS] GROUP BY k"))
        session = Heard(db.query("SELECT count(*) FROM s [SESSION GAP 50 MILLISECONDS]"))
        db.push("s", [(1,)])
        assert leaving.has(2)
        assert ending.has(1)
        assert session.has(1)


def test_a_change_of_a_relation_is_answered_by_itself(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (k BIGINT); CREATE RELATION r (k BIGINT, v BIGINT)")
        heard = Heard(db.query("SELECT s.k, v FROM s [ROWS 1], r WHERE s.k = r.k"))
        db.push("s", [(1,)])
        db.execute("INSERT INTO r VALUES (1, 7)")
        assert heard.has(1)
        assert [row[2:] for row in heard.rows] == [(1, 7)]


def test_a_stream_that_never_had_a_row_keeps_nobody_waiting(engine: str) -> None:
    clock = Clock()
    with penstock.connect(engine=engine, clock=clock) as db:
        db.execute("CREATE STREAM news (k BIGINT) WITH (retain = 'all')")
        db.push("news", [(1,)])
        db.execute("CREATE STREAM stocks (k BIGINT)")
        heard = Heard(db.query("SELECT news.k FROM news [ROWS 1] LEFT JOIN stocks [ROWS 1] ON news.k = stocks.k"))
        assert heard.rows == []
        clock.advance(1)
        assert heard.has(1)


def test_a_simulated_clock_takes_the_place_of_the_timer(engine: str) -> None:
    clock, before = Clock(), clocks()
    with penstock.connect(engine=engine, clock=clock) as db:
        db.execute(TWO)
        heard = Heard(db.query(ASK))
        db.push("stocks", [(1, 10)])
        db.push("news", [(1,)])
        assert clocks() == before
        db.settle()
        assert heard.rows == []
        clock.advance(1)
        assert heard.has(1)


def test_streams_for_which_nobody_waits_stay_where_they_are(engine: str) -> None:
    clock = Clock(0)
    with penstock.connect(engine=engine, clock=clock) as db:
        db.execute("CREATE STREAM s (k BIGINT); CREATE STREAM other (k BIGINT)")
        db.query("SELECT ISTREAM k FROM s [RANGE 1 SECOND]")
        query = db.query("SELECT k FROM other [RANGE 1 SECOND]")
        db.push("s", [(1,)])
        db.push("other", [(1,)])
        clock.advance("3 seconds")
        assert db.stream("s").progress == 0
        assert db.stream("other").progress == 3_000_000
        clock.advance("3 seconds")
        query.fetch()
        assert db.stream("other").progress == 3_000_000  # the row has left


def test_a_window_is_answered_when_it_ends_and_not_before(engine: str) -> None:
    clock = Clock(1_000_000)
    with penstock.connect(engine=engine, clock=clock) as db:
        db.execute("CREATE STREAM s (k BIGINT)")
        query = db.query("SELECT k, count(*) AS n FROM s [TUMBLING 10 SECONDS] GROUP BY k")
        db.push("s", [(1,)])
        clock.advance("8 seconds")
        assert db.stream("s").progress == 1_000_000
        clock.advance("1 second")
        assert db.stream("s").progress == 10_000_000
        assert [row[2:] for row in answers(query)] == [(1, 1)]
        clock.advance("1 hour")
        assert db.stream("s").progress == 10_000_000


IDLE = """CREATE STREAM r (t BIGINT, x BIGINT) TIMESTAMP BY t;
CREATE STREAM s (t BIGINT, y BIGINT) TIMESTAMP BY t{slack} WITH (idle = '100 us')"""


def test_an_idle_stream_moves_on_with_the_clock(engine: str) -> None:
    clock = Clock(0)
    with penstock.connect(engine=engine, clock=clock) as db:
        db.execute(IDLE.format(slack=""))
        query = db.query("SELECT x, y FROM r [ROWS 1], s [ROWS 1]")
        db.push("r", [(30, 1)])
        clock.advance(1_000)
        assert db.stream("s").progress == -float("inf")  # it has not begun: nobody knows from where to go on
        db.push("s", [(10, 2)])
        clock.advance(100)
        assert db.stream("s").progress == 10
        clock.advance(19)
        assert answers(query) == []
        clock.advance(1)
        assert (db.stream("s").progress, answers(query)) == (30, [(30, "+", 1, 2)])
        db.heartbeat("r", 40)
        db.push("s", [(35, 3)])  # what comes begins the time anew
        clock.advance(101)
        assert db.stream("s").progress == 35  # nothing waits for it
        db.push("r", [(41, 2)])
        clock.advance(4)
        assert db.stream("s").progress == 40  # a row of r waits: it goes with the clock
        clock.advance(1)
        assert db.stream("s").progress == 41
        clock.advance(1)
        assert db.stream("s").progress == 41  # nothing waits any more
        db.push("s", [(36, 4)])
        assert db.late("s").num_rows == 1


def test_rows_of_an_idle_stream_do_not_wait_for_slack_for_ever(engine: str) -> None:
    clock = Clock(0)
    with penstock.connect(engine=engine, clock=clock) as db:
        db.execute(IDLE.format(slack=" SLACK 50"))
        query = db.query("SELECT y FROM s")
        db.push("s", [(200, 1)])
        clock.advance(149)
        assert answers(query) == []
        clock.advance(1)
        assert answers(query) == [(200, "+", 1)]


def test_idle_is_for_streams_with_times_of_their_own() -> None:
    with penstock.connect(engine="local") as db:
        with pytest.raises(penstock.BindError, match="on arrival, so the clock moves it anyway; leave `idle` out"):
            db.execute("CREATE STREAM s (a BIGINT) WITH (idle = '1 second')")
        with pytest.raises(penstock.BindError, match="`idle` is a length of time"):
            db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t WITH (idle = 5)")


def test_the_thread_comes_with_something_to_do_and_goes_with_the_database() -> None:
    before = len(clocks())
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM t (a BIGINT, k BIGINT) TIMESTAMP BY a")
        db.query("SELECT k FROM t [RANGE 1]")
        db.push("t", [(1, 1)])
        assert len(clocks()) == before
        db.execute("CREATE STREAM s (k BIGINT)")
        db.query("SELECT k FROM s [RANGE 1 HOUR]")
        assert len(clocks()) == before + 1
    assert len(clocks()) == before


def test_the_thread_ends_with_a_database_that_nobody_has() -> None:
    before = len(clocks())
    db = penstock.connect(engine="local")
    db.execute("CREATE STREAM s (k BIGINT)")
    db.query("SELECT k FROM s [RANGE 1 HOUR]")
    db.push("s", [(1,)])
    (thread,) = [t for t in clocks() if t.is_alive()][before:]
    core = weakref.ref(core_of(db))
    del db
    until = time.monotonic() + _LONG
    while core() is not None and time.monotonic() < until:
        gc.collect()
        thread.join(0.01)  # it may be looking
    thread.join(_LONG)
    assert not thread.is_alive()


def test_a_callback_of_the_timer_may_close_the_database() -> None:
    closed = threading.Event()
    db = penstock.connect(engine="local")
    db.execute(TWO)

    def close(table: object) -> None:
        db.close()
        closed.set()

    db.query(ASK).subscribe(close)
    db.push("stocks", [(1, 10)])
    db.push("news", [(1,)])
    assert closed.wait(_LONG)


def test_a_clock_of_the_user_s_is_asked_without_the_lock() -> None:
    held: list[bool] = []
    beyond = threading.Event()

    def tried() -> None:
        if found := core.lock.acquire(timeout=_LONG):
            core.lock.release()
        held.append(not found)

    def clock() -> int:
        if threading.current_thread().name == "penstock-clock":
            other = threading.Thread(target=tried)
            other.start()
            other.join()
            beyond.set()
        return time.time_ns() // 1_000

    with penstock.connect(engine="local", clock=clock) as db:
        core = core_of(db)
        db.execute(TWO)
        heard = Heard(db.query(ASK))
        db.push("stocks", [(1, 10)])
        db.push("news", [(1,)])
        assert heard.has(1)
        assert beyond.wait(_LONG)
    assert not any(held)


def test_a_clock_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    fails = [True]

    def clock() -> int:
        if fails[0] and threading.current_thread().name == "penstock-clock":
            fails[0] = False
            raise ValueError("no time")
        return time.time_ns() // 1_000

    with penstock.connect(engine="local", clock=clock) as db:
        db.execute(TWO)
        heard = Heard(db.query(ASK))
        db.push("stocks", [(1, 10)])
        db.push("news", [(1,)])
        assert heard.has(1)
    assert "no time" in caplog.text


def test_a_clock_that_stands_still_brings_nothing() -> None:
    with penstock.connect(engine="local", clock=lambda: 0) as db:
        db.execute(TWO)
        query = db.query(ASK)
        db.push("stocks", [(1, 10)])
        db.push("news", [(1,)])
        core_of(db).look()
        assert query.answered == 0


def test_a_slow_subscriber_stops_no_other_query() -> None:
    """The clock's thread waits for nobody who is called."""
    slow, other, released = threading.Event(), threading.Event(), threading.Event()

    def called(table: pa.Table) -> None:
        slow.set()
        assert released.wait(60)

    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM stocks (k BIGINT); CREATE STREAM news (k BIGINT)")
        text = "SELECT ISTREAM stocks.k FROM stocks [RANGE 1 HOUR], news [NOW] WHERE stocks.k = news.k AND news.k = {}"
        db.query(f"{text.format(1)} MASTER news").subscribe(called)
        db.query(f"{text.format(2)} MASTER news").subscribe(lambda table: other.set())
        db.push("stocks", [(1,), (2,)])
        db.push("news", [(1,)])
        assert slow.wait(60)  # else the next push would call it itself, and stand with it
        db.push("news", [(2,)])
        assert other.wait(30)
        assert not released.is_set()
        released.set()
