"""Windows and joins of queries that came at different times become one when they hold the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts.local import host

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t;
"""


@pytest.fixture
def db(monkeypatch: pytest.MonkeyPatch) -> Iterator[penstock.Database]:
    monkeypatch.setattr(host, "CONVERGE_EVERY", 1)
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        yield db


def push(db: penstock.Database, start: int, stop: int) -> None:
    for i in range(start, stop):
        db.push("s", [(i, i % 3, i / 4)])
        db.push("r", [(i, i % 2, i / 8)])


def kinds(db: penstock.Database, *wanted: str) -> int:
    return sum(o.kind in wanted for o in db.graph().operators)


def after(query: penstock.Query, ts: int) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query.fetch().to_pylist() if row["ts"] >= ts]


@pytest.mark.parametrize("threading", ["direct", "hybrid", "operator"])
@pytest.mark.parametrize("window", ["RANGE 10", "ROWS 10", "NOW"])
def test_windows_become_one(db: penstock.Database, window: str, threading: str) -> None:
    text = f"SELECT k, max(v) AS m FROM s [{window}] GROUP BY k"
    older = db.query(text)
    db.configure(threading=threading)
    push(db, 0, 20)
    younger = db.query(text)
    assert kinds(db, "window") == 2
    for i in range(20, 40):
        push(db, i, i + 1)
        db.settle()
    assert kinds(db, "window") == 1
    push(db, 40, 60)
    assert after(older, 41) == after(younger, 41) != []


def test_an_operator_that_is_suspended_keeps_its_number(db: penstock.Database) -> None:
    text = "SELECT v FROM s [RANGE 3] WHERE v >= 0"
    older = db.query(text)
    push(db, 0, 5)
    before = {o.id for o in db.graph().operators}
    younger = db.query(text)
    resting = next(o.id for o in db.graph().operators if o.id not in before and o.kind == "window")
    for i in range(5, 20):
        db.suspend(resting)
        push(db, i, i + 1)
        assert next(o.state for o in db.graph().operators if o.id == resting) == "suspended"
        db.resume(resting)
    push(db, 40, 50)
    assert kinds(db, "window") == 1
    assert after(older, 40) == after(younger, 40) != []


def test_three_generations_become_one(db: penstock.Database) -> None:
    queries = []
    for start in (0, 5, 10):
        queries.append(db.query("SELECT k, count(*) AS n FROM s [RANGE 7] GROUP BY k"))
        push(db, start, start + 5)
    push(db, 15, 40)
    assert kinds(db, "window") == 1
    push(db, 40, 50)
    first, *others = (after(q, 41) for q in queries)
    assert first
    assert all(other == first for other in others)


def test_joins_become_one_and_so_does_what_stands_above(db: penstock.Database) -> None:
    text = "SELECT s.k, s.v + r.v AS x FROM s [RANGE 6] JOIN r [RANGE 9] ON s.k = r.k WHERE s.v < r.v * 3"
    older = db.query(text)
    push(db, 0, 20)
    younger = db.query(text)
    assert kinds(db, "join") == 2
    push(db, 20, 45)
    assert kinds(db, "join") == 1
    # One chain below each window, one above the join.
    assert kinds(db, "project", "filter") == 3
    push(db, 45, 60)
    assert sorted(after(older, 46)) == sorted(after(younger, 46)) != []


def test_stopping_either_leaves_the_other(db: penstock.Database) -> None:
    text = "SELECT k, v FROM s [RANGE 5]"
    older, younger = db.query(text), None
    push(db, 0, 10)
    younger = db.query(text)
    push(db, 10, 30)
    assert kinds(db, "window") == 1
    older.stop()
    younger.fetch()
    push(db, 30, 33)
    assert [row["v"] for row in younger.fetch().to_pylist() if row["op"] == "+"] == [30 / 4, 31 / 4, 32 / 4]


def test_groups_do_not(db: penstock.Database) -> None:
    text = "SELECT DISTINCT k FROM s [RANGE 5]"
    db.query(text)
    push(db, 0, 10)
    db.query(text)
    push(db, 10, 40)
    assert kinds(db, "distinct") == 2
    assert kinds(db, "window") == 1


def test_failures_stay_with_whom_they_were_counted(db: penstock.Database) -> None:
    text = "SELECT a.k, 1 / (a.k - b.k) AS x FROM s [RANGE 4] a JOIN r [RANGE 4] b ON a.t = b.t"
    older = db.query(text)
    push(db, 0, 12)
    younger = db.query(text)
    db.settle()
    before = older.failures
    assert before > 0
    assert younger.failures == 0
    push(db, 12, 40)
    assert older.failures - before == younger.failures > 0


def test_a_join_with_rows_that_never_leave_does_not(db: penstock.Database) -> None:
    text = "SELECT s.k, s.v, r.v AS w FROM s [RANGE 5] JOIN r [RANGE UNBOUNDED] ON s.k = r.k"
    older = db.query(text)
    db.push("r", [(1, 1, 10.0)])
    db.push("s", [(1, 1, 0.0)])
    younger = db.query(text)
    for i in range(2, 40):
        db.push("s", [(i, 1, float(i))])
        db.heartbeat("r", i)
    assert older.fetch().num_rows > 30
    assert younger.fetch().num_rows == 0


def test_nothing_is_kept_of_those_that_are_gone(db: penstock.Database) -> None:
    text = "SELECT s.k, s.v, r.v AS w FROM s [RANGE 3] JOIN r [RANGE 3] ON s.k = r.k"
    db.query(text)
    for i in range(10):
        push(db, i * 10, i * 10 + 5)
        younger = db.query(text)
        push(db, i * 10 + 5, i * 10 + 10)
        younger.stop()
    inside = core_of(db).host
    assert isinstance(inside, host.LocalHost)
    assert len(inside.graph.twins) <= 2
    assert len(inside.graph.twins.since) <= len(inside.graph.vertices)
    assert kinds(db, "join") == 1
