"""A query that fails stops alone, says why, and takes nothing with it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import penstock
from penstock.model.delta import Delta, Step
from penstock.operators.base import StateSize
from penstock.operators.fast_join import FastJoin

DECLARE = "CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t"


def picky(value: int) -> int:
    if value == 13:
        raise RuntimeError("thirteen")
    return value


def test_a_function_that_raises_stops_only_its_own_query(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        db.create_function("picky", picky, args=["BIGINT"], returns="BIGINT")
        bad = db.query("SELECT picky(a) AS a FROM s", name="bad")
        good = db.query("SELECT a FROM s", name="good")
        db.push("s", [(1, 1)])
        db.push("s", [(2, 2), (3, 13)])
        db.push("s", [(4, 4)])
        assert good.status == "running"
        assert good.fetch().column("a").to_pylist() == [1, 2, 13, 4]
        assert bad.status == "failed"
        assert bad.fetch().column("a").to_pylist() == [1]
        with pytest.raises(penstock.PenstockError, match="thirteen"):
            bad.fetch()
        with pytest.raises(penstock.PenstockError, match="thirteen"):
            list(bad)


def test_a_failure_on_a_row_is_null_and_counted(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        q = db.query("SELECT 10 / a AS x FROM s")
        db.push("s", [(1, 0), (2, 5), (3, None)])
        assert q.fetch().column("x").to_pylist() == [None, 2.0, None]
        assert q.failures == 1
        assert q.last_failure is not None
        assert "zero" in q.last_failure


def test_strict_stops_the_query_instead(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        q = db.execute("CREATE QUERY q AS SELECT 10 / a AS x FROM s WITH (strict = true)").query
        assert q is not None
        db.push("s", [(1, 5)])
        db.push("s", [(2, 2), (3, 0)])
        assert q.fetch().column("x").to_pylist() == [2.0]
        assert q.status == "failed"
        with pytest.raises(penstock.QueryFailed, match="zero"):
            q.fetch()


def test_out_of_memory_names_the_operator_and_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(self: FastJoin, inputs: Sequence[Delta], step: Step) -> Delta:
        raise MemoryError

    monkeypatch.setattr(FastJoin, "process", greedy)
    monkeypatch.setattr(FastJoin, "size", lambda self: StateSize(1_234_567, 89_000_000))
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        q = db.query("SELECT x.a FROM s [RANGE 5] x JOIN s [RANGE 5] y ON x.a = y.a")
        db.push("s", [(1, 1)])
        message = r"out of memory in operator FastJoin.* 1,234,567 rows, 89,000,000"
        with pytest.raises(penstock.QueryFailed, match=message):
            q.fetch()


def test_a_batch_of_another_schema_changes_nothing(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        q = db.query("SELECT sum(a) AS total FROM s")
        db.push("s", [(1, 1)])
        with pytest.raises(penstock.InputError, match=r"row 2, column `a`: 'x' is not a BIGINT"):
            db.push("s", [(2, 2), (3, "x")])
        assert db.stream("s").progress == 1
        db.push("s", [(2, 5)])
        assert q.fetch().column("total").to_pylist() == [1, 1, 6]


def test_state_is_measured_by_query() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        small = db.query("SELECT a FROM s [ROWS 10]")
        large = db.query("SELECT a FROM s [ROWS 10000]")
        passing = db.query("SELECT a FROM s WHERE a > 5")
        db.push("s", [(i, i) for i in range(30_000)])
        assert sum(s.rows for s in small.state.values()) == 10
        assert sum(s.rows for s in large.state.values()) == 10_000
        assert sum(s.rows for s in passing.state.values()) == 0
        assert sum(s.bytes for s in large.state.values()) > sum(s.bytes for s in small.state.values()) > 0
