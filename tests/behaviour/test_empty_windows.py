"""Windows without rows: passed over where they have no answer, and refused where too many would be answered at once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import penstock
from penstock.database.database import core_of
from penstock.testing import Clock

S = "CREATE STREAM s (t BIGINT, v INT) TIMESTAMP BY t"
FAR = 10**15
Do = Callable[[penstock.Database], object]


def rows(query: penstock.Query) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query.fetch().to_pylist()]


@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        ("TUMBLING 2", [(2, "+", 7, 1), (FAR + 2, "+", 8, 1)]),
        ("HOPPING 4 EVERY 2", [(2, "+", 7, 1), (4, "+", 7, 1), (FAR + 2, "+", 8, 1), (FAR + 4, "+", 8, 1)]),
        ("BEGIN WINDOW 0 END WINDOW 3 HOP SIZE (5, 5)", [(3, "+", 7, 1), (FAR + 3, "+", 8, 1)]),
        ("BEGIN WINDOW 0 END WINDOW 3 HOP SIZE (5, 5) END QUERY 1000000000000", [(3, "+", 7, 1)]),
    ],
)
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_empty_windows_without_an_answer_take_no_time(
    engine: str, window: str, wanted: list[tuple[object, ...]], at_once: bool
) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(S)
        query = db.query(f"SELECT v, count(*) AS n FROM s [{window}] GROUP BY v")
        began = time.monotonic()
        for some in [[(1, 7), (FAR, 8)]] if at_once else [[(1, 7)], [(FAR, 8)]]:
            db.push("s", some)
        if not at_once:
            db.heartbeat("s", 2 * FAR)
        db.close_stream("s")
        assert rows(query) == wanted
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM s [TUMBLING 2] ORDER BY v LIMIT 1",
        "SELECT DISTINCT v FROM s [TUMBLING 2]",
        "SELECT v FROM s [TUMBLING 2] WHERE v IN (SELECT x FROM a)",
        "SELECT v FROM s [TUMBLING 2] JOIN a ON v = x",
        "SELECT v FROM s [TUMBLING 2] UNION SELECT v FROM s [TUMBLING 2] WHERE v < 0",
        "SELECT ISTREAM v FROM (SELECT v, count(*) AS n FROM s [TUMBLING 2] GROUP BY v) [RANGE 1 SLIDE 1]",
        "SELECT ISTREAM v FROM s [RANGE 2 SLIDE 2]",
    ],
)
def test_what_has_no_answer_without_rows(engine: str, text: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(S)
        db.execute("CREATE RELATION a (x INT)")
        db.execute("INSERT INTO a VALUES (7), (8)")
        query = db.query(text)
        db.push("s", [(1, 7)])
        db.push("s", [(FAR, 8)])
        db.heartbeat("s", FAR + 9)
        assert [row[2] for row in rows(query)] == [7, 8]


def test_relations_change_while_windows_are_empty(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(S)
        db.execute("CREATE RELATION a (x INT)")
        query = db.query("SELECT v, count(*) AS n FROM s [HOPPING 4 EVERY 2], a WHERE v = x GROUP BY v")
        db.execute("INSERT INTO a VALUES (7), (8) AT 0")
        db.push("s", [(1, 7), (5, 8)])
        for at in (100, 150, 200):
            db.execute(f"INSERT INTO a VALUES (8) AT {at}")
            db.heartbeat("s", at + 1)
        db.push("s", [(300, 8)])
        db.close_stream("s")
        early = [(2, "+", 7, 1), (4, "+", 7, 1), (6, "+", 8, 1), (8, "+", 8, 1)]
        assert rows(query) == [*early, (302, "+", 8, 4), (304, "+", 8, 4)]


COUNT = "SELECT count(*) AS n FROM s [TUMBLING 2]"


@pytest.mark.parametrize(
    "do",
    [
        lambda db: db.push("s", [(FAR, 2)]),
        lambda db: db.push("s", [(3, 2), (FAR, 2)]),
        lambda db: db.heartbeat("s", FAR),
        lambda db: db.execute(f"INSERT INTO s VALUES ({FAR}, 2)"),
    ],
    ids=["row", "rows", "heartbeat", "insert"],
)
def test_too_many_answers_at_once_are_refused(engine: str, do: Do) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(S)
        query = db.query(COUNT, name="counting")
        other = db.query("SELECT v FROM s")
        db.push("s", [(1, 1)])
        with pytest.raises(penstock.InputError, match=r"stream `s`: from 1 to 10+ .* windows of query `counting`"):
            do(db)
        assert db.stream("s").progress == 1
        db.push("s", [(5, 2)])
        db.close_stream("s")
        assert rows(query) == [(2, "+", 1), (4, "+", 0), (6, "+", 1)]
        assert [row[2] for row in rows(other)] == [1, 2]


def test_the_first_row_may_be_anywhere(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(S)
        db.push("s", [(1, 1)])
        query = db.query(COUNT)
        db.push("s", [(FAR, 1), (FAR + 1, 1), (FAR + 2, 1)])
        assert rows(query) == [(FAR + 2, "+", 2)]


def test_windows_that_begin_long_ago_are_refused(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(S)
        db.push("s", [(FAR, 1)])
        window = "BEGIN WINDOW 0 END WINDOW 2 HOP SIZE (2, 2)"
        with pytest.raises(penstock.InputError, match="stream `s`: from 2 to 10"):
            db.query(f"SELECT count(*) AS n FROM s [{window}]")
        assert not db.queries
        query = db.query(f"SELECT count(*) AS n FROM s [{window} END QUERY 4]")
        assert rows(query) == [(2, "+", 0), (4, "+", 0)]


def test_retained_rows_that_are_too_far_apart_are_refused(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(f"{S} WITH (retain = 'all')")
        db.push("s", [(1, 1), (FAR, 1)])
        with pytest.raises(penstock.InputError, match="stream `s`: from 1 to 10"):
            db.query(COUNT)
        assert db.query(COUNT.replace("count(*) AS n", "v")).fetch().num_rows == 1


def test_closing_a_stream_with_an_end_far_away_is_refused(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(S)
        query = db.query(f"SELECT count(*) AS n FROM s [BEGIN WINDOW 0 END WINDOW 2 HOP SIZE (2, 2) END QUERY {FAR}]")
        db.push("s", [(1, 1)])
        with pytest.raises(penstock.InputError, match="windows of query"):
            db.close_stream("s")
        query.stop()
        db.close_stream("s")


def test_changes_that_a_query_begins_with_may_be_too_far_apart(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE RELATION a (x INT); CREATE STREAM d AS SELECT ISTREAM x FROM a")
        db.execute("INSERT INTO a VALUES (1)")
        db.execute(f"INSERT INTO a VALUES (2) AT {FAR}")
        with pytest.raises(penstock.InputError, match="changes of relations: from 0 to 10"):
            db.query("SELECT count(*) AS n FROM d [TUMBLING 2]")
        assert not db.queries
        assert db.query("SELECT x FROM d [TUMBLING 2]").fetch().num_rows == 1


def test_a_change_that_is_too_far_away_is_refused(engine: str) -> None:
    with penstock.connect(engine=engine, clock=Clock(FAR)) as db:
        db.execute("CREATE RELATION a (x INT); CREATE STREAM d AS SELECT ISTREAM x FROM a")
        query = db.query("SELECT count(*) AS n FROM d [TUMBLING 2]")
        db.execute("INSERT INTO a VALUES (1)")
        with pytest.raises(penstock.InputError, match="the change: from 1 to 10"):
            db.execute(f"INSERT INTO a VALUES (2) AT {FAR}")
        assert core_of(db).relations["a"].rows == [(1,)]
        db.execute("INSERT INTO a VALUES (2)")
        assert rows(query) == [(2, "+", 1)]
