"""Streaming queries that fail, and say why; and those that do not, although a worker died."""

from __future__ import annotations

import os
import re
import resource
import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock.spark as ps
from penstock.model.errors import CheckpointError, EngineError, InputError
from tests.spark.frames import Folder, multiset
from tests.spark.test_streaming import COUNTED, SCHEMA, cut, made, run, wanted, worker_pids, written

PER_KEY = "SELECT ISTREAM k, sum(v) AS total FROM s [RANGE 30] GROUP BY k"
TIMES = {"s": "t"}


def folder_of(path: Path, seed: int, files: int = 3) -> tuple[Folder, list[tuple[object, ...]]]:
    folder, rows = Folder(path / "s", SCHEMA), made(seed, 30)
    for part in cut(rows, files):
        folder.add(part)
    return folder, rows


def started(out: DataFrame, path: Path) -> StreamingQuery:
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(path / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(path / "out"))


# -- workers ------------------------------------------------------------------------------------------


def test_a_worker_that_dies_in_a_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Once in the middle of a step, with rows of it in the state; the task is tried again."""
    folder, rows = folder_of(tmp_path, 11)
    marker = tmp_path / "died"

    def dies_once(v: int) -> int:
        if v == rows[17][2] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return v

    die = {"die": (dies_once, ["BIGINT"], "BIGINT")}
    query = PER_KEY.replace("sum(v)", "sum(die(v))")
    run(ps.sql(spark, query, shards=2, timestamps=TIMES, functions=die, s=folder.stream(spark, 1)), tmp_path)
    assert marker.exists()
    assert written(spark, tmp_path) == wanted(PER_KEY, s=rows)


def test_a_worker_that_always_dies(spark: SparkSession, tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, 12)
    die = {"die": (lambda v: os.kill(os.getpid(), signal.SIGKILL), ["BIGINT"], "BIGINT")}
    out = ps.sql(spark, "SELECT die(v) AS d FROM s", timestamps=TIMES, functions=die, s=folder.stream(spark, 1))
    with pytest.raises(EngineError) as caught:
        ps.await_end(started(out, tmp_path))
    assert str(caught.value) == (
        "a Python worker died, as often as Spark lets a task fail; it may have run out of memory; "
        "start it again with the same checkpoint location: it goes on where it was"
    )


def test_a_full_disk(spark: SparkSession, tmp_path: Path) -> None:
    """The worker may write no more than some bytes to a file; when it may again, the query goes on."""
    folder, rows = folder_of(tmp_path, 13)
    full = tmp_path / "full"

    def limits(v: int) -> int:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 if full.exists() else most, most))
        return v

    limit = {"limit_": (limits, ["BIGINT"], "BIGINT")}
    query = PER_KEY.replace("sum(v)", "sum(limit_(v))")
    out = ps.sql(spark, query, shards=1, timestamps=TIMES, functions=limit, s=folder.stream(spark, 1))
    run(out, tmp_path)
    folder.add([(100, 1, 1)])
    full.touch()
    with pytest.raises(CheckpointError) as caught:
        ps.await_end(started(out, tmp_path))
    state = tmp_path / "checkpoint" / "penstock" / "shard-00000-of-00001"
    assert str(caught.value).startswith(f"{state}: micro-batch 3 could not write its state: [Errno 27] ")
    assert str(caught.value).endswith("start the query again: it goes on where it was")
    full.unlink()
    run(out, tmp_path)
    for pid in worker_pids(spark):
        os.kill(pid, signal.SIGKILL)
    assert written(spark, tmp_path) == wanted(PER_KEY, s=[*rows, (100, 1, 1)])


# -- checkpoints --------------------------------------------------------------------------------------


def test_a_checkpoint_that_does_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, 14, files=1)
    stream = folder.stream(spark, 1)
    run(ps.sql(spark, COUNTED, timestamps=TIMES, s=stream), tmp_path)
    folder.add([(100, 1, 1)])
    state = tmp_path / "checkpoint" / "penstock"

    def said(query: str, shards: int | None = None) -> str:
        with pytest.raises(CheckpointError) as caught:
            ps.await_end(started(ps.sql(spark, query, shards=shards, timestamps=TIMES, s=stream), tmp_path))
        return str(caught.value)

    # Checkpoints of earlier releases have no such file: then the state says it, when there are rows.
    (state / "job.json").unlink()
    assert said(COUNTED.replace("ROWS 5", "ROWS 6")) == (
        f"{state}/shard-00000-of-00001/manifest-000000000000.json: this is the state of another query; "
        "use another directory for the changed query, or run the query that it belongs to"
    )
    assert said(PER_KEY, shards=3) == (
        f"{state}: the query was started with 1 shards, now it has 3; say shards=1, or use another checkpoint location"
    )
    piece = min(state.glob("shard-*/pieces/*"))
    piece.write_bytes(b"x" * piece.stat().st_size)
    assert said(COUNTED) == (
        f"{piece}: damaged, its checksum is not what was written; "
        "load an earlier version, or start again in an empty directory"
    )
    piece.unlink()
    assert said(COUNTED) == (
        f"{piece}: a piece of the saved state is missing; load an earlier version, or start again in an empty directory"
    )
    (state / "shard-00000-of-00001" / "manifest-000000000000.json").unlink()
    assert said(COUNTED) == (
        f"{state}/shard-00000-of-00001: there is no state of micro-batch 0; the checkpoint is that of another query, "
        "or files are lost, or a function of foreachBatch did not read all answers: use another checkpoint location"
    )


def test_a_query_that_has_changed_is_refused_before_there_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, 18, files=1)
    stream = folder.stream(spark, 1)
    views = "CREATE VIEW few AS SELECT * FROM s WHERE v > {}"
    run(ps.sql(spark, PER_KEY, shards=2, slack=1, timestamps=TIMES, declare=views.format(1), s=stream), tmp_path)

    def said(query: str = PER_KEY, slack: int = 1, shards: int = 2, idle: int | None = None) -> str:
        out = ps.sql(spark, query, shards=shards, slack=slack, idle=idle, timestamps=TIMES, s=stream)
        before = {query.id for query in spark.streams.active}  # of other tests
        with pytest.raises(CheckpointError) as caught:
            started(out, tmp_path)
        assert {query.id for query in spark.streams.active} <= before
        text = str(caught.value).removeprefix(f"{tmp_path}/checkpoint: this checkpoint is that of another query: ")
        hint = "; use another checkpoint location for the changed query, or run the query that it belongs to"
        assert text.endswith(hint)
        return text.removesuffix(hint)

    assert said(PER_KEY.replace("30", "40")) == f"`query` was {PER_KEY}"
    assert said(slack=3) == "the slack of `s` was 1 and is 3"
    assert said(shards=3, idle=9) == "shards was 2 and is 3; idle was None and is 9"
    # What Spark makes of the answers does not matter, nor how the query is written.
    same = ps.sql(spark, f" {PER_KEY.lower()} ", shards=2, slack=1, timestamps=TIMES, s=stream).where("total > 0")
    run(same, tmp_path)
    changed = ps.sql(spark, PER_KEY.replace("30", "40"), shards=2, slack=1, timestamps=TIMES, s=stream)
    with pytest.raises(CheckpointError, match=r"`query` was SELECT"):
        started(changed.where("total > 0"), tmp_path)


def test_queries_of_a_pipeline_that_have_changed(spark: SparkSession, tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, 19, files=1)

    def run_with(**queries: str) -> None:
        pipeline = ps.pipeline(spark, queries, timestamps=TIMES, s=folder.stream(spark, 1))
        outputs = {name: str(tmp_path / name) for name in queries}
        ps.await_end(pipeline.start(outputs, checkpoint=str(tmp_path / "c"), trigger={"availableNow": True}))

    run_with(a=PER_KEY, b="SELECT v FROM s")
    with pytest.raises(CheckpointError, match=r": there was a query `b`; there was no query `c`; use another"):
        run_with(a=PER_KEY, c="SELECT v FROM s")


def test_a_query_may_change_until_a_micro_batch_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    folder, rows = folder_of(tmp_path, 20, files=1)
    stream = folder.stream(spark, 1)
    out = ps.sql(spark, COUNTED, timestamps=TIMES, s=stream).selectExpr("raise_error('no') AS x")
    with pytest.raises(Exception, match="no"):
        started(out, tmp_path).awaitTermination()
    run(ps.sql(spark, PER_KEY, timestamps=TIMES, s=stream), tmp_path)
    assert written(spark, tmp_path) == wanted(PER_KEY, s=rows)


def test_a_micro_batch_without_any_partition_is_one_too(spark: SparkSession, tmp_path: Path) -> None:
    folder, rows = folder_of(tmp_path, 15)
    run(ps.sql(spark, PER_KEY, timestamps=TIMES, s=folder.stream(spark, 1).where("false")), tmp_path)
    folder.add([(100, 1, 1)])
    run(ps.sql(spark, PER_KEY, timestamps=TIMES, s=folder.stream(spark, 1)), tmp_path)
    assert written(spark, tmp_path) == wanted(PER_KEY, s=[(100, 1, 1)])
    assert rows


# -- modes and mixtures -------------------------------------------------------------------------------


def test_output_modes(spark: SparkSession, tmp_path: Path) -> None:
    """Answers are rows that are never taken back (what goes is an answer too), so update is append."""
    folder, rows = folder_of(tmp_path, 16)
    out = ps.sql(spark, PER_KEY, timestamps=TIMES, s=folder.stream(spark, 1))
    with pytest.raises(AnalysisException, match="Invalid streaming output mode: complete"):
        out.writeStream.format("memory").queryName("whole").outputMode("complete").start()
    writer = out.writeStream.format("memory").queryName("updated").outputMode("update")
    assert ps.await_end(writer.trigger(availableNow=True).start())
    assert multiset(spark.table("updated")) == wanted(PER_KEY, s=rows)


def test_declared_frames(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 5L AS t, 2L AS v, 'x' AS name, named_struct('a', 1) AS deep")
    stream = spark.readStream.format("rate").load()

    def said(declare: str, query: str = "SELECT v FROM s", **frames: DataFrame) -> str:
        with pytest.raises(InputError) as caught:
            ps.sql(spark, query, declare=declare, streams=frames or {"s": rows})
        return str(caught.value)

    declare = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"
    assert multiset(ps.sql(spark, "SELECT * FROM s", declare=declare, s=rows)) == Counter([(5, "+", 5, 2)])
    assert said("CREATE STREAM s (t BIGINT, vv BIGINT) TIMESTAMP BY t") == (
        "DataFrame `s` has no column `vv`, which is declared; did you mean `v`?"
    )
    assert said("CREATE STREAM s (t BIGINT, v STRING) TIMESTAMP BY t") == (
        "column `v` of DataFrame `s` is BIGINT, and declared STRING; cast it, or declare it BIGINT"
    )
    assert said("CREATE STREAM s (t BIGINT, deep STRING) TIMESTAMP BY t") == (
        "column `deep` of DataFrame `s` is STRUCT<A:INT>, and declared STRING; to read what is in them, "
        "give s=df.selectExpr('*', 'deep.a AS deep_a').drop('deep')"
    )
    assert said("CREATE STREAM s (t BIGINT, v BIGINT)") == (
        "stream `s` has no TIMESTAMP BY: rows of a DataFrame do not say when they arrived; "
        "name the column that says when a row happened"
    )
    assert said(declare, "SELECT v FROM s, r [NOW]", s=rows, r=stream) == (
        "stream `s` is a static DataFrame, and others are streaming; "
        "read it with readStream, or declare it with CREATE RELATION"
    )
    assert said("CREATE RELATION r (value BIGINT)", "SELECT value FROM r", r=stream) == (
        "relation `r` is a streaming DataFrame; declare it with CREATE STREAM"
    )
    with pytest.raises(InputError, match="`s` is given as a relation and declared as a stream"):
        ps.sql(spark, "SELECT v FROM s", declare=declare, relations={"s": rows})


def test_a_declared_slack_is_used(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    for part in ([(10, 1, 1), (14, 1, 2)], [(12, 1, 3), (20, 1, 5)]):
        folder.add(part)
    declare = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 3"
    run(ps.sql(spark, "SELECT ISTREAM v FROM s [ROWS 1]", declare=declare, s=folder.stream(spark, 1)), tmp_path)
    assert written(spark, tmp_path) == Counter({(10, "+", 1): 1, (12, "+", 3): 1, (14, "+", 2): 1})


# -- what an error of Spark means ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "Job aborted due to stage failure: Task 0 in stage 5.0 failed 4 times, most recent failure: Lost task 0.3 "
            "in stage 5.0 (TID 23) (10.0.0.7 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the "
            "running tasks) Reason: Command exited with code 137\nDriver stacktrace:",
            EngineError,
            "executor 3 was lost, as often as Spark lets a task fail: Command exited with code 137; "
            "start it again with the same checkpoint location: it goes on where it was",
        ),
        (
            "…\n  File \"/x/worker.py\", line 3, in read\nModuleNotFoundError: No module named 'penstock'\n SQLSTATE",
            EngineError,
            "the workers do not have Penstock; ps.ship(spark) sends it to them",
        ),
        (
            "ModuleNotFoundError: No module named 'numba.core'",
            EngineError,
            "the workers lack numba; install it there: pip install numpy pyarrow pandas numba sqlglot",
        ),
        (
            "[STREAM_FAILED] …: Traceback (most recent call last):\n  File …\npenstock.errors.InputError: line 1, "
            "column 8: no; yes\n  SELECT x\n         ^\n SQLSTATE: 38000",
            InputError,
            "line 1, column 8: no; yes\n  SELECT x\n         ^",
        ),
    ],
)
def test_what_an_error_means(text: str, kind: type[Exception], said: str) -> None:
    found = ps.error(RuntimeError(text))
    assert type(found) is kind
    assert str(found) == said


def test_an_error_that_says_nothing_of_ours() -> None:
    assert ps.error(ValueError("[TABLE_OR_VIEW_NOT_FOUND] …")) is None
    mine = InputError("x")
    assert ps.error(mine) is mine


def test_a_query_that_fails_for_another_reason(spark: SparkSession, tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, 17)
    out = ps.sql(spark, PER_KEY, timestamps=TIMES, s=folder.stream(spark, 1))
    writer = out.selectExpr("raise_error('plain') AS x").writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="plain") as caught:
        ps.await_end(writer.start())
    assert re.search("StreamingQueryException", type(caught.value).__name__)
