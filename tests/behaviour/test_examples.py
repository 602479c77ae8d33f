"""The worked examples of what queries mean."""

from __future__ import annotations

import pytest

import penstock
from tests.behaviour.cases import Case, run, same


def _rows(stream: str, *rows: tuple[object, ...]) -> list[tuple[str, tuple[object, ...]]]:
    return [(stream, row) for row in rows]


S_A = "CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t"
S_V = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"
S_GV = "CREATE STREAM s (t BIGINT, g STRING, v BIGINT) TIMESTAMP BY t"
TWO_ROWS = (
    """CREATE STREAM {} (t BIGINT, {} BIGINT) TIMESTAMP BY t; CREATE STREAM {} (t BIGINT, {} BIGINT) TIMESTAMP BY t"""
)
AB = _rows("s", (1, 10), (2, 20), (3, 30))
MASTER = """
CREATE STREAM stream1 (t BIGINT, x BIGINT, y BIGINT) TIMESTAMP BY t;
CREATE STREAM stream2 (t BIGINT, x BIGINT) TIMESTAMP BY t"""
MASTER_ROWS = [
    ("stream1", (1, 5, 2)), ("stream2", (2, 5)), ("stream1", (3, 5, 3)),
    ("stream1", (4, 6, 1)), ("stream1", (5, 7, 4)), ("stream2", (6, 6)),
]  # fmt: skip
MASTER_QUERY = "SELECT ISTREAM stream1.x, y FROM stream1 [ROWS 2], stream2 [ROWS 2] WHERE stream1.x = stream2.x"
LEFT = """
CREATE STREAM r (t BIGINT, k BIGINT) TIMESTAMP BY t;
CREATE STREAM s (t BIGINT, k BIGINT, y STRING) TIMESTAMP BY t"""

CASES = [
    Case("count window", S_A, "SELECT a FROM s [ROWS 2]", AB,
         [(1, "+", (10,)), (2, "+", (20,)), (3, "-", (10,)), (3, "+", (30,))]),
    Case("count window istream", S_A, "SELECT ISTREAM a FROM s [ROWS 2]", AB,
         [(1, "+", (10,)), (2, "+", (20,)), (3, "+", (30,))]),
    Case("count window dstream", S_A, "SELECT DSTREAM a FROM s [ROWS 2]", AB, [(3, "+", (10,))]),
    Case("now", S_A, "SELECT a FROM s [NOW]", AB[:2],
         [(1, "+", (10,)), (2, "-", (10,)), (2, "+", (20,)), (3, "-", (20,))]),
    Case("monotonic default", S_A, "SELECT a FROM s WHERE a > 10", AB[:2], [(2, "+", (20,))]),
    Case("expiry before arrival",
         """CREATE STREAM r (t BIGINT, k BIGINT, x STRING) TIMESTAMP BY t;
            CREATE STREAM s (t BIGINT, k BIGINT, y STRING) TIMESTAMP BY t""",
         "SELECT ISTREAM x, y FROM r [RANGE 10], s [RANGE 10] WHERE r.k = s.k",
         _rows("r", (1, 1, "a")) + _rows("s", (8, 1, "b"), (11, 1, "c"), (12, 1, "d")),
         [(8, "+", ("a", "b"))]),
    Case("equal timestamps", TWO_ROWS.format("r", "x", "s", "y"),
         "SELECT ISTREAM x, y FROM r [ROWS 1], s [ROWS 1]",
         _rows("r", (5, 1), (5, 2)) + _rows("s", (5, 7)), [(5, "+", (2, 7))]),
    Case("equal timestamps, other order", TWO_ROWS.format("s", "y", "r", "x"),
         "SELECT ISTREAM x, y FROM r [ROWS 1], s [ROWS 1]",
         _rows("r", (5, 1), (5, 2)) + _rows("s", (5, 7)), [(5, "+", (1, 7)), (5, "+", (2, 7))]),
    Case("group by", S_GV, "SELECT g, sum(v) AS t FROM s GROUP BY g",
         _rows("s", (1, "a", 1), (2, "b", 5), (3, "a", 2)),
         [(1, "+", ("a", 1)), (2, "+", ("b", 5)), (3, "-", ("a", 1)), (3, "+", ("a", 3))]),
    Case("unchanged group", S_GV, "SELECT g, sum(v) AS t FROM s GROUP BY g",
         _rows("s", (1, "a", 1), (3, "a", 0)), [(1, "+", ("a", 1))]),
    Case("sliding average", S_V, "SELECT ISTREAM avg(v) FROM s [RANGE 10]", _rows("s", (0, 10), (5, 20)),
         [(0, "+", (10.0,)), (5, "+", (15.0,)), (10, "+", (20.0,)), (15, "+", (None,))]),
    Case("sliding average, master", S_V, "SELECT ISTREAM avg(v) FROM s [RANGE 10] MASTER s",
         _rows("s", (0, 10), (5, 20)), [(0, "+", (10.0,)), (5, "+", (15.0,))]),
    Case("sliding average, groups, istream", S_GV, "SELECT ISTREAM g, avg(v) FROM s [RANGE 10] GROUP BY g",
         _rows("s", (0, "a", 10), (5, "a", 20)),
         [(0, "+", ("a", 10.0)), (5, "+", ("a", 15.0)), (10, "+", ("a", 20.0))]),
    Case("sliding average, groups, dstream", S_GV, "SELECT DSTREAM g, avg(v) FROM s [RANGE 10] GROUP BY g",
         _rows("s", (0, "a", 10), (5, "a", 20)),
         [(5, "+", ("a", 10.0)), (10, "+", ("a", 15.0)), (15, "+", ("a", 20.0))]),
    Case("master stream", MASTER, MASTER_QUERY + " MASTER stream2", MASTER_ROWS,
         [(2, "+", (5, 2)), (6, "+", (6, 1))]),
    Case("without master", MASTER, MASTER_QUERY, MASTER_ROWS, [(2, "+", (5, 2)), (3, "+", (5, 3)), (6, "+", (6, 1))]),
    Case("generic window", S_V,
         "SELECT window_start, count(*) AS n FROM s [BEGIN WINDOW 0 END WINDOW 10 HOP SIZE (10, 10) END QUERY 30]",
         _rows("s", (1, 0), (9, 0), (10, 0), (25, 0)),
         [(10, "+", (0, 2)), (20, "+", (10, 1)), (30, "+", (20, 1))]),
    Case("landmark window", S_V,
         "SELECT window_start, count(*) AS n FROM s [BEGIN WINDOW 0 END WINDOW 10 HOP SIZE (0, 10) END QUERY 30]",
         _rows("s", (1, 0), (9, 0), (10, 0), (25, 0)),
         [(10, "+", (0, 2)), (20, "+", (0, 3)), (30, "+", (0, 4))]),
    Case("tuple window", S_V,
         "SELECT sum(v) FROM s [BEGIN WINDOW 1 TUPLE END WINDOW 2 TUPLES HOP SIZE (2, 2)]",
         _rows("s", (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)), [(2, "+", (3,)), (4, "+", (7,))]),
    Case("left join", LEFT, "SELECT r.k, y FROM r [RANGE 10] LEFT JOIN s [RANGE 5] ON r.k = s.k",
         _rows("r", (1, 1)) + _rows("s", (4, 1, "b")),
         [(1, "+", (1, None)), (4, "-", (1, None)), (4, "+", (1, "b")), (9, "-", (1, "b")),
          (9, "+", (1, None)), (11, "-", (1, None))]),
    Case("rstream", S_A, "SELECT RSTREAM a FROM s [ROWS 2] MASTER s", AB[:2],
         [(1, "+", (10,)), (2, "+", (10,)), (2, "+", (20,))]),
    Case("identity", S_A, "SELECT ISTREAM a FROM s [ROWS 1]", _rows("s", (1, 10), (2, 10)),
         [(1, "+", (10,)), (2, "+", (10,))]),
    Case("distinct", S_A, "SELECT ISTREAM DISTINCT a FROM s [ROWS 2]", _rows("s", (1, 10), (2, 10)),
         [(1, "+", (10,))]),
    Case("filter above a count window", S_A, "SELECT ISTREAM a FROM s [ROWS 1] WHERE a > 5",
         _rows("s", (1, 1), (2, 9), (3, 2)), [(2, "+", (9,))]),
    Case("filter above a count window, dstream", S_A, "SELECT DSTREAM a FROM s [ROWS 1] WHERE a > 5",
         _rows("s", (1, 1), (2, 9), (3, 2)), [(3, "+", (9,))]),
]  # fmt: skip


@pytest.mark.parametrize("one_by_one", [True, False], ids=["row by row", "at once"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_example(engine: str, case: Case, one_by_one: bool) -> None:
    got = run(engine, case.declare, case.query, case.rows, one_by_one=one_by_one)
    assert same(got, case.answers), got


def test_slack_orders_and_the_late_row_is_set_apart(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t SLACK 2")
        q = db.query("SELECT a FROM s [ROWS 1]")
        for row in [(5, 1), (4, 2), (7, 3), (4, 4)]:
            db.push("s", [row])
        db.close_stream("s")
        table = q.fetch()
        plus = [(t, a) for t, op, a in zip(*table.to_pydict().values(), strict=True) if op == "+"]
        assert plus == [(4, 2), (5, 1), (7, 3)]
        assert db.stream("s").late == 1
        assert db.late("s").to_pylist() == [{"t": 4, "a": 4}]
        assert db.late("s").num_rows == 0


@pytest.mark.parametrize("case", [c for c in CASES if c.declare == S_A], ids=lambda c: c.name)
def test_priorities_change_the_order_of_delivery_only(engine: str, case: Case) -> None:
    got = run(engine, case.declare + " PRIORITY BY a % 3", case.query, case.rows, one_by_one=False)
    assert same(got, case.answers), got
