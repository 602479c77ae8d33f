"""The answer of a query as it stands: what its changes come to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.testing import crash_copy

STREAM = "CREATE STREAM s (t BIGINT, k STRING, v DOUBLE) TIMESTAMP BY t"


def test_it_is_what_all_changes_come_to(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        sums = db.query("SELECT k, sum(v) AS total FROM s [ROWS 3] GROUP BY k")
        assert sums.current().num_rows == 0
        db.push("s", [(1, "a", 1.0), (2, "b", 2.0), (3, "a", 3.0)])
        assert Counter(map(tuple, (r.values() for r in sums.current().to_pylist()))) == {("a", 4.0): 1, ("b", 2.0): 1}
        assert sums.current().to_pylist() == sums.current().to_pylist()
        db.push("s", [(4, None, float("nan")), (5, None, float("nan")), (6, None, 1.0)])
        (row,) = sums.current().to_pylist()
        assert row["k"] is None
        assert row["total"] != row["total"]


def test_rows_that_are_there_several_times(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        last = db.query("SELECT k FROM s [ROWS 3]")
        db.push("s", [(t, k, 0.0) for t, k in enumerate(["a", "a", "a", "b", "b"])])
        assert Counter(last.current()["k"].to_pylist()) == {"a": 1, "b": 2}


def test_rows_with_arrays(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        collected = db.query("SELECT collect(k) AS ks FROM s [ROWS 2]")
        db.push("s", [(1, "a", 0.0), (2, "b", 0.0), (3, "c", 0.0)])
        assert collected.current()["ks"].to_pylist() == [["b", "c"]]


def test_a_monotonic_query_has_all_its_rows() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        high = db.query("SELECT k FROM s WHERE v > 1")
        db.push("s", [(1, "a", 2.0), (2, "b", 1.0), (3, "a", 3.0)])
        assert high.current()["k"].to_pylist() == ["a", "a"]


@pytest.mark.parametrize(("select", "hint"), [
    ("ISTREAM k FROM s [ROWS 2]", "leave ISTREAM out of the query"),
    ("RSTREAM k FROM s [ROWS 2]", "leave RSTREAM out of the query"),
    ("count(*) AS n FROM s [TUMBLING 5]", "every answer is the last word"),
])  # fmt: skip
def test_streams_of_answers_have_none(select: str, hint: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        query = db.query(f"SELECT {select}")
        db.push("s", [(1, "a", 2.0), (9, "a", 2.0)])
        with pytest.raises(penstock.StateError, match=hint):
            query.current()
        assert query.fetch().num_rows > 0


def test_looking_takes_nothing_and_fetching_changes_nothing(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        query = db.query("SELECT max(v) AS m FROM s")
        db.push("s", [(1, "a", 2.0)])
        assert query.current()["m"].to_pylist() == [2.0]
        db.push("s", [(2, "a", 3.0)])
        assert query.fetch()["op"].to_pylist() == ["+", "-", "+"]
        db.push("s", [(3, "a", 4.0)])
        assert query.current()["m"].to_pylist() == [4.0]
        assert query.fetch()["m"].to_pylist() == [3.0, 4.0]
        assert query.current()["m"].to_pylist() == [4.0]


def test_an_answer_that_is_all_that_ever_came(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        query = db.query("SELECT v FROM s WHERE v > 1")
        asked = db.query("SELECT v FROM s WHERE v > 1", name="asked")
        db.push("s", [(1, "a", 2.0), (2, "a", 3.0)])
        assert asked.current()["v"].to_pylist() == [2.0, 3.0]
        asked.fetch()
        assert asked.current()["v"].to_pylist() == [2.0, 3.0], "it is kept once it was asked for"
        query.fetch()
        with pytest.raises(penstock.StateError, match="all that it has ever given, and the first 2 results are gone"):
            query.current()


@pytest.mark.parametrize("killed", [False, True])
def test_on_spark_after_a_restart(tmp_path: Path, killed: bool) -> None:
    from tests.spark.direct import directly

    with directly():
        with penstock.connect(tmp_path / "db", engine="spark") as db:
            db.execute(STREAM)
            kept, taken = (db.query("SELECT max(v) AS m FROM s", name=name) for name in ("kept", "taken"))
            db.push("s", [(1, "a", 2.0)])
            assert taken.current()["m"].to_pylist() == [2.0]
            assert kept.waiting == 1
            taken.fetch()
            path = crash_copy(db, tmp_path / "killed") if killed else tmp_path / "db"
        with penstock.connect(path, engine="spark") as db:
            assert db.queries["taken"].current()["m"].to_pylist() == [2.0], "though nothing of it waits any more"
            db.push("s", [(2, "a", 3.0)])
            for name in ("kept", "taken"):
                assert db.queries[name].current()["m"].to_pylist() == [3.0]
