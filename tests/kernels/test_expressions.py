"""Compiled expressions give exactly the values, and the failures, of ``scalar.evaluate``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import examples

from penstock import functions, scalar
from penstock.functions.operators import OPERATORS
from penstock.kernels.batch import Rows
from penstock.kernels.expressions import (
    VECTORISED,
    Compiler,
    RowErrors,
    compile_expr,
    compile_filter,
    compile_project,
)
from penstock.kernels.vectors import as_arrow
from penstock.model.errors import BindError, QueryFailed
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
from penstock.model.values import to_arrow, to_python
from penstock.scalar.dates import PARTS, TRUNC_UNITS
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound

DEC = decimal(9, 2)
WIDE = decimal(38, 4)
FRACTION = decimal(19, 18)
TEXTS = array(STRING)
FLOATS = array(DOUBLE)
DAY = 86_400_000_000

_SMALL = (0, 1, -1, 2, 3, 7, -5, 10)
_REALS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 2.0**-149, 3.25, math.nan, math.inf, -math.inf)
_DOUBLES = (*_REALS, 0.1, 1e308, -1e308, 5e-324, 2.0**53 + 2, 2.0**63, -(2.0**63), 2.0**31, 4503599627370495.5, 1e22)
_STRINGS = ("", "a", "A", "abc", " a b ", "ä", "ß", "İ", "ǅ", "e\u0301", "𝄞x", "a%b", "_", "%", "b%", "%b%", "a.c",
            "(", "\n", "12", " 12 ", "+5", "-7", "1.5", "-0", "0x1F", "1e3", "inf", "NaN", "9223372036854775808",
            "2147483648", "true", "2024-02-29", "2024-02-29 12:34:56.789", "1 day", "a b a", "aaa", "%Y-%m-%d", "\\1",
            "K", "\x00", "ff")  # fmt: skip
_TICKS = (0, 1, -1, DAY, -DAY, 1_709_210_096_789_123, -62_135_596_800_000_001, 2**63 - 1, -(2**63), -(2**63) + 1,
          2**53 + 1, -(2**53) - 3, 951_782_400_000_000, -62_167_219_200_000_000, 10**17)  # fmt: skip
_WIDE_WHOLE = (0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1, -(2**63), 2**63, 5 * 10**17, -5 * 10**17)

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    INT: st.sampled_from((*_SMALL, 2**31 - 1, -(2**31), 46341, 65536)) | st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.sampled_from((*_SMALL, 2**63 - 1, -(2**63), 2**62, 3037000500, -3037000500, 2**53 + 1, 300, -400))
    | st.integers(-(2**63), 2**63 - 1),
    REAL: st.sampled_from(_REALS) | st.floats(width=32),
    DOUBLE: st.sampled_from(_DOUBLES) | st.floats(),
    DEC: st.decimals(-9999999, 9999999, places=2),
    WIDE: st.sampled_from([Decimal(d) for d in ("0.0000", "1.0000", "-0.0001", "9" * 34 + ".9999", "-0.5000")])
    | st.decimals(-(2**62), 2**62, places=4),
    FRACTION: st.decimals(-9, 9, places=18) | st.sampled_from([Decimal(n).scaleb(-18) for n in _WIDE_WHOLE]),
    STRING: st.sampled_from(_STRINGS) | st.text(st.characters(codec="utf-8"), max_size=6),
    BINARY: st.sampled_from((b"", b"a", b"\xff", b"\x00a", "ä".encode())) | st.binary(max_size=4),
    DATE: st.sampled_from((0, -1, 19782, 2**31 - 1, -(2**31), 106751991, 106751992, -106751992, -719529)),
    TIMESTAMP: st.sampled_from(_TICKS) | st.integers(-(2**63), 2**63 - 1),
    INTERVAL: st.sampled_from(_TICKS) | st.integers(-(2**63), 2**63 - 1),
    TEXTS: st.lists(st.sampled_from(("a", "", "ä", None)), max_size=3).map(tuple),
    FLOATS: st.lists(st.sampled_from((0.0, -0.0, math.nan, 1.5, None)), max_size=3).map(tuple),
    NULL: st.none(),
}
TYPES = tuple(VALUES)
SCHEMA = (*TYPES, *TYPES)
"""Two columns of each type."""


def values_of(dtype: DataType) -> st.SearchStrategy[Any]:
    # NULL now and then, so that columns without any occur too.
    return st.integers(0, 9).flatmap(lambda n: st.none() if n == 0 else VALUES[dtype])


@st.composite
def columns_of(draw: Any, types: Sequence[DataType], length: int) -> list[list[object]]:
    result = []
    for dtype in types:
        nulls = draw(st.booleans())
        of = values_of(dtype) if nulls else VALUES[dtype]
        result.append(draw(st.lists(of, min_size=length, max_size=length)))
    return result


def arrow_of(values: list[object], dtype: DataType, skip: int = 3) -> pa.Array:
    """A column that does not begin at the beginning of its buffers."""
    return to_arrow([*values[:1] * skip, *values], dtype).slice(skip if values else 0)


def shown(values: Sequence[object]) -> list[str]:
    """Exact, so that NaN is NaN and -0.0 is not 0.0."""
    return [repr(v) for v in values]


def check(expr: Expr, columns: list[list[object]], types: Sequence[DataType]) -> None:
    length = len(columns[0])
    context = scalar.Context(window=(3, 4), functions=FUNCTIONS)
    expected = [scalar.evaluate(expr, row, context) for row in zip(*columns, strict=True)]
    arrays = [arrow_of(v, t) for v, t in zip(columns, types, strict=True)]
    run = RowErrors(window=(3, 4))
    found = compile_expr(expr, FUNCTIONS)(arrays, length, run)
    found.validate(full=True)
    assert found.type == expr.type.arrow
    assert len(found) == length
    assert shown(to_python(found, expr.type)) == shown(expected)
    assert run.failures == context.failures
    assert (run.last_failure is None) == (context.last_failure is None)
    if context.failures:
        with pytest.raises(QueryFailed):
            compile_expr(expr, FUNCTIONS)(arrays, length, RowErrors(window=(3, 4), strict=True))


def _shout(text: str | None, n: int | None) -> object:
    """Gives something that is no text, which fails on the row, where it has nothing to shout."""
    return 0 if text is None or not n else text.upper() + "!" * (10 // n)


FUNCTIONS: dict[str, Callable[..., object]] = {
    "shout": _shout,
    "twice": lambda x: None if x is None else x * 2,
}


def _texts_for(name: str) -> tuple[str, ...]:
    if name in ("extract", "date_part"):
        return tuple(PARTS)
    return TRUNC_UNITS if name in ("date_trunc", "date_diff") else ()


@cache
def signatures(name: str) -> tuple[tuple[DataType | str, ...], ...]:
    """The lists of argument types that the function takes; a text stands for a constant."""
    units: tuple[DataType | str, ...] = _texts_for(name)
    last: tuple[DataType | str, ...] = (*TYPES, "month", "week") if name == "trunc" else TYPES
    found = []
    for count in range(7 if name == "make_timestamp" else 4):
        if count > 3:
            pools: list[tuple[DataType | str, ...]] = [(INT, BIGINT)] * (count - 1) + [(DOUBLE,)]
        else:
            pools = [(*TYPES, *units) if i == 0 else last for i in range(count)]
        for types in product(*pools):
            try:
                functions.resolve(name, [_stand_in(t) for t in types])
            except BindError:
                continue
            found.append(types)
    return tuple(found)


def _stand_in(what: DataType | str) -> Expr:
    return Literal(what, STRING) if isinstance(what, str) else Column(0, what)


NAMES = sorted({*functions.SCALARS, *OPERATORS})


@pytest.mark.parametrize("name", NAMES)
def test_every_function(name: str) -> None:
    found = signatures(name)
    assert found

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def on(data: st.DataObject) -> None:
        types = data.draw(st.sampled_from(found))
        length = data.draw(st.integers(1, 8))
        columns: list[list[object]] = [[None] * length]
        column_types: list[DataType] = [NULL]
        args: list[Expr] = []
        for what in types:
            if isinstance(what, str):
                args.append(Literal(what, STRING))
            elif data.draw(st.integers(0, 2)) == 0:
                args.append(Literal(data.draw(values_of(what)), what))
            else:
                args.append(Column(len(columns), what))
                columns += data.draw(columns_of([what], length))
                column_types.append(what)
        try:
            expr = functions.resolve(name, args)
        except BindError:  # a constant text that is not what it must be
            return
        check(expr, columns, column_types)

    on()


def test_a_constant_that_fails_does_so_on_every_row() -> None:
    seconds = functions.resolve("timestamp_seconds", [Literal(253402316800.0, REAL)])
    check(seconds, [[None] * 3], [NULL])


CASTS = [(a, b) for a in TYPES for b in (*TYPES, array(INT)) if a != b and scalar.casts.can_cast(a, b)]


@pytest.mark.parametrize(("source", "target"), CASTS, ids=lambda t: str(t))
def test_every_cast(source: DataType, target: DataType) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def on(data: st.DataObject) -> None:
        length = data.draw(st.integers(1, 8))
        columns = data.draw(columns_of([source], length))
        check(Cast(Column(0, source), target, data.draw(st.booleans())), columns, [source])

    on()


BY_RESULT: dict[DataType, list[str]] = {
    BOOLEAN: ["and", "or", "not", "=", "<", ">=", "<>", "is_null", "is_not_distinct", "in", "like", "starts_with"],
    INT: ["+", "-", "*", "%", "neg", "abs", "greatest", "nullif", "sign"],
    BIGINT: ["+", "*", "div", "%", "length", "least", "extract", "strpos"],
    REAL: ["+", "*", "-", "floor"],
    DOUBLE: ["+", "-", "*", "/", "%", "sqrt", "ln", "power", "round", "greatest"],
    DEC: ["nullif", "greatest"],
    WIDE: ["least"],
    STRING: ["||", "lower", "substr", "replace", "trim", "nullif", "concat_ws"],
    TIMESTAMP: ["+", "-", "date_trunc"],
    INTERVAL: ["+", "neg"],
    DATE: ["last_day", "make_date"],
}


@cache
def giving(name: str, dtype: DataType) -> tuple[tuple[DataType | str, ...], ...]:
    found = []
    for types in signatures(name):
        bound = functions.resolve(name, [_stand_in(t) for t in types])
        if bound.type == dtype:
            found.append(types)
    return tuple(found)


@st.composite
def exprs(draw: Any, dtype: DataType, depth: int) -> Expr:
    """An expression over two columns of every type."""
    kind = draw(st.sampled_from(("column", "literal", *("call", "case", "coalesce", "cast", "user") * (depth > 0))))
    column = Column(TYPES.index(dtype) + draw(st.sampled_from((0, len(TYPES)))), dtype)
    below = depth - 1
    match kind:
        case "literal":
            return Literal(draw(values_of(dtype)), dtype)
        case "case":
            count = draw(st.integers(1, 2))
            branches = tuple((draw(exprs(BOOLEAN, below)), draw(exprs(dtype, below))) for _ in range(count))
            return Case(branches, draw(exprs(dtype, below)), dtype)
        case "coalesce":
            return Call("coalesce", tuple(draw(exprs(dtype, below)) for _ in range(draw(st.integers(1, 3)))), dtype)
        case "cast":
            sources = [t for t in TYPES if scalar.casts.can_cast(t, dtype) and t != dtype]
            if sources:
                return Cast(draw(exprs(draw(st.sampled_from(sources)), below)), dtype, draw(st.booleans()))
        case "user" if dtype == STRING:
            return UserCall("shout", (draw(exprs(STRING, below)), draw(exprs(INT, below))), STRING)
        case "user" if dtype in (TIMESTAMP, BIGINT):
            return WindowBound(draw(st.sampled_from(("start", "end"))), dtype)
        case "call" if dtype in BY_RESULT:
            name = draw(st.sampled_from(BY_RESULT[dtype]))
            options = giving(name, dtype)
            if options:
                types = draw(st.sampled_from(options))
                args = [Literal(t, STRING) if isinstance(t, str) else draw(exprs(t, below)) for t in types]
                try:
                    made = functions.resolve(name, args)
                except BindError:
                    return column
                return made if made.type == dtype else column
    return column


@settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_nested_expressions(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(TYPES))
    expr = data.draw(exprs(dtype, 3))
    length = data.draw(st.integers(1, 6))
    check(expr, data.draw(columns_of(SCHEMA, length)), SCHEMA)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_filters_and_split_batches(data: st.DataObject) -> None:
    predicate = data.draw(exprs(BOOLEAN, 3))
    length = data.draw(st.integers(1, 8))
    columns = data.draw(columns_of(SCHEMA, length))
    context = scalar.Context(window=(3, 4), functions=FUNCTIONS)
    expected = [scalar.evaluate(predicate, row, context) is True for row in zip(*columns, strict=True)]
    arrays = [arrow_of(v, t) for v, t in zip(columns, SCHEMA, strict=True)]
    compiled, run = compile_filter(predicate, FUNCTIONS), RowErrors(window=(3, 4))
    found = compiled(arrays, length, run)
    assert ([True] * length if found is None else found.mask.tolist()) == expected
    assert run.failures == context.failures
    cut = data.draw(st.integers(0, length))
    parts: list[bool] = []
    for start, stop in ((0, cut), (cut, length)):
        some = compiled([a.slice(start, stop - start) for a in arrays], stop - start, run)
        parts += [True] * (stop - start) if some is None else some.mask.tolist()
    assert parts == expected
    assert run.failures == 2 * context.failures


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_only_counted_rows_count(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from((INT, BIGINT, DOUBLE, STRING)))
    expr = data.draw(exprs(dtype, 3))
    length = data.draw(st.integers(1, 6))
    columns = data.draw(columns_of(SCHEMA, length))
    counted = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
    counting, silent = (scalar.Context(window=(3, 4), functions=FUNCTIONS) for _ in range(2))
    rows = zip(*columns, strict=True)
    expected = [scalar.evaluate(expr, r, counting if c else silent) for r, c in zip(rows, counted, strict=True)]
    arrays = [arrow_of(v, t) for v, t in zip(columns, SCHEMA, strict=True)]
    run = RowErrors(window=(3, 4))
    with np.errstate(all="ignore"):
        value = Compiler((expr,), FUNCTIONS).node(expr)(Rows(arrays, length, run, np.array(counted)))
    assert shown(to_python(as_arrow(value, dtype.arrow, length), dtype)) == shown(expected)
    assert run.failures == counting.failures


X, Y = Column(0, DOUBLE), Column(1, DOUBLE)
QUOTIENT = Call("/", (X, Y), DOUBLE)


def test_what_is_shared_counts_for_each_use() -> None:
    exprs = (QUOTIENT, Call("+", (QUOTIENT, QUOTIENT), DOUBLE))
    run = RowErrors()
    found = compile_project(exprs, {})([pa.array([1.0, 2.0]), pa.array([0.0, 4.0])], 2, run)
    assert [a.to_pylist() for a in found] == [[None, 0.5], [None, 1.0]]
    assert run.failures == 3
    assert run.last_failure == "/: division by zero"


def test_zeros_of_different_sign_are_not_shared() -> None:
    exprs = tuple(Call("*", (X, Literal(z, DOUBLE)), DOUBLE) for z in (0.0, -0.0))
    plus, minus = compile_project(exprs, {})([pa.array([1.0])], 1, RowErrors())
    assert shown(plus.to_pylist() + minus.to_pylist()) == ["0.0", "-0.0"]


def test_user_functions_are_called_for_each_use() -> None:
    calls: list[object] = []

    def seen(x: object) -> object:
        calls.append(x)
        return x

    call = UserCall("seen", (X,), DOUBLE)
    compile_project((call, call), {"seen": seen})([pa.array([1.0, None])], 2, RowErrors())
    assert calls == [1.0, None, 1.0, None]


def test_a_missing_user_function_is_an_error() -> None:
    with pytest.raises(QueryFailed, match="no Python function `nope`"):
        compile_expr(UserCall("nope", (X,), DOUBLE), {})([pa.array([1.0])], 1, RowErrors())


def test_a_bound_needs_a_window() -> None:
    with pytest.raises(QueryFailed, match="window_end outside"):
        compile_expr(WindowBound("end", BIGINT), {})([], 1, RowErrors())


def test_strict_stops_at_the_first_failing_row() -> None:
    expr = Cast(Column(0, STRING), INT)
    with pytest.raises(QueryFailed, match="'x' is not an INT; without `strict = true`"):
        compile_expr(expr, {})([pa.array(["1", "x", "y"])], 3, RowErrors(strict=True))


def test_columns_pass_through_untouched() -> None:
    column = pa.array([1.0, None])
    assert compile_expr(X, {})([column], 2, RowErrors()) is column


def test_nothing_in_nothing_out() -> None:
    empty = compile_expr(QUOTIENT, {})([pa.array([], pa.float64())] * 2, 0, RowErrors())
    assert empty.equals(pa.array([], pa.float64()))
    assert compile_filter(Call("<", (X, Y), BOOLEAN), {})([pa.array([], pa.float64())] * 2, 0, RowErrors()) is None


def test_long_results_fail_on_their_row() -> None:
    half = "x" * (9 << 20)
    expr = Call("||", (Column(0, STRING), Column(0, STRING)), STRING)
    run = RowErrors()
    found = compile_expr(expr, {})([pa.array([half, "y"])], 2, run)
    assert found.to_pylist() == [None, "yy"]
    assert run.failures == 1


def test_many_constants_are_looked_up() -> None:
    items = tuple(Literal(v, BIGINT) for v in (1, 2, 3, 4, 5, 6, None))
    expr = Call("in", (Column(0, BIGINT), *items), BOOLEAN)
    check(expr, [[1, 7, None, 6]], [BIGINT])
    texts = tuple(Literal(v, STRING) for v in "abcdefg")
    check(Call("in", (Column(0, STRING), *texts), BOOLEAN), [["a", "x", None, ""]], [STRING])
    check(Call("in", (Column(0, STRING), *texts, Literal(None, STRING)), BOOLEAN), [["a", "x", None, ""]], [STRING])
    floats = tuple(Literal(v, DOUBLE) for v in (0.0, 1.0, math.nan, 3.0, 4.0, 5.0))
    check(Call("in", (Column(0, DOUBLE), *floats), BOOLEAN), [[-0.0, math.nan, None, 9.0]], [DOUBLE])


def test_constants_among_the_items_of_a_constant() -> None:
    for item in ("a", "b", None):
        items = (Literal("a", STRING), Literal(item, STRING), Column(0, STRING))
        check(Call("in", items, BOOLEAN), [["a", "x", None]], [STRING])


def test_every_vectorised_function_exists() -> None:
    assert set(VECTORISED) <= scalar.BUILTINS


def test_joining_nothing_but_nulls_gives_a_row_for_each() -> None:
    """pyarrow gives none at all."""
    call = functions.resolve("concat_ws", [Literal("", STRING), Column(0, STRING)])
    found = compile_expr(call, {})([pa.array([None, None], pa.string())], 2, RowErrors())
    assert found.to_pylist() == ["", ""]


PATTERNS = ("yyyy-MM-dd HH:mm:ss.SSS", "yyyyMMdd", "dd/MM/yyyy", "HH:mm", "'on' EEE dd MMM yyyy, hh:mm a", "DDD", "é",
            "yyyyMMddHHmmssSSS", "MM", "ss.SSSSSS", "yyyy-MM-dd'T'HH:mm:ssXXX", "", "yyyy-MM-dd yyyy")  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=30, deadline=None, database=None)
@given(data=st.data())
def test_patterns(pattern: str, data: st.DataObject) -> None:
    moments = st.sampled_from((*_TICKS, 253_402_300_799_999_999)) | st.integers(-62_167_219_200_000_000, 2**58)
    ticks: list[object] = data.draw(st.lists(st.none() | moments, min_size=1, max_size=6))
    written = Call("date_format", (Column(0, TIMESTAMP), Literal(pattern, STRING)), STRING)
    check(written, [ticks], [TIMESTAMP])
    if not set(pattern) & set("Eé"):
        plain = [scalar.evaluate(written, (t,), scalar.Context()) for t in ticks]
        other = st.sampled_from(("2024-02-30 10:00:00.000", "20240230", "31/02/2024", "24:00", "12:60", "00", "٢٣:٠٠"))
        texts: list[object] = [data.draw(st.just(t) | other) for t in plain]
        check(functions.resolve("to_timestamp", [Column(0, STRING), Literal(pattern, STRING)]), [texts], [STRING])


@pytest.mark.parametrize("name", ["round", "trunc"])
@settings(max_examples=150, deadline=None, database=None)
@given(data=st.data())
def test_rounding_near_where_it_turns(name: str, data: st.DataObject) -> None:
    """Numbers of a few digits, one digit more than is asked for, and their neighbours."""
    digits = data.draw(st.integers(-5, 24))
    whole = st.integers(-(10**17), 10**17) | st.integers(-9999, 9999).map(lambda n: n * 10 + 5)
    numbers = [float(Decimal(n).scaleb(-digits - 1)) for n in data.draw(st.lists(whole, min_size=1, max_size=6))]
    values: list[object] = [v for n in numbers for v in (n, math.nextafter(n, math.inf), math.nextafter(n, -math.inf))]
    for dtype in (DOUBLE, REAL):
        column = to_python(to_arrow(values, DOUBLE).cast(dtype.arrow), dtype)
        check(functions.resolve(name, [Column(0, dtype), Literal(digits, INT)]), [column], [dtype])
