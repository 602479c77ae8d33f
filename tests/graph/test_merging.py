"""Equal parts of queries are one part of the graph; who leaves takes only what is his alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE, name STRING) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, w DOUBLE) TIMESTAMP BY t;
CREATE RELATION places (k BIGINT, place STRING);
"""


@pytest.fixture
def db() -> Iterator[penstock.Database]:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        yield db


def operators(db: penstock.Database) -> set[int]:
    """All but those that hand answers over."""
    return {o.id for o in db.graph().operators if o.kind != "query"}


SAME = {
    "text": ("SELECT k FROM s WHERE v > 1", "SELECT k FROM s WHERE v > 1"),
    "names": (
        "SELECT k AS a, sum(v) AS b FROM s [RANGE 5] GROUP BY k",
        "SELECT x.k AS c, sum(x.v) AS d FROM s [RANGE 5] x GROUP BY x.k",
    ),
    "order of conjuncts": (
        "SELECT k FROM s WHERE v > 1 AND k = 3 AND name = 'a'",
        "SELECT k FROM s WHERE name = 'a' AND v > 1 AND k = 3",
    ),
    "sides of comparisons": ("SELECT k FROM s WHERE v > 1 AND k = 3", "SELECT k FROM s WHERE 1 < v AND 3 = k"),
    "joins": (
        "SELECT s.k, r.w FROM s [RANGE 5] JOIN r [RANGE 6] ON s.k = r.k",
        "SELECT x.k AS i, y.w AS j FROM s [RANGE 5] x, r [RANGE 6] y WHERE y.k = x.k",
    ),
    "unnamed streams": (
        "SELECT count(*) AS n FROM (SELECT ISTREAM k FROM s [RANGE 3]) [RANGE 4]",
        "SELECT count(*) AS m FROM (SELECT ISTREAM s.k AS kk FROM s [RANGE 3]) [RANGE 4] x",
    ),
    "relations": (
        "SELECT s.v, p.place FROM s [RANGE 5] JOIN places p ON p.k = s.k",
        "SELECT s.v, q.place AS where_ FROM s [RANGE 5] JOIN places q ON s.k = q.k",
    ),
    "bounded windows": (
        "SELECT k, count(*) AS n FROM s [TUMBLING 5] GROUP BY k",
        "SELECT k, count(*) AS n FROM s [TUMBLING 5] GROUP BY k",
    ),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_a_query_that_says_the_same_adds_nothing(db: penstock.Database, pair: tuple[str, str]) -> None:
    first = db.query(pair[0])
    before = operators(db)
    second = db.query(pair[1])
    assert operators(db) == before
    db.push("places", [(1, "here"), (2, "there")])
    db.push("s", [(i, i % 4, float(i), "a") for i in range(12)])
    db.push("r", [(i, i % 4, float(i)) for i in range(12)])
    for name in ("s", "r"):
        db.close_stream(name)
    rows = [[tuple(row.values()) for row in q.fetch().to_pylist()] for q in (first, second)]
    assert rows[0] == rows[1] != []


DIFFERENT = {
    "constants": ("SELECT k FROM s WHERE v > 1.0", "SELECT k FROM s WHERE v > 1.5"),
    "zeros": ("SELECT v * 0e0 AS z FROM s", "SELECT v * -0e0 AS z FROM s"),
    "kinds of joins": (
        "SELECT s.k, r.w FROM s [RANGE 5] LEFT JOIN r [RANGE 6] ON s.k = r.k",
        "SELECT s.k, r.w FROM s [RANGE 5] RIGHT JOIN r [RANGE 6] ON s.k = r.k",
    ),
    "order of what can fail": (
        "SELECT k FROM s WHERE 1 / k > 0 AND v / k > 0",
        "SELECT k FROM s WHERE v / k > 0 AND 1 / k > 0",
    ),
    "zeros in bounded windows": (
        "SELECT v + 0e0 AS z FROM s [TUMBLING 10]",
        "SELECT v + -0e0 AS z FROM s [TUMBLING 10]",
    ),
    "strictness": (
        "CREATE QUERY a AS SELECT 1 / k AS x FROM s",
        "CREATE QUERY b AS SELECT 1 / k AS x FROM s WITH (strict = true)",
    ),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_a_query_that_says_something_else_does(db: penstock.Database, pair: tuple[str, str]) -> None:
    for i, text in enumerate(pair):
        if text.startswith("CREATE"):
            db.execute(text)
        else:
            db.query(text, name=f"q{i}")
    chains = [o for o in db.graph().operators if o.kind in ("filter", "project", "join", "windows")]
    assert len({o.label for o in chains}) > 1 or len(chains) == 2


def test_a_join_the_other_way_round_is_the_same_join(db: penstock.Database) -> None:
    one = db.query("SELECT s.k, s.v, r.w FROM s [RANGE 5] JOIN r [RANGE 6] ON s.k = r.k AND s.v < r.w")
    two = db.query("SELECT s.k, s.v, r.w FROM r [RANGE 6] JOIN s [RANGE 5] ON r.k = s.k AND r.w > s.v")
    outer = db.query("SELECT s.k, r.w FROM s [RANGE 5] LEFT JOIN r [RANGE 6] ON s.k = r.k")
    mirrored = db.query("SELECT s.k, r.w FROM r [RANGE 6] RIGHT JOIN s [RANGE 5] ON s.k = r.k")
    assert sum(o.kind == "join" for o in db.graph().operators) == 2
    for i in range(30):
        db.push("s", [(i, i % 4, i / 3, "a")])
        db.push("r", [(i, i % 3, i / 2)])
    for a, b in ((one, two), (outer, mirrored)):
        found = [sorted(map(repr, q.fetch().to_pylist())) for q in (a, b)]
        assert found[0] == found[1] != []


def test_different_filters_share_a_window_where_that_holds_less(db: penstock.Database) -> None:
    db.query("SELECT name, max(v) AS m FROM s [RANGE 50] WHERE v > 3 GROUP BY name")
    assert [o.label for o in db.graph().operators if o.kind == "window"] != []
    db.query("SELECT count(*) AS n FROM s [RANGE 50] WHERE v < 70")
    db.query("SELECT k, sum(v) AS t FROM s [RANGE 50] WHERE k > 2 GROUP BY k")
    (window,) = [o for o in db.graph().operators if o.kind == "window"]
    assert window.queries == ("q1", "q2", "q3")
    db.push("s", [(i, i % 5, float(i), "a") for i in range(100)])
    (window,) = [o for o in db.graph().operators if o.kind == "window"]
    assert window.rows == 50


def test_selective_filters_keep_their_own_windows(db: penstock.Database) -> None:
    for k in range(3):
        db.query(f"SELECT v, count(*) AS n FROM s [RANGE 50] WHERE k = {k} AND name = 'a' GROUP BY v")
    assert sum(o.kind == "window" for o in db.graph().operators) == 3


def test_who_leaves_takes_what_is_his_alone(db: penstock.Database) -> None:
    shared = "FROM s [RANGE 5] JOIN r [RANGE 6] ON s.k = r.k"
    kept = db.query(f"SELECT s.v, r.w {shared}", name="kept")
    gone = db.query(f"SELECT r.w, sum(s.v) AS n {shared} GROUP BY r.w", name="gone")
    (join,) = [o for o in db.graph().operators if o.kind == "join"]
    assert join.queries == ("gone", "kept")
    db.push("s", [(1, 1, 5.0, "a")])
    gone.stop()
    left = db.graph().operators
    assert {q for o in left for q in o.queries} == {"kept"}
    assert [o.id for o in left if o.kind == "join"] == [join.id]
    assert not [o for o in left if o.kind == "aggregate"]
    db.push("r", [(1, 1, 1.0), (2, 1, 2.0)])
    db.heartbeat("s", 3)
    assert kept.fetch()["v"].to_pylist() == [5.0, 5.0]
    kept.stop()
    assert operators(db) == set()


def test_a_query_that_cannot_be_built_leaves_nothing(db: penstock.Database) -> None:
    db.query("SELECT k FROM s WHERE v > 1")
    before = operators(db)
    with pytest.raises(penstock.PenstockError):
        db.query("SELECT nobody FROM s WHERE v > 1")
    assert operators(db) == before


def test_priority_is_that_of_the_most_urgent_query(db: penstock.Database) -> None:
    db.execute("CREATE QUERY low AS SELECT k FROM s WHERE v > 1 WITH (priority = 2)")
    db.execute("CREATE QUERY high AS SELECT count(*) AS n FROM s [RANGE 3] WITH (priority = 9)")
    by_kind = {o.kind: o.priority for o in db.graph().operators}
    assert (by_kind["source"], by_kind["aggregate"]) == (9, 9)
    assert {o.priority for o in db.graph().operators if o.queries == ("low",)} == {2}
    db.queries["high"].stop()
    assert {o.priority for o in db.graph().operators} == {2}


def test_a_window_below_a_join_holds_nothing_of_its_own(db: penstock.Database) -> None:
    db.query("SELECT ISTREAM s.v, r.w FROM s [RANGE 50] JOIN r [RANGE 50] ON s.k = r.k")
    for i in range(0, 100, 10):
        db.push("s", [(t, t % 4, float(t), "a") for t in range(i, i + 10)])
        db.push("r", [(t, t % 4, float(t)) for t in range(i, i + 10)])
    windows = [o for o in db.graph().operators if o.kind == "window"]
    (join,) = [o for o in db.graph().operators if o.kind == "join"]
    assert join.rows >= 100
    assert [(o.rows, o.bytes) for o in windows] == [(0, 0), (0, 0)]
    assert all(o.saved > 50 * 8 for o in windows)
