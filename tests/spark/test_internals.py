"""What Penstock needs of Spark and Spark does not offer to the public: each test says what broke in another release."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

import penstock
from penstock.hosts.options import SparkOptions
from penstock.hosts.spark import internals, session
from penstock.hosts.spark.parts import cluster
from penstock.hosts.spark.parts.source import PartReader
from penstock.hosts.spark.parts.task import Task, Trouble
from penstock.hosts.spark.parts.working import RELEASE, done, told
from tests.conftest import ON_CLUSTER


@pytest.mark.skipif(ON_CLUSTER, reason="workers of a standalone cluster are forked from Spark's own daemon")
def test_workers_are_forked_from_a_daemon_that_has_the_operators(spark: SparkSession) -> None:
    def parent(_: int) -> tuple[str, bool]:
        daemon = Path(f"/proc/{os.getppid()}")
        return (daemon / "cmdline").read_text(), "libarrow" in (daemon / "maps").read_text()

    ((command, has_imported),) = spark.sparkContext.parallelize([0], 1).map(parent).collect()
    assert session.LOCAL_SETTINGS["spark.python.daemon.module"] in command.split("\0")
    assert has_imported


def test_workers_draw_numbers_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """Also those that are forked from one daemon."""
    def drawn(task: int) -> float:
        import numpy as np

        found = float(np.random.rand())
        (tmp_path / str(task)).touch()
        until = time.monotonic() + 60
        while len(os.listdir(tmp_path)) < 2:  # so that each task has a worker
            assert time.monotonic() < until
            time.sleep(0.01)
        return found

    assert len(set(spark.sparkContext.parallelize([0, 1], 2).map(drawn).collect())) == 2


def test_java_is_known(spark: SparkSession) -> None:
    assert internals.active_context() is spark.sparkContext
    assert internals.has_gateway()
    assert internals.is_classic(spark)
    assert not internals.java_is_gone()
    assert internals.java_session(spark).sessionUUID()
    assert internals.jvm(spark).java.lang.System.getProperty("java.version")
    assert internals.scala_context(spark.sparkContext).appName() == "penstock"
    assert internals.java_frame(spark.range(1)).count() == 1
    assert internals.executors(spark.sparkContext) == (2 if ON_CLUSTER else 0)


def test_java_that_does_not_answer_is_known(spark: SparkSession) -> None:
    assert internals.is_unreachable(ConnectionRefusedError())
    with pytest.raises(TypeError, match="not callable") as caught:
        internals.jvm(spark).not_there()
    assert not internals.is_unreachable(caught.value)


def test_java_is_started_anew_after_its_end() -> None:
    """In a process of its own: the others need theirs."""
    text = """
        from penstock.hosts.spark import internals
        from penstock.hosts.spark.session import session

        first = session("local[1]")
        from pyspark import SparkContext
        SparkContext._gateway.proc.kill()
        SparkContext._gateway.proc.wait()
        assert internals.java_is_gone()
        internals.forget_java()
        assert internals.active_context() is None and not internals.has_gateway()
        print(session("local[1]").range(3).count())
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=False)
    assert run.stdout.strip().endswith("3"), run.stderr[-2000:]


def test_sources_say_how_much_a_micro_batch_takes() -> None:
    """Since Spark 4.2 a streaming source in Python is asked with a limit, and says which it wants."""
    assert hasattr(DataSourceStreamReader, "getDefaultReadLimit")
    assert PartReader("nowhere", 0, "{}").getDefaultReadLimit() == ReadAllAvailable()
    assert SparkContext._gateway is None or hasattr(SparkContext._gateway, "proc")


def test_an_older_spark_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.3")
    with pytest.raises(penstock.EngineError, match=r"this is Spark 4\.1\.3, and connect\(\) needs 4\.2 or later"):
        penstock.connect(tmp_path, engine="spark")
    monkeypatch.setattr(pyspark, "__version__", "5.0.0.dev1")
    session.check_release()


def test_executors_of_a_cluster_are_awaited_as_long_as_more_come(monkeypatch: pytest.MonkeyPatch) -> None:
    come, now = [0, 0, 1, 1, 3], [0.0]
    monkeypatch.setattr(session, "executors", lambda context: come.pop(0) if len(come) > 1 else come[0])
    monkeypatch.setattr("penstock.hosts.spark.session.time.monotonic", lambda: now[0])
    monkeypatch.setattr("penstock.hosts.spark.session.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    session.await_executors(None)  # type: ignore[arg-type]
    assert come == [3]
    come[:], now[0] = [0], 0.0
    session.await_executors(None)  # type: ignore[arg-type]
    assert now[0] >= 15, "it goes on without, and Spark says what is wrong"


def test_spark_that_did_not_start_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may have been short when Java had died."""
    attempts = count(1)

    def started(*args: object, **settings: object) -> str:
        if next(attempts) == 1:
            raise OSError("no memory")
        return "a session"

    for name, stand_in in (("session", started), ("is_classic", bool), ("java_is_gone", lambda: False)):
        monkeypatch.setattr(cluster, name, stand_in)
    found = cluster.Cluster(SparkOptions())
    with pytest.raises(penstock.EngineError, match="Spark did not start: no memory"):
        found.session()
    assert [str(found.session()) for _ in range(2)] == ["a session"] * 2
    assert next(attempts) == 3


def test_workers_of_another_release_are_refused_by_name() -> None:
    task = Task("nowhere", 0, 1, 2, 3, None, "program", {})
    found = done(told(task, "Penstock 9.9 with numba 9.9"))
    assert isinstance(found, Trouble)
    assert (found.slot, found.version, found.failure.kind) == (1, 3, "EngineError")
    assert found.failure.message == f"a worker has {RELEASE}, and the database Penstock 9.9 with numba 9.9"
    same = done(told(replace(task, root="/nowhere")))
    assert isinstance(same, Trouble)
    assert "does not see the query" in same.failure.message


def test_the_reader_imports_nothing_large() -> None:
    """It runs in a process of its own for each part."""
    large = "{'numpy', 'pyarrow', 'numba', 'pandas'}"
    text = f"import sys, penstock.hosts.spark.parts.source; print(*{large} & {{*sys.modules}})"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_the_answers_of_a_job_are_found_in_plans(spark: SparkSession) -> None:
    """Whatever has been made of them."""
    one, other = (spark.range(1).mapInArrow(lambda batches: batches, "id BIGINT") for _ in range(2))
    (name,) = internals.mapped_in_arrow(internals.java_plan(one))
    both = one.groupBy("id").count().union(other.selectExpr("id", "1L"))
    found = internals.mapped_in_arrow(internals.java_plan(both))
    assert set(found) == {name, *internals.mapped_in_arrow(internals.java_plan(other))}
    assert len(found) == 2


def test_the_files_of_a_table_are_those_that_are_there_now(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    spark.range(3).write.parquet(folder)
    table = spark.read.parquet(folder).where("id > 0")
    before = internals.files_of(table)
    assert before is not None
    assert before == internals.files_of(table)
    spark.range(3).write.mode("append").parquet(folder)
    after = internals.files_of(table)
    assert after is not None
    assert len(after) > len(before)
    assert table.select("id").count() == 4
    assert internals.files_of(table.join(spark.range(2), "id")) == after
    assert internals.files_of(spark.range(3)) is None
    assert internals.files_of(table.union(spark.createDataFrame([(1,)], "id BIGINT").coalesce(1))) in (None, after)


def test_no_micro_batch_begins_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rate.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    lock = query._jsq.streamingQuery().awaitProgressLock()

    def begun() -> int:
        return max((int(f.name) for f in (tmp_path / "c" / "offsets").glob("*") if f.name.isdigit()), default=-1)

    try:
        last = 0
        for _ in range(5):
            while begun() <= last:
                assert query.isActive
            with internals.between_micro_batches(query._jsq):
                last = begun()
                while not lock.hasQueuedThreads():
                    assert query.isActive
                assert begun() == last, "it waits before it ends that micro-batch or begins another"
    finally:
        query.stop()


def test_a_micro_batch_without_rows_is_planned_and_has_tasks(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    spark.range(3).write.mode("append").parquet(str(tmp_path / "s"))
    stream = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "s"))

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [sum(b.num_rows for b in batches)]})

    writer = stream.coalesce(1).mapInArrow(counted, "n BIGINT").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    internals.plan_empty(query, 0)
    excluded = spark.conf.get(internals._EXCLUDED, None)
    with internals.not_left_out(spark), internals.not_left_out(spark):
        query = writer.trigger(once=True).start(str(tmp_path / "out"))
    assert spark.conf.get(internals._EXCLUDED, None) == excluded
    query.awaitTermination()
    assert sorted(row.n for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [0, 3]
