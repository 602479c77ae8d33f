"""Aggregates over small groups, and DuckDB's opinion on them."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import functions, scalar
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE, INT, INTERVAL, REAL, STRING, DataType, decimal
from penstock.reference.aggregates import compute
from penstock.scalar.expr import Column, Expr, Literal

NAN, INF = math.nan, math.inf
DUCKDB = duckdb.connect()


def aggregate(
    name: str, dtype: DataType, values: list[object], *, distinct: bool = False, extra: object = None
) -> object:
    args: list[Expr] = [Column(0, dtype)]
    if extra is not None:
        args.append(Literal(extra, DOUBLE))
    call = functions.resolve_aggregate(name, args, distinct, None)
    context = scalar.Context()
    rows = []
    for i, v in enumerate(values):
        if call.where is None or scalar.evaluate(call.where, [v], context) is True:
            rows.append(((i, 0, 0), tuple(scalar.evaluate(a, [v], context) for a in call.args)))
    return compute(call, rows, context)


@pytest.mark.parametrize(
    ("name", "dtype", "values", "expected"),
    [
        ("count", INT, [1, None, 2], 2),
        ("count", INT, [], 0),
        ("sum", INT, [], None),
        ("sum", INT, [None], None),
        ("sum", INT, [2**31 - 1, 2**31 - 1], 2**32 - 2),
        ("sum", BIGINT, [2**63 - 1, 1, -1], 2**63 - 1),
        ("sum", BIGINT, [2**63 - 1, 1], None),
        ("sum", DOUBLE, [1e16, 1.0, -1e16], 1.0),
        ("sum", DOUBLE, [1e308, 1e308, -1e308], 1e308),
        ("sum", DOUBLE, [1e308, 1e308], INF),
        ("sum", DOUBLE, [INF, 1.0], INF),
        ("sum", DOUBLE, [INF, -INF], NAN),
        ("sum", DOUBLE, [NAN, 1.0], NAN),
        ("sum", REAL, [0.5, 0.25], 0.75),
        ("sum", decimal(3, 2), [Decimal("9.99"), Decimal("9.99")], Decimal("19.98")),
        ("sum", INTERVAL, [1, 2], 3),
        ("avg", INT, [1, 2], 1.5),
        ("avg", BIGINT, [2**63 - 1, 2**63 - 1], float(2**63 - 1)),
        ("avg", decimal(3, 2), [Decimal("1.00"), Decimal("1.00"), Decimal("0.00")], Decimal("0.666667")),
        ("avg", decimal(3, 2), [Decimal("-1.00"), Decimal("-1.00"), Decimal("0.00")], Decimal("-0.666667")),
        ("avg", INTERVAL, [1, 2], 2),
        ("avg", DOUBLE, [], None),
        ("min", DOUBLE, [NAN, 1.0, None], 1.0),
        ("max", DOUBLE, [NAN, 1.0, None], NAN),
        ("max", STRING, ["a", "😀", "\uffff"], "😀"),
        ("stddev", INT, [1], None),
        ("stddev_pop", INT, [1], 0.0),
        ("variance", DOUBLE, [1e8, 1e8 + 1], 0.5),
        ("var_pop", DOUBLE, [1.0, INF], NAN),
        ("variance", DOUBLE, [1e300, -1e300], INF),
        ("first", INT, [None, 1], None),
        ("last", INT, [None, 1], 1),
        ("first", INT, [], None),
        ("collect", INT, [3, None, 1], (3, 1)),
        ("collect", INT, [], ()),
        ("median", INT, [4, 1, 3, 2], 2.5),
        ("median", DOUBLE, [INF, INF], INF),
        ("median", DOUBLE, [], None),
        ("bool_and", BOOLEAN, [True, None, False], False),
        ("bool_or", BOOLEAN, [True, None, False], True),
    ],
)
def test_aggregates(name: str, dtype: DataType, values: list[object], expected: object) -> None:
    found = aggregate(name, dtype, values)
    assert scalar.hashable(found) == scalar.hashable(expected)
    assert type(found) is type(expected)


def test_distinct_leaves_the_earliest_of_equal_values() -> None:
    assert aggregate("collect", INT, [2, 1, 2, None, 1], distinct=True) == (2, 1)
    assert aggregate("count", DOUBLE, [NAN, NAN, 0.0, -0.0, None], distinct=True) == 2
    assert aggregate("sum", INT, [2, 2, 3], distinct=True) == 5
    assert aggregate("percentile", INT, [1, 1, 1, 3], distinct=True, extra=0.5) == 2.0


def test_several_arguments_are_counted_without_null() -> None:
    call = functions.resolve_aggregate("count", [Column(0, INT), Column(1, INT)], True, None)
    rows = [((i,), args) for i, args in enumerate([(1, 1), (1, 1), (1, None), (1, 2)])]
    assert compute(call, rows) == 2


def test_moments_decide_and_ties_go_by_value() -> None:
    call = functions.resolve_aggregate("collect", [Column(0, INT)], False, None)
    assert compute(call, [((2,), (1,)), ((1,), (9,)), ((1,), (8,))]) == (8, 9, 1)
    last = functions.resolve_aggregate("last", [Column(0, INT)], False, None)
    assert compute(last, [((2,), (None,)), ((1,), (9,))]) is None


def test_overflow_is_counted() -> None:
    call = functions.resolve_aggregate("sum", [Column(0, BIGINT)], False, None)
    context = scalar.Context()
    assert compute(call, [((0,), (2**63 - 1,)), ((1,), (1,))], context) is None
    assert (context.failures, context.last_failure) == (1, f"sum: {2**63} is out of range of BIGINT")


NUMBERS = st.lists(st.none() | st.floats(-1e6, 1e6) | st.sampled_from([NAN, 0.0, -0.0]), max_size=12)


@given(NUMBERS, st.permutations(range(12)))
def test_order_of_rows_does_not_matter(values: list[float | None], order: list[int]) -> None:
    rows = [((i,), (v,)) for i, v in enumerate(values)]
    mixed = [rows[i] for i in order if i < len(rows)]
    for name in ("sum", "avg", "variance", "min", "max", "first", "last", "collect"):
        call = functions.resolve_aggregate(name, [Column(0, DOUBLE)], False, None)
        assert scalar.hashable(compute(call, rows)) == scalar.hashable(compute(call, mixed))


GROUPS: list[list[object]] = [
    [],
    [None],
    [1.5],
    [1.0, 2.0, None, 4.0],
    [0.1] * 7,
    [-1e3, 1e3, 5.0],
    [3.0, 1.0, 2.0, 2.0],
]
SQL = {
    "count": "count(x)", "sum": "sum(x)", "avg": "avg(x)", "min": "min(x)", "max": "max(x)", "stddev": "stddev_samp(x)",
    "stddev_pop": "stddev_pop(x)", "variance": "var_samp(x)", "var_pop": "var_pop(x)", "median": "median(x)",
    "first": "first(x ORDER BY i)", "last": "last(x ORDER BY i)",
}  # fmt: skip


@pytest.mark.parametrize("name", SQL)
def test_aggregates_agree_with_duckdb(name: str) -> None:
    for values in GROUPS:
        table = pa.table({"i": range(len(values)), "x": pa.array(values, pa.float64())})
        with DUCKDB.cursor() as con:
            con.register("t", table)
            (theirs,) = con.sql(f"SELECT {SQL[name]} FROM t").fetchall()[0]
        ours = aggregate(name, DOUBLE, values)
        assert ours == (None if theirs is None else pytest.approx(theirs, rel=1e-12, abs=1e-12)), values


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_quantiles_agree_with_duckdb(fraction: float) -> None:
    for values in GROUPS:
        table = pa.table({"x": pa.array(values, pa.float64())})
        with DUCKDB.cursor() as con:
            con.register("t", table)
            (theirs,) = con.sql(f"SELECT quantile_cont(x, {fraction}) FROM t").fetchall()[0]
        assert aggregate("quantile_cont", DOUBLE, values, extra=fraction) == (
            None if theirs is None else pytest.approx(theirs)
        )
