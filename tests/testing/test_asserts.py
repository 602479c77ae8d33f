"""What a test asks of answers, and what it is told when they are others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import penstock
from penstock.database import Database
from penstock.query import Query
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
    if isinstance(expected, pd.DataFrame):  # where NaN and NULL are one
        given = given.slice(0, 3)
        expected = expected.iloc[:3]
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
