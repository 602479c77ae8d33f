"""How long results take by a simulated stopwatch: from the call that made them certain, and what they waited for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from penstock import Database, InputError, testing
from penstock.graph.latency import Latency
from penstock.hosts.meter import HIGHEST
from penstock.ingest.stamps import FIELDS, Stamps
from tests.spark.direct import directly

ENGINES = ("local", "workers", "reference", "spark")
S = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"
R = "CREATE STREAM r (t BIGINT, v BIGINT) TIMESTAMP BY t"
Opened = Callable[..., Database]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def opened(engine: str) -> Iterator[Opened]:
    """Opens databases on an engine; on Spark a micro-batch begins when ``settle`` asks for it."""
    databases: list[Database] = []

    def opening(*declared: str) -> Database:
        name = "local" if engine == "workers" else engine
        more: dict[str, Any] = {"shards": 2, "trigger": 3600} if engine == "spark" else {}
        db = testing.connect(engine=name, clock=testing.Clock(), **more)
        if engine == "workers":
            db.configure(threading="operator")
        db.execute(";".join(declared))
        databases.append(db)
        return db

    with directly() if engine == "spark" else nullcontext():
        yield opening
        for db in databases:
            db.close()


def pass_time(db: Database, seconds: float) -> None:
    """Let time pass when everything has been worked on."""
    db.settle()
    assert isinstance(db.clock, testing.Clock)
    db.clock.advance(round(seconds * 1_000_000))


def near(seconds: float) -> object:
    """As a histogram tells it."""
    return pytest.approx(seconds, rel=0.07)


def test_nothing_is_known_before_the_first_result(opened: Opened) -> None:
    db = opened(S)
    query = db.query("SELECT v FROM s WHERE v > 1")
    db.push("s", [(1, 1)])
    db.settle()
    assert query.latency == Latency()
    assert db.metrics("queries").to_pylist() == [
        {"query": query.name, "priority": None, "count": 0, "p50": None, "p99": None, "max": None,
         "waiting_p50": None, "waiting_p99": None}
    ]  # fmt: skip


def test_without_slack_and_other_streams_nothing_waits(opened: Opened) -> None:
    db = opened(S)
    query = db.query("SELECT v FROM s")
    for i in range(5):
        db.push("s", [(i, 1), (i, 2)])
        pass_time(db, 1.0)
    found = query.latency
    assert (found.count, found.p99, found.max, found.waiting_p50, found.waiting_p99) == (10, 0.0, 0.0, 0.0, 0.0)


def test_a_row_waits_for_slack(opened: Opened) -> None:
    db = opened(f"{S} SLACK 10")
    query = db.query("SELECT v FROM s")
    db.push("s", [(1, 1)])
    pass_time(db, 2.0)
    db.push("s", [(5, 2)])
    pass_time(db, 6.0)
    db.push("s", [(15, 3)])
    db.settle()
    found = query.latency
    assert (found.count, found.max) == (2, 0.0)
    assert (found.waiting_p50, found.waiting_p99) == (near(6.0), near(8.0))


def test_a_row_waits_for_another_stream(opened: Opened) -> None:
    db = opened(S, R)
    query = db.query("SELECT DISTINCT s.v FROM s [RANGE 100], r [RANGE 100] WHERE s.v = r.v")
    db.push("r", [(1, 7)])
    pass_time(db, 1.0)
    db.push("s", [(2, 7)])
    pass_time(db, 4.0)
    db.heartbeat("r", 3)
    db.settle()
    assert query.fetch().num_rows == 1
    found = query.latency
    assert (found.count, found.max, found.waiting_p50) == (1, 0.0, near(4.0))


def test_what_time_alone_changes_waits_for_slack_only(opened: Opened) -> None:
    """The row leaves the window at 11; the stream has named 12 before it is past it."""
    db = opened(f"{S} SLACK 5")
    query = db.query("DSTREAM (SELECT v FROM s [RANGE 10])")
    db.push("s", [(1, 1)])
    pass_time(db, 1.0)
    db.push("s", [(12, 2)])
    pass_time(db, 3.0)
    db.push("s", [(17, 3)])
    db.settle()
    assert query.fetch().num_rows == 1
    assert (query.latency.max, query.latency.waiting_p50) == (0.0, near(3.0))


def test_priorities_are_told_apart(opened: Opened) -> None:
    db = opened("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t PRIORITY BY v")
    query = db.query("SELECT v FROM s")
    db.push("s", [(1, 0), (2, 3), (3, 0), (4, 100), (5, 200)])
    db.settle()
    assert {level: one.count for level, one in query.latency.priorities.items()} == {0: 2, 3: 1, HIGHEST: 2}
    assert query.latency.count == 5
    rows = db.metrics("queries").to_pylist()
    assert [(row["priority"], row["count"]) for row in rows] == [(None, 5), (0, 2), (3, 1), (HIGHEST, 2)]


@pytest.mark.parametrize("engine", ["local", "workers", "spark"], indirect=True)  # the reference overtakes nothing
def test_a_prioritised_row_does_not_wait_for_slack(opened: Opened) -> None:
    db = opened("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t SLACK 10 PRIORITY BY v")
    query = db.query("SELECT v FROM s")
    db.push("s", [(1, 0), (2, 9)])
    db.settle()
    assert query.fetch().column("v").to_pylist() == [9]
    assert {level: one.count for level, one in query.latency.priorities.items()} == {9: 1}
    pass_time(db, 3.0)
    db.push("s", [(20, 0)])
    db.settle()
    found = query.latency.priorities
    assert {level: (one.count, one.max, one.waiting_p99) for level, one in found.items()} == {
        0: (1, 0.0, near(3.0)), 9: (1, 0.0, 0.0),
    }  # fmt: skip


def test_it_is_shown_everywhere(opened: Opened, engine: str) -> None:
    db = opened(f"{S} SLACK 10")
    query = db.query("SELECT v FROM s", name="q")
    db.push("s", [(1, 1)])
    pass_time(db, 2.0)
    db.push("s", [(20, 2)])
    db.settle()
    found = query.latency
    shown = db.execute("SHOW QUERIES").table
    assert shown is not None
    (row,) = shown.to_pylist()
    assert (row["latency p50"], row["latency p99"], row["waiting p99"]) == ("0 s", "0 s", "2.03 s")
    if engine == "reference":
        return
    view = db.graph()
    assert view.queries[0].latency == found
    assert view.to_json()["queries"][0]["latency"]["priorities"]["0"]["waiting_p99"] == found.waiting_p99
    assert "latency p50 0 s · p99 0 s · waited p50 2.03 s · p99 2.03 s · at most 0 s" in view.text()
    assert "waited p99 2.03 s" in view.svg()


def test_of_what_there_are_no_metrics(opened: Opened) -> None:
    with pytest.raises(InputError, match=r"no metrics of 'nothing'.*of='queries'"):
        opened(S).metrics("nothing")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["local", "workers", "reference"], indirect=True)
def test_work_counts(opened: Opened) -> None:
    """A function that takes a second, as the stopwatch has it."""
    db = opened(S)
    assert isinstance(db.clock, testing.Clock)
    watch = db.clock

    def slow(v: int) -> int:
        watch._ticks += 1_000_000  # without driving the database that calls
        return v

    db.create_function("slow", slow, args=["BIGINT"], returns="BIGINT")
    query = db.query("SELECT slow(v) AS v FROM s")
    db.push("s", [(1, 1)])
    db.settle()
    assert (query.latency.p50, query.latency.max) == (near(1.0), 1.0)
    assert query.latency.waiting_p99 == 0.0


@pytest.mark.parametrize("engine", ["local", "workers"], indirect=True)
def test_what_waits_in_front_of_an_operator_counts_from_its_own_push(opened: Opened) -> None:
    """Both pushes are worked on at once when the operator goes on: each counts for itself."""
    db = opened(S)
    query = db.query("SELECT v FROM s WHERE v > 0")
    db.push("s", [(0, 0)])
    db.settle()
    (chosen,) = [o.id for o in db.graph().operators if o.kind == "filter"]
    db.suspend(chosen)
    assert isinstance(db.clock, testing.Clock)
    for i in (1, 2):
        db.push("s", [(i, i)])
        db.clock.advance("2 seconds")
    db.resume(chosen)
    db.settle()
    assert query.fetch().num_rows == 2
    assert (query.latency.p50, query.latency.max, query.latency.waiting_p99) == (near(2.0), 4.0, 0.0)


@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_rows_of_one_micro_batch_count_each_from_their_own_push(opened: Opened) -> None:
    db = opened(S)
    query = db.query("SELECT v FROM s")
    db.settle()
    assert isinstance(db.clock, testing.Clock)
    for i in (1, 2):
        db.push("s", [(i, i)])
        db.clock.advance("2 seconds")
    db.settle()
    assert (query.latency.count, query.latency.p50, query.latency.max) == (2, near(2.0), 4.0)
    assert query.latency.waiting_p99 == 0.0


@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_operators_on_spark_are_measured(opened: Opened) -> None:
    db = opened(S)
    db.query("SELECT v FROM s WHERE v > 1", name="a")
    db.query("SELECT v, count(*) AS n FROM s [RANGE 10] GROUP BY v", name="b")
    for i in range(4):
        db.push("s", [(i, v) for v in range(4)])
        db.settle()
    found = {(o.kind, o.queries): o for o in db.graph().operators}
    assert (found["source", ("a", "b")].elements_in, found["source", ("a", "b")].elements_out) == (16, 16)
    chosen = found["filter", ("a",)]
    assert (chosen.elements_in, chosen.elements_out, chosen.selectivity) == (16, 8, 0.5)
    assert chosen.cost is not None
    assert chosen.cost > 0
    assert found["query", ("a",)].elements_out == 8
    assert found["window", ("b",)].elements_in == 16
    assert "16 → 8" in db.graph().text()


def test_old_results_fade(opened: Opened) -> None:
    db = opened(f"{S} SLACK 10")
    query = db.query("SELECT v FROM s")
    db.push("s", [(0, 0)])
    pass_time(db, 8.0)
    for i in range(1, 41):
        db.push("s", [(20 * i, 1)])
        pass_time(db, 0.5)
    assert query.latency.waiting_p99 == near(8.0)
    for i in range(41, 81):
        db.push("s", [(20 * i, 1)])
        pass_time(db, 60.0)
    found = query.latency
    assert (found.count, found.waiting_p50, found.waiting_p99) == (80, near(60.0), near(60.0))


@pytest.mark.parametrize("engine", ["local", "workers", "reference"], indirect=True)
def test_rows_from_before_the_query_have_not_waited_for_it(opened: Opened) -> None:
    db = opened(f"{S} WITH (retain = 100)")
    db.push("s", [(1, 1)])
    pass_time(db, 50.0)
    query = db.query("SELECT v FROM s")
    db.settle()
    assert query.fetch().num_rows == 1
    assert (query.latency.count, query.latency.max, query.latency.waiting_p99) == (1, 0.0, 0.0)


def test_what_is_done_again_after_a_restart_is_not_measured(tmp_path: Path) -> None:
    with testing.connect(tmp_path, engine="local") as db:
        db.execute(S)
        query = db.query("SELECT v FROM s", name="q")
        db.push("s", [(1, 1)])
        assert query.latency.count == 1
    with testing.connect(tmp_path, engine="local") as db:
        assert db.queries["q"].latency.count == 0
        db.push("s", [(2, 2)])
        assert (db.queries["q"].latency.count, db.queries["q"].answered) == (1, 2)


def test_what_waited_for_a_suspended_query_after_a_restart(tmp_path: Path) -> None:
    clock = testing.Clock()
    with testing.connect(tmp_path / "db", clock=clock) as db:
        db.execute(S)
        db.query("SELECT v FROM s WHERE v > 0", name="q").suspend()
    with testing.connect(tmp_path / "db", clock=clock) as db:
        db.push("s", [(1, 1)])
        clock.advance("2 seconds")
        query = db.queries["q"]
        query.resume()
        assert query.fetch().num_rows == 1
        assert (query.latency.max, query.latency.waiting_p99) == (2.0, 0.0)


def test_a_query_over_relations_counts_from_the_change(opened: Opened) -> None:
    db = opened("CREATE RELATION p (k BIGINT, v BIGINT) KEY (k)")
    query = db.query("SELECT k, v FROM p")
    db.push("p", [(1, 1)])
    db.settle()
    found = query.latency
    assert (found.count, found.max, found.waiting_p99) == (1, 0.0, 0.0)


def test_calls_are_remembered_the_better_the_newer_they_are() -> None:
    """A hundred thousand calls, one each millisecond, in a bounded space."""
    stamps = Stamps()
    for i in range(100_000):
        stamps.log.extend((i / 1000, i + 1, i, i))
        if len(stamps.log) >= 1024 * FIELDS:
            stamps.thin()
    calls = stamps.look()
    assert len(calls) <= 1024
    for age in (1, 100, 1_000, 10_000, 90_000):
        (found,) = calls.times(calls.with_arrival(calls.calls[-1:, 1] - 1 - age))
        assert found == pytest.approx((99_999 - age) / 1000, abs=age / 1000 / 16)
