"""Streaming queries: micro-batches, restarts and lost workers never show in what the sink gets."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
import penstock.spark as ps
from penstock.model.errors import InputError
from penstock.model.schema import Field
from penstock.model.types import BIGINT
from tests.generated.language import Row
from tests.generated.running import comparable
from tests.spark.frames import Folder, frame, multiset

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
"""
SCHEMA = tuple(Field(name, BIGINT) for name in ("t", "k", "v"))
TIMES = {"s": "t", "r": "t"}
JOIN = "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 9] a LEFT JOIN r [RANGE 7] b ON a.k = b.k"
COUNTED = "SELECT ISTREAM k, count(*) AS n, sum(v) AS total FROM s [ROWS 5] GROUP BY k"


def made(seed: int, n: int) -> list[Row]:
    chosen = random.Random(seed)
    return [(t, chosen.randrange(4), chosen.randrange(100)) for t in sorted(chosen.randrange(2 * n) for _ in range(n))]


def wanted(query: str, **streams: list[Row]) -> Counter[object]:
    """What the query gives in this process while the streams are open."""
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        q = db.query(query)
        for name, rows in streams.items():
            db.push(name, rows)
        return Counter(tuple(comparable(v) for v in row.values()) for row in q.fetch().to_pylist())


def cut(rows: list[Row], files: int) -> Iterator[list[Row]]:
    size = -(-len(rows) // files)
    yield from (rows[i : i + size] for i in range(0, len(rows), size))


def run(out: DataFrame, path: Path) -> None:
    """Everything that is there, into Parquet."""
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(path / "checkpoint"))
    assert writer.trigger(availableNow=True).start(str(path / "out")).awaitTermination(120)


def written(spark: SparkSession, path: Path) -> Counter[object]:
    return multiset(spark.read.parquet(str(path / "out")))


@pytest.mark.parametrize(("per_batch", "shards"), [(1, 2), (2, 5), (100, 1)])
def test_micro_batches_do_not_show(spark: SparkSession, tmp_path: Path, per_batch: int, shards: int) -> None:
    rows = {"s": made(1, 60), "r": made(2, 60)}
    folders = {name: Folder(tmp_path / name, SCHEMA) for name in rows}
    for name, folder in folders.items():
        for part in cut(rows[name], 4 if name == "s" else 3):
            folder.add(part)
    frames = {name: folder.stream(spark, per_batch) for name, folder in folders.items()}
    run(ps.sql(spark, JOIN, shards=shards, timestamps=TIMES, streams=frames), tmp_path)
    found = written(spark, tmp_path)
    assert found == wanted(JOIN, **rows)
    assert sum(found.values()) > 100


def test_a_restart_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = made(3, 60)
    folder = Folder(tmp_path / "s", SCHEMA)
    for i, part in enumerate(cut(rows, 6)):
        folder.add(part)
        if i % 2:
            # Every run is a query of its own; only the checkpoint tells it of the ones before.
            run(ps.sql(spark, COUNTED, timestamps={"s": "t"}, s=folder.stream(spark, 1)), tmp_path)
    assert written(spark, tmp_path) == wanted(COUNTED, s=rows)


def test_a_lost_worker_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Workers die between micro-batches of a running query; what they remembered is in the checkpoint."""
    rows = made(4, 60)
    folder = Folder(tmp_path / "s", SCHEMA)
    query = "SELECT ISTREAM k, sum(v) AS total FROM s [RANGE 30] GROUP BY k"
    out = ps.sql(spark, query, shards=2, timestamps={"s": "t"}, s=folder.stream(spark, 1))
    running = out.writeStream.format("memory").queryName("lost").start()
    try:
        for i, part in enumerate(cut(rows, 6)):
            folder.add(part)
            running.processAllAvailable()
            if i in (1, 2, 4):
                for pid in worker_pids(spark):
                    os.kill(pid, signal.SIGKILL)
    finally:
        running.stop()
    assert multiset(spark.table("lost")) == wanted(query, s=rows)


def worker_pids(spark: SparkSession) -> set[int]:
    def own(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()]})

    return {row.pid for row in spark.range(0, 4, 1, 4).mapInArrow(own, "pid BIGINT").collect()}


def test_what_follows_the_answers_is_plain_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = made(5, 30)
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in cut(rows, 3):
        folder.add(part)
    out = ps.sql(spark, COUNTED, timestamps={"s": "t"}, s=folder.stream(spark, 1))
    run(out.where("n > 1").selectExpr("k", "total * 2 AS twice"), tmp_path)
    few = Counter((r[2], r[4] * 2) for r in wanted(COUNTED, s=rows).elements() if r[3] > 1)  # type: ignore[index]
    assert written(spark, tmp_path) == few


def test_a_static_frame_beside_a_stream_is_a_relation(spark: SparkSession, tmp_path: Path) -> None:
    rows = made(6, 30)
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in cut(rows, 3):
        folder.add(part)
    names = spark.createDataFrame([(0, "zero"), (1, "one"), (1, "uno")], "k BIGINT, name STRING")
    query = "SELECT ISTREAM s.t, q.name FROM s [NOW] JOIN q ON s.k = q.k"
    run(ps.sql(spark, query, timestamps={"s": "t"}, s=folder.stream(spark, 1), q=names), tmp_path)
    called = {0: ["zero"], 1: ["one", "uno"]}
    pairs = [(t, "+", t, name) for t, k, _ in rows for name in called.get(k, ())]  # type: ignore[call-overload]
    assert written(spark, tmp_path) == Counter(pairs)


def test_slack_and_late_rows(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in ([(10, 1, 1), (14, 1, 2)], [(12, 1, 3), (9, 1, 4), (20, 1, 5)], [(16, 1, 6), (30, 1, 7)]):
        folder.add(part)
    out = ps.sql(spark, "SELECT ISTREAM v FROM s [ROWS 1]", timestamps={"s": "t"}, slack=3, s=folder.stream(spark, 1))
    run(out, tmp_path)
    assert written(spark, tmp_path) == Counter({(10, "+", 1): 1, (12, "+", 3): 1, (14, "+", 2): 1, (20, "+", 5): 1})
    late = ps.late(spark, str(tmp_path / "checkpoint"), "s")
    assert late is not None
    assert multiset(late) == Counter({(9, 4): 1, (16, 6): 1})


@pytest.mark.parametrize("shards", [1, 2])
def test_late_rows_are_said(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], shards: int
) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in ([(90, 1, 1)], [(1, 1, 2), (91, 1, 0)], [(2, 2, 3)], [(t, t, 4) for t in range(20)], [(99, 1, 5)]):
        folder.add(part)
    queries = {"sums": "SELECT ISTREAM k, sum(v) AS n FROM s [RANGE 5] GROUP BY k", "last": "SELECT v FROM s [ROWS 1]"}
    pipeline = ps.pipeline(spark, queries, shards=shards, timestamps={"s": "t"}, s=folder.stream(spark, 1))
    checkpoint = str(tmp_path / "checkpoint")
    where = f"ps.late(spark, 'file:{checkpoint}', 's') gives them, and slack=… waits for such rows"
    query = pipeline.start({"sums": str(tmp_path / "o")}, checkpoint=checkpoint, trigger={"availableNow": True})
    assert ps.await_end(query)
    said = [line for line in capfd.readouterr().err.splitlines() if "too late" in line]
    assert said[0] == f"penstock: 1 row of stream `s` came too late so far and is in no answer; {where}"
    # At ten times as many; which report of a micro-batch comes first is open.
    assert len(said) == 2
    assert int(said[1].split()[1]) in range(10, 23)
    late = ps.late(spark, f"file:{checkpoint}", "s")
    assert late is not None
    assert late.count() == 22


def test_late_rows_of_one_query_are_said(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where no pipeline starts it."""
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in ([(90, 1, 1)], [(1, 1, 2), (91, 1, 0)]):
        folder.add(part)
    out = ps.sql(spark, "SELECT v FROM s [ROWS 1]", timestamps={"s": "t"}, s=folder.stream(spark, 1))
    run(out, tmp_path)
    said = [line for line in capfd.readouterr().err.splitlines() if "too late" in line]
    assert len(said) == 1
    assert said[0].startswith("penstock: 1 row of stream `s` came too late so far and is in no answer; ps.late(spark, ")


@pytest.mark.parametrize("shards", [1, 2])
def test_rows_without_a_time_are_kept_apart(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in ([(1, 1, 1), (None, 1, 2)], [(None, 2, 3), (2**62, 1, 4)], [(9, 2, 5), (8, 2, 6)]):
        folder.add(part)
    query = "SELECT ISTREAM k, v FROM s [NOW]"
    given = {"timestamps": {"s": "t"}, "shards": shards, "s": folder.stream(spark, 1)}
    out = ps.sql(spark, query, on_error="apart", **given)  # type: ignore[arg-type]
    checkpoint = str(tmp_path / "checkpoint")
    assert ps.apart(spark, checkpoint, "s") is None
    run(out, tmp_path)
    assert {row[3] for row in written(spark, tmp_path)} == {1, 5, 6}  # type: ignore[index]
    apart = ps.apart(spark, checkpoint, "s")
    assert apart is not None
    assert sorted((row.column, row.reason, json.loads(row.row)["k"]) for row in apart.collect()) == [
        ("t", "the timestamp `t` is NULL", 1), ("t", "the timestamp `t` is NULL", 2),
        ("t", "the timestamp `t` is out of range", 1),
    ]  # fmt: skip


def test_rows_of_tables_without_a_time_are_kept_apart(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 5), (None, 6), (3, 7)], "t BIGINT, v BIGINT")
    query, declare = "SELECT ISTREAM v FROM s [ROWS 1]", "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"
    with pytest.raises(Exception, match="the timestamp `t` of 1 rows is NULL"):
        ps.sql(spark, query, declare=declare, s=frame).collect()
    out = ps.sql(spark, query, declare=f"{declare} WITH (on_error = 'apart')", s=frame)
    assert sorted(row.v for row in out.collect()) == [5, 7]
    apart = ps.apart(spark, frame, "s", timestamp="t")
    assert apart is not None
    assert [json.loads(row.row) for row in apart.collect()] == [{"t": None, "v": 6}]
    with pytest.raises(InputError, match="on_error is 'stop': rows of a DataFrame have no order to stop in"):
        ps.sql(spark, query, timestamps={"s": "t"}, on_error="stop", s=frame)
    refusing = "CREATE STREAM s (t BIGINT) TIMESTAMP BY t WITH (unknown = 'refuse')"
    with pytest.raises(InputError, match="DataFrame `s` has a column `v`, which is not declared"):
        ps.sql(spark, "SELECT t FROM s", declare=refusing, s=frame)


def test_an_idle_input_does_not_hold_the_others_up(spark: SparkSession, tmp_path: Path) -> None:
    folders = {name: Folder(tmp_path / name, SCHEMA) for name in ("s", "r")}
    folders["r"].add([(1, 1, 1)])
    folders["s"].add([(1, 1, 1), (20, 1, 2), (40, 1, 3)])
    frames = {name: folder.stream(spark, 1) for name, folder in folders.items()}
    query = "SELECT ISTREAM a.v AS x, b.v AS y FROM s [ROWS 50] a JOIN r [ROWS 50] b ON a.k = b.k"
    run(ps.sql(spark, query, timestamps=TIMES, idle=10, streams=frames), tmp_path)
    assert written(spark, tmp_path) == Counter([(1, "+", 1, 1), (20, "+", 2, 1)])


def test_a_table_in_place_of_a_stream_gives_the_same_and_the_end(spark: SparkSession, tmp_path: Path) -> None:
    rows = made(9, 40)
    found = multiset(ps.sql(spark, JOIN, timestamps=TIMES, s=frame(spark, SCHEMA, rows), r=frame(spark, SCHEMA, rows)))
    assert wanted(JOIN, s=rows, r=rows) < found
