"""Numbers with a decimal point are exact; with an exponent they are DOUBLE."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import penstock
from penstock.cql.expressions import number
from penstock.model.errors import BindError
from penstock.model.types import BIGINT, DOUBLE, INT, DataType, decimal
from penstock.plan.nodes import Filter, Query
from penstock.plan.nodes import walk as nodes
from penstock.scalar.expr import Call, Cast, Expr, Literal, walk

COLUMNS = "t BIGINT, i INT, l BIGINT, r REAL, v DOUBLE, d DECIMAL(10, 2)"
ROW = {"t": 1, "i": 3, "l": 2**53 + 1, "r": 0.5, "v": 0.1, "d": Decimal("2.50")}


@pytest.fixture(params=["reference", "local"])
def db(request: pytest.FixtureRequest) -> Any:
    with penstock.connect(engine=request.param) as db:
        db.execute(f"CREATE STREAM s ({COLUMNS}) TIMESTAMP BY t")
        yield db


def answer(db: penstock.Database, text: str) -> tuple[object, str]:
    """The value of an expression on the row, and the type of its column."""
    query = db.query(f"SELECT {text} AS x FROM s")
    db.push("s", [ROW])
    db.settle()
    found = query.current()
    return found.to_pylist()[0]["x"], str(found.schema.field("x").type)


@pytest.mark.parametrize(
    ("text", "expected", "dtype"),
    [
        ("0.1 + 0.2 = 0.3", True, "bool"),
        ("0.1 + 0.2", Decimal("0.3"), "decimal128(2, 1)"),
        ("1e-1 + 2e-1 = 3e-1", False, "bool"),
        ("1.50", Decimal("1.50"), "decimal128(3, 2)"),
        ("-0.05", Decimal("-0.05"), "decimal128(2, 2)"),
        (".5", Decimal("0.5"), "decimal128(1, 1)"),
        ("1e0", 1.0, "double"),
        ("1.5e0", 1.5, "double"),
        # with a DOUBLE or REAL column: DOUBLE
        ("v + 0.2", 0.30000000000000004, "double"),
        ("v = 0.1", True, "bool"),
        ("r * 1.5", 0.75, "double"),
        ("v > 0.05 AND v <= 0.1", True, "bool"),
        ("coalesce(v, 0.0)", 0.1, "double"),
        ("CASE WHEN i > 2.5 THEN v ELSE 0.0 END", 0.1, "double"),
        # with whole numbers: exact
        ("i * 1.5", Decimal("4.5"), "decimal128(13, 1)"),
        ("i + 0.25", Decimal("3.25"), "decimal128(13, 2)"),
        ("1 - 0.05", Decimal("0.95"), "decimal128(4, 2)"),
        ("2 * 1.5", Decimal("3.0"), "decimal128(4, 1)"),
        ("l * 0.5", Decimal("4503599627370496.5"), "decimal128(21, 1)"),
        ("l > 9007199254740992.5", True, "bool"),
        ("l = 9007199254740993.0", True, "bool"),
        ("l = 9007199254740992.5", False, "bool"),
        ("2.5 < i", True, "bool"),
        ("i BETWEEN 2.5 AND 3.0", True, "bool"),
        ("i IN (2.5, 3.0)", True, "bool"),
        ("i % 0.7", Decimal("0.2"), "decimal128(11, 1)"),
        ("coalesce(i, 0.5)", Decimal("3.0"), "decimal128(11, 1)"),
        ("d * 1.10", Decimal("2.7500"), "decimal128(14, 4)"),
        # division and functions of DOUBLE
        ("1.0 / 4", 0.25, "double"),
        ("i / 2.0", 1.5, "double"),
        ("sqrt(0.25)", 0.5, "double"),
        ("power(i, 0.5) = sqrt(i)", True, "bool"),
        ("INTERVAL '1' SECOND * 1.5 = INTERVAL '1500' MILLISECOND", True, "bool"),
        ("round(2.345, 2) = 2.35", True, "bool"),
    ],
)
def test_values_and_types(db: penstock.Database, text: str, expected: object, dtype: str) -> None:
    assert answer(db, text) == (expected, dtype)


def test_sums_of_exact_numbers_are_exact(db: penstock.Database) -> None:
    query = db.query("SELECT sum(i * 0.1) AS s, avg(i * 0.1) AS a FROM s")
    db.push("s", [{**ROW, "t": t, "i": 1} for t in range(10)])
    db.settle()
    assert query.current().to_pylist() == [{"s": Decimal("1.0"), "a": Decimal("0.10000")}]


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("12", 12, INT),
        ("007", 7, INT),
        ("2147483648", 2**31, BIGINT),
        ("9223372036854775808", Decimal(2**63), decimal(19, 0)),
        ("0.10", Decimal("0.10"), decimal(2, 2)),
        ("00.5", Decimal("0.5"), decimal(1, 1)),
        ("5.", Decimal(5), decimal(1, 0)),
        ("0." + "0" * 37 + "1", Decimal("1e-38"), decimal(38, 38)),
        ("1e5", 1e5, DOUBLE),
        ("1.5E-3", 0.0015, DOUBLE),
    ],
)
def test_the_type_of_a_number(text: str, value: object, dtype: DataType) -> None:
    assert number(text) == Literal(value, dtype)


@pytest.mark.parametrize("text", ["9" * 39, "0." + "1" * 39, "9" * 5000, "1e400", "1e0.5", "1e", "²", "1_0", ""])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(BindError):
        number(text)


@pytest.mark.parametrize(
    ("condition", "name", "bound"),
    [
        ("i > 1.5", ">", 1), ("i >= 1.5", ">", 1), ("i < 1.5", "<=", 1), ("i <= 1.5", "<=", 1), ("i < -1.5", "<=", -2),
        ("i > 2.0", ">", 2), ("i <= 2.0", "<=", 2), ("i = 2.0", "=", 2), ("i <> 2.0", "<>", 2),
    ],
)  # fmt: skip
def test_whole_numbers_are_compared_as_whole_numbers(condition: str, name: str, bound: int) -> None:
    """So they cost no more than with a whole constant, and nothing has to be rounded."""
    found = bound_filter(condition)
    assert isinstance(found, Call)
    assert (found.function, found.args[1]) == (name, Literal(bound, INT))


@pytest.mark.parametrize("condition", ["v > 1.5", "v BETWEEN -1.5 AND 0.1 + 0.2", "v * 2.5 < 1.5", "v IN (0.5, 1.5)"])
def test_with_a_double_nothing_is_exact_and_nothing_is_cast(condition: str) -> None:
    for part in walk(bound_filter(condition)):
        assert not isinstance(part, Cast)
        assert not isinstance(part, Literal) or part.type == DOUBLE


def bound_filter(condition: str) -> Expr:
    with penstock.connect(engine="reference") as db:
        db.execute(f"CREATE STREAM s ({COLUMNS}) TIMESTAMP BY t")
        plan: Query = db.query(f"SELECT t FROM s WHERE {condition}").plan
        return next(node.predicate for node in nodes(plan) if isinstance(node, Filter))


def test_they_go_into_columns_as_before(db: penstock.Database) -> None:
    db.execute("CREATE RELATION r (v DOUBLE, f REAL, d DECIMAL(5, 2))")
    query = db.query("SELECT * FROM r")
    pi = "3.14159265358979323846264338327950288419716939937510"
    db.execute(f"INSERT INTO r VALUES (0.1, 0.1, 1.005), (-{pi}, 1.5, -1.5), ({pi}, 2, 3)")
    db.execute("UPDATE r SET v = 0.25 WHERE f = 2.0")
    db.settle()
    assert sorted(map(repr, query.current().to_pylist())) == sorted(
        map(
            repr,
            [
                {"v": 0.1, "f": 0.10000000149011612, "d": Decimal("1.01")},
                {"v": -3.141592653589793, "f": 1.5, "d": Decimal("-1.50")},
                {"v": 0.25, "f": 2.0, "d": Decimal("3.00")},
            ],
        )
    )


def test_user_functions_take_them(db: penstock.Database) -> None:
    db.create_function("half", lambda x: x / 2, args=["DOUBLE"], returns="DOUBLE")
    assert answer(db, "half(1.5)") == (0.75, "double")
