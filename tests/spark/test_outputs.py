"""Pipelines that write an output for each query, and what micro-batches cost."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock.spark as ps
from penstock.model.errors import CheckpointError, EngineError, InputError
from tests.spark.frames import Folder, multiset
from tests.spark.test_streaming import COUNTED, SCHEMA, cut, made, wanted

PER_KEY = "SELECT ISTREAM k, sum(v) AS total FROM s [RANGE 30] GROUP BY k"
NOW = {"availableNow": True}


def without_batch(spark: SparkSession, folder: Path) -> Counter[object]:
    return multiset(spark.read.parquet(str(folder)).drop("batch"))


def test_every_query_has_its_output_and_runs_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = made(21, 40)
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in cut(rows, 4):
        folder.add(part)
    calls = tmp_path / "calls"

    def seen(v: int) -> int:
        # One byte for each call, appended in one step.
        out = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(out, b".")
        os.close(out)
        return v

    seen_ = "SELECT seen(v) AS v FROM s"
    queries = {"sums": PER_KEY, "counts": COUNTED, "none": "SELECT v FROM s WHERE v < 0", "unasked": seen_}
    given: dict[int, Counter[object]] = {}

    def keep(answers: DataFrame, batch: int) -> None:
        given[batch] = multiset(answers)

    pipeline = ps.pipeline(
        spark, queries, shards=2, timestamps={"s": "t"}, s=folder.stream(spark, 1),
        functions={"seen": (seen, ["BIGINT"], "BIGINT")},
    )  # fmt: skip
    outputs: dict[str, ps.Output] = {"sums": str(tmp_path / "sums"), "none": f"file://{tmp_path}/none", "counts": keep}
    query = pipeline.start(outputs, checkpoint=str(tmp_path / "checkpoint"), trigger=NOW, name="several")
    assert ps.await_end(query)
    assert query.name == "several"
    assert without_batch(spark, tmp_path / "sums") == wanted(PER_KEY, s=rows)
    assert sum(given.values(), Counter[object]()) == wanted(COUNTED, s=rows)
    assert sorted(given) == [0, 1, 2, 3]
    empty = spark.read.parquet(str(tmp_path / "none")).drop("batch")
    assert (empty.schema, empty.count()) == (pipeline["none"].schema, 0)
    assert calls.stat().st_size == len(rows)
    assert not spark.sparkContext._jsc.getPersistentRDDs()
    metrics = ps.metrics(query)
    assert [m.number for m in metrics] == [0, 1, 2, 3]
    assert [m.rows for m in metrics] == [{"s": 10}] * 4
    assert sum(m.answers for m in metrics) == sum(
        sum(wanted(text.replace("seen(v)", "v"), s=rows).values()) for text in queries.values()
    )
    for m in metrics:
        assert m.late == 0
        assert m.written > 0
        assert 0 < m.kernels < m.seconds * 3
        assert 0 < m.state < m.seconds * 3
        assert 0 < m.spark < m.seconds


def test_a_repeated_micro_batch_replaces_what_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Spark repeats a micro-batch whose end it does not know of, whatever the first attempt left."""
    rows = made(22, 30)
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in cut(rows, 3):
        folder.add(part)
    for again in (False, True):
        if again:
            (tmp_path / "checkpoint" / "commits" / "2").unlink()
            left = tmp_path / "counts" / "batch=000000000002"
            (left / "_abc-part-00000.parquet").write_bytes(b"half of a file")
            (left / "part-00099.parquet").write_bytes(b"of an attempt with other partitions")
        pipeline = ps.pipeline(spark, {"counts": COUNTED}, timestamps={"s": "t"}, s=folder.stream(spark, 1))
        outputs: dict[str, ps.Output] = {"counts": str(tmp_path / "counts")}
        assert ps.await_end(pipeline.start(outputs, checkpoint=str(tmp_path / "checkpoint"), trigger=NOW))
        assert without_batch(spark, tmp_path / "counts") == wanted(COUNTED, s=rows)
    assert sorted(p.name for p in left.iterdir()) == ["part-00000.parquet"]


def test_a_changed_query_is_refused_in_a_pipeline_too(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    folder.add([(0, 1, 1)])
    outputs: dict[str, ps.Output] = {"counts": str(tmp_path / "counts")}

    def start(text: str) -> StreamingQuery:
        pipeline = ps.pipeline(spark, {"counts": text}, timestamps={"s": "t"}, s=folder.stream(spark, 1))
        return pipeline.start(outputs, checkpoint=str(tmp_path / "checkpoint"), trigger=NOW)

    assert ps.await_end(start(COUNTED))
    folder.add([(1, 1, 1)])
    with pytest.raises(CheckpointError) as caught:
        start(COUNTED.replace("ROWS 5", "ROWS 6"))
    assert str(caught.value) == (
        f"{tmp_path}/checkpoint: this checkpoint is that of another query: `counts` was {COUNTED}; "
        "use another checkpoint location for the changed query, or run the query that it belongs to"
    )


def test_types_in_folders_are_those_of_the_answers(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    spark.sql("""
        SELECT TIMESTAMP'2024-05-01 10:00:00' AS at, INTERVAL '1' HOUR AS gap, CAST(1.25 AS DECIMAL(5, 2)) AS d
    """).write.parquet(str(source))
    stream = spark.readStream.schema(spark.read.parquet(str(source)).schema).parquet(str(source))
    pipeline = ps.pipeline(spark, {"q": "SELECT at, gap, d FROM s"}, s=stream)
    outputs: dict[str, ps.Output] = {"q": str(tmp_path / "q")}
    assert ps.await_end(pipeline.start(outputs, checkpoint=str(tmp_path / "checkpoint"), trigger=NOW))
    found = spark.read.parquet(str(tmp_path / "q")).drop("batch")
    assert found.schema == pipeline["q"].schema
    row = found.collect()[0]
    assert (row.at, row.gap, str(row.d)) == (datetime(2024, 5, 1, 10), timedelta(hours=1), "1.25")


def test_a_folder_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    folder.add([(1, 1, 1)])
    (tmp_path / "counts").write_text("a file where a folder should be")
    pipeline = ps.pipeline(spark, {"counts": COUNTED}, timestamps={"s": "t"}, s=folder.stream(spark, 1))
    for mended in (False, True):
        outputs: dict[str, ps.Output] = {"counts": str(tmp_path / "counts")}
        query = pipeline.start(outputs, checkpoint=str(tmp_path / "checkpoint"), trigger=NOW)
        if mended:
            assert ps.await_end(query)
            continue
        with pytest.raises(EngineError, match=r"^micro-batch 0 could not write its answers: .*/counts.*goes on where"):
            ps.await_end(query)
        (tmp_path / "counts").unlink()
    assert without_batch(spark, tmp_path / "counts") == wanted(COUNTED, s=[(1, 1, 1)])


def test_late_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in ([(10, 1, 1)], [(9, 1, 2), (12, 2, 3)]):
        folder.add(part)
    out = ps.sql(spark, "SELECT v FROM s", timestamps={"s": "t"}, s=folder.stream(spark, 1))
    query = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).trigger(**NOW).start()
    assert ps.await_end(query)
    assert [(m.rows, m.late, m.answers) for m in ps.metrics(query)] == [({"s": 1}, 0, 1), ({"s": 2}, 1, 1)]


def test_what_cannot_be_started(spark: SparkSession) -> None:
    static = ps.pipeline(spark, {"q": "SELECT v FROM s"}, s=spark.sql("SELECT 1L AS ts, 2 AS v"))
    with pytest.raises(EngineError, match=r"the DataFrames of this pipeline are static.*; read `answers`, or"):
        static.start({"q": "/x"}, checkpoint="/y")
    rate = spark.readStream.format("rate").load()
    pipeline = ps.pipeline(spark, {"q": "SELECT value AS batch FROM s", "p": "SELECT value FROM s"}, s=rate)

    def said(outputs: dict[str, ps.Output]) -> str:
        with pytest.raises(InputError) as caught:
            pipeline.start(outputs, checkpoint="/y")
        return str(caught.value)

    assert said({}) == "a pipeline needs at least one output; there are 'q', 'p'"
    assert said({"r": "/x"}) == "no query `r`; there are q, p"
    assert said({"q": "/x"}) == (
        "query `q` has a column `batch`, which is the name of the folders of micro-batches; rename it with AS"
    )
    assert said({"p": 7}) == "the output of query `p` is 7; give a folder or a function"  # type: ignore[dict-item]
    two = ps.pipeline(spark, {"q": "SELECT value AS v FROM s", "p": "SELECT value FROM s"}, s=rate)
    with pytest.raises(InputError, match="two queries have the folder '/x'; give each its own"):
        two.start({"q": "/x", "p": "/x/"}, checkpoint="/y")
