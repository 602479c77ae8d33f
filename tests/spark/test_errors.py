"""What cannot work is refused with a word about what would."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import penstock.spark as ps
from penstock.errors import BindError, EngineError, InputError
from penstock.hosts.spark.session import check_java


def test_columns(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v, named_struct('a', 1) AS deep")
    with pytest.raises(BindError, match="no column `w`"):
        ps.sql(spark, "SELECT w FROM s", s=rows)
    with pytest.raises(BindError, match="`deep` of `s` is STRUCT<A:INT> in Spark, which CQL does not have"):
        ps.sql(spark, "SELECT deep FROM s", s=rows)
    with pytest.raises(InputError, match="differ in case only"):
        ps.sql(spark, "SELECT v FROM s", s=spark.sql("SELECT 1L AS ts, 2 AS v").selectExpr("ts", "v", "v AS V"))


def test_timestamps(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS a, 2L AS b, 'x' AS c")
    with pytest.raises(InputError, match="which column says when a row happened\\? There is `a` BIGINT, `b` BIGINT"):
        ps.sql(spark, "SELECT a FROM s", s=rows)
    with pytest.raises(InputError, match="the timestamp `c` is STRING"):
        ps.sql(spark, "SELECT a FROM s", timestamps={"s": "c"}, s=rows)
    with pytest.raises(InputError, match="no column `d`"):
        ps.sql(spark, "SELECT a FROM s", timestamps={"s": "d"}, s=rows)
    with pytest.raises(InputError, match="there is no stream `r`"):
        ps.sql(spark, "SELECT a FROM s", timestamps={"r": "a"}, s=rows)


def test_null_timestamps_fail_with_the_name_of_the_column(spark: SparkSession) -> None:
    rows = spark.sql("SELECT CAST(NULL AS BIGINT) AS ts, 1 AS v")
    with pytest.raises(Exception, match="the timestamp `ts` of 1 rows is NULL"):
        ps.sql(spark, "SELECT v FROM s", s=rows).collect()


def test_frames(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="no query reads `r`"):
        ps.sql(spark, "SELECT v FROM s", s=rows, r=rows)
    with pytest.raises(InputError, match="relation `r` is a streaming DataFrame"):
        ps.sql(spark, "SELECT v FROM s, r", s=rows, relations={"r": stream})
    with pytest.raises(InputError, match="there is no DataFrame to read"):
        ps.sql(spark, "SELECT v FROM s")
    with pytest.raises(BindError, match="`e` in query `query` has no DataFrame"):
        ps.sql(spark, "SELECT v FROM s, e", declare="CREATE STREAM e (t BIGINT) TIMESTAMP BY t", s=rows)
    with pytest.raises(InputError, match="shards is 0"):
        ps.sql(spark, "SELECT v FROM s", shards=0, s=rows)
    with pytest.raises(BindError, match="'soon' is not a length of time"):
        ps.sql(spark, "SELECT v FROM s", slack="soon", s=rows)
    with pytest.raises(InputError, match="slack is -1"):
        ps.sql(spark, "SELECT v FROM s", slack=-1, s=rows)


def test_pipelines(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v, 'x' AS name")
    with pytest.raises(BindError, match="`x` is string in query `two` and int32 in `one`; rename it with AS"):
        ps.pipeline(spark, {"one": "SELECT v AS x FROM s", "two": "SELECT name AS x FROM s"}, s=rows)
    with pytest.raises(InputError, match="at least one query"):
        ps.pipeline(spark, {}, s=rows)
    with pytest.raises(InputError, match="no query `two`; there is one"):
        ps.pipeline(spark, {"one": "SELECT v FROM s"}, s=rows)["two"]


def test_why_there_is_one_shard(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v, 3 AS k")
    counted = ps.explain(spark, "SELECT v FROM s [ROWS 3]", s=rows)
    assert "query: 1 shard: ROWS 3 counts the rows of the whole stream" in counted
    assert "query: 4 shards: s by k" in ps.explain(spark, "SELECT k, sum(v) FROM s GROUP BY k", shards=4, s=rows)
    two_keys = "SELECT a.v FROM s [RANGE 5] a JOIN s [RANGE 5] b ON a.k = b.v"
    assert "1 shard: `s` is read more than once, by different keys" in ps.explain(spark, two_keys, s=rows)


def test_java(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("java")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(EngineError, match="Java was not found: there is none in JAVA_HOME"):
        check_java()
    (home / "bin").mkdir()
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_412\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(EngineError, match="is Java 8; Spark needs Java 17 or later"):
        check_java()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\"' >&2\n")
    check_java()
