"""What cannot work is refused with a word about what would."""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock
import penstock.spark as ps
from penstock.hosts.spark.running import told
from penstock.hosts.spark.session import check_java
from penstock.model.errors import BindError, EngineError, InputError, PenstockError
from penstock.testing import answers, assert_answers, assert_state, snapshot


def test_columns(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v, named_struct('a', 1) AS deep")
    with pytest.raises(BindError, match="no column `w`"):
        ps.sql(spark, "SELECT w FROM s", s=rows)
    with pytest.raises(BindError, match="`deep` of `s` is struct<a:int> in Spark, which CQL does not have"):
        ps.sql(spark, "SELECT deep FROM s", s=rows)
    with pytest.raises(InputError, match="differ in case only"):
        ps.sql(spark, "SELECT v FROM s", s=spark.sql("SELECT 1L AS ts, 2 AS v").selectExpr("ts", "v", "v AS V"))


NESTED = (
    "SELECT 1L AS ts, 2 AS v, named_struct('a', 3, 'B c', array(named_struct('q', 1))) AS deep, map('k', 4) AS m, "
    "map(1, 'x') AS by_number, array(5, 6) AS plain, array(named_struct('x', 7)) AS listed, NULL AS nothing, "
    "make_interval(1) AS span, 8 AS deep_a, named_struct('y', 9) AS `odd.name`"
)


def test_star_names_the_columns_that_cql_cannot_read_and_code_that_reads_them(spark: SparkSession) -> None:
    df = spark.sql(NESTED)
    with pytest.raises(BindError) as error:
        ps.sql(spark, "SELECT * FROM s", s=df)
    said = str(error.value)
    for column in ("deep", "m", "by_number", "listed", "nothing", "span", "odd.name"):
        assert f"`{column}` (" in said
    assert "`plain`" not in said
    code = re.search(r"give s=(df\.selectExpr\(.*\)\.drop\(.*?\))", error.value.hint or "")
    assert code is not None
    [row] = ps.sql(spark, "SELECT * FROM s", s=eval(code[1], {"df": df})).collect()
    assert row.asDict() == {
        "ts": 1, "op": "+", "ts_2": 1, "v": 2, "plain": [5, 6], "deep_a": 8, "deep_a_": 3, "deep_B c": '[{"q":1}]',
        "m_key": None, "by_number_text": '{"1":"x"}', "listed_text": '[{"x":7}]', "nothing_text": None,
        "span_text": "1 years", "odd_name_y": 9,
    }  # fmt: skip


def test_a_natural_join_leaves_out_no_column(spark: SparkSession) -> None:
    """Columns that CQL cannot read are not compared, so both sides must not have one of them."""
    left = spark.sql("SELECT 1L AS ts, 2 AS v, named_struct('a', 1) AS Place, map('k', 1) AS m")
    right = spark.sql("SELECT 1L AS ts, 2 AS v, named_struct('a', 9) AS place")
    text = "SELECT v FROM s NATURAL JOIN r"
    with pytest.raises(BindError, match=r"NATURAL JOIN cannot compare `Place`, which both sides have: .*struct<a:int>"):
        ps.sql(spark, text, s=left, r=right)
    with pytest.raises(BindError, match="cannot compare `Place`"):
        ps.sql(spark, text, s=left, r=right.selectExpr("ts", "v", "'x' AS place"))
    with pytest.raises(BindError, match="`place`"):
        ps.sql(spark, "SELECT v FROM s JOIN r USING (v, place)", s=left, r=right)
    assert ps.sql(spark, text, s=left, r=right.drop("place")).count() == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT r.* FROM s [ROWS 1] r", "SELECT v FROM (SELECT * FROM s) x", "SELECT v FROM d",
        "SELECT v FROM t WHERE v IN (SELECT v FROM (SELECT * FROM s) x)", "SELECT deep FROM s", "SELECT deep.a FROM s",
        "SELECT s.deep.a FROM s", "SELECT m['k'] FROM s",
    ],
)  # fmt: skip
def test_nothing_is_left_out_in_silence(spark: SparkSession, query: str) -> None:
    frames = {"s": spark.sql(NESTED), "t": spark.sql("SELECT 1L AS ts, 2 AS v")}
    declare = "CREATE VIEW d AS SELECT * FROM s" if " d" in query else ""
    with pytest.raises(PenstockError, match=r"to read what is in them, give s=df\.selectExpr"):
        ps.sql(spark, query, declare=declare, streams=frames)


def test_rows_that_only_have_to_be_there_need_no_columns(spark: SparkSession) -> None:
    frames = {"s": spark.sql(NESTED), "t": spark.sql("SELECT 1L AS ts, 2 AS v")}
    found = ps.sql(spark, "SELECT v FROM t WHERE EXISTS (SELECT * FROM s WHERE s.v = t.v)", streams=frames)
    assert [row.v for row in found.collect()] == [2]
    assert [row.n for row in ps.sql(spark, "SELECT count(*) AS n FROM s", s=frames["s"]).collect()] == [1]


def test_names_with_dots_and_quotes(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS `a.b`, 3 AS `c``d`")
    names = '"a.b", "c`d"'
    [row] = ps.sql(spark, f'SELECT {names} FROM s WHERE "a.b" = 2', s=rows).collect()
    assert row.asDict() == {"ts": 1, "op": "+", "a.b": 2, "c`d": 3}
    pipeline = ps.pipeline(spark, {"q": f"SELECT {names} FROM s, r", "p": "SELECT ts AS x FROM s"}, s=rows,
                           relations={"r": spark.sql("SELECT 1 AS `x.y`")})  # fmt: skip
    assert [row["c`d"] for row in pipeline["q"].collect()] == [3]
    with pytest.raises(BindError, match=r'no `a` in FROM; the column whose name has a dot is written "a\.b"'):
        ps.sql(spark, "SELECT a.b FROM s", s=rows)
    with pytest.raises(BindError, match="no column `z` in stream `s`; there are"):
        ps.sql(spark, 'SELECT "a.b", z FROM s', s=rows)


class NoFrame:
    pass


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"slak": "2 seconds"}, "there is no option `slak`; did you mean `slack`?"),
        ({"timestamp": {"s": "ts"}}, "there is no option `timestamp`; did you mean `timestamps`?"),
        ({"other": NoFrame()}, "`other` is a NoFrame and no DataFrame of Spark, and there is no option of that name"),
        ({"other": None}, "`other` is a NoneType"),
        ({"streams": ["s"]}, "streams is a list; give a dict, as in {'bids': bids_df}"),
        ({"relations": ["s"]}, "relations is a list; give a dict"),
        ({"timestamps": "ts"}, "timestamps is a str; give a dict, as in {'bids': 'at'}"),
        ({"S": "frame"}, "`S` is a str"),
        ({"slack": [1]}, "slack is [1]; give a length of time"),
        ({"idle": 1.5}, "idle is 1.5; give a length of time"),
        ({"shards": "2"}, "shards is '2'; give a whole number"),
        ({"declare": ["CREATE VIEW"]}, "declare is a list; give statements in one text"),
        ({"functions": [len]}, "functions is a list; give a dict"),
        ({"functions": {"f": len}}, "functions={'f': (function, ['BIGINT'], 'DOUBLE')}"),
        ({"functions": {"f": (len, ["NUMBR"], "BIGINT")}}, "NUMBR"),
        ({"functions": {"f": (1, ["BIGINT"], "BIGINT")}}, "1 cannot be called"),
        ({"functions": {"abs": (len, ["BIGINT"], "BIGINT")}}, "there is a built-in function `abs`"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", [ps.sql, ps.explain])
def test_arguments_that_are_wrong(
    spark: SparkSession, call: Callable[..., object], arguments: dict[str, object], said: str
) -> None:
    with pytest.raises(PenstockError) as error:
        call(spark, "SELECT v FROM s", s=spark.sql("SELECT 1L AS ts, 2 AS v"), **arguments)
    assert said in str(error.value)


def test_functions_by_name_with_their_types(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v")
    twice = {"Twice": (lambda v: 2 * v, ["INT"], "INT")}
    assert [row.w for row in ps.sql(spark, "SELECT twice(v) AS w FROM s", functions=twice, s=rows).collect()] == [4]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_of_other_libraries_are_named_and_the_code_that_is_said_makes_one_of_spark(
    spark: SparkSession, kind: str
) -> None:
    s = pa.table({"ts": [1], "v": [2]})
    frame = s.to_pandas() if kind == "pandas" else pl.from_arrow(s) if kind == "polars" else s
    with pytest.raises(InputError, match="and no DataFrame of Spark") as error:
        ps.sql(spark, "SELECT v FROM s", s=frame)  # type: ignore[arg-type]
    assert error.value.hint is not None
    given = eval(error.value.hint.removeprefix("give s="), {"spark": spark, "s": frame})
    assert [row.v for row in ps.sql(spark, "SELECT v FROM s", s=given).collect()] == [2]


def test_a_name_that_is_given_twice(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v")
    with pytest.raises(InputError, match="`s` is given twice"):
        ps.sql(spark, "SELECT v FROM s", streams={"S": rows, "s": rows})


def test_what_is_no_session_and_no_query(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v")
    with pytest.raises(InputError, match=r"is a SparkContext and no Spark session; ps\.session\(\) gives one"):
        ps.sql(spark.sparkContext, "SELECT v FROM s", s=rows)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="query `query` is a NoneType; give the text of a query"):
        ps.sql(spark, None, s=rows)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="queries is a str; give a dict"):
        ps.pipeline(spark, "SELECT v FROM s", s=rows)  # type: ignore[arg-type]


def test_assertions_take_answers_of_spark(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_seconds(1714521600 + id) AS at, id AS v FROM range(50)")
    found = ps.sql(spark, "SELECT v, at FROM s WHERE v < 2", shards=3, s=rows)
    wanted = [(at, "+", i, at) for i, at in enumerate(["2024-05-01T00:00:00Z", "2024-05-01T00:00:01Z"])]
    assert_answers(found, wanted)
    assert_answers(found.toPandas(), wanted)
    with pytest.raises(AssertionError, match="1 missing"):
        assert_answers(found, wanted[:1] * 2)
    with pytest.raises(InputError, match="this DataFrame of Spark is a stream"):
        assert_answers(spark.readStream.format("rate").load(), wanted)
    with pytest.raises(InputError, match="a list has no answers; give a query, or a table of its answers"):
        assert_answers(wanted, wanted)
    for call in (answers, snapshot, lambda query: assert_state(query, [])):
        with pytest.raises(InputError, match="this is no query of a database"):
            call(found)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="this is no table of answers"):
        assert_answers(rows, wanted)


def test_databases_take_a_static_frame_of_spark(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS ts, 2 AS v")
    with penstock.connect(engine="local") as db:
        db.declare("s", rows, timestamp="ts")
        query = db.query("SELECT v FROM s")
        db.push("s", rows)
        assert_answers(query, [(1, "+", 2)])


def test_timestamps(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L AS a, 2L AS b, 'x' AS c")
    with pytest.raises(InputError, match="which column says when a row happened\\? There is `a` BIGINT, `b` BIGINT"):
        ps.sql(spark, "SELECT a FROM s", s=rows)
    with pytest.raises(InputError, match=r"There is `a` INT, `c` STRING; it is a TIMESTAMP, or a BIGINT .*: CAST one"):
        ps.sql(spark, "SELECT a FROM s", s=rows.selectExpr("CAST(a AS INT) AS a", "c"))
    with pytest.raises(InputError, match="the timestamp `c` is STRING"):
        ps.sql(spark, "SELECT a FROM s", timestamps={"s": "c"}, s=rows)
    with pytest.raises(InputError, match="no column `d`"):
        ps.sql(spark, "SELECT a FROM s", timestamps={"s": "d"}, s=rows)
    with pytest.raises(InputError, match="there is no stream `r`"):
        ps.sql(spark, "SELECT a FROM s", timestamps={"r": "a"}, s=rows)


def test_null_timestamps_fail_with_the_name_of_the_column(spark: SparkSession) -> None:
    rows = spark.sql("SELECT CAST(NULL AS BIGINT) AS ts, 1 AS v")
    with pytest.raises(Exception, match="the timestamp `ts` of a row is NULL"):
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


def test_too_many_windows_fail_at_once(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1L, 7), (1000000000000000L, 8) AS s (ts, v)")
    with pytest.raises(Exception, match="windows end at once after 2, and each of them would be answered"):
        ps.sql(spark, "SELECT count(*) AS n FROM s [TUMBLING 2]", s=rows).collect()
    grouped = ps.sql(spark, "SELECT v, count(*) AS n FROM s [TUMBLING 2] GROUP BY v", s=rows).collect()
    assert sorted(row.v for row in grouped) == [7, 8]


def test_of_what_java_said_the_cause_is_told() -> None:
    lines = [
        "An error occurred while calling o456.collectToPython.",
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times",
        "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2844)",
        "Caused by: java.io.IOException: No space left on device",
        "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)",
    ]
    assert told(Exception("\n".join(lines))) == "java.io.IOException: No space left on device"
    assert told(Exception("\n".join(lines[:3]))).startswith("org.apache.spark.SparkException: Job aborted")
    assert told(Exception(lines[0])) == lines[0]
