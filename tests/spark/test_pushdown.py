"""Filters in Spark's sources: the same answers, and Spark knows of them."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock.spark as ps
from tests.spark.frames import multiset

SCHEMA = (
    "ts BIGINT, i TINYINT, k BIGINT, b BOOLEAN, t STRING, d DATE, at TIMESTAMP, face TIMESTAMP_NTZ, "
    "n DECIMAL(9, 2), x DOUBLE"
)
ROWS = """VALUES
 (1, 1Y, -5L, true, 'a', DATE'2024-01-01', TIMESTAMP'2024-01-01 10:00:00Z', TIMESTAMP_NTZ'2024-01-01 10:00:00', 1.50, 0.5D),
 (2, -1Y, 0L, false, 'é', DATE'1969-12-31', TIMESTAMP'1969-12-31 23:00:00Z', TIMESTAMP_NTZ'1969-12-31 23:00:00', -1.50, double('NaN')),
 (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (4, 127Y, 9223372036854775807L, true, '😀', DATE'2024-06-01', TIMESTAMP'2024-06-01 00:00:00Z', TIMESTAMP_NTZ'2024-06-01 00:00:00', 0.00, -0.0D),
 (5, 0Y, 7L, false, '', DATE'2024-01-02', TIMESTAMP'2024-01-01 10:00:01Z', TIMESTAMP_NTZ'2024-01-01 10:00:01', 99.99, 1e300D),
 (6, 2Y, -5L, true, 'B', DATE'2023-12-31', TIMESTAMP'2023-12-31 00:00:00Z', TIMESTAMP_NTZ'2023-12-31 00:00:00', 1.50, 2.0D)
"""  # noqa: E501
TAKEN = [
    "k = -5", "k <> 0", "k > 5 AND k < 9223372036854775807", "NOT (k > 5)", "k IN (0, 7)", "k IN (0, NULL)",
    "k NOT IN (0, 7)", "k IS NULL", "k IS NOT NULL", "k = ts", "b", "NOT b", "i > 0", "i = 127 OR k = 0",
    "t = 'é'", "t > 'a'", "t < '😀'", "t >= ''", "t <> 'B' OR t IS NULL",
    "d > DATE '2023-12-31'", "d < DATE '1970-01-01'", "at >= TIMESTAMP '2024-01-01 10:00:00'",
    "at < TIMESTAMP '1970-01-01 00:00:00'", "face >= TIMESTAMP '2024-01-01 10:00:00'",
    "face < TIMESTAMP '1970-01-01 00:00:00'", "n = CAST(1.5 AS DECIMAL(9, 2))", "k IS NOT DISTINCT FROM NULL",
    "k BETWEEN -5 AND 7", "x IS NULL", "k > 0 AND x > 1", "x > 1", "x = x", "k + 1 > 6", "k > 0 OR x > 1", "x < 0.6",
    "CASE WHEN b THEN k ELSE 0 END = -5", "t || 'x' = 'ax'", "k % 2 = 1", "x / 0 IS NULL",
]  # fmt: skip
LEFT = ["upper(t) = 'A'", "k > 0 OR upper(t) = 'A'", "abs(k) = 5", "n * 2 > 1"]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    folder = str(tmp_path_factory.mktemp("pushdown") / "t")
    rows = spark.sql(f"SELECT * FROM ({ROWS}) AS v(ts, i, k, b, t, d, at, face, n, x)")
    rows.coalesce(1).write.parquet(folder)
    return spark.read.schema(SCHEMA).parquet(folder)


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def pushed_filters(frame: DataFrame) -> str:
    return plan(frame).split("PushedFilters: [", 1)[1].split("]", 1)[0]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_same_rows_as_without(spark: SparkSession, table: DataFrame, zone: str) -> None:
    queries = {f"q{i}": f"SELECT ts AS row, {i} AS q FROM s WHERE {c}" for i, c in enumerate(TAKEN + LEFT)}
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        # In the pipeline one query wants all rows, so nothing is left to Spark.
        everything = {**queries, "all": "SELECT ts AS row, -1 AS q FROM s"}
        wanted = multiset(ps.pipeline(spark, everything, timestamps={"s": "ts"}, s=table).answers.where("q >= 0"))
        # Single queries: each with its own filter in Spark.
        found: Counter[object] = Counter()
        for name, text in queries.items():
            answers = ps.sql(spark, text, timestamps={"s": "ts"}, s=table)
            found.update((name, *row) for row in multiset(answers).elements())  # type: ignore[misc]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == wanted
    assert len({row[0] for row in wanted}) > 35  # type: ignore[index]


@pytest.mark.parametrize("condition", TAKEN)
def test_spark_filters(spark: SparkSession, table: DataFrame, condition: str) -> None:
    text = f"SELECT ts AS row FROM s WHERE {condition}"
    assert "Filter" in plan(ps.sql(spark, text, timestamps={"s": "ts"}, s=table))
    assert "Spark reads of `s` only rows with" in ps.explain(spark, text, timestamps={"s": "ts"}, s=table)


@pytest.mark.parametrize("condition", LEFT)
def test_spark_leaves_to_us_what_it_means_otherwise(spark: SparkSession, table: DataFrame, condition: str) -> None:
    text = f"SELECT ts AS row FROM s WHERE {condition}"
    assert "Filter (" not in plan(ps.sql(spark, text, timestamps={"s": "ts"}, s=table))


def test_into_the_files(spark: SparkSession, table: DataFrame) -> None:
    asked = pushed_filters(ps.sql(spark, "SELECT ts AS row FROM s WHERE k > 5", timestamps={"s": "ts"}, s=table))
    assert "GreaterThan(k,5)" in asked


def test_several_queries_share_what_any_of_them_wants(spark: SparkSession, table: DataFrame) -> None:
    queries = {"a": "SELECT ts AS row FROM s WHERE k > 5", "b": "SELECT ts AS row FROM s WHERE k < -4"}
    pipeline = ps.pipeline(spark, queries, timestamps={"s": "ts"}, s=table)
    assert "GreaterThan(k,5)" in pushed_filters(pipeline.answers)
    assert multiset(pipeline["a"]) == Counter([(4, "+", 4), (5, "+", 5)])
    assert multiset(pipeline["b"]) == Counter([(1, "+", 1), (6, "+", 6)])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM s [TUMBLING 2] WHERE k > 5",
        "SELECT count(*) AS n FROM s [RANGE 3] WHERE k > 5",
        "SELECT RSTREAM k FROM s [RANGE 3] WHERE k > 5",
        "SELECT ISTREAM k FROM s [ROWS 2] WHERE k > 5",
    ],
)
def test_where_a_row_that_is_filtered_out_counts_nothing_is_pushed(
    spark: SparkSession, table: DataFrame, query: str
) -> None:
    assert "Filter (" not in plan(ps.sql(spark, query, timestamps={"s": "ts"}, s=table))


def test_tables_beside_streams(spark: SparkSession, table: DataFrame) -> None:
    events = spark.range(8).selectExpr("id AS ts", "id - 5 AS k")
    query = "SELECT ISTREAM e.k, q.t FROM e [NOW] JOIN q ON e.k = q.k WHERE q.t > 'a'"
    assert "Spark reads of `q` only rows with" in ps.explain(spark, query, relations={"q": table}, e=events)
    everything = ps.pipeline(
        spark, {"a": query, "all": "SELECT ISTREAM q.t FROM e [NOW] JOIN q ON e.k = q.k"},
        relations={"q": table}, e=events,
    )["a"]  # fmt: skip
    found = multiset(ps.sql(spark, query, relations={"q": table}, e=events))
    assert found == multiset(everything)
    assert found == Counter([(5, "+", 0, "é")])
