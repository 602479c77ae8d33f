"""What priority and latency of queries do to how the graph is run."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import penstock

STREAM = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t"
FIRST = "SELECT k, count(*) AS n FROM s [ROWS 3] GROUP BY k"
SECOND = "SELECT k, sum(v) AS n FROM s [ROWS 5] GROUP BY k"


@pytest.fixture
def db() -> Iterator[penstock.Database]:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        yield db


def placed(db: penstock.Database, query: str) -> set[int]:
    """The virtual operators of what only this query needs."""
    return {o.partition for o in db.graph().operators if o.queries == (query,) and o.kind != "source"}


def rows(first: int, count: int) -> list[tuple[int, int, int]]:
    return [(t, t % 2, t) for t in range(first, first + count)]


def test_queries_of_different_priority_are_not_fused(db: penstock.Database) -> None:
    first, second = db.query(FIRST, name="first"), db.query(SECOND, name="second")
    db.configure(threading="hybrid", workers=2)
    assert placed(db, "first") == placed(db, "second"), "nothing keeps them apart"
    first.alter(priority=9)
    second.alter(priority=1)
    assert not placed(db, "first") & placed(db, "second")
    assert {p.priority for p in db.graph().partitions if p.worker is not None} == {9, 1}
    second.alter(priority=9)
    assert placed(db, "first") == placed(db, "second")
    second.alter(priority=0)
    db.push("s", rows(1, 5))
    first.alter(priority=5)
    db.push("s", rows(6, 4))
    with penstock.connect(engine="reference") as truth:
        truth.execute(STREAM)
        wanted = {query.name: truth.query(text) for query, text in ((first, FIRST), (second, SECOND))}
        truth.push("s", rows(1, 9))
        for query in (first, second):
            found, right = query.fetch().to_pylist(), wanted[query.name].fetch().to_pylist()
            assert sorted(found, key=str) == sorted(right, key=str)


def test_latency_does_not_take_a_query_out_of_its_virtual_operator(db: penstock.Database) -> None:
    db.query(FIRST, name="first", latency="5 ms")
    db.query(SECOND, name="second")
    db.configure(threading="hybrid", workers=1)
    assert placed(db, "first") == placed(db, "second")
    db.queries["second"].alter(latency="1 ms")
    assert placed(db, "first") == placed(db, "second")


def test_a_query_is_suspended_while_another_one_works(db: penstock.Database) -> None:
    """The worker that has the query is told, and no other is waited for."""
    inside, go_on = threading.Event(), threading.Event()

    def slowly(v: int) -> int:
        inside.set()
        go_on.wait()
        return v

    db.create_function("slowly", slowly, args=["BIGINT"], returns="BIGINT")
    db.query("SELECT slowly(v) AS v FROM s", name="slow")
    quick = db.query(FIRST, name="quick")
    db.configure(threading="operator")
    db.push("s", rows(1, 2))
    inside.wait()
    quick.suspend()
    quick.alter(priority=9, latency="1 ms", lag="10000 rows")
    assert quick.status == "suspended"
    quick.resume()
    db.configure(memory="100 MB")
    assert not go_on.is_set(), "a pause would have waited for the function"
    go_on.set()
    assert quick.fetch().num_rows > 0
    assert db.queries["slow"].fetch().num_rows == 2


def test_an_operator_that_rests_with_its_query_is_not_resumed_alone(db: penstock.Database) -> None:
    db.query(FIRST, name="first").suspend()
    resting = [o.id for o in db.graph().operators if o.state == "suspended"]
    with pytest.raises(penstock.StateError, match="is suspended with query `first`; RESUME QUERY first"):
        db.resume(resting[0])
    db.suspend(next(o.id for o in db.graph().operators if o.kind == "query"))
    db.queries["first"].resume()
    db.push("s", rows(1, 3))
    assert db.queries["first"].fetch().num_rows == 0, "one of its operators rests by itself"


def test_rows_that_wait_for_an_operator_are_there_after_a_restart(tmp_path: object) -> None:
    with penstock.connect(f"{tmp_path}/db", engine="local") as db:
        db.execute(STREAM)
        query = db.query(FIRST, name="first")
        db.suspend(next(o.id for o in db.graph().operators if o.kind == "query"))
        db.push("s", rows(1, 5))
        assert query.answered == 0
    with penstock.connect(f"{tmp_path}/db", engine="local") as db:
        assert db.queries["first"].current().num_rows == 2


def test_a_lag_that_is_altered_counts_at_once(db: penstock.Database) -> None:
    query = db.query("SELECT v FROM s", name="q", lag="1000 rows")
    db.suspend(next(o.id for o in db.graph().operators if o.kind == "query"))
    db.push("s", rows(1, 50))
    query.alter(lag="10 rows", on_lag="stop")
    db.push("s", rows(51, 1))
    assert query.status == "failed"
    assert "lag = '10 rows'" in str(query.trouble)


def test_a_query_that_fell_behind_may_catch_up_when_it_is_resumed(db: penstock.Database) -> None:
    query = db.query("SELECT v FROM s", name="q")
    query.suspend()
    db.push("s", rows(1, 50))
    query.alter(lag="10 rows")
    query.resume()
    assert query.fetch().num_rows == 50
    assert query.status == "running"
