"""Tables as streams that have ended: the answers of the reference, whatever the number of shards."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock.spark as ps
from tests.behaviour.cases import Case as Example
from tests.behaviour.test_examples import CASES
from tests.budget import examples, paired
from tests.generated.language import Case, Row, cases
from tests.generated.running import answers, comparable
from tests.spark.frames import frame, multiset, schema_of
from tests.spark.simulated import without_late

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]
DERIVED = """
CREATE STREAM d AS SELECT ISTREAM k, v FROM s [ROWS 2] WHERE v > 0;
CREATE VIEW big AS SELECT k, g, v FROM s [RANGE 6] WHERE k > 1;
"""


@pytest.mark.parametrize(("case", "shards"), paired(CASES[::3], (1, 2, 5)), ids=lambda v: getattr(v, "name", None))
def test_examples(spark: SparkSession, case: Example, shards: int) -> None:
    streams: dict[str, list[Row]] = {}
    for name, row in case.rows:
        streams.setdefault(name, []).append(row)
    found = ps.sql(
        spark, case.query, shards=shards, timestamps=dict.fromkeys(streams, "t"),
        streams={name: frame(spark, schema_of(case.declare, name), rows) for name, rows in sorted(streams.items())},
    )  # fmt: skip
    assert multiset(found) == Counter(tuple(comparable(v) for v in (ts, op, *row)) for ts, op, row in case.answers)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), shards=st.sampled_from([1, 2, 5]))
def test_generated_queries(spark: SparkSession, case: Case, shards: int) -> None:
    case = without_late(case)
    text = case.query
    uses_s = any(f" {name} " in f"{text} " for name in ("s", "d", "big"))
    read = {n for n in ("s", "r", "q") if f" {n} " in f"{text} " or f" {n})" in text} | ({"s"} if uses_s else set())
    rows = {**case.streams, "q": case.beginning}
    frames = {str(n): frame(spark, schema_of(case.declare, n), rows[n]) for n in ("s", "r", "q") if n in read}
    relations = {"q": frames.pop("q")} if "q" in frames else {}
    declare = DERIVED if "s" in frames else ""
    found = ps.sql(
        spark, text, shards=shards, declare=declare, timestamps=dict.fromkeys(frames, "t"),
        relations=relations, streams=frames,
    )  # fmt: skip
    assert multiset(found) == answers(case, "reference"), str(case)


def test_types_there_and_back(spark: SparkSession) -> None:
    rows = spark.sql("""
        SELECT TIMESTAMP'2024-05-01 10:00:00' AS at, TIMESTAMP_NTZ'2024-05-01 12:00:00' AS face, 1Y AS i,
               CAST(1.25 AS DECIMAL(5, 2)) AS d, DATE'2024-05-01' AS day, X'00ff' AS raw, ARRAY(1, 2) AS numbers,
               true AS yes, CAST(0.5 AS FLOAT) AS f, INTERVAL '1' HOUR AS gap, 'ä' AS text,
               named_struct('a', 1) AS deep
    """)
    query = "SELECT face, i, d, day, raw, numbers, yes, f, gap, text FROM s"
    found = ps.sql(spark, query, timestamps={"s": "at"}, s=rows)
    assert found.schema.simpleString() == (
        "struct<ts:timestamp,op:string,face:timestamp,i:int,d:decimal(5,2),day:date,raw:binary,numbers:array<int>,"
        "yes:boolean,f:float,gap:interval day to second,text:string>"
    )
    row, wanted = found.collect()[0], rows.collect()[0]
    assert (row.ts, row.op) == (datetime(2024, 5, 1, 10), "+")
    assert row[2:] == wanted[1:-1]


def test_the_zone_of_the_session_decides_hours_and_not_instants(spark: SparkSession) -> None:
    rows = spark.sql("SELECT TIMESTAMP'2024-05-01 10:00:00+00:00' AS at, 1 AS v")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = ps.sql(spark, "SELECT hour(at) AS h, v FROM s", s=rows).selectExpr("unix_seconds(ts)", "h").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [tuple(r) for r in found] == [(1714557600, 6)]


def test_names_in_capitals_and_columns_that_nobody_reads(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 5L AS ts, 7 AS customerId, 'x' AS unused")
    found = ps.sql(spark, "SELECT customerId FROM Orders", Orders=rows)
    assert multiset(found) == Counter([(5, "+", 7)])
    scans = found._jdf.queryExecution().optimizedPlan().toString()
    assert "unused" not in scans


def test_a_function_of_the_user(spark: SparkSession) -> None:
    twice = {"twice": (lambda v: v * 2, ["BIGINT"], "BIGINT")}
    rows = spark.range(3).withColumnRenamed("id", "ts")
    assert multiset(ps.sql(spark, "SELECT twice(ts) AS v FROM s", functions=twice, s=rows)) == Counter(
        [(0, "+", 0), (1, "+", 2), (2, "+", 4)]
    )


def test_a_pipeline_reads_its_source_once(spark: SparkSession) -> None:
    rows = spark.range(1, 9).selectExpr("id AS ts", "id % 3 AS k", "id * 10 AS v").coalesce(1)
    queries = {
        "large": "SELECT k, v FROM s WHERE v > 50",
        "sums": "SELECT ISTREAM k, sum(v) AS total FROM s [RANGE 3] GROUP BY k",
        "last": "SELECT ISTREAM v FROM s [ROWS 2] WHERE v > 30",
    }
    pipeline = ps.pipeline(spark, queries, shards=2, s=rows)
    assert pipeline.answers.columns == ["query", "ts", "op", "k", "v", "total"]
    for name, text in queries.items():
        assert multiset(pipeline[name]) == multiset(ps.sql(spark, text, shards=2, s=rows))
    scans = pipeline.answers._jdf.queryExecution().executedPlan().toString()
    assert scans.count("Range (") == 1
