"""Folders of Parquet files are read by workers where that shows in nothing, and by Spark otherwise."""

from __future__ import annotations

import os
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
import penstock.spark as ps
from tests.budget import paired

SCHEMA = """at TIMESTAMP, face TIMESTAMP_NTZ, i INT, l BIGINT, d DOUBLE, f FLOAT, n DECIMAL(9, 2), b BOOLEAN, s STRING,
            day DATE"""
QUERY = "SELECT face, i, l, d, f, n, b, s, day FROM s"
READ = "workers read the Parquet files of `s` themselves"


def rows() -> list[tuple[Any, ...]]:
    first = (
        datetime(2024, 5, 1, 10), datetime(2024, 5, 1, 12, 0, 0, 5), -1, 1 << 40, 0.5, 0.25, Decimal("1.25"), True, "ä",
        date(2024, 5, 1),
    )  # fmt: skip
    second = (datetime(2024, 5, 1, 11), *[None] * 9)
    third = (
        datetime(1955, 1, 1), datetime(1, 1, 1), 0, 0, float("nan"), -0.0, Decimal("-0.01"), False, "", date(1, 1, 1),
    )  # fmt: skip
    return [third, first, second]


def answers(spark: SparkSession, frame: DataFrame, folder: Path, query: str = QUERY, **more: Any) -> Counter[object]:
    found: list[tuple[object, ...]] = []
    out = ps.sql(spark, query, timestamps={"s": "at"}, s=frame, **more)
    shown = out.selectExpr(*(f"CAST({c} AS STRING) AS {c}" for c in out.columns))
    query_ = (
        shown.writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
        .option("checkpointLocation", str(folder / f"checkpoint {len(list(folder.iterdir()))}"))
        .trigger(availableNow=True)
        .start()
    )
    ps.await_end(query_)
    return Counter(found)


def explained(spark: SparkSession, frame: DataFrame, query: str = QUERY, **more: Any) -> str:
    return ps.explain(spark, query, timestamps={"s": "at"}, s=frame, **more)


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> Path:
    """A folder with a space and an umlaut in its name, and files as Spark writes them."""
    folder = tmp_path / "fol der ü"
    frame = spark.createDataFrame(rows(), SCHEMA)
    frame.coalesce(1).write.parquet(str(folder))
    spark.createDataFrame(rows()[1:], SCHEMA).coalesce(1).write.mode("append").parquet(str(folder))
    return folder


@pytest.mark.parametrize(("kind", "shards"), paired(["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"], [1, 2]))
def test_the_same_rows_as_from_spark(spark: SparkSession, tmp_path: Path, kind: str, shards: int) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        spark.createDataFrame(rows(), SCHEMA).coalesce(1).write.parquet(str(tmp_path / "data"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "data"))
    assert READ in explained(spark, frame)
    by_workers = answers(spark, frame, tmp_path, shards=shards)
    assert by_workers == answers(spark, frame, tmp_path, shards=shards, files=False)
    assert by_workers.total() == 3


def test_tasks_side_by_side_know_what_is_late_in_any_share(spark: SparkSession, tmp_path: Path) -> None:
    """Where no row is remembered, each task answers its share of the files; how far each came all of them know."""
    given: list[list[int]] = [[1, 2, 3, 40], [39, 41, 42], [], [43, 44, 45, 46, 5]]
    late, everything = {39, 5}, {i for times in given for i in times}
    for number, times in enumerate(given):
        at = pa.array([t * 1_000_000 for t in times], pa.timestamp("us", "UTC"))
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"at": at, "i": pa.array(times, "int32")}), path, row_group_size=1)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads files by age

    def shown(most: int, **more: Any) -> Counter[int]:
        found: Counter[int] = Counter()
        stream = spark.readStream.schema("at TIMESTAMP, i INT").option("maxFilesPerTrigger", most)
        out = ps.sql(spark, "SELECT i FROM s", s=stream.parquet(str(tmp_path)), shards=3, **more)
        writer = out.writeStream.foreachBatch(lambda batch, _: found.update(r.i for r in batch.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint {most}"))
        ps.await_end(writer.trigger(availableNow=True).start())
        return found

    def kept() -> Counter[int]:
        rows = ps.late(spark, str(tmp_path / "checkpoint 1"), "s")
        assert rows is not None
        return Counter(r.i for r in rows.collect())

    assert shown(9) == Counter(everything)
    assert shown(1) == Counter(everything - late)
    assert kept() == Counter(late)
    # The last micro-batch is made again, in the other way, in which another task finds the row that is late.
    for file in (tmp_path / "checkpoint 1" / "commits").glob("*3*"):
        file.unlink()
    assert shown(1, files=False) == Counter({43, 44, 45, 46})
    assert kept() == Counter(late)


def test_a_spark_that_ignores_hints_is_refused(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    frame = spark.readStream.schema(SCHEMA).parquet(str(written))
    spark.conf.set("spark.sql.optimizer.disableHints", True)
    try:
        with pytest.raises(penstock.EngineError, match=r"another join than it was asked for, .* say shards=1"):
            answers(spark, frame, tmp_path, shards=2)
        assert answers(spark, frame, tmp_path, shards=1).total() == 5
    finally:
        spark.conf.unset("spark.sql.optimizer.disableHints")


def test_names_of_folders_files_and_columns(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    frame = spark.readStream.schema("AT TIMESTAMP, L BIGINT").parquet(str(written))
    assert READ in explained(spark, frame, "SELECT l FROM s")
    found = answers(spark, frame, tmp_path, "SELECT ISTREAM l FROM s [NOW]", files=True)
    assert found == answers(spark, frame, tmp_path, "SELECT ISTREAM l FROM s [NOW]", files=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame, folder: frame.where("l > 0"),
        lambda frame, folder: frame.withColumn("l", frame["l"] + 1),
        lambda frame, folder: frame.sparkSession.readStream.schema(SCHEMA).option("mergeSchema", True).parquet(folder),
        lambda frame, folder: frame.sparkSession.readStream.schema(SCHEMA).parquet(f"{folder}/*.parquet"),
        lambda frame, folder: frame.sparkSession.readStream.schema("at TIMESTAMP, i BIGINT").parquet(folder),
        lambda frame, folder: frame.sparkSession.readStream.schema("at TIMESTAMP_NTZ, i INT").parquet(folder),
        lambda frame, folder: frame.sparkSession.readStream.schema("at TIMESTAMP, i INT, more INT").parquet(folder),
    ],
    ids=["filter", "column", "option", "glob", "wider", "other clock", "column that is not there"],
)
def test_what_spark_must_read(spark: SparkSession, written: Path, change: Any) -> None:
    frame = change(spark.readStream.schema(SCHEMA).parquet(str(written)), str(written))
    query = "SELECT more FROM s" if "more" in frame.columns else "SELECT i FROM s"
    assert READ not in explained(spark, frame, query)


def test_values_in_the_names_of_folders(spark: SparkSession, tmp_path: Path) -> None:
    some = [(datetime(2024, 5, 1), 1, "a"), (datetime(2024, 5, 2), 2, "b")]
    frame = spark.createDataFrame(some, "at TIMESTAMP, i INT, s STRING")
    frame.write.partitionBy("s").parquet(str(tmp_path / "data"))
    stream = spark.readStream.schema("at TIMESTAMP, i INT, s STRING").parquet(str(tmp_path / "data"))
    assert READ not in explained(spark, stream, "SELECT s FROM s")
    found = answers(spark, stream, tmp_path, "SELECT s FROM s [NOW]")
    assert found == answers(spark, stream, tmp_path, "SELECT s FROM s [NOW]", files=False)


def test_a_file_that_is_otherwise_is_named(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    frame = spark.readStream.schema("at TIMESTAMP, i INT").parquet(str(written))
    assert READ in explained(spark, frame, "SELECT i FROM s")
    narrow = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "i": pa.array([7], pa.int16())})
    pq.write_table(narrow, written / "z-other.parquet")
    with pytest.raises(penstock.InputError, match=r"its column `i` is int16, not int32; say files=False"):
        answers(spark, frame, tmp_path, "SELECT i FROM s")
    assert answers(spark, frame, tmp_path, "SELECT i FROM s", files=False).total() == 6


def test_a_query_goes_on_with_the_other_way(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    frame = spark.readStream.schema(SCHEMA).parquet(str(written))
    found: list[int] = []
    for files, trigger in ((True, {"processingTime": "0 seconds"}), (False, {"availableNow": True})):
        out = ps.sql(spark, "SELECT ISTREAM count(*) AS n FROM s", timestamps={"s": "at"}, files=files, s=frame)
        writer = out.writeStream.foreachBatch(lambda batch, _: found.extend(r.n for r in batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger).start()
        if files:
            query.processAllAvailable()
            query.stop()
            later = spark.createDataFrame([(datetime(2250, 1, 1), *[None] * 9)], SCHEMA)
            later.coalesce(1).write.mode("append").parquet(str(written))
        else:
            query.awaitTermination()
    assert max(found) == found[-1] == 6
