"""Columns of DataFrames keep their case in the answers, and are found in any."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock.spark as ps
from penstock.model.errors import BindError, InputError

SCHEMA = "Tick BIGINT, deviceId STRING, Value DOUBLE"
ROWS = [(1, "a", 1.0), (2, "b", 2.0), (3, "a", 4.0)]
NOW = {"availableNow": True}


def test_names_of_answers(spark: SparkSession) -> None:
    readings = spark.createDataFrame(ROWS, SCHEMA)
    rooms = spark.createDataFrame([("a", "hall")], "DEVICEID STRING, roomName STRING")
    found = ps.sql(
        spark, "SELECT DEVICEID, roomname, value AS theValue FROM readings JOIN rooms USING (deviceid)",
        readings=readings, relations={"rooms": rooms}, timestamps={"readings": "TICK"},
    )  # fmt: skip
    assert found.columns == ["ts", "op", "deviceId", "roomName", "theValue"]
    assert {tuple(row) for row in found.collect()} == {(1, "+", "a", "hall", 1.0), (3, "+", "a", "hall", 4.0)}
    declared = ps.sql(
        spark, "SELECT * FROM readings", readings=readings,
        declare="CREATE STREAM readings (TICK BIGINT, DeviceID STRING) TIMESTAMP BY tick",
    )  # fmt: skip
    assert declared.columns == ["ts", "op", "TICK", "DeviceID"]
    assert declared.count() == 3
    twice = spark.createDataFrame([(1, 2, 3)], "t BIGINT, x INT, X INT")
    with pytest.raises(InputError, match="the columns `x` and `X` differ in case only"):
        ps.sql(spark, "SELECT * FROM twice", twice=twice, timestamps={"twice": "t"})


def test_a_pipeline_has_one_column_for_both_cases(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(_table(["Tick", "deviceId", "Value"]), _folder(tmp_path) / "1.parquet")
    queries = {
        "one": "SELECT deviceid, value FROM s",
        "two": "SELECT value AS VALUE FROM s WHERE value > 1",
        "three": "SELECT deviceid AS DeviceID FROM s",
    }
    pipeline = ps.pipeline(spark, queries, s=_stream(spark, tmp_path, SCHEMA), timestamps={"s": "tick"})
    assert pipeline.answers.columns == ["query", "ts", "op", "deviceId", "Value"]
    seen: list[list[str]] = []
    outputs: dict[str, ps.Output] = {
        "one": str(tmp_path / "one"),
        "two": str(tmp_path / "two"),
        "three": lambda answers, batch: seen.append(answers.columns),
    }
    assert ps.await_end(pipeline.start(outputs, checkpoint=str(tmp_path / "checkpoint"), trigger=NOW))
    assert seen == [["ts", "op", "DeviceID"]]
    for name, columns, count in (("one", ["ts", "op", "deviceId", "Value"], 3), ("two", ["ts", "op", "VALUE"], 2)):
        found = spark.read.parquet(str(tmp_path / name)).drop("batch")
        assert (found.columns, found.count()) == (columns, count)
    with pytest.raises(BindError, match="columns of query `q` differ in case only"):
        ps.pipeline(
            spark, {"q": 'SELECT value AS "a", value AS "A" FROM s'}, s=_stream(spark, tmp_path, SCHEMA),
            timestamps={"s": "tick"},
        )  # fmt: skip


def test_a_checkpoint_goes_on_whatever_the_case(spark: SparkSession, tmp_path: Path) -> None:
    """Once all names were in lower case; rows wait for slack in what was stored then."""
    text = "SELECT deviceid, sum(value) AS total FROM s GROUP BY deviceid"
    folder = _folder(tmp_path)
    for run, schema in enumerate((SCHEMA.lower().replace("bigint", "BIGINT"), SCHEMA)):
        pq.write_table(_table(["Tick", "deviceId", "Value"], 10 * run), folder / f"{run}.parquet")
        answers = ps.sql(spark, text, s=_stream(spark, tmp_path, schema), timestamps={"s": "tick"}, slack={"s": 2})
        writer = answers.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert ps.await_end(writer.trigger(availableNow=True).start(str(tmp_path / "out")))
    found = {tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {
        (1, "+", "a", 1.0), (2, "+", "b", 2.0), (3, "-", "a", 1.0), (3, "+", "a", 5.0), (11, "-", "a", 5.0),
        (11, "+", "a", 6.0),
    }  # fmt: skip


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "s"
    folder.mkdir(exist_ok=True)
    return folder


def _table(names: list[str], later: int = 0) -> pa.Table:
    columns = list(zip(*((t + later, device, value) for t, device, value in ROWS), strict=True))
    return pa.table([pa.array(column) for column in columns], names=names)


def _stream(spark: SparkSession, tmp_path: Path, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).parquet(str(tmp_path / "s"))
