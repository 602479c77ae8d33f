"""What Spark computes in our place: every expression on the list, against the reference."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock.spark as ps
from penstock.hosts.spark.native import CASTS, LISTED, Native
from penstock.hosts.spark.schemas import spark_schema
from penstock.model.errors import InputError
from penstock.model.schema import Field, arrow_schema
from penstock.model.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, REAL, STRING, TIMESTAMP, DataType, Kind
from penstock.rows.times import FIRST, LAST
from penstock.scalar import expr as ex
from penstock.scalar.context import Context
from penstock.scalar.evaluate import evaluate
from tests.budget import examples
from tests.generated.running import comparable
from tests.spark.frames import multiset

DECIMAL = DataType(Kind.DECIMAL, 18, 4)
TYPES = (BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL, STRING, DATE, TIMESTAMP)
EACH = 2
"""Columns of each type."""
VALUES: dict[Kind, st.SearchStrategy[object]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INT: st.sampled_from([0, 1, -1, 2, 2**31 - 1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1),
    Kind.BIGINT: st.sampled_from([0, 1, -1, 3, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1),
    Kind.REAL: st.sampled_from([0.0, -0.0, float("nan"), float("inf")]) | st.floats(width=32),
    Kind.DOUBLE: st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("-inf"), 1.7e308, 5e-324]) | st.floats(),
    Kind.DECIMAL: st.decimals(-(10**13), 10**13, places=4) | st.just(Decimal("0.0000")),
    Kind.STRING: st.sampled_from(["", "a", "A", "é", "é", "😀", "\uffff", "a\u0000"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    Kind.DATE: st.integers(FIRST // 86_400_000_000, LAST // 86_400_000_000),
    Kind.TIMESTAMP: st.integers(FIRST, LAST),
}
Row = tuple[object, ...]
EPOCH = datetime(1970, 1, 1)


def for_spark(value: object, dtype: DataType) -> object:
    if value is None or dtype.kind not in (Kind.DATE, Kind.TIMESTAMP):
        return value
    assert isinstance(value, int)
    if dtype.kind is Kind.DATE:
        return date(1970, 1, 1) + timedelta(days=value)
    return EPOCH + timedelta(microseconds=value)


def from_spark(value: object) -> object:
    return signed((value - date(1970, 1, 1)).days if isinstance(value, date) else value)


def signed(value: object) -> object:
    """The value with what a comparison does not see: the sign of zero, the digits of a DECIMAL."""
    return comparable(value), str(value) if isinstance(value, float | Decimal) else ""


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    columns = [VALUES[t.kind] | st.none() for t in TYPES for _ in range(EACH)]
    return draw(st.lists(st.tuples(*columns), min_size=8, max_size=8))


def column(dtype: DataType, number: int = 0) -> ex.Expr:
    return ex.Column(TYPES.index(dtype) * EACH + number, dtype)


def drawn(chosen: random.Random, dtype: DataType, values: Callable[[DataType], object], depth: int) -> ex.Expr:
    """An expression on the list that has this type."""
    if depth == 0 or chosen.random() < 0.2:
        if chosen.random() < 0.3:
            return ex.Literal(None if chosen.random() < 0.2 else values(dtype), dtype)
        return column(dtype, chosen.randrange(EACH))

    def more(of: DataType) -> ex.Expr:
        return drawn(chosen, of, values, depth - 1)

    if chosen.random() < 0.2:
        return ex.Case(((more(BOOLEAN), more(dtype)), (more(BOOLEAN), more(dtype))), more(dtype), dtype)
    makes = [name for name in LISTED if dtype in results(name)]
    name = chosen.choice(makes)
    args = chosen.choice([t for t in TYPES if t.kind in LISTED[name].kinds and result(name, t) == dtype])
    return ex.Call(name, tuple(more(args) for _ in range(arity(name, chosen))), dtype)


def result(name: str, args: DataType) -> DataType:
    return args if name in ("coalesce", "nullif", "+", "-", "*", "/", "%", "||") else BOOLEAN


def results(name: str) -> set[DataType]:
    return {result(name, t) for t in TYPES if t.kind in LISTED[name].kinds}


def arity(name: str, chosen: random.Random) -> int:
    return 1 if name in ("not", "is_null") else chosen.randrange(2, 4) if name in ("in", "coalesce") else 2


def expressions(chosen: random.Random, values: Callable[[DataType], object]) -> list[ex.Expr]:
    """Each entry of the list with each type that it takes, each conversion, and deeper ones."""
    found: list[ex.Expr] = [column(t, n) for t in TYPES for n in range(EACH)]
    for name, same in LISTED.items():
        for t in TYPES:
            if t.kind in same.kinds:
                args = [column(t, 0), column(t, 1), ex.Literal(values(t), t)][: arity(name, chosen)]
                found.append(ex.Call(name, tuple(args), result(name, t)))
    by_kind = {t.kind: t for t in TYPES}
    found += [ex.Cast(column(by_kind[a]), by_kind[b]) for a, targets in CASTS.items() for b in sorted(targets, key=str)]
    return found + [drawn(chosen, chosen.choice(TYPES), values, 3) for _ in range(60)]


def computed(frame: DataFrame, exprs: Sequence[ex.Expr], face: bool) -> list[list[object]]:
    columns = Native(frame, face).columns(exprs)
    assert columns is not None
    # Instants come back as what clocks of the session show, which is UTC in the tests.
    shown = [
        F.timestamp_diff("MICROSECOND", F.lit(EPOCH).cast("timestamp"), c.cast("timestamp"))
        if e.type == TIMESTAMP else c
        for c, e in zip(columns, exprs, strict=True)
    ]  # fmt: skip
    rows = frame.select(*(c.alias(f"e{i}") for i, c in enumerate(shown))).collect()
    return [list(map(from_spark, row)) for row in rows]


@pytest.mark.parametrize("face", [True, False], ids=["TIMESTAMP_NTZ", "TIMESTAMP"])
@settings(
    # The message names the expression and the row: nothing is gained by looking for a smaller table.
    max_examples=examples(16), deadline=None, phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(rows=tables(), seed=st.integers(0, 2**32 - 1))
def test_spark_gives_the_value_of_the_reference(spark: SparkSession, face: bool, rows: list[Row], seed: int) -> None:
    chosen = random.Random(seed)
    of_type = [t for t in TYPES for _ in range(EACH)]

    def values(dtype: DataType) -> object:
        """Constants are values of the table, so that comparisons find equal ones."""
        places = [i for i, t in enumerate(of_type) if t == dtype]
        there = [row[i] for row in rows for i in places if row[i] is not None]
        return chosen.choice(there) if there else None

    schema = tuple(Field(f"c{i}", t) for i, t in enumerate(of_type))
    names = spark_schema(arrow_schema(schema))
    table = spark.createDataFrame(
        [tuple(for_spark(v, t) for v, t in zip(row, of_type, strict=True)) for row in rows], names
    ).coalesce(1)
    exprs = expressions(chosen, values)
    wanted = [[signed(evaluate(e, row, Context())) for e in exprs] for row in rows]
    for row, found, due in zip(rows, computed(table, exprs, face), wanted, strict=True):
        for e, one, other in zip(exprs, found, due, strict=True):
            assert one == other, (e, row)


TABLE = "SELECT * FROM VALUES (1L, 9223372036854775807L, 'a'), (2L, 5L, 'b'), (3L, NULL, NULL) AS v(ts, v, t)"
NO_WORKER = "Spark runs the whole query by itself: no Python worker sees a row"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT v + 1 AS x FROM s WHERE t = 'a' OR v < 9", {(1, "+", None), (2, "+", 6)}),
        ("SELECT ISTREAM t, v * 2 AS x FROM s [RANGE 5]",
         {(1, "+", "a", None), (2, "+", "b", 10), (3, "+", None, None)}),
        ("SELECT ISTREAM CASE WHEN v > 5 THEN t ELSE 'less' END AS x FROM s [NOW] WHERE v IS NOT NULL",
         {(1, "+", "a"), (2, "+", "less")}),
    ],
)  # fmt: skip
def test_a_table_needs_no_worker(spark: SparkSession, query: str, wanted: set[tuple[object, ...]]) -> None:
    table = spark.sql(TABLE)
    answers = ps.sql(spark, query, s=table)
    assert NO_WORKER in ps.explain(spark, query, s=table)
    assert "MapInArrow" not in str(answers._jdf.queryExecution().executedPlan().toString())
    assert set(multiset(answers)) == wanted
    by_workers = ps.pipeline(spark, {"q": query}, s=table)["q"]
    assert answers.dtypes == by_workers.dtypes
    assert multiset(answers) == multiset(by_workers)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT upper(t) AS x FROM s", "SELECT ISTREAM v FROM s [ROWS 2]", "SELECT v FROM s [RANGE 5]",
        "SELECT ISTREAM v FROM s [RANGE 4 SLIDE 2]", "SELECT ISTREAM v FROM s [NOW] MASTER s",
        "SELECT DISTINCT t FROM s",
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_for_workers(spark: SparkSession, query: str) -> None:
    assert NO_WORKER not in ps.explain(spark, query, s=spark.sql(TABLE))


def test_what_spark_adds_to_an_answer_is_added_to_the_answer(spark: SparkSession) -> None:
    """Spark would make v + 2 of it, which overflows with an error where v + 1 is NULL."""
    found = ps.sql(spark, "SELECT v + 1 AS x FROM s", s=spark.sql(TABLE)).selectExpr("x + 1 AS y", "x * 2 + 3 AS z")
    assert multiset(found) == {(None, None): 2, (7, 15): 1}


@pytest.mark.parametrize(
    ("ts", "said"),
    [
        ("NULL", "stream `s`: the timestamp `ts` of a row is NULL"),
        (f"{2**62}L", "stream `s`: a timestamp in `ts` is out of range"),
    ],
)
def test_rows_without_a_time(spark: SparkSession, ts: str, said: str) -> None:
    table = spark.sql(f"{TABLE} UNION ALL SELECT {ts}, 7L, 'c'")
    query = "SELECT v FROM s"
    assert NO_WORKER in ps.explain(spark, query, s=table)
    with pytest.raises(Exception, match="timestamp") as caught:
        ps.sql(spark, query, s=table).collect()
    error = ps.error(caught.value)
    assert isinstance(error, InputError)
    assert str(error).startswith(said)
    assert str(error).endswith("or say on_error='apart'")
    assert {row.ts for row in ps.sql(spark, query, on_error="apart", s=table).collect()} == {1, 2, 3}
