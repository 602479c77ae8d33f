"""What Penstock needs of Spark and Spark does not offer to the public: each test says what broke in another release."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException, PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.listener import QueryStartedEvent
from pyspark.sql.types import ArrayType, CalendarIntervalType, TimestampType

import penstock
import penstock.spark as ps
from penstock.hosts.options import SparkOptions
from penstock.hosts.spark import internals, session, worker
from penstock.hosts.spark.parts import cluster
from penstock.hosts.spark.parts.grouping import pool, weight
from penstock.hosts.spark.parts.source import PartReader
from penstock.hosts.spark.parts.task import Task, Trouble
from penstock.hosts.spark.parts.working import done, told
from penstock.hosts.spark.worker import RELEASE
from tests.conftest import ON_CLUSTER, ROOT


@pytest.mark.skipif(ON_CLUSTER, reason="workers of a standalone cluster are forked from Spark's own daemon")
def test_workers_are_forked_from_a_daemon_that_has_the_operators(spark: SparkSession) -> None:
    def parent(_: int) -> tuple[str, bool]:
        daemon = Path(f"/proc/{os.getppid()}")
        return (daemon / "cmdline").read_text(), "libarrow" in (daemon / "maps").read_text()

    ((command, has_imported),) = spark.sparkContext.parallelize([0], 1).map(parent).collect()
    assert session.LOCAL_SETTINGS["spark.python.daemon.module"] in command.split("\0")
    assert has_imported


def test_java_looks_once_at_a_value_that_comes_from_python(spark: SparkSession) -> None:
    """Arrow in Java has these properties, whatever else a user gives Java."""
    java = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    assert java.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert java.getProperty("arrow.enable_null_check_for_get") == "false"


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
    assert internals.executors(spark.sparkContext) == (2 if ON_CLUSTER else 0)


def test_sessions_are_told_apart(spark: SparkSession) -> None:
    same = SparkSession.builder.getOrCreate()
    assert internals.number_of(same) == internals.number_of(spark)
    assert internals.number_of(spark.newSession()) != internals.number_of(spark)


def test_pools_have_weights(spark: SparkSession) -> None:
    found = [internals.pool_weight(spark.sparkContext, pool(i)) for i in range(10)]
    assert found == [weight(i) for i in range(10)]
    assert len(set(found)) == 10
    assert internals.pool_weight(spark.sparkContext, "no such pool") == 1


def test_nothing_gives_an_object_of_java_away() -> None:
    """What has no type is one: callers would ask it for more that is not public."""
    functions = [f for name, f in vars(internals).items() if inspect.isfunction(f) and not name.startswith("_")]
    own = {f.__name__: f.__annotations__["return"] for f in functions if f.__module__ == internals.__name__}
    assert {name for name, gives in own.items() if "Any" in gives} == set()
    assert len(own) > 15


def test_types_go_to_arrow_and_back() -> None:
    assert internals.in_arrow(ArrayType(TimestampType())) == pa.list_(pa.timestamp("us", "UTC"))
    with pytest.raises(PySparkTypeError, match="CalendarInterval"):
        internals.in_arrow(CalendarIntervalType())
    schema = pa.schema([("a", pa.int32()), ("b", pa.timestamp("us", "UTC"))])
    assert internals.in_spark(schema).simpleString() == "struct<a:int,b:timestamp>"


class Named(internals.FrameOf):
    """A DataFrame with something more."""

    name = "named"


def test_a_frame_and_a_query_may_be_of_a_class_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3)
    named = Named(frame.where("id > 0"))
    assert named.name == "named"
    assert named.sparkSession is frame.sparkSession
    assert named.select("id").join(frame, "id").count() == 2
    rate = spark.readStream.format("rate").load()
    query = rate.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    same = internals.QueryOf(query)
    try:
        assert (same.id, same.runId, same.isActive) == (query.id, query.runId, True)
        assert internals.checkpoint_root(same) == (tmp_path / "c").as_uri().replace("///", "/")
    finally:
        same.stop()
    assert not query.isActive


def test_a_listener_may_be_told_of_starts_only(spark: SparkSession) -> None:
    """In the thread of the query, before its first micro-batch: what it sets there, tasks have."""
    told: list[tuple[str, bool]] = []

    class Listening(internals.Starts):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            query = self.session.streams.get(str(event.id))
            assert query is not None
            told.append((str(event.runId), query.lastProgress is None))
            self.session.sparkContext.setLocalProperty("penstock.test", "set")

        def onQueryProgress(self, event: object) -> None:
            raise AssertionError("it is fetched from Java")

    listener, seen = Listening(spark), list[object]()

    def taken(frame: DataFrame, batch: int) -> None:
        seen.extend(frame.sparkSession.sparkContext.parallelize([0], 1).map(_property).collect())

    spark.streams.addListener(listener)
    try:
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        query = rate.writeStream.foreachBatch(taken).trigger(once=True).start()
        query.awaitTermination()
    finally:
        spark.streams.removeListener(listener)
    assert told == [(str(query.runId), True)]
    assert seen[0] == "set"


def _property(_: int) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("penstock.test")


def test_a_stream_of_files_says_how_it_reads(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "s")
    spark.range(3).write.parquet(folder)
    reader = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 2)
    kind, options = internals.new_files_of(reader.parquet(folder)) or ("", {})
    assert (kind, options) == ("parquet", {"path": folder, "maxfilespertrigger": "2"})
    for other in (reader.parquet(folder).where("id > 0"), spark.range(1), spark.readStream.format("rate").load()):
        assert internals.new_files_of(other) in (None, ("rate", {}))


def test_java_that_does_not_answer_is_known(spark: SparkSession) -> None:
    assert internals.is_unreachable(ConnectionRefusedError())
    with pytest.raises(TypeError, match="not callable") as caught:
        spark._jvm.not_there()  # type: ignore[union-attr]
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
    with pytest.raises(penstock.EngineError, match=r"this is Spark 4\.1\.3, and Penstock needs 4\.2 or later"):
        penstock.connect(tmp_path, engine="spark")


def test_a_spark_that_was_not_tried_is_warned_of(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = r"this is Spark 5\.0\.0\.dev1, and Penstock was tried with 4\.2 and 4\.3; .* 'pyspark>=4\.2,<4\.4'"
    monkeypatch.setattr(pyspark, "__version__", "5.0.0.dev1")
    with pytest.warns(UserWarning, match=said):
        penstock.connect(tmp_path, engine="spark").close()
    frame = spark.createDataFrame([(1, 2)], "ts BIGINT, v BIGINT")
    with pytest.warns(UserWarning, match=said):
        assert ps.sql(spark, "SELECT v FROM s", s=frame).count() == 1
    assert f'"pyspark>={min(session.TRIED)[0]}.{min(session.TRIED)[1]},<4.{max(session.TRIED)[1] + 1}"' in (
        ROOT / "pyproject.toml"
    ).read_text(), "what is installed was tried"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for major, minor in session.TRIED:
            monkeypatch.setattr(pyspark, "__version__", f"{major}.{minor}.9")
            session.check_release()


REMOTE = """
import penstock, penstock.spark as ps
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[1]").getOrCreate()
frame = spark.createDataFrame([(1, 2)], "ts BIGINT, v BIGINT")
for call in (
    lambda: penstock.connect("PATH"), lambda: ps.sql(spark, "SELECT v FROM s", s=frame),
    lambda: ps.pipeline(spark, {"q": "SELECT v FROM s"}, s=frame), lambda: ps.session(), lambda: ps.ship(spark),
):
    try:
        print("taken", call())
    except penstock.EngineError as error:
        print(error.message)
"""


def test_spark_connect_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    run = subprocess.run(
        [sys.executable, "-c", REMOTE.replace("PATH", str(tmp_path / "db"))], capture_output=True, text=True,
        check=False, env={k: v for k, v in os.environ.items() if k not in ("PENSTOCK_ENGINE", "PENSTOCK_MASTER")},
    )  # fmt: skip
    said = [line for line in run.stdout.splitlines() if line]
    assert said == ["this is a session of Spark Connect, on which Penstock cannot work"] * 5, run.stderr[-2000:]
    assert not (tmp_path / "db").exists()


def test_a_session_of_spark_connect_is_known_by_its_module(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where it cannot be tried."""
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    frame = spark.createDataFrame([(1, 2)], "ts BIGINT, v BIGINT")
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: remote))
    calls: list[Callable[[], object]] = [
        lambda: penstock.connect(tmp_path / "db", engine="spark"), lambda: ps.sql(remote, "SELECT v FROM s", s=frame),
        lambda: ps.pipeline(remote, {"q": "SELECT v FROM s"}, s=frame), session.session, lambda: ps.ship(remote),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(penstock.EngineError, match="session of Spark Connect, on which Penstock cannot work"):
            call()
    assert not (tmp_path / "db").exists()


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

    for name, stand_in in (("session", started), ("java_is_gone", lambda: False)):
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
    assert found.failure.message == f"a worker has {RELEASE}, and the driver Penstock 9.9 with numba 9.9"
    same = done(told(replace(task, root="/nowhere")))
    assert isinstance(same, Trouble)
    assert "does not see the query" in same.failure.message


@pytest.mark.parametrize("shards", [1, 2])
def test_queries_over_dataframes_are_refused_by_workers_of_another_release(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    """Also where nobody has called ``ps.ship``."""
    frame = spark.createDataFrame([(1, 2)], "ts BIGINT, v BIGINT")
    monkeypatch.setattr(worker, "RELEASE", "Penstock 9.9 with numba 9.9")
    answers = ps.sql(spark, "SELECT ISTREAM sum(v) AS n FROM s [ROWS 2]", shards=shards, s=frame)
    with pytest.raises(PySparkException) as caught:
        answers.collect()
    meant = ps.error(caught.value)
    assert isinstance(meant, penstock.EngineError)
    other = "the driver Penstock 9.9 with numba 9.9; install the same on all machines"
    assert meant.message == f"a worker has {RELEASE}, and {other}"


def test_the_reader_imports_nothing_large() -> None:
    """It runs in a process of its own for each part."""
    large = "{'numpy', 'pyarrow', 'numba', 'pandas'}"
    text = f"import sys, penstock.hosts.spark.parts.source; print(*{large} & {{*sys.modules}})"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_the_answers_of_a_job_are_found_in_plans(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever has been made of them; also in that of a streaming query."""
    one, other = (spark.range(1).mapInArrow(lambda batches: batches, "id BIGINT") for _ in range(2))
    (name,) = internals.mapped_in_arrow(one)
    both = one.groupBy("id").count().union(other.selectExpr("id", "1L"))
    found = internals.mapped_in_arrow(both)
    assert set(found) == {name, *internals.mapped_in_arrow(other)}
    assert len(found) == 2
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    some = rate.mapInArrow(lambda batches: batches, rate.schema)
    writer = some.where("value >= 0").writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(once=True).start()
    query.awaitTermination()
    assert internals.mapped_in_arrow(query) == internals.mapped_in_arrow(some)


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
            with internals.between_micro_batches(query):
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
