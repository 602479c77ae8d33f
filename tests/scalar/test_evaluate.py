"""Expressions on one row: logic, laziness, failures, user functions, folding."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from penstock import functions
from penstock.model.errors import QueryFailed
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    REAL,
    STRING,
    TIMESTAMP,
    DataType,
    array,
    decimal,
)
from penstock.scalar import Context, compare, evaluate, fold, hashable, order_key
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound

HOUR = 3_600_000_000
DAY = 24 * HOUR


def call(name: str, *args: tuple[object, DataType]) -> Expr:
    return functions.resolve(name, [Literal(v, t) for v, t in args])


def text(value: str) -> Literal:
    return Literal(value, STRING)


def value(expr: Expr, *row: object) -> object:
    """The value of what must not fail."""
    context = Context()
    result = evaluate(expr, row, context)
    assert context.failures == 0, context.last_failure
    return result


def failure(expr: Expr, *row: object) -> str:
    """The message of what must fail, once, with NULL."""
    context = Context()
    assert evaluate(expr, row, context) is None
    assert context.failures == 1
    assert context.last_failure is not None
    return context.last_failure


@pytest.mark.parametrize(
    ("a", "b", "both", "either"),
    [
        (True, None, None, True),
        (False, None, False, None),
        (None, None, None, None),
        (None, False, False, None),
        (True, False, False, True),
    ],
)
def test_three_valued_logic(a: bool | None, b: bool | None, both: bool | None, either: bool | None) -> None:
    assert value(call("and", (a, BOOLEAN), (b, BOOLEAN))) is both
    assert value(call("or", (a, BOOLEAN), (b, BOOLEAN))) is either


def test_in_is_unknown_beside_null() -> None:
    assert value(call("in", (1, INT), (1, INT), (None, INT))) is True
    assert value(call("in", (1, INT), (2, INT), (None, INT))) is None
    assert value(call("in", (1, INT), (2, INT))) is False
    assert value(call("in", (None, INT), (2, INT))) is None


DIVIDES = Call("/", (Literal(1.0, DOUBLE), Column(0, DOUBLE)), DOUBLE)


def test_case_and_coalesce_do_not_look_at_what_they_do_not_need() -> None:
    case = Case(
        ((Call("=", (Column(0, DOUBLE), Literal(0.0, DOUBLE)), BOOLEAN), Literal(-1.0, DOUBLE)),), DIVIDES, DOUBLE
    )
    assert value(case, 0.0) == -1.0
    assert value(case, 2.0) == 0.5
    assert value(Call("coalesce", (Literal(5.0, DOUBLE), DIVIDES), DOUBLE), 0.0) == 5.0


def test_and_looks_at_both_sides() -> None:
    expr = Call("and", (Literal(False, BOOLEAN), Call("is_null", (DIVIDES,), BOOLEAN)), BOOLEAN)
    context = Context()
    assert evaluate(expr, [0.0], context) is False
    assert context.failures == 1


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (call("/", (1, INT), (0, INT)), "/: division by zero"),
        (call("div", (1, INT), (0, INT)), "div: division by zero"),
        (call("%", (1.0, DOUBLE), (0.0, DOUBLE)), "%: division by zero"),
        (call("+", (2**31 - 1, INT), (1, INT)), "+: 2147483648 is out of range of INT"),
        (call("*", (2**62, BIGINT), (2, BIGINT)), f"*: {2**63} is out of range of BIGINT"),
        (call("neg", (-(2**63), BIGINT)), f"neg: {2**63} is out of range of BIGINT"),
        (call("abs", (-(2**31), INT)), "abs: 2147483648 is out of range of INT"),
        (call("div", (-(2**63), BIGINT), (-1, BIGINT)), f"div: {2**63} is out of range of BIGINT"),
        (call("*", (Decimal(10**37), decimal(38, 0)), (Decimal(10), decimal(38, 0))), "*: 1"),
        (call("sqrt", (-1.0, DOUBLE)), "sqrt: sqrt(-1.0) has no value"),
        (call("ln", (0, INT)), "ln: ln(0.0) has no value"),
        (call("power", (-8.0, DOUBLE), (0.5, DOUBLE)), "power: -8.0 to the power of 0.5 is not a real number"),
        (call("make_date", (2023, INT), (2, INT), (29, INT)), "make_date: there is no day 2023-02-29"),
        (call("unhex", ("xy", STRING)), "unhex: 'xy' is not hexadecimal"),
        (call("repeat", ("ab", STRING), (10**12, BIGINT)), "repeat: the result would have 2000000000000 characters"),
        (call("lpad", ("ab", STRING), (10**12, BIGINT)), "lpad: the result would have"),
        (call("split_part", ("a", STRING), ("b", STRING), (0, INT)), "split_part: "),
        (Call("regexp_extract", (text("a"), text("a"), Literal(1, INT)), STRING), "regexp_extract: 'a' has no group 1"),
        (Call("regexp_replace", (text("a"), text("a"), text("$2")), STRING), "regexp_replace: 'a' has no group 2"),
        (Call("regexp_like", (text("a"), text("(?x)a")), BOOLEAN), "regexp_like: '(?x)a' is not a regular expression"),
        (Call("date_format", (Literal(0, TIMESTAMP), text("%Y")), STRING), "date_format: '%Y' is not a pattern: no"),
        (Call("like", (text("a"), text("a#"), text("#")), BOOLEAN), "like: the pattern 'a#' ends with"),
        (call("to_timestamp", ("x", STRING), ("yyyy", STRING)), "parse_timestamp: 'x' does not have the form 'yyyy'"),
        (call("strptime", ("x", STRING), ("%Y", STRING)), "strptime: 'x' does not have the form '%Y'"),
        (call("*", (2**62, INTERVAL), (4, INT)), "scale_interval: "),
        (call("/", (HOUR, INTERVAL), (0, INT)), "divide_interval: division by zero"),
        (call("decode", (b"\xff", BINARY)), "CAST: the bytes are not UTF-8"),
        (Cast(Literal("x", STRING), INT), "CAST: 'x' is not an INT"),
        (Cast(Literal("0000-12-31", STRING), DATE), "CAST: the DATE is beyond the years 1 to 9999"),
        (Cast(Literal("10000-01-01", STRING), TIMESTAMP), "CAST: the TIMESTAMP is beyond the years 1 to 9999"),
        (call("+", (253_402_300_799_999_999, TIMESTAMP), (1, INTERVAL)), "+: the TIMESTAMP is beyond the years 1 to"),
        (call("-", (-719_162, DATE), (1, INT)), "-: the DATE is beyond the years 1 to 9999"),
    ],
)  # fmt: skip
def test_failures_are_null_and_counted(expr: Expr, message: str) -> None:
    assert failure(expr).startswith(message)
    with pytest.raises(QueryFailed, match="without `strict = true` the value would be NULL"):
        evaluate(expr, (), Context(strict=True))
    assert fold(expr) is None


def test_try_cast_does_not_count() -> None:
    assert value(Cast(Literal("x", STRING), INT, safe=True)) is None


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (call("div", (-7, INT), (2, INT)), -3),
        (call("%", (-7, INT), (2, INT)), -1),
        (call("%", (-7.5, DOUBLE), (2, INT)), -1.5),
        (call("/", (7, INT), (2, INT)), 3.5),
        (call("+", (Decimal("1.10"), decimal(3, 2)), (1, INT)), Decimal("2.10")),
        (call("*", (Decimal("1.5"), decimal(2, 1)), (Decimal("-0.25"), decimal(3, 2))), Decimal("-0.375")),
        (call("%", (Decimal("-7.5"), decimal(2, 1)), (2, INT)), Decimal("-1.5")),
        (call("round", (Decimal("9.99"), decimal(3, 2)), (1, INT)), Decimal("10.00")),
        (call("round", (-25, INT), (-1, INT)), -30),
        (call("round", (0.49999999999999994, DOUBLE)), 0.0),
        (call("round", (1e300, DOUBLE), (200, INT)), 1e300),
        (call("trunc", (Decimal("-9.99"), decimal(3, 2)), (1, INT)), Decimal("-9.90")),
        (call("floor", (Decimal("-9.01"), decimal(3, 2))), Decimal(-10)),
        (call("log", (2, INT), (8, INT)), 3.0),
        (call("power", (10.0, DOUBLE), (400, INT)), math.inf),
        (call("power", (-10.0, DOUBLE), (401, INT)), -math.inf),
        (call("concat", ("a", STRING), (1, INT), (1.5, DOUBLE)), "a11.5"),
        (call("concat_ws", ("-", STRING), ("a", STRING), (None, STRING), ("b", STRING)), "a-b"),
        (call("position", ("b", STRING), ("abc", STRING)), 2),
        (call("replace", ("abc", STRING), ("", STRING), ("x", STRING)), "abc"),
        (call("octet_length", ("ä😀", STRING)), 6),
        (call("encode", ("ä", STRING)), b"\xc3\xa4"),
        (call("decode", (b"\xc3\xa4", BINARY)), "ä"),
        (call("regexp_replace", ("a-b", STRING), ("(.)-(.)", STRING), ("$2-$1", STRING)), "b-a"),
        (call("greatest", (math.nan, DOUBLE), (math.inf, DOUBLE)), math.nan),
        (call("sign", (Decimal("-0.5"), decimal(3, 1))), -1),
        (call("iff", (None, BOOLEAN), (1, INT), (2, INT)), 2),
        (call("if", (True, BOOLEAN), (1, INT)), 1),
        (call("nvl", (None, INT), (2, INT)), 2),
        (call("+", (DAY, TIMESTAMP), (HOUR, INTERVAL)), DAY + HOUR),
        (call("-", (1, DATE), (HOUR, INTERVAL)), DAY - HOUR),
        (call("-", (1, DATE), (HOUR, TIMESTAMP)), DAY - HOUR),
        (call("+", (3, INT), (1, DATE)), 4),
        (call("*", (3, INTERVAL), (0.5, DOUBLE)), 2),
        (call("/", (HOUR, INTERVAL), (4, INT)), HOUR // 4),
        (call("hour", (-25 * HOUR, INTERVAL)), -1),
        (call("day", (-25 * HOUR, INTERVAL)), -1),
        (call("epoch", (1_500_000, INTERVAL)), 1.5),
        (call("dayofweek", (0, DATE)), 5),
        (call("date_diff", (10, DATE), (3, DATE)), 7),
        (call("datediff", ("day", STRING), (3, DATE), (10, DATE)), 7),
        (call("date_add", ("1970-01-31", STRING), (1, INT)), 31),
        (call("add_months", (30, DATE), (1, INT)), 58),
        (call("add_months", (30, DATE), (-1, INT)), -1),
        (call("last_day", (31 * DAY, TIMESTAMP)), 58),
        (call("make_timestamp", (1970, INT), (1, INT), (2, INT), (0, INT), (0, INT), (1.5, DOUBLE)), DAY + 1_500_000),
        (call("to_timestamp", ("02/01/1970 01", STRING), ("dd/MM/yyyy HH", STRING)), DAY + HOUR),
        (call("strptime", ("1970-01-02 +0100", STRING), ("%Y-%m-%d %z", STRING)), DAY - HOUR),
        (call("to_date", ("02.01.1970", STRING), ("dd.MM.yyyy", STRING)), 1),
        (call("date_format", (DAY, TIMESTAMP), ("yyyy-MM-dd", STRING)), "1970-01-02"),
        (call("date_format", (2**62, TIMESTAMP), ("y", STRING)), "148108"),
        (call("strftime", (2**62, TIMESTAMP), ("%Y", STRING)), "148108"),
        (call("extract", ("second", STRING), (-1, TIMESTAMP)), Decimal("59.999999")),
        (call("date_part", ("seconds", STRING), (-1_500_000, INTERVAL)), Decimal("-1.500000")),
        (call("trunc", (45, DATE), ("MM", STRING)), 31),
        (call("trunc", (2.675, DOUBLE), (2, INT)), 2.67),
        (call("trunc", (1.13, DOUBLE), (2, INT)), 1.13),
        (call("round", (2.675, DOUBLE), (2, INT)), 2.68),
        (call("timestampdiff", ("month", STRING), (30, DATE), (58, DATE)), 0),
        (call("date_add", (DAY + HOUR, TIMESTAMP), (1, INT)), 2),
        (call("unicode", ("", STRING)), -1),
        (call("isnan", (None, DOUBLE)), False),
        (call("list_contains", ((1, None), array(INT)), (2, INT)), False),
        (call("to_ticks", (5, TIMESTAMP)), 5),
        (call("from_ticks", (5, BIGINT)), 5),
        (call("cardinality", ((1, 2), array(INT))), 2),
        (call("element_at", ((1, 2), array(INT)), (-1, INT)), 2),
        (call("element_at", ((1, 2), array(INT)), (0, INT)), None),
        (call("element_at", ((1, 2), array(INT)), (3, INT)), None),
        (call("array_contains", ((1, 2), array(INT)), (2.0, DOUBLE)), True),
        (call("array_contains", ((1, None), array(INT)), (2, INT)), None),
        (call("array_join", ((1, None, 3), array(INT)), (",", STRING)), "1,3"),
        (call("=", (math.nan, DOUBLE), (math.nan, DOUBLE)), True),
        (call(">", (math.nan, DOUBLE), (math.inf, DOUBLE)), True),
        (call("=", (-0.0, DOUBLE), (0.0, DOUBLE)), True),
        (call("is_not_distinct", (None, INT), (None, INT)), True),
        (call("+", (0.1, REAL), (0.2, REAL)), 0.30000001192092896),
        (Cast(Literal(0.1, DOUBLE), REAL), 0.10000000149011612),
        (Cast(Literal(0.10000000149011612, REAL), STRING), "0.1"),
        (Cast(Literal(0.1, DOUBLE), decimal(20, 18)), Decimal("0.100000000000000000")),
        (Cast(Literal(1e16, DOUBLE), STRING), "1e+16"),
        (Cast(Literal("1 day -02:00", STRING), INTERVAL), DAY - 2 * HOUR),
        (Cast(Literal("1.5 hours, 3 ms", STRING), INTERVAL), HOUR * 3 // 2 + 3000),
        (Cast(Literal(-DAY - HOUR, INTERVAL), STRING), "-1 day -01:00:00"),
        (Cast(Literal(2 * DAY, INTERVAL), STRING), "2 days"),
        (Cast(Literal(-(2**63), TIMESTAMP), STRING), "-290308-12-21 19:59:05.224192"),
        (Cast(Literal("0001-01-01", STRING), TIMESTAMP), -62_135_596_800_000_000),
        (Cast(Literal("9999-12-31 23:59:59.999999", STRING), TIMESTAMP), 253_402_300_799_999_999),
        (Cast(Literal("1970-01-01T01:00:00.1234567+01:00", STRING), TIMESTAMP), 123_456),
        (Cast(Literal((1, None), array(INT)), array(STRING)), ("1", None)),
    ],
)  # fmt: skip
def test_values(expr: Expr, expected: object) -> None:
    found = value(expr)
    assert hashable(found) == hashable(expected)
    assert type(found) is type(expected)
    folded = fold(expr)
    assert folded is not None
    assert (hashable(folded.value), folded.type) == (hashable(expected), expr.type)


@pytest.mark.parametrize(
    "text",
    ["", "1e", "0x10", "١", "1 2", "--1", "1e400", "NaN", "9" * 2000, "1e-99999999999999999999"],
)
def test_texts_that_are_not_numbers(text: str) -> None:
    assert "CAST" in failure(Cast(Literal(text, STRING), BIGINT))
    if text not in ("1e-99999999999999999999",):
        assert "CAST" in failure(Cast(Literal(text, STRING), decimal(10, 2)))


@pytest.mark.parametrize("text", ["", "1", "1 month", "5 parsecs", "1 day!", "days"])
def test_texts_that_are_not_intervals(text: str) -> None:
    assert "is not an INTERVAL" in failure(Cast(Literal(text, STRING), INTERVAL))


@pytest.mark.parametrize(
    "text", ["2024-01-01 24:00", "2024-13-01", "2024-01-01 10", "2024-01-01 10:00+25:00", "300000-01-01"]
)
def test_texts_that_are_not_timestamps(text: str) -> None:
    assert "CAST" in failure(Cast(Literal(text, STRING), TIMESTAMP))


def test_window_bounds() -> None:
    context = Context(window=(10, 20))
    assert evaluate(WindowBound("start", TIMESTAMP), (), context) == 10
    assert evaluate(WindowBound("end", TIMESTAMP), (), context) == 20
    with pytest.raises(QueryFailed, match="window_end outside of a window"):
        evaluate(WindowBound("end", TIMESTAMP), (), Context())


def user(function: object, result: DataType, *args: tuple[object, DataType]) -> tuple[object, Context]:
    context = Context(functions={"f": function})  # type: ignore[dict-item]
    expr = UserCall("f", tuple(Literal(v, t) for v, t in args), result)
    return evaluate(expr, (), context), context


def test_user_functions_see_python_values() -> None:
    seen: list[object] = []

    def remember(*args: object) -> str:
        seen.extend(args)
        return "ok"

    user(remember, STRING, (DAY, TIMESTAMP), (1, DATE), (HOUR, INTERVAL), (None, INT), ((1, 2), array(DATE)))
    assert seen == [datetime(1970, 1, 2), date(1970, 1, 2), timedelta(hours=1), None,
                    [date(1970, 1, 2), date(1970, 1, 3)]]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        (datetime(1970, 1, 2), TIMESTAMP, DAY),
        (datetime(1970, 1, 2, tzinfo=UTC), TIMESTAMP, DAY),
        (date(1969, 12, 31), DATE, -1),
        (timedelta(hours=-1), INTERVAL, -HOUR),
        (1, DOUBLE, 1.0),
        (0.1, REAL, 0.10000000149011612),
        (1.25, decimal(5, 1), Decimal("1.3")),
        ([1, None], array(BIGINT), (1, None)),
        (bytearray(b"x"), BINARY, b"x"),
        (None, INT, None),
    ],
)
def test_user_results_become_values(given: object, dtype: DataType, expected: object) -> None:
    found, context = user(lambda: given, dtype)
    assert (found, context.failures) == (expected, 0)
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [(1.5, INT), (True, INT), (2**40, INT), ("1", INT), (1, STRING), ("\ud800", STRING), (datetime(2024, 1, 1), DATE),
     (Decimal("nan"), decimal(5, 1)), (1, BOOLEAN)],
)  # fmt: skip
def test_user_results_of_another_type_fail(given: object, dtype: DataType) -> None:
    found, context = user(lambda: given, dtype)
    assert (found, context.failures) == (None, 1)


def test_what_a_user_function_raises_stops_the_query() -> None:
    with pytest.raises(QueryFailed, match=r"function `f` raised ZeroDivisionError: .*, called with \(0\)") as caught:
        user(lambda x: 1 // x, INT, (0, INT))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_a_user_function_cannot_be_given_fails_on_the_row() -> None:
    _, context = user(lambda x: x, TIMESTAMP, (2**62, TIMESTAMP))
    assert context.last_failure == f"f: {2**62} is out of range of Python's timestamp"


def test_a_missing_user_function_stops_the_query() -> None:
    with pytest.raises(QueryFailed, match="no Python function `g`"):
        evaluate(UserCall("g", (), INT), (), Context())


def test_fold_leaves_what_is_not_constant() -> None:
    assert fold(Column(0, INT)) is None
    assert fold(Call("neg", (UserCall("f", (), INT),), INT)) is None
    assert fold(WindowBound("start", TIMESTAMP)) is None
    assert fold(Literal(1, INT)) == Literal(1, INT)


def test_value_order() -> None:
    values: list[object] = [math.nan, 1.0, None, -math.inf, math.inf, -0.0]
    assert [str(v) for v in sorted(values, key=order_key)] == ["None", "-inf", "-0.0", "1.0", "inf", "nan"]
    assert compare("Z", "a") == -1
    assert compare("\uffff", "😀") == -1
    assert compare((1, None), (1, 0)) == -1
    assert compare(-0.0, 0.0) == compare(math.nan, math.nan) == 0
    assert hashable((1.0, (math.nan, None))) == hashable((1.0, (float("nan"), None)))
    assert hashable(-0.0) == hashable(0.0)
    assert hash(hashable(-0.0)) == hash(hashable(0.0))
