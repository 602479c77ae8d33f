"""What a test asks of answers, and what it is told when they are others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from itertools import permutations
from typing import Any

import hypothesis
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import penstock
from penstock.database.database import Database
from penstock.database.query import Query
from penstock.testing import (
    Script,
    answers,
    assert_answers,
    assert_same_answers,
    assert_state,
    connect,
    fails_on,
    snapshot,
)
from penstock.testing.expected import Row
from penstock.testing.matching import Numbers, Tolerance, unmatched

DECLARE = "CREATE STREAM s (t BIGINT, k STRING, v DOUBLE) TIMESTAMP BY t"
ROWS = [(1, "a", 1.5), (2, "b", None), (2, "a", 0.1 + 0.2), (4, "c", float("nan"))]


@pytest.fixture
def db() -> Iterator[Database]:
    with connect() as db:
        db.execute(DECLARE)
        yield db


@pytest.fixture
def given(db: Database) -> pa.Table:
    q = db.query("SELECT ISTREAM k, v FROM s", name="q")
    db.push("s", ROWS)
    return q.fetch()


NAN = float("nan")
RIGHT: dict[str, Any] = {
    "tuples": [("a", 1.5), ("b", None), ("a", 0.3), ("c", NAN)],
    "with ts": [(1, "a", 1.5), (2, "a", 0.3), (2, "b", None), (4, "c", NAN)],
    "with op": [("+", "a", 1.5), ("+", "b", None), ("+", "a", 0.3), ("+", "c", NAN)],
    "with both": [(1, "+", "a", 1.5), (2, "+", "b", None), (2, "+", "a", 0.3), (4, "+", "c", NAN)],
    "dicts": [{"k": "a", "v": 1.5}, {"v": None, "k": "b"}, {"k": "a", "v": 0.3}, {"k": "c", "v": NAN}],
    "pandas": pd.DataFrame({"ts": [1, 2, 2, 4], "k": ["a", "b", "a", "c"], "v": pd.array([1.5, None, 0.3, NAN])}),
    "polars": pl.DataFrame({"k": ["a", "b", "a", "c"], "v": [1.5, None, 0.3, NAN]}),
    "text": """
        ts  op  k  v
        --  --  -  ----
        1   +   a   1.5
        2   +   b  NULL
        2   +   a   0.3
        4   +   c   NaN
    """,
    "markdown": "| k | v |\n|---|---|\n| 'a' | 1.5 |\n| b | NULL |\n| a | 0.3 |\n| c | NaN |",
}


@pytest.mark.parametrize("expected", RIGHT.values(), ids=RIGHT)
def test_the_same_in_many_forms(given: pa.Table, expected: object) -> None:
    assert_answers(given, expected)


WRONG: dict[str, tuple[object, list[str]]] = {
    "missing": (
        [("a", 1.5), ("b", None), ("a", 0.3), ("c", NAN), ("d", 1.0)],
        ["4 as expected, 1 missing, 0 not expected", "missing          d  1.0"],
    ),
    "unexpected": (
        [(1, "a", 1.5), (2, "b", None), (2, "a", 0.3)],
        ["3 as expected, 0 missing, 1 not expected", "not expected  4   +   c  NaN"],
    ),
    "near": ([("a", 1.5), ("b", None), ("a", 0.31), ("c", NAN)], ["near: a 0.31 came with v 0.30000000000000004, not"]),
    "another instant": (
        [(1, "a", 1.5), (3, "b", None), (2, "a", 0.3), (4, "c", NAN)],
        ["missing       3       b  NULL", "near: 3 b NULL came with ts 2, not 3"],
    ),
    "another order": ([("b", None), ("a", 1.5), ("a", 0.3), ("c", NAN)], ["instants come in another order"]),
    "twice": ([("a", 1.5), ("a", 1.5), ("b", None), ("a", 0.3), ("c", NAN)], ["4 as expected, 1 missing, 0 not"]),
    "leaves": (
        [("-", "a", 1.5), ("+", "b", None), ("+", "a", 0.3), ("+", "c", NAN)],
        ["near: - a 1.5 came with op +, not -"],
    ),
    "null": ([("a", 1.5), ("b", 0.0), ("a", 0.3), ("c", NAN)], ["near: b 0.0 came with v NULL, not 0.0"]),
    "none": ([], ["0 as expected, 0 missing, 4 not expected"]),
}


@pytest.mark.parametrize(("expected", "told"), WRONG.values(), ids=WRONG)
def test_others(given: pa.Table, expected: object, told: list[str]) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_answers(given, expected)
    for text in told:
        assert text in str(caught.value)


MISTAKES: dict[str, tuple[object, str]] = {
    "too many values": ([(1, "+", "a", 1.5, 7)], "5 values for 2 columns; the columns are `k`, `v`"),
    "no such column": ([{"k": "a", "w": 1}], "no column `w`"),
    "a column is missing": ([{"k": "a"}], "`v` is missing"),
    "mixed": ([("a", 1.5), (1, "a", 1.5)], "this row tells `ts`, the first one neither ts nor op"),
    "another type": ([("a", "much")], "row 1, column `v`: 'much' is not a DOUBLE"),
    "not rows": (5, "a list of tuples or dicts"),
    "no text": ("", "the text is empty"),
    "a text without a column": ("k\na", "`v` is missing"),
    "a text with another column": ("k  vv\na  1", "no column `vv`"),
    "a text with too few values": ("k  v\na", "1 value for 2 columns"),
    "a text of another type": ("k  v\na  much", "'much' is no DOUBLE"),
    "a text with a column twice": ("k  v  k\na  1.5  b", "the column `k` is there twice"),
    "a frame with a column twice": (pd.DataFrame([["a", 1.5, "b"]], columns=["k", "v", "K"]), "`k` is there twice"),
    "an Arrow table with a column twice": (
        pa.table([["a"], [1.5], ["b"]], names=["k", "v", "k"]), "`k` is there twice"
    ),
    "no instant": ([(None, "a", 1.5), (7, "b", None)], "row 1: `ts` is NULL; leave out `ts` if it does not matter"),
    "no instant in a frame": (pd.DataFrame({"ts": [1, None], "k": ["a", "b"], "v": [1.5, 1]}), "row 2: `ts` is NULL"),
    "neither enters nor leaves": ([{"op": None, "k": "a", "v": 1.5}], "row 1: `op` is NULL"),
}


@pytest.mark.parametrize(("expected", "told"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_in_what_is_expected(given: pa.Table, expected: object, told: str) -> None:
    with pytest.raises(penstock.InputError, match=re.escape(told)):
        assert_answers(given, expected)


def test_every_type_in_a_text(db: Database) -> None:
    db.execute("""CREATE STREAM w (at TIMESTAMP, b BOOLEAN, i INT, r REAL, d DECIMAL(8, 2), y DATE, n INTERVAL,
                  x BINARY, s STRING) TIMESTAMP BY at""")
    q = db.query("SELECT b, i, r, d, y, n, x, s FROM w")
    row = (True, 7, 1.5, Decimal("3.10"), "2024-05-01", "00:00:05", b"\x01\xff", "")
    db.push("w", [("2024-05-01 10:00:00", *row)])
    (answer,) = answers(q)
    assert answer[0] == datetime(2024, 5, 1, 10)
    db.push("w", [("2024-05-01 10:00:00", *row)])
    assert_answers(
        q,
        """
        ts                   b     i  r    d     y           n         x       s
        -------------------  ----  -  ---  ----  ----------  --------  ------  --
        2024-05-01 10:00:00  true  7  1.5  3.10  2024-05-01  00:00:05  0x01ff
        """,
    )
    db.push("w", [("2024-05-01 10:00:00", *row)])
    with pytest.raises(penstock.InputError, match="'0xfg' is no BINARY"):
        assert_answers(q, "b  i  r  d  y  n  x  s\ntrue  7  1  3  2024-05-01  00:00:05  0xfg  ''")
    collected = db.query("SELECT collect(t) AS ts_of FROM s [ROWS 2]")
    db.push("s", ROWS)
    assert_state(collected, "ts_of\n[2, 4]")
    assert_state(collected, [([2, 4],)])


def test_answers_are_taken_once_and_long_differences_are_cut(db: Database) -> None:
    q = db.query("SELECT k, v FROM s", name="q")
    db.push("s", [(1, "a", 1.0)])
    assert_answers(q, [(1, "+", "a", 1.0)])
    assert_answers(q, [])
    db.push("s", [(2, f"k{i}", 1.0) for i in range(30)])
    with pytest.raises(AssertionError, match=r"answers of `q`: 0 as expected, 0 missing, 30 not(.|\n)*… and 10 more"):
        assert_answers(q, [])
    with pytest.raises(penstock.InputError, match="no table of answers"):
        assert_answers(pa.table({"k": [1]}), [])


def test_order_may_not_matter(db: Database) -> None:
    q = db.query("SELECT k FROM s")
    db.push("s", ROWS)
    assert_answers(q, ["c", "b", "a", "a"], ordered=False)


def test_how_near_numbers_are(given: pa.Table) -> None:
    near = [("a", 1.6), ("b", None), ("a", 0.3), ("c", NAN)]
    assert_answers(given, near, abs=0.2)
    assert_answers(given, near, rel=0.1)
    with pytest.raises(AssertionError):
        assert_answers(given, near, abs=0.05)


NEAR: dict[str, tuple[list[float], list[float], float, bool]] = {
    "neither takes what the other needs": ([12.0, 8.0], [10.0, 14.0], 2.5, True),
    "nor does one that is equal": ([1.0, 2.0], [1.0, 0.0], 1.0, True),
    "a long chain": ([float(i) for i in range(1, 9)], [8.0, 1.0, 5.0, 0.0, 3.0, 7.0, 2.0, 6.0], 1.0, True),
    "a longer chain": ([float(i) for i in range(1, 9)], [7.0, 1.0, 5.0, 0.0, 3.0, 4.0, 2.0, 6.0], 1.0, True),
    "too far": ([1.0, 1.5], [1.2, 4.0], 2.0, False),
    "infinite": ([float("inf"), 1.0], [1.0, float("inf")], 1e9, True),
    "infinite against finite": ([float("inf")], [1e300], 1e300, False),
}


@pytest.mark.parametrize(("got", "wanted", "off", "same"), NEAR.values(), ids=NEAR)
def test_numbers_that_are_near_several_others(got: list[float], wanted: list[float], off: float, same: bool) -> None:
    table = pa.table({"ts": [1] * len(got), "op": ["+"] * len(got), "v": got})
    if same:
        assert_answers(table, wanted, abs=off)
        return
    with pytest.raises(AssertionError, match="1 missing, 1 not expected"):
        assert_answers(table, wanted, abs=off)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=5),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=5),
)
def test_as_many_rows_as_can_be_have_a_partner(got: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    def rows(given: list[tuple[int, int]]) -> list[Row]:
        return [Row(None, None, (float(x), (float(y),)), ("", "", str(x), str(y))) for x, y in given]

    def near(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return abs(a[0] - b[0]) <= 2 and abs(a[1] - b[1]) <= 2

    longer, shorter = (got, wanted) if len(got) >= len(wanted) else (wanted, got)
    most = max(sum(map(near, some, shorter)) for some in permutations(longer, len(shorter)))
    missing, unexpected = unmatched(rows(got), rows(wanted), Tolerance(0.0, 2.0), has_ts=False)
    assert (len(wanted) - len(missing), len(got) - len(unexpected)) == (most, most)


def test_many_rows_in_another_order_are_looked_up_and_not_compared_with_each_other() -> None:
    """Each row is compared with those near it alone: all with all would be 16 million."""
    compared = 0

    class Counting(Tolerance):
        def same(self, a: Numbers, b: Numbers) -> bool:
            nonlocal compared
            compared += 1
            return super().same(a, b)

    rows = [Row(None, None, (1.0, float(i)), ("", "", "1.0", str(i))) for i in range(1, 4_001)]
    off = [Row(None, None, (1.0, i + 1e-10), ("", "", "1.0", str(i))) for i in reversed(range(1, 4_001))]
    assert unmatched(rows, list(reversed(rows)), Counting(), has_ts=False) == ([], [])
    assert compared == 0
    assert unmatched(rows, off, Counting(), has_ts=False) == ([], [])
    assert compared < 20_000


def test_a_missing_number_of_pandas_is_nan_or_null_and_no_value(given: pa.Table) -> None:
    right = pd.DataFrame({"k": ["a", "b", "a", "c"], "v": [1.5, NAN, 0.3, NAN]})
    assert_answers(given, right)
    for row in (0, 2):
        wrong = right.copy()
        wrong.loc[row, "v"] = NAN
        with pytest.raises(AssertionError, match="1 missing, 1 not expected"):
            assert_answers(given, wrong)
    with pytest.raises(AssertionError, match="1 missing, 1 not expected"):
        assert_answers(given, pl.DataFrame({"k": ["a", "b", "a", "c"], "v": [1.5, NAN, 0.3, NAN]}))
    exact = pa.table({"k": ["a", "b", "a", "c"], "v": [1.5, None, 0.3, NAN]}).to_pandas(types_mapper=pd.ArrowDtype)
    assert_answers(given, exact)
    exact["v"] = pd.array([1.5, NAN, 0.3, None], pd.ArrowDtype(pa.float64()))
    if pa.Table.from_pandas(exact)["v"].null_count == 1:  # pandas 3 keeps NaN and NULL apart here
        with pytest.raises(AssertionError, match="2 missing, 2 not expected"):
            assert_answers(given, exact)


def test_nothing_expected_is_rounded(db: Database) -> None:
    db.execute("CREATE STREAM d (at TIMESTAMP, v DECIMAL(10, 2)) TIMESTAMP BY at")
    q = db.query("SELECT v FROM d")
    at = "2024-05-01 10:00:00.123456"
    db.push("d", [(at, Decimal("1.24"))])
    table = q.fetch()
    for right in ("v\n1.240", "v\n1.24", pd.DataFrame({"v": [1.24]}), [Decimal("1.24")], f"ts  v\n{at}00  1.24"):
        assert_answers(table, right)
    ns = pd.Timestamp(f"{at}789")
    for wrong, told in (
        ("v\n1.239", "'1.239' is no DECIMAL"),
        (pd.DataFrame({"v": [1.239]}), "row 1, column `v`: 1.239 is no DECIMAL"),
        ([Decimal("1.239")], "is not a DECIMAL"),
        (f"ts  v\n{at}7  1.24", "is no TIMESTAMP"),
        (pd.DataFrame({"ts": [ns], "v": [1.24]}), "row 1, column `ts`: "),
    ):
        with pytest.raises(penstock.InputError, match=re.escape(told)):
            assert_answers(table, wrong)


# -- relations --------------------------------------------------------------------------------------------


@pytest.fixture
def totals(db: Database) -> Query:
    q = db.query("SELECT k, sum(v) AS total FROM s [RANGE 10] GROUP BY k", name="totals")
    db.push("s", [(1, "a", 1.0), (2, "b", 2.0)])
    db.push("s", [(3, "a", 3.0), (11, "c", None)])
    return q


def test_the_rows_of_a_relation(totals: Query) -> None:
    assert sorted(snapshot(totals)) == [("a", 3.0), ("b", 2.0), ("c", None)]
    assert_state(totals, [("c", None), ("b", 2), ("a", 3)])
    assert_state(totals, pd.DataFrame({"k": ["a"], "total": [1.0]}), at=1)
    assert_state(totals, "k  total\na  4\nb  2\n", at=10)
    assert_state(totals, [], at=0)
    with pytest.raises(AssertionError, match="rows of `totals` at 2: 1 as expected, 1 missing, 1 not expected"):
        assert_state(totals, [("a", 1.0), ("b", 2.5)], at=2)
    for expected in ([(1, "a", 1.0)], "ts  k  total\n1  a  1.0", [{"ts": 1, "k": "a", "total": 1.0}]):
        with pytest.raises(penstock.InputError, match="`ts` makes no sense here"):
            assert_state(totals, expected)
    assert_state(totals, {"k": "a", "total": 1.0}, at=1)


def test_equal_rows_are_held_as_often_as_they_entered(db: Database) -> None:
    q = db.query("SELECT k FROM s [ROWS 3]")
    db.push("s", [(1, "a", 0.0), (2, "a", 0.0), (3, "b", 0.0), (4, "a", 0.0)])
    assert sorted(snapshot(q)) == [("a",), ("a",), ("b",)]


def test_null_is_not_the_text_null(db: Database) -> None:
    db.execute("CREATE RELATION r (i INT, k STRING)")
    q = db.query("SELECT k FROM r")
    db.push("r", [(1, None), (2, "NULL")])
    db.execute("DELETE FROM r WHERE i = 2")
    assert snapshot(q) == [(None,)]
    assert_state(q, [(None,)])


def test_nan_leaves_as_it_came(db: Database) -> None:
    q = db.query("SELECT v, collect(v) AS some FROM s [ROWS 1] GROUP BY v")
    db.push("s", [(1, "a", NAN)])
    db.push("s", [(2, "a", 1.0)])
    assert snapshot(q) == [(1.0, [1.0])]


def test_answers_that_went_elsewhere_are_missed(totals: Query, db: Database) -> None:
    assert len(answers(totals)) > 0
    db.push("s", [(12, "d", 1.0)])
    totals.fetch()
    with pytest.raises(penstock.StateError, match=r"\d answers? of query `totals` went elsewhere"):
        snapshot(totals)


def test_only_changes_are_put_together(db: Database) -> None:
    with pytest.raises(penstock.InputError, match="gives ISTREAM"):
        snapshot(db.query("SELECT ISTREAM k FROM s"))


# -- the same on all engines ------------------------------------------------------------------------------


def script() -> Script:
    rows = [(i, "ab"[i % 2], float(i)) for i in range(12)]
    return Script(DECLARE).rows("s", rows).rows("s", [(3, "a", 1.0)], delay=5)


def test_engines_and_batches_agree() -> None:
    found = assert_same_answers(script(), "SELECT k, count(*) AS n FROM s [ROWS 5] GROUP BY k")
    assert found[:2] == [(0, "+", "a", 1), (1, "+", "b", 1)]
    several = assert_same_answers(script(), {"x": "SELECT k FROM s", "y": "SELECT v FROM s"}, batches=[4])
    assert [len(several["x"]), len(several["y"])] == [12, 12]


def test_a_function_that_is_not_pure_is_found_out() -> None:
    calls: list[int] = []

    def counting(v: float) -> float:
        calls.append(1)
        return float(len(calls))

    functions = {"counting": (counting, ["DOUBLE"], "DOUBLE")}
    with pytest.raises(AssertionError, match=r"of `q` on engine reference, batches of 1 are not those on engine ref"):
        assert_same_answers(script(), "SELECT counting(v) AS c FROM s", functions=functions)
    with pytest.raises(penstock.QueryFailed, match="injected"):
        assert_same_answers(
            script(), "SELECT f(v) AS c FROM s", functions={"f": (fails_on(float, {3.0}), ["DOUBLE"], "DOUBLE")}
        )


def test_nothing_to_compare() -> None:
    with pytest.raises(penstock.InputError, match="nothing to compare"):
        assert_same_answers(script(), "SELECT v FROM s", engines=[])


def test_streams_with_priorities() -> None:
    ranked = Script("CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t PRIORITY BY a")
    ranked.rows("s", [(i, i % 3) for i in range(10)])
    assert len(assert_same_answers(ranked, "SELECT a FROM s")) == 10
