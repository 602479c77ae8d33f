"""Results have positions and many readers, and callbacks run without the database's lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import penstock

STREAM = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"


@pytest.fixture
def db(engine: str) -> Iterator[penstock.Database]:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        yield db


def values(table: pa.Table) -> list[object]:
    return list(table["v"].to_pylist())


class Heard:
    """A subscriber, and what it was told in order."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def __call__(self, table: pa.Table) -> None:
        self.values += values(table)


def test_no_reader_takes_anything_from_another(db: penstock.Database) -> None:
    query, first, second = db.query("SELECT v FROM s"), Heard(), Heard()
    query.subscribe(first)
    db.push("s", [(1, 10), (2, 20)])
    query.subscribe(second)
    db.push("s", [(3, 30)])
    db.settle()
    assert first.values == [10, 20, 30]
    assert second.values == [30], "it starts with what comes next"
    assert values(query.fetch()) == [10, 20, 30]
    assert query.waiting == 0
    assert query.answered == 3


def test_a_subscription_from_a_position(db: penstock.Database) -> None:
    query, heard = db.query("SELECT v FROM s"), Heard()
    db.push("s", [(i, i) for i in range(5)])
    db.settle()
    query.subscribe(heard, position=2)
    db.push("s", [(5, 5)])
    db.settle()
    assert heard.values == [2, 3, 4, 5]
    with pytest.raises(penstock.StateError, match="no position 9 any more or yet; there is from 0 to 6"):
        query.subscribe(heard, position=9)
    query.fetch()
    with pytest.raises(penstock.StateError, match="no position 0 any more or yet; there is only 6, the next one"):
        query.subscribe(heard, position=0)


def test_a_subscription_that_is_cancelled(db: penstock.Database) -> None:
    query, heard = db.query("SELECT v FROM s"), Heard()
    subscription = query.subscribe(heard)
    db.push("s", [(1, 1)])
    db.settle()
    subscription.cancel()
    subscription.cancel()
    db.push("s", [(2, 2)])
    db.settle()
    assert heard.values == [1]
    assert values(query.fetch()) == [1, 2]


def test_a_reader_that_comes_too_late_is_told_once_which_are_gone(db: penstock.Database) -> None:
    db.execute("CREATE QUERY q AS SELECT v FROM s WITH (results = '3 rows')")
    query = db.queries["q"]
    for i in range(10):
        db.push("s", [(i, i)])
    db.settle()
    with pytest.raises(penstock.ResultsGone, match=r"7 results \(positions 0 to 6\) of reader `default` are gone"):
        query.fetch()
    assert values(query.fetch()) == [7, 8, 9]
    db.push("s", [(10, 10)])
    assert values(query.fetch()) == [10]


def test_many_small_results_whoever_reads_when(db: penstock.Database) -> None:
    query, heard = db.query("SELECT v FROM s"), Heard()
    fetched: list[object] = []
    for i in range(200):
        db.push("s", [(i, i)])
        if i in (63, 64, 65, 130):
            fetched += values(query.fetch())
        if i == 100:
            query.subscribe(heard, position=70)
    db.settle()
    fetched += values(query.fetch())
    assert fetched == list(range(200))
    assert heard.values == list(range(70, 200))
    assert query.waiting == 0


def test_the_bound_may_be_bytes(db: penstock.Database) -> None:
    db.execute("CREATE QUERY q AS SELECT v FROM s WITH (results = '4 KB')")
    for i in range(200):
        db.push("s", [(i, i)])
    db.settle()
    query = db.queries["q"]
    with pytest.raises(penstock.ResultsGone):
        query.fetch()
    kept = values(query.fetch())
    assert kept == list(range(200 - len(kept), 200))
    assert len(kept) < 200


def test_the_answer_as_it_stands_is_whole_whoever_has_read(db: penstock.Database) -> None:
    db.execute("CREATE QUERY q AS SELECT v FROM s [ROWS 2] WITH (results = '3 rows')")
    query = db.queries["q"]
    for i in range(8):
        db.push("s", [(i, i)])
        if i == 3:
            with pytest.raises(penstock.ResultsGone):
                query.fetch()
            query.fetch()
    assert sorted(query.current()["v"].to_pylist()) == [6, 7]
    assert sorted(query.current()["v"].to_pylist()) == [6, 7], "looking takes nothing"


def test_batches_come_in_order_of_positions_with_many_pushers(db: penstock.Database) -> None:
    query, heard = db.query("SELECT v FROM s"), Heard()
    query.subscribe(heard)

    def push(first: int) -> None:
        for i in range(first, first + 20):
            db.push("s", [(1, i)])

    threads = [threading.Thread(target=push, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    db.settle()
    assert heard.values == values(query.fetch())
    assert len(heard.values) == 80


def test_a_callback_may_wait_for_the_push_of_another_thread(db: penstock.Database) -> None:
    db.execute("CREATE STREAM r (t BIGINT, v BIGINT) TIMESTAMP BY t")
    query, other = db.query("SELECT v FROM s"), db.query("SELECT v FROM r")
    done: list[bool] = []

    def wait(table: pa.Table) -> None:
        thread = threading.Thread(target=db.push, args=("r", [(1, 1)]), daemon=True)
        thread.start()
        thread.join(30)
        done.append(not thread.is_alive())

    query.subscribe(wait)
    db.push("s", [(1, 1)])
    db.settle()
    assert done == [True]
    assert values(other.fetch()) == [1]


def test_a_callback_may_push_query_and_stop(db: penstock.Database) -> None:
    query, heard = db.query("SELECT v FROM s", name="echo"), Heard()

    def echo(table: pa.Table) -> None:
        heard(table)
        if heard.values[-1] == 1:
            db.push("s", [(2, 2)])
            db.query("SELECT v FROM s WHERE v > 2", name="more")
            db.push("s", [(3, 3)])
        elif heard.values[-1] == 3:
            db.queries["echo"].stop()

    query.subscribe(echo)
    db.push("s", [(1, 1)])
    db.settle()
    db.push("s", [(4, 4)])
    assert heard.values == [1, 2, 3]
    assert values(db.queries["more"].fetch()) == [3, 4]
    assert query.status == "stopped"


def test_what_a_callback_raises_is_in_trouble_and_stops_nothing(db: penstock.Database) -> None:
    query, heard = db.query("SELECT v FROM s"), Heard()

    def failing(table: pa.Table) -> None:
        raise ValueError("no room")

    query.subscribe(failing)
    query.subscribe(heard)
    db.push("s", [(1, 1)])
    db.push("s", [(2, 2)])
    db.settle()
    assert query.trouble is not None
    assert "a subscriber raised ValueError: no room" in query.trouble
    assert "def failing" not in query.trouble
    assert query.status == "running"
    assert heard.values == [1, 2]


@pytest.mark.parametrize("threading_", ["graph", "hybrid"])
def test_with_workers_each_query_has_a_thread_for_its_subscribers(threading_: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        db.configure(threading=threading_)
        query, called = db.query("SELECT v FROM s", name="mine"), threading.Event()
        names: list[str] = []

        def take(table: pa.Table) -> None:
            names.append(threading.current_thread().name)
            called.set()

        query.subscribe(take)
        db.push("s", [(1, 1)])
        assert called.wait(30)
        assert names == ["penstock-subscribers-mine"]
    assert "penstock-subscribers-mine" not in {t.name for t in threading.enumerate()}


def test_an_interrupt_in_an_operator_fails_its_queries_by_name() -> None:
    def interrupted(value: int) -> int:
        if value == 2:
            raise KeyboardInterrupt
        return value

    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        db.create_function("interrupted", interrupted, args=["BIGINT"], returns="BIGINT")
        broken = db.query("SELECT count(interrupted(v)) AS v FROM s [ROWS 5]", name="broken")
        db.push("s", [(1, 1)])
        with pytest.raises(KeyboardInterrupt):
            db.push("s", [(2, 2)])
        assert broken.status == "failed"
        assert values(broken.fetch()) == [1]
        with pytest.raises(penstock.QueryFailed, match="`broken` was interrupted while it worked"):
            broken.fetch()
        again = db.query("SELECT v FROM s")
        db.push("s", [(3, 3)])
        assert values(again.fetch()) == [3]
