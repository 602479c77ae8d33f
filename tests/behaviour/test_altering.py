"""Queries are altered, suspended and resumed while data flow: when answers come changes, never which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.model.amounts import Bound

STREAM = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t"
GROUPS = "SELECT k, count(*) AS n FROM s [ROWS 3] GROUP BY k"
ALL = "SELECT v FROM s WHERE v > 0"
Rows = list[dict[str, object]]


@pytest.fixture
def db(engine: str) -> Iterator[penstock.Database]:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        yield db


def rows(first: int, count: int) -> list[tuple[int, int, int]]:
    return [(t, t % 2, t) for t in range(first, first + count)]


def given(query: penstock.Query) -> Rows:
    """Results in an order that all engines have."""
    return sorted(query.fetch().to_pylist(), key=str)


def wanted(text: str, count: int) -> Rows:
    with penstock.connect(engine="reference") as db:
        db.execute(STREAM)
        query = db.query(text)
        db.push("s", rows(1, count))
        return given(query)


def test_a_suspended_query_keeps_its_place(db: penstock.Database) -> None:
    resting, other = db.query(GROUPS, name="resting"), db.query(GROUPS.replace("3", "4"), name="other")
    db.push("s", rows(1, 5))
    had = given(resting)
    assert db.execute("SUSPEND QUERY resting").message == "query resting suspended; RESUME QUERY resting lets it go on"
    assert resting.status == "suspended"
    assert other.status == "running"
    for t in range(6, 20):
        db.push("s", rows(t, 1))
    assert given(resting) == []
    assert given(other) == wanted(GROUPS.replace("3", "4"), 19), "it does not hold others back"
    assert db.execute("SHOW QUERIES").table["status"].to_pylist() == ["suspended", "running"]  # type: ignore[index]
    db.execute("RESUME QUERY resting")
    db.push("s", rows(20, 1))
    assert sorted(had + given(resting), key=str) == wanted(GROUPS, 20)
    assert db.queries["resting"].status == "running"


def test_queries_that_come_while_another_rests_share_with_it_and_go_on(db: penstock.Database) -> None:
    resting = db.query(ALL, name="resting")
    resting.suspend()
    db.push("s", rows(1, 3))
    same, late = db.query(ALL, name="same"), db.query(GROUPS, name="late")
    late.suspend()
    db.push("s", rows(4, 2))
    assert [r["v"] for r in given(same)] == [4, 5]
    same.stop()
    late.resume()
    resting.resume()
    db.push("s", rows(6, 1))
    assert sorted(r["v"] for r in given(resting)) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]
    assert len(given(late)) > 0


def test_a_query_that_rests_can_be_stopped(db: penstock.Database) -> None:
    query = db.query(ALL, name="q")
    query.suspend()
    db.push("s", rows(1, 3))
    db.execute("STOP QUERY q")
    assert query.status == "stopped"
    db.query(ALL, name="q")
    db.push("s", rows(4, 1))
    assert [r["v"] for r in given(db.queries["q"])] == [4]


def test_what_cannot_be_is_refused_and_changes_nothing(db: penstock.Database) -> None:
    query = db.query(ALL, name="q", priority=3)
    for statement, said in (
        ("RESUME QUERY q", "query `q` is not suspended"),
        ("SUSPEND QUERY p", "no query `p`"),
        ("ALTER QUERY q SET (priority = 10)", "`priority` is a whole number from 0 to 9"),
        ("ALTER QUERY q SET (strict = TRUE)", "`strict` of a query cannot change"),
        ("ALTER QUERY q SET (priority = 1, speed = 9)", "no option `speed`; there are `priority`, `latency`"),
        ("ALTER QUERY q SET (prioritty = 1)", "no option `prioritty`; did you mean `priority`"),
        ("ALTER QUERY q SET priority = 1", "expected ( and options"),
        ("ALTER STREAM s SET (retain = 'all')", "expected QUERY"),
    ):
        with pytest.raises(penstock.PenstockError, match=said.replace("(", r"\(")):
            db.execute(statement)
    query.suspend()
    with pytest.raises(penstock.StateError, match="suspended already"):
        query.suspend()
    assert query.options.priority == 3
    query.stop()
    with pytest.raises(penstock.StateError, match="query `q` is stopped"):
        query.alter(priority=4)
    ended = db.query(ALL, name="e")
    db.close_stream("s")
    ended.fetch()
    with pytest.raises(penstock.StateError, match="query `e` has ended"):
        ended.alter(priority=4)


def test_options_change_while_data_flow(db: penstock.Database) -> None:
    query = db.query(ALL, name="q", priority=2, latency="100 ms", results="5 rows")
    assert (query.options.priority, query.options.latency) == (2, 100_000)
    db.push("s", rows(1, 3))
    db.execute("ALTER QUERY q SET (priority = 9, latency = NULL, lag = '1000 rows', results = '100 rows')")
    assert (query.options.priority, query.options.latency, query.options.lag) == (9, None, "1000 rows")
    query.alter(on_lag="stop", results=None)
    assert (query.options.on_lag, query.options.results) == ("stop", None)
    db.push("s", rows(4, 10))
    assert [r["v"] for r in query.fetch().to_pylist()] == list(range(1, 14)), "more than five rows are kept"


def test_plan_objects_take_the_options_of_queries(db: penstock.Database) -> None:
    plan = db.query(ALL, name="text").plan
    query = db.query(plan=plan, name="object", priority=8, strict=True, results="10 rows", lag="7 rows")
    assert (query.options.priority, query.options.strict, query.options.lag) == (8, True, "7 rows")
    assert query.options.results == Bound(rows=10)
    with pytest.raises(penstock.BindError, match="no option `speed`"):
        db.query(ALL, name="fast", speed=3)
    assert "fast" not in db.queries


@pytest.mark.parametrize("saves", [False, True])
def test_a_suspended_query_is_suspended_after_a_restart(engine: str, tmp_path: Path, saves: bool) -> None:
    if engine == "reference":
        return
    with penstock.connect(tmp_path / "db", engine=engine) as db:
        db.execute(STREAM)
        db.query(GROUPS, name="q", priority=1).suspend()
        db.push("s", rows(1, 6))
        if saves:
            db.settle()
            db._core.host.abilities().save()
            db.push("s", rows(7, 2))
        db.queries["q"].alter(priority=7)
    for first in (9, 10):
        with penstock.connect(tmp_path / "db", engine=engine) as db:
            query = db.queries["q"]
            assert (query.status, query.options.priority, query.answered) == ("suspended", 7, 0)
            if first == 9 and not saves:
                db.push("s", rows(7, 2))
            db.push("s", rows(first, 1))
    with penstock.connect(tmp_path / "db", engine=engine) as db:
        db.execute("RESUME QUERY q")
        assert given(db.queries["q"]) == wanted(GROUPS, 10)


@pytest.mark.parametrize("before", ["local", "spark"])
def test_a_suspended_query_is_suspended_on_the_other_engine(engine: str, tmp_path: Path, before: str) -> None:
    if engine in ("reference", before):
        return
    from tests.spark.direct import directly

    with directly():
        with penstock.connect(tmp_path / "db", engine=before) as db:
            db.execute(STREAM)
            db.query(GROUPS, name="q").suspend()
            db.query(GROUPS, name="other")
            db.push("s", rows(1, 6))
        with penstock.connect(tmp_path / "db", engine=engine) as db:
            query = db.queries["q"]
            assert query.status == "suspended"
            db.push("s", rows(7, 4))
            assert given(db.queries["other"]) == wanted(GROUPS, 10)
            query.resume()
            assert given(query) == wanted(GROUPS, 10)
