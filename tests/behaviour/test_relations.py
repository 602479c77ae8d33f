"""Stored relations: when changes happen, and what reads nothing else. The same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

import penstock
from penstock.database.database import core_of
from penstock.testing import Clock

Rows = list[tuple[object, ...]]
A, B = "CREATE RELATION a (x INT)", "CREATE RELATION b (x INT)"
S = "CREATE STREAM s (t BIGINT, v INT) TIMESTAMP BY t"
R = "CREATE STREAM r (t BIGINT, k INT) TIMESTAMP BY t"
D = "CREATE STREAM d AS SELECT ISTREAM x FROM a"
MOMENT = 1_714_557_600_000_000


@pytest.fixture
def opened(engine: str) -> Iterator[Callable[..., penstock.Database]]:
    """Databases with these declarations, on a clock that stands still."""
    databases: list[penstock.Database] = []

    def opening(*declare: str) -> penstock.Database:
        databases.append(penstock.connect(engine=engine, clock=Clock(MOMENT)))
        for text in declare:
            databases[-1].execute(text)
        return databases[-1]

    yield opening
    for db in databases:
        db.close()


def rows(query: penstock.Query) -> Rows:
    return sorted(tuple(row.values()) for row in query.fetch().to_pylist())


def insert(db: penstock.Database, *changes: tuple[str, int]) -> None:
    for name, value in changes:
        db.execute(f"INSERT INTO {name} VALUES ({value})")


def too_late(db: penstock.Database, text: str) -> str:
    with pytest.raises(penstock.InputError) as caught:
        db.execute(text)
    return str(caught.value.message)


SIX = [("a", 1), ("b", 1), ("b", 2), ("b", 3), ("a", 2), ("a", 3)]


@pytest.mark.parametrize("fetching", [False, True], ids=["at the end", "after each"])
def test_a_query_over_two_relations_loses_no_change(opened: Callable[..., penstock.Database], fetching: bool) -> None:
    db = opened(A, B)
    query = db.query("SELECT a.x FROM a, b WHERE a.x = b.x")
    found: Rows = []
    for change in SIX:
        insert(db, change)
        found += rows(query) if fetching else []
    assert found + rows(query) == [(2, "+", 1), (5, "+", 2), (6, "+", 3)]


def test_changes_of_every_relation_come_one_after_the_other(opened: Callable[..., penstock.Database]) -> None:
    db = opened(A, B, S)
    both = [db.query(f"SELECT x FROM {name}") for name in "ab"]
    insert(db, ("a", 1), ("b", 2), ("a", 3))
    assert [rows(q) for q in both] == [[(1, "+", 1), (3, "+", 3)], [(2, "+", 2)]]
    db.push("s", [(10, 1)])
    insert(db, ("b", 4), ("a", 5))
    assert [rows(q) for q in both] == [[(12, "+", 5)], [(11, "+", 4)]]


def test_instants_that_were_passed_are_refused_without_streams(opened: Callable[..., penstock.Database]) -> None:
    db = opened(A, B)
    query = db.query("SELECT a.x, b.x FROM a, b")
    assert "a change at 0 comes too late" in too_late(db, "INSERT INTO a VALUES (1) AT 0")
    db.execute("INSERT INTO a VALUES (1) AT 3")
    db.execute("INSERT INTO b VALUES (1) AT 9")
    for at in (7, 9):
        assert f"a change at {at} comes too late" in too_late(db, f"INSERT INTO a VALUES (2) AT {at}")
    insert(db, ("a", 2))
    assert rows(query) == [(9, "+", 1, 1), (10, "+", 2, 1)]
    assert db.execute("INSERT INTO a VALUES (3) AT 11").kind == "done"


def test_counted_changes_are_instants_that_are_passed(opened: Callable[..., penstock.Database]) -> None:
    db = opened(A, B)
    query = db.query("SELECT x FROM a")
    insert(db, ("a", 1), ("a", 2))
    assert "a change at 2 comes too late" in too_late(db, "INSERT INTO a VALUES (3) AT 2")
    db.execute("INSERT INTO a VALUES (3) AT 3")
    assert rows(query) == [(1, "+", 1), (2, "+", 2), (3, "+", 3)]


def test_an_inner_stream_is_further_than_the_query_around_it(opened: Callable[..., penstock.Database]) -> None:
    """A change must come after what the derived stream has answered, though the query waits for another stream."""
    inner = "CREATE STREAM e AS SELECT ISTREAM k, x FROM r [ROWS 1], a"
    db = opened(S, R, A, inner)
    query = db.query("SELECT v, e.k, x FROM s [ROWS 1], e [ROWS 9]")
    insert(db, ("a", 1))
    db.push("r", [(5, 1), (9, 2)])
    db.push("s", [(2, 1)])
    assert "a change at 7 comes too late" in too_late(db, "INSERT INTO a VALUES (2) AT 7")
    db.execute("INSERT INTO a VALUES (2) AT 10")
    for name in "rs":
        db.heartbeat(name, 20)
    assert [row[0] for row in rows(query)] == [5, 9, 10]


@pytest.mark.parametrize("text", ["SELECT x FROM d", "SELECT x FROM (SELECT ISTREAM x FROM a) [RANGE 100]"])
def test_a_stream_over_relations_goes_on(opened: Callable[..., penstock.Database], text: str) -> None:
    db = opened(A, D)
    query = db.query(text)
    insert(db, ("a", 1), ("a", 2))
    other = db.query("SELECT x FROM a")
    assert "comes too late" in too_late(db, "INSERT INTO a VALUES (9) AT 0")
    insert(db, ("a", 3))
    assert rows(query) == [(1, "+", 1), (2, "+", 2), (3, "+", 3)]
    assert query.status == other.status == "running"
    assert rows(other) == [(0, "+", 1), (0, "+", 2), (1, "+", 3)]


def test_a_stream_over_relations_as_master(opened: Callable[..., penstock.Database]) -> None:
    db = opened(A, S, D)
    query = db.query("SELECT ISTREAM v, x FROM s [ROWS 2], d [ROWS 3] MASTER d")
    insert(db, ("a", 1))
    db.push("s", [(1, 10)])
    insert(db, ("a", 2))
    db.push("s", [(5, 11)])
    insert(db, ("a", 3))
    db.push("s", [(9, 12)])
    assert rows(query) == [
        (2, "+", 10, 1), (2, "+", 10, 2), (6, "+", 10, 3), (6, "+", 11, 1), (6, "+", 11, 2), (6, "+", 11, 3),
    ]  # fmt: skip
    db.close_stream("s")
    assert rows(query) == []
    assert query.status == "ended"


def test_windows_over_a_stream_over_relations_end_with_the_streams_around(
    opened: Callable[..., penstock.Database],
) -> None:
    db = opened(A, S, D)
    query = db.query("SELECT count(*) AS n FROM d [TUMBLING 5], s [ROWS 1]")
    insert(db, ("a", 1))
    db.push("s", [(1, 1)])
    insert(db, ("a", 2))
    assert rows(query) == []
    db.heartbeat("s", 4)
    assert rows(query) == []
    db.heartbeat("s", 11)
    assert rows(query) == [(5, "+", 2), (10, "+", 0)]


@pytest.mark.parametrize("order", [(A, D, S), (A, S, D), (S, A, D)], ids=["first", "between", "last"])
def test_rows_from_the_beginning_are_at_instant_0_of_a_stream_over_them(
    opened: Callable[..., penstock.Database], order: tuple[str, ...]
) -> None:
    db = opened(*order)
    insert(db, ("a", 1))
    query = db.query("SELECT v, x FROM s [ROWS 1], d [ROWS 1]")
    db.push("s", [(0, 5), (3, 6)])
    db.close_stream("s")
    assert rows(query) == [(0, "+", 5, 1), (3, "+", 6, 1), (3, "-", 5, 1)]


@pytest.mark.parametrize("other", [False, True], ids=["alone", "beside another"])
def test_answers_do_not_depend_on_other_queries(opened: Callable[..., penstock.Database], other: bool) -> None:
    db = opened("CREATE RELATION b (k INT)", S, R)
    db.heartbeat("s", 5)
    insert(db, ("b", 7))
    if other:
        db.query("SELECT count(*) AS n FROM r [ROWS 1], b")
    db.push("s", [(8, 1)])
    query = db.query("SELECT count(*) AS n FROM r [ROWS 2], b")
    db.push("r", [(0, 1)])
    db.heartbeat("r", 20)
    assert rows(query) == [(0, "+", 1)]


@pytest.mark.parametrize("other", [False, True], ids=["alone", "beside another"])
def test_what_has_happened_is_not_to_come_again(opened: Callable[..., penstock.Database], other: bool) -> None:
    """A stream has passed the instant of the change and is closed, whoever has seen that."""
    db = opened("CREATE RELATION b (k INT)", S, R)
    db.execute("INSERT INTO b VALUES (7) AT 50")
    db.heartbeat("s", 100)
    if other:
        db.query("SELECT k FROM b").stop()
    db.close_stream("s")
    query = db.query("SELECT count(*) AS n FROM r [ROWS 2], b")
    db.push("r", [(0, 1), (60, 1)])
    assert rows(query) == [(0, "+", 1), (60, "+", 2), (60, "-", 1)]


@pytest.mark.parametrize("other", [False, True], ids=["alone", "beside another"])
def test_a_query_without_streams_does_not_date_changes_for_others(
    opened: Callable[..., penstock.Database], other: bool
) -> None:
    db = opened(S, A)
    query = db.query("SELECT v, x FROM s [ROWS 1], a")
    if other:
        db.query("SELECT x FROM a")
    insert(db, ("a", 1))
    late = db.query("SELECT x FROM a")
    insert(db, ("a", 2))
    db.push("s", [(0, 5)])
    assert rows(query) == [(0, "+", 5, 1), (0, "+", 5, 2)]
    assert rows(late) == [(0, "+", 1), (1, "+", 2)]


def test_the_instant_is_of_the_clock_of_the_reader(opened: Callable[..., penstock.Database]) -> None:
    db = opened("CREATE STREAM stamped (z INT)", S, A)
    query = db.query("SELECT v, x FROM s [ROWS 1], a")
    db.push("stamped", [(1,)])
    db.push("s", [(1, 1)])
    insert(db, ("a", 1))
    db.push("s", [(5, 2)])
    assert rows(query) == [(2, "+", 1, 1), (5, "+", 2, 1), (5, "-", 1, 1)]


def test_a_relation_is_read_under_one_kind_of_clock(opened: Callable[..., penstock.Database]) -> None:
    db = opened("CREATE STREAM stamped (z INT)", S, A, B)
    first = db.query("SELECT v, x FROM s [ROWS 1], a", name="first")
    second = "SELECT z, x FROM stamped [ROWS 1], a"
    with pytest.raises(penstock.CatalogError) as caught:
        db.query(second)
    assert caught.value.one_line == (
        "relation `a` is read under a clock that counts ticks by query `first`, and this query has a TIMESTAMP clock; "
        "a change has an instant of one kind: use a relation of its own, or STOP QUERY first"
    )
    assert list(db.queries) == ["first"]
    both = db.query("SELECT a.x FROM a, b", name="both")
    with pytest.raises(penstock.CatalogError, match="relation `b` is read under a clock that counts ticks"):
        db.query("SELECT z, x FROM stamped [ROWS 1], b")
    both.stop()
    db.query("SELECT z, x FROM stamped [ROWS 1], b", name="timed")
    with pytest.raises(penstock.CatalogError, match=r"`b` is read under a TIMESTAMP clock .* and `a` under"):
        db.query("SELECT a.x FROM a, b")
    first.stop()
    insert(db, ("a", 1))
    last = db.query(second, name="last")
    assert last.status == "running"
    db.push("stamped", [(1,)])
    insert(db, ("a", 2))
    last.stop()
    with pytest.raises(penstock.CatalogError, match="relation `a` has changed at instants of a TIMESTAMP clock"):
        db.query("SELECT v, x FROM s [ROWS 1], a")


def test_a_closed_stream_does_not_count(opened: Callable[..., penstock.Database]) -> None:
    db = opened(S, R, A)
    query = db.query("SELECT v, x FROM s [ROWS 1], a")
    other = db.query("SELECT k, x FROM r [ROWS 1], a")
    db.push("s", [(1, 1)])
    db.push("r", [(50, 1)])
    db.close_stream("r")
    insert(db, ("a", 1))
    db.push("s", [(3, 2)])
    assert rows(query) == [(2, "+", 1, 1), (3, "+", 2, 1), (3, "-", 1, 1)]
    assert rows(other) == []
    db.close_stream("s")
    insert(db, ("a", 2))
    assert rows(query) == []
    assert query.status == other.status == "ended"


def test_an_inner_stream_whose_streams_are_closed_is_closed(opened: Callable[..., penstock.Database]) -> None:
    db = opened(S, R, A, "CREATE STREAM e AS SELECT ISTREAM k, x FROM r [ROWS 1], a")
    query = db.query("SELECT v, x FROM s [ROWS 1], e")
    insert(db, ("a", 1))
    db.push("r", [(2, 1)])
    db.close_stream("r")
    db.push("s", [(4, 1)])
    insert(db, ("a", 2))
    db.push("s", [(9, 2)])
    assert rows(query) == [(4, "+", 1, 1), (9, "+", 2, 1), (9, "-", 1, 1)]


def test_instants_count_ticks_where_everything_does(opened: Callable[..., penstock.Database]) -> None:
    text = "SELECT x FROM a"
    for declare in ([A], [A, S], [S, A, D]):
        db = opened(*declare)
        insert(db, ("a", 1))
        assert rows(db.query(text)) == [(0, "+", 1)]
    assert rows(db.query("SELECT count(*) AS n FROM d [RANGE 3]")) == [(0, "+", 1)]
    db.execute("CREATE STREAM stamped (z INT)")
    assert rows(db.query(text)) == [(datetime(1970, 1, 1), "+", 1)]
    timed = opened(A)
    timed.execute("INSERT INTO a VALUES (1) AT TIMESTAMP '2024-05-01 10:00:00'")
    assert rows(timed.query(text)) == [(datetime(2024, 5, 1, 10), "+", 1)]


STAMPED = "CREATE STREAM stamped (z INT)"


def test_a_query_keeps_its_relations_in_ticks(opened: Callable[..., penstock.Database]) -> None:
    """Its clock is fixed when it is registered, whatever streams are declared later."""
    db = opened(A, B, D)
    counting = db.query("SELECT count(*) AS n FROM d [TUMBLING 2]", name="counting")
    plain = db.query("SELECT a.x FROM a, b", name="plain")
    insert(db, ("a", 1))
    db.execute(STAMPED)
    db.push("stamped", [(1,)])
    insert(db, ("a", 2), ("b", 7), ("a", 3))
    assert rows(counting) == [(2, "+", 1), (4, "+", 1)]
    assert rows(plain) == [(3, "+", 1), (3, "+", 2), (4, "+", 3)]
    with pytest.raises(penstock.CatalogError, match="relation `b` is read under a clock that counts ticks by query `p"):
        db.query("SELECT z, x FROM stamped [ROWS 1], b")
    counting.stop()
    plain.stop()
    assert db.query("SELECT z, x FROM stamped [ROWS 1], b").status == "running"


def test_instants_are_times_where_a_relation_has_some(opened: Callable[..., penstock.Database]) -> None:
    db = opened(A, D, STAMPED)
    db.push("stamped", [(1,)])
    insert(db, ("a", 1))
    db.execute("DROP STREAM stamped")
    query = db.query("SELECT x FROM d")
    insert(db, ("a", 2))
    assert rows(query)[1] == (datetime(2024, 5, 1, 10, 0, 0, 2), "+", 2)


def test_who_reads_a_relation_decides_where_there_are_both_kinds_of_clocks(
    opened: Callable[..., penstock.Database],
) -> None:
    """The rule of 7.2 for streams of both kinds: also of a reader that is stopped, once the relation has changed."""
    texts = {"ticks": "SELECT v, x FROM s [ROWS 1], a", "times": "SELECT z, x FROM stamped [ROWS 1], a", "": None}
    found: dict[str, object] = {}
    for kind, text in texts.items():
        db = opened(STAMPED, S, A)
        db.push("stamped", [(1,)])
        db.push("s", [(5, 1)])
        reader = None if text is None else db.query(text)
        insert(db, ("a", 1))
        if reader is not None:
            reader.stop()
        insert(db, ("a", 2))
        found[kind] = [at for at, _, _ in rows(db.query("SELECT x FROM a"))]
    ticks = [datetime(1970, 1, 1, 0, 0, 0, n) for n in (6, 7)]
    assert found == {"ticks": ticks, "times": [datetime(2024, 5, 1, 10, 0, 0, n) for n in (1, 2)], "": ticks}


def test_an_instant_at_which_a_query_without_streams_has_answered_is_refused(
    opened: Callable[..., penstock.Database],
) -> None:
    """Each change is after the one before, so its instants may be later than those that the changes have."""
    db = opened(B, S)
    query = db.query("SELECT x FROM b")
    insert(db, ("b", 1), ("b", 2), ("b", 3))
    db.push("s", [(0, 1)])
    insert(db, ("b", 4), ("b", 5))
    for at in (2, 4, 5):
        assert f"a change at {at} comes too late" in too_late(db, f"INSERT INTO b VALUES (6) AT {at}")
    db.execute("INSERT INTO b VALUES (6) AT 6")
    assert rows(query) == [(n, "+", n) for n in range(1, 7)]


def test_what_is_refused_does_not_depend_on_what_has_ended(opened: Callable[..., penstock.Database]) -> None:
    """Whether the end of the query has been reached may not be known yet; it reads the relation until it is stopped."""
    db = opened(A, S, D)
    window = "[BEGIN WINDOW 0 END WINDOW 3 HOP SIZE (3, 3) END QUERY 5]"
    query = db.query(f"SELECT x FROM d {window}", name="bounded")
    db.execute("INSERT INTO a VALUES (1) AT 2")
    db.execute("INSERT INTO a VALUES (2) AT 9")
    assert "a change at 9 comes too late" in too_late(db, "INSERT INTO a VALUES (3) AT 9")
    assert rows(query) == [(3, "+", 1)]
    assert query.status == "ended"
    assert "a change at 9 comes too late" in too_late(db, "INSERT INTO a VALUES (3) AT 9")
    query.stop()
    db.execute("INSERT INTO a VALUES (3) AT 9")
    timed = db.query(f"SELECT count(*) AS n FROM s {window}, a", name="timed")
    db.push("s", [(1, 1), (9, 1)])
    assert timed.fetch().num_rows > 0
    db.execute("DROP STREAM s")
    db.execute("INSERT INTO a VALUES (4) AT 10")


def test_there_is_no_instant_after_the_last(opened: Callable[..., penstock.Database]) -> None:
    db = opened(S, A)
    db.heartbeat("s", 2**62 - 1)
    assert "there is no instant after" in too_late(db, "INSERT INTO a VALUES (1)")
    with pytest.raises(penstock.InputError, match="out of range"):
        db.execute(f"INSERT INTO a VALUES (1) AT {2**62}")
    assert core_of(db).relations["a"].rows == []


def test_what_a_database_counted_is_there_after_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.spark.direct import directly

    folder = tmp_path_factory.mktemp("kept")
    with directly():
        with penstock.connect(folder, engine="spark") as db:
            for text in (A, B, S, D):
                db.execute(text)
            insert(db, ("a", 1))
            db.query("SELECT x FROM a", name="plain")
            db.query("SELECT x FROM d [RANGE 100]", name="derived")
            insert(db, ("b", 1), ("a", 2))
        with penstock.connect(folder, engine="spark") as db:
            assert "a change at 2 comes too late" in too_late(db, "INSERT INTO a VALUES (3) AT 2")
            insert(db, ("a", 3))
            assert rows(db.queries["plain"]) == [(0, "+", 1), (2, "+", 2), (3, "+", 3)]
            assert rows(db.queries["derived"]) == [(0, "+", 1), (2, "+", 2), (3, "+", 3)]


def test_instants_are_what_they_were_after_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.spark.direct import directly

    folder = tmp_path_factory.mktemp("kept")
    with directly():
        with penstock.connect(folder, engine="spark", clock=Clock(MOMENT)) as db:
            for text in (A, B, S):
                db.execute(text)
            db.query("SELECT x FROM b", name="plain")
            insert(db, ("b", 1), ("b", 2), ("b", 3))
            db.push("s", [(0, 1)])
            insert(db, ("b", 4), ("b", 5))
            db.execute(STAMPED)
            db.execute("INSERT INTO a VALUES (1) AT TIMESTAMP '2024-05-01 10:00:00'")
            db.execute("DROP STREAM stamped")
        with penstock.connect(folder, engine="spark", clock=Clock(MOMENT)) as db:
            assert "a change at 5 comes too late" in too_late(db, "INSERT INTO b VALUES (6) AT 5")
            db.execute("INSERT INTO b VALUES (6) AT 6")
            assert rows(db.queries["plain"]) == [(n, "+", n) for n in range(1, 7)]
            assert rows(db.query("SELECT x FROM a")) == [(datetime(2024, 5, 1, 10), "+", 1)]
            with pytest.raises(penstock.CatalogError, match="relation `a` has changed at instants of a TIMESTAMP"):
                db.query("SELECT v, x FROM s [ROWS 1], a")


def test_a_push_without_rows_says_nothing_of_the_time(opened: Callable[..., penstock.Database]) -> None:
    db = opened("CREATE STREAM at (t TIMESTAMP, k INT) TIMESTAMP BY t", "CREATE STREAM stamped (k INT)", A)
    q = db.query("SELECT x FROM a")
    db.push("at", [])
    db.execute("INSERT INTO a VALUES (1)")
    assert q.fetch()["ts"].to_pylist() == [datetime(1970, 1, 1, microsecond=1)]


def test_a_push_that_is_refused_says_nothing_of_the_time(opened: Callable[..., penstock.Database]) -> None:
    db = opened("CREATE STREAM at (t TIMESTAMP, k INT) TIMESTAMP BY t", "CREATE STREAM stamped (k INT)", A)
    q = db.query("SELECT x FROM a")
    db.close_stream("at")
    with pytest.raises(penstock.StateError, match="is closed"):
        db.push("at", [("2024-01-01 00:00:00", 1)])
    db.execute("INSERT INTO a VALUES (1)")
    assert q.fetch()["ts"].to_pylist() == [datetime(1970, 1, 1, microsecond=1)]
