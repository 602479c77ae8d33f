"""Literals, types and casts at the edge of what there is: a value, NULL, or an error that says where."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

import penstock
from penstock.model.errors import PenstockError
from tests.budget import examples

ENGINES = ("reference", "local")
NUMBERS = (
    "1", "0", "-1", "1.5", "-0.0", "1e5", "1e308", "1e-400", "1e400", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "9" * 38, "9" * 39, "0." + "9" * 38, "." + "1" * 20, "5.", "1.e2", "1e+2", "1e0.5", "1e",
    "1.2.3", "1..2", "00012", "1_000", "0x1F", "1d", "9" * 5000, "1." + "0" * 5000, "2147483648", "1e999999999999",
)  # fmt: skip
TEXTS = (
    "''", "'a'", "'99999-01-01'", "'0000-01-01'", "'-0001-01-01'", "'2024-02-30'", "'9999-12-31 23:59:59.999999'",
    "'1 day'", "'100000000 days'", "'99999999999999999999 weeks'", "'1e5'", "'nan'", "'inf'", "'true'", "'1 month'",
    "'2024-01-01 00:00:00+99:00'", "'1.5 days'", "'0001-01-01 00:00:00+23:59'", "'294247-12-31'", "'-290308-12-21'",
    "'" + "9" * 5000 + "'", "'9999999999999999:00:00'",
)  # fmt: skip
TYPES = (
    "INT", "BIGINT", "REAL", "DOUBLE", "DECIMAL", "DECIMAL(5)", "DECIMAL(38, 38)", "DECIMAL(0)", "DECIMAL(39)",
    "DECIMAL(5, 6)", "DECIMAL(1e2)", "DECIMAL(0, 0.5)", "DECIMAL(-1)", "DECIMAL()", "DECIMAL(1, 2, 3)", "DECIMAL('a')",
    "DECIMAL(" + "9" * 5000 + ")", "STRING", "VARCHAR(5)", "BINARY", "DATE", "TIMESTAMP", "INTERVAL", "BOOLEAN", "FOO",
)  # fmt: skip
UNITS = ("DAY", "YEAR", "MONTH", "SECOND", "WEEK", "QUARTER", "MICROSECOND", "FOO")
FUNCTIONS = ("abs", "round", "floor", "sqrt", "length", "last_day", "epoch", "make_date", "coalesce", "greatest")


def expression(choose: random.Random, depth: int = 0) -> str:
    def below() -> str:
        return expression(choose, depth + 1)

    match choose.randrange(14 if depth < 3 else 5):
        case 0:
            return choose.choice(NUMBERS)
        case 1:
            return choose.choice(TEXTS)
        case 2:
            return f"{choose.choice(('TIMESTAMP', 'DATE', 'DECIMAL(3, 1)', 'BOOLEAN'))} {choose.choice(TEXTS)}"
        case 3:
            sign = choose.choice(("", "-"))
            return f"INTERVAL {sign}{choose.choice((*NUMBERS, *TEXTS))} {choose.choice(UNITS)}"
        case 4:
            return choose.choice(("i", "x", "s", "at", "day", "g", "d", "b", "NULL"))
        case 5 | 6:
            return f"{choose.choice(('CAST', 'TRY_CAST'))}({below()} AS {choose.choice(TYPES)})"
        case 7:
            return f"({below()})::{choose.choice(TYPES)}"
        case 8 | 9 | 10:
            return f"({below()} {choose.choice(('+', '-', '*', '/', '%', 'DIV', '=', '<', '||'))} {below()})"
        case 11:
            return f"{choose.choice(FUNCTIONS)}({below()})"
        case 12:
            return f"-{below()}"
    return f"CASE WHEN {below()} THEN {below()} ELSE {below()} END"


def statement(choose: random.Random, number: int) -> str:
    column, size = choose.choice(("i", "x", "at", "day", "g", "d", "s")), choose.choice((*NUMBERS, *TEXTS))
    return choose.choice(
        (
            *[f"SELECT {expression(choose)} AS a FROM s"] * 6,
            f"SELECT i FROM s WHERE {expression(choose)}",
            f"INSERT INTO r ({column}) VALUES ({expression(choose, 2)})",
            f"UPDATE r SET {column} = {expression(choose, 2)}",
            f"CREATE STREAM z{number} (t BIGINT, c {choose.choice(TYPES)})",
            f"SELECT i FROM s [{choose.choice(('ROWS', 'RANGE'))} {size} {choose.choice(('', *UNITS))}]",
            f"SELECT i FROM s ORDER BY {choose.choice(NUMBERS)} LIMIT {choose.choice(NUMBERS)}",
            f"CREATE STREAM y{number} (t BIGINT) TIMESTAMP BY t SLACK {size} WITH (retain = {choose.choice(TEXTS)})",
        )
    )


def executed(db: penstock.Database, text: str) -> penstock.Query | None:
    """The query that a statement starts; None where it starts none, or is refused, as it must be, at a place."""
    refused: PenstockError | None = None
    try:
        return db.execute(text).query
    except PenstockError as error:
        refused = error
    assert refused.position is not None, text
    return None


@pytest.mark.parametrize("engine", ENGINES)
def test_every_text_has_an_answer_or_an_error_that_says_where(engine: str) -> None:
    choose, answered = random.Random(11), 0
    columns = "i INT, x DOUBLE, s STRING, at TIMESTAMP, day DATE, g INTERVAL, d DECIMAL(38, 10), b BOOLEAN"
    with penstock.connect(engine=engine) as db:
        db.execute(f"CREATE STREAM s (t BIGINT, {columns}) TIMESTAMP BY t")
        db.execute(f"CREATE RELATION r ({columns})")
        for number in range(examples(600)):
            text = statement(choose, number)
            query = executed(db, text)
            if query is None:
                continue
            row = (number, 7, 1e300, "a", 1_700_000_000_000_000, 19_000, 5, Decimal("9" * 28), True)
            db.push("s", [row])
            db.settle()
            query.current().to_pylist()
            query.stop()
            answered += 1
    assert answered > 10


@pytest.mark.parametrize("engine", ENGINES)
def test_the_edges_of_the_calendar(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (t BIGINT, at TIMESTAMP, day DATE) TIMESTAMP BY t")
        query = db.query(
            "SELECT at + INTERVAL '1' MICROSECOND AS next, day + 1 AS tomorrow, at + INTERVAL '9000' YEAR AS far, "
            "INTERVAL '1' MICROSECOND * -9223372036854775808 AS least, from_ticks(t * 1000000000000000000) AS made, "
            "TIMESTAMP '0001-01-01' AS first FROM s"
        )
        db.push("s", [(1, datetime(9999, 12, 31, 23, 59, 59, 999_999), date(9999, 12, 31))])
        db.settle()
        assert query.current().to_pylist() == [
            {
                "next": None, "tomorrow": None, "far": None, "least": timedelta(microseconds=-(2**63)), "made": None,
                "first": datetime(1, 1, 1),
            }
        ]  # fmt: skip
        assert query.failures == 4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("word", ["AND", "OR"])
def test_long_chains_of_conditions(engine: str, word: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (t BIGINT, x INT) TIMESTAMP BY t")
        condition = f" {word} ".join(f"x {'<>' if word == 'AND' else '='} {i}" for i in range(3_000))
        query = db.query(f"SELECT x FROM s WHERE {condition}")
        db.push("s", [(1, 2_999), (2, 3_000)])
        db.settle()
        assert query.current().to_pylist() == [{"x": 3_000 if word == "AND" else 2_999}]


@pytest.mark.parametrize(
    "text", ["+".join(["x"] * 3_000), "(" * 3_000 + "x" + ")" * 3_000, "-" * 300 + "x", "NOT " * 3_000 + "x = 1"]
)
def test_what_is_nested_too_deeply_is_refused_where_it_stands(text: str) -> None:
    spaced = text.replace("-", "- ")
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, x INT) TIMESTAMP BY t")
        with pytest.raises(PenstockError, match="nested") as caught:
            db.query(f"SELECT {spaced} AS y FROM s")
        assert caught.value.position is not None
        assert not db.queries
