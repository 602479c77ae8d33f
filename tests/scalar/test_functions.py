"""Names, arity, implicit conversions and result types, and the messages when they are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock import functions, scalar
from penstock.model.errors import BindError
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    REAL,
    STRING,
    TIMESTAMP,
    DataType,
    array,
    decimal,
)
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, walk

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "functions.md"


def col(dtype: DataType, index: int = 0) -> Column:
    return Column(index, dtype)


def text(value: str) -> Literal:
    return Literal(value, STRING)


D92, D105 = decimal(9, 2), decimal(10, 5)


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("+", (INT, INT), INT),
        ("+", (INT, BIGINT), BIGINT),
        ("*", (REAL, REAL), REAL),
        ("*", (REAL, INT), DOUBLE),
        ("-", (BIGINT, DOUBLE), DOUBLE),
        ("/", (INT, INT), DOUBLE),
        ("/", (D92, D92), DOUBLE),
        ("div", (INT, INT), BIGINT),
        ("%", (INT, BIGINT), BIGINT),
        ("+", (D92, D105), decimal(13, 5)),
        ("-", (D92, INT), decimal(13, 2)),
        ("*", (D92, D105), decimal(20, 7)),
        ("*", (decimal(38, 10), decimal(38, 10)), decimal(38, 20)),
        ("+", (D92, DOUBLE), DOUBLE),
        ("+", (TIMESTAMP, INTERVAL), TIMESTAMP),
        ("+", (INTERVAL, TIMESTAMP), TIMESTAMP),
        ("-", (TIMESTAMP, TIMESTAMP), INTERVAL),
        ("-", (TIMESTAMP, DATE), INTERVAL),
        ("+", (DATE, INT), DATE),
        ("+", (INT, DATE), DATE),
        ("-", (DATE, DATE), INT),
        ("-", (DATE, INTERVAL), TIMESTAMP),
        ("+", (INTERVAL, INTERVAL), INTERVAL),
        ("*", (INTERVAL, DOUBLE), INTERVAL),
        ("*", (INT, INTERVAL), INTERVAL),
        ("/", (INTERVAL, INT), INTERVAL),
        ("neg", (INTERVAL,), INTERVAL),
        ("+", (NULL, INT), INT),
        ("+", (NULL, NULL), INT),
        ("-", (TIMESTAMP, NULL), TIMESTAMP),
        ("||", (STRING, INT), STRING),
        ("round", (D92,), decimal(10, 2)),
        ("ceil", (D92,), decimal(8, 0)),
        ("round", (INT, INT), INT),
        ("abs", (REAL,), REAL),
        ("coalesce", (INT, BIGINT, NULL), BIGINT),
        ("ifnull", (DATE, TIMESTAMP), TIMESTAMP),
        ("if", (BOOLEAN, INT, DOUBLE), DOUBLE),
        ("greatest", (INT, D92), decimal(12, 2)),
        ("element_at", (array(DATE), INT), DATE),
        ("array_join", (array(INT), STRING), STRING),
        ("array_contains", (array(INT), DOUBLE), BOOLEAN),
        ("add_months", (DATE, INT), DATE),
        ("add_months", (TIMESTAMP, INT), DATE),
        ("+ months", (TIMESTAMP, INT), TIMESTAMP),
        ("date_add", (DATE, INT), DATE),
        ("date_sub", (TIMESTAMP, INTERVAL), TIMESTAMP),
        ("date_sub", (TIMESTAMP, INT), DATE),
        ("hour", (INTERVAL,), BIGINT),
        ("epoch", (DATE,), DOUBLE),
        ("to_ticks", (TIMESTAMP,), BIGINT),
        ("from_ticks", (INT,), TIMESTAMP),
        ("hex", (BINARY,), STRING),
        ("substring", (STRING, INT), STRING),
        ("in", (INT, BIGINT, NULL), BOOLEAN),
    ],
)
def test_result_types(name: str, args: tuple[DataType, ...], result: DataType) -> None:
    expr = functions.resolve(name, [col(t, i) for i, t in enumerate(args)])
    assert expr.type == result
    assert scalar.evaluate(expr, [None] * len(args), scalar.Context()) in (None, False, "")


@pytest.mark.parametrize("name", functions.names())
def test_every_function_binds_to_what_can_be_evaluated(name: str) -> None:
    nothing = Literal(None, NULL)
    bound = []
    for first in (nothing, text("day"), col(array(STRING))):
        for count in range(6):
            try:
                bound.append(functions.resolve(name, [first, *[nothing] * count]))
            except BindError:
                continue
    if name in ("pi", "current_timezone"):
        bound.append(functions.resolve(name, []))
    assert bound
    for expr in bound:
        assert all(e.function in scalar.BUILTINS for e in walk(expr) if isinstance(e, Call))
        scalar.evaluate(expr, [("a",)], scalar.Context())


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("lower", [col(STRING), col(STRING)], "function `lower` takes 1 argument, got 2"),
        ("substr", [col(STRING)], "function `substr` takes 2 or 3 arguments, got 1"),
        ("coalesce", [], "function `coalesce` takes at least 1 argument, got 0"),
        ("lower", [col(BIGINT)], "`lower` takes a STRING, got BIGINT"),
        ("substr", [col(STRING), col(STRING)], "`substr` takes a BIGINT as argument 2, got STRING"),
        ("loer", [col(STRING)], "no function `loer`"),
        ("=", [col(STRING), col(BIGINT)], "cannot compare STRING with BIGINT; write CAST(… AS BIGINT)"),
        ("=", [col(INT), text("1.5")], "'1.5' is not an INT"),
        (">", [col(TIMESTAMP), text("tomorrow")], "'tomorrow' is not a TIMESTAMP (YYYY-MM-DD HH:MM:SS)"),
        ("and", [col(INT), col(BOOLEAN)], "`and` takes a BOOLEAN as argument 1, got INT"),
        ("+", [col(STRING), col(STRING)], "there is no `+` between STRING and STRING; write || to join texts"),
        ("+", [col(TIMESTAMP), col(INT)], "there is no `+` between TIMESTAMP and INT; write INTERVAL"),
        ("-", [col(INT), col(DATE)], "there is no `-` between INT and DATE"),
        ("neg", [col(STRING)], "there is no `-` before STRING"),
        ("extract", [text("yaer"), col(DATE)], "`extract` has no unit `yaer`; did you mean `year`?"),
        ("extract", [text("month"), col(INTERVAL)], "`extract` has no unit `month`"),
        ("extract", [col(STRING), col(DATE)], "`extract` takes a unit as a constant text as argument 1"),
        ("regexp_like", [col(STRING), text("(")], "'(' is not a regular expression"),
        ("strftime", [col(DATE), text("%Q")], "strftime has no %Q"),
        ("date_format", [col(DATE), text("YYYY-MM")], "'YYYY-MM' is not a pattern of `date_format`: no letter `Y`;"
         " write yyyy, or quote it if it is text: 'YYYY'; the letters are G y Q"),
        ("date_format", [col(DATE), text("%Y-%m")], "'%Y-%m' is not a pattern of `date_format`: no letter `Y`"),
        ("to_date", [col(STRING), text("EEE d MMM")], "'EEE d MMM' is not a pattern of `to_date`: the letter `E` can be"
         " written but not read; "),
        ("to_timestamp", [col(STRING), text("ddd")], "'ddd' is not a pattern of `to_timestamp`: `ddd` has 3 letters"),
        ("regexp_replace", [col(STRING), text("a"), text("$1")], "`regexp_replace`: 'a' has no group 1, but 0"),
        ("regexp_extract", [col(STRING), text("a+")], "`regexp_extract`: 'a+' has no group 1, but 0; group 0"),
        ("regexp_like", [col(STRING), text("[a-z&&[^b]]")], "'[a-z&&[^b]]' is not a regular expression: `&&` in"),
        ("ltrim", [col(STRING), text("0")], "`ltrim` with two arguments means `ltrim(characters, text)` in Spark"),
        ("like", [col(STRING), text("a"), text("##")], "the ESCAPE of LIKE is one character, not '##'"),
        ("like", [col(STRING), text("a\\")], "the pattern 'a\\' ends with its escape character"),
        ("abs", [col(STRING)], "`abs` takes a number, got STRING"),
        ("if", [col(BOOLEAN), col(INT), col(DATE)], "cannot combine in one CASE INT with DATE"),
        ("cardinality", [col(INT)], "`cardinality` takes an ARRAY, got INT"),
        ("md5", [col(INT)], "`md5` takes a STRING or BINARY, got INT"),
    ],
)
def test_messages(name: str, args: list[Expr], message: str) -> None:
    with pytest.raises(BindError) as caught:
        functions.resolve(name, args)
    assert str(caught.value).startswith(message)


def test_text_constants_become_what_they_are_compared_with() -> None:
    expr = functions.resolve(">", [col(TIMESTAMP), text("1970-01-02")])
    assert expr == Call(">", (col(TIMESTAMP), Literal(86_400_000_000, TIMESTAMP)), BOOLEAN)
    expr = functions.resolve("in", [col(DATE), text("1970-01-02"), Literal(None, NULL)])
    assert expr == Call("in", (col(DATE), Literal(1, DATE), Literal(None, DATE)), BOOLEAN)
    expr = functions.resolve("<", [text("1 min"), col(INTERVAL)])
    assert expr == Call("<", (Literal(60_000_000, INTERVAL), col(INTERVAL)), BOOLEAN)


def test_columns_are_cast_where_needed() -> None:
    expr = functions.resolve("=", [col(INT), col(DOUBLE, 1)])
    assert expr == Call("=", (Cast(col(INT), DOUBLE), col(DOUBLE, 1)), BOOLEAN)


def test_casts_that_do_not_exist() -> None:
    with pytest.raises(BindError, match=r"cannot CAST DATE to INT; DATE converts to STRING, TIMESTAMP"):
        functions.cast(col(DATE), INT)
    assert functions.cast(col(INT), INT) == col(INT)
    assert functions.cast(col(STRING), INT, safe=True) == Cast(col(STRING), INT, safe=True)


def test_case_brings_its_results_to_one_type() -> None:
    expr = functions.case([(col(BOOLEAN), col(INT, 1))], col(BIGINT, 2))
    assert expr == Case(((col(BOOLEAN), Cast(col(INT, 1), BIGINT)),), col(BIGINT, 2), BIGINT)
    assert functions.case([(col(BOOLEAN), col(DATE, 1))]).otherwise == Literal(None, DATE)


@pytest.mark.parametrize(
    ("name", "args", "function", "result"),
    [
        ("count", [], "count", BIGINT),
        ("sum", [col(INT)], "sum", BIGINT),
        ("sum", [col(REAL)], "sum", DOUBLE),
        ("sum", [col(D92)], "sum", decimal(19, 2)),
        ("sum", [col(INTERVAL)], "sum", INTERVAL),
        ("mean", [col(INT)], "avg", DOUBLE),
        ("avg", [col(D92)], "avg", decimal(13, 6)),
        ("max", [col(STRING)], "max", STRING),
        ("stddev_samp", [col(INT)], "stddev", DOUBLE),
        ("var_samp", [col(INT)], "variance", DOUBLE),
        ("median", [col(INT)], "quantile", DOUBLE),
        ("percentile", [col(DOUBLE), Literal(1, INT)], "quantile", DOUBLE),
        ("array_agg", [col(DATE)], "collect", array(DATE)),
        ("every", [col(BOOLEAN)], "min", BOOLEAN),
        ("bool_or", [col(BOOLEAN)], "max", BOOLEAN),
    ],
)
def test_aggregate_types(name: str, args: list[Expr], function: str, result: DataType) -> None:
    call = functions.resolve_aggregate(name, args, False, None)
    assert (call.function, call.type) == (function, result)
    assert functions.is_aggregate(name)


def test_count_if_is_a_count_with_a_filter() -> None:
    call = functions.resolve_aggregate("count_if", [col(BOOLEAN)], False, col(BOOLEAN, 1))
    assert call.args == ()
    assert call.where == Call("and", (col(BOOLEAN, 1), col(BOOLEAN)), BOOLEAN)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("sum", [col(STRING)], "`sum` takes a number or INTERVAL, got STRING"),
        ("count", [col(INT), col(INT)], "function `count` takes 0 or 1 argument"),
        ("percentile", [col(INT), col(DOUBLE)], "`percentile` takes a constant from 0 to 1 as argument 2"),
        ("percentile", [col(INT), Literal(2, INT)], "`percentile` takes a constant from 0 to 1 as argument 2"),
        ("smu", [col(INT)], "no aggregate `smu`"),
    ],
)
def test_aggregate_messages(name: str, args: list[Expr], message: str) -> None:
    with pytest.raises(BindError) as caught:
        functions.resolve_aggregate(name, args, False, None)
    assert str(caught.value).startswith(message)


def test_names_are_used_once() -> None:
    everything = [n for f in functions.SCALARS.values() for n in (f.name, *f.aliases)]
    everything += [n for f in functions.AGGREGATES.values() for n in (f.name, *f.aliases)]
    assert len(everything) == len(set(everything))


def test_documentation_lists_exactly_the_functions() -> None:
    documented = {}
    for line in DOCS.read_text().splitlines():
        cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        signature = cells[0].strip("`") if cells else ""
        if len(cells) == 3 and re.match(r"\w+\(.*->", signature):
            documented[signature] = (cells[1], tuple(re.findall(r"`([^`]+)`", cells[2])))
    known = [*functions.SCALARS.values(), *functions.AGGREGATES.values()]
    assert documented == {f.signature: (f.doc, f.aliases) for f in known}
