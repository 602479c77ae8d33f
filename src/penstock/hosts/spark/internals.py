"""What Spark does not offer to the public and Penstock needs all the same: in this module alone, and in ``daemon``,
which Spark starts by its name. ``scripts/house.py`` finds what is elsewhere.

Each function says which releases it was tried with through its test (tests/spark/test_internals.py), which says what
broke. Nothing here gives an object of Java away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.dataframe import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DataType, StructType

from penstock.model.errors import EngineError


def in_arrow(dtype: DataType) -> pa.DataType:
    """A type of Spark as Arrow has it. PySpark raises an error of its own for each type that Arrow does not have."""
    return to_arrow_type(dtype, timezone="UTC")


def in_spark(schema: pa.Schema) -> StructType:
    """A schema of Arrow as Spark has it."""
    return from_arrow_schema(schema)


def in_new_java(conf: SparkConf, options: Mapping[str, Any]) -> SparkContext:
    """A context in a Java process that is started for it. ``options``: of that process, as ``subprocess`` has them."""
    return SparkContext(conf=conf, gateway=launch_gateway(conf, dict(options)))  # type: ignore[no-untyped-call]


def active_context() -> SparkContext | None:
    """The running Spark of this process."""
    return SparkContext._active_spark_context


def has_gateway() -> bool:
    """Whether a Java process has been started."""
    return SparkContext._gateway is not None


def java_is_gone() -> bool:
    """Whether the Java process that this process has started has ended."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        # ``poll`` says nothing while another thread is in it.
        ended = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        ended = False
    return ended or process.poll() is not None


def is_unreachable(error: Exception) -> bool:
    """Whether an error says that the Java process does not answer."""
    return isinstance(error, ConnectionError | EOFError | Py4JNetworkError)


def forget_java() -> None:
    """Let the next session start another Java process."""
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def is_over(spark: SparkSession) -> bool:
    """Whether the context of a session has been stopped, by a program or by Java itself."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:  # Python has stopped it, or Java does not answer
        return True


def check_classic(spark: object) -> None:
    """Refuse a session that talks to a server of Spark Connect: of what is here nothing can be asked there."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise EngineError(
            "this is a session of Spark Connect, on which Penstock cannot work",
            hint="start a classic session: without remote(…), SPARK_REMOTE and spark.api.mode=connect; engine='local' "
            "needs no Spark",
        )


def is_classic(spark: object) -> bool:
    """Whether something is a session that talks to a Java process of this machine."""
    return hasattr(spark, "_jsparkSession")


def number_of(spark: SparkSession) -> int:
    """What tells a session from the others of its context, however often Python has made an object of it."""
    return int(spark._jsparkSession.hashCode())


def executors(context: SparkContext) -> int:
    """How many executors have come."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # one is the driver's


def pool_weight(context: SparkContext, name: str) -> int:
    """The weight of a pool of the scheduler; 1, which is Spark's own, if there is none of this name."""
    found = context._jsc.sc().getPoolForName(name)
    return int(found.get().weight()) if found.isDefined() else 1


class FrameOf(ClassicFrame):
    """What is made here is the DataFrame that is given, of a class of its own."""

    def __init__(self, frame: DataFrame) -> None:
        super().__init__(frame._jdf, frame.sparkSession)


class QueryOf(StreamingQuery):
    """What is made here is the streaming query that is given, of a class of its own."""

    def __init__(self, query: StreamingQuery) -> None:
        super().__init__(query._jsq)


class Starts(StreamingQueryListener):
    """A listener that is told of queries that start, and of nothing else.

    PySpark's own fetches all that an event says from Java, value by value: for a small micro-batch that is more work
    than the micro-batch.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark

    def onQueryProgress(self, event: object) -> None:
        pass

    def onQueryTerminated(self, event: object) -> None:
        pass

    @cached_property
    def _jlistener(self) -> Any:
        jvm: Any = self.session._jvm
        return jvm.PythonStreamingQueryListenerWrapper(_Unread(self))


class _Unread(JStreamingQueryListener):
    def onQueryProgress(self, jevent: object) -> None:
        pass

    def onQueryIdle(self, jevent: object) -> None:
        pass

    def onQueryTerminated(self, jevent: object) -> None:
        pass


def checkpoint_root(query: StreamingQuery) -> str:
    """Where a streaming query keeps its checkpoint."""
    return str(query._jsq.streamingQuery().resolvedCheckpointRoot())


def _plan(of: DataFrame | StreamingQuery) -> Any:
    """What a DataFrame or a streaming query is, before it is optimized."""
    if isinstance(of, DataFrame):
        return of._jdf.queryExecution().analyzed()
    return of._jsq.streamingQuery().analyzedPlan()


def mapped_in_arrow(of: DataFrame | StreamingQuery) -> list[str]:
    """The names by which Spark knows what each ``mapInArrow`` in a plan gives, the last one first."""
    found: list[str] = []
    nodes = [_plan(of)]
    while nodes:
        node = nodes.pop()
        if node.getClass().getSimpleName() == "MapInArrow":
            found.append(node.output().head().exprId().toString())
        children = node.children()
        nodes += (children.apply(i) for i in range(children.size()))
    return found


_CONSTANT = frozenset({"LocalRelation", "OneRowRelation", "Range"})


def files_of(frame: DataFrame) -> str | None:
    """The files that a static DataFrame reads, with their lengths and times, as they are now.

    Spark lists the files of a folder when a DataFrame is made: from now on this one sees those that are there now. None
    where it reads something else than files.
    """
    leaves = _plan(frame).collectLeaves()
    found: list[str] = []
    for leaf in map(leaves.apply, range(leaves.size())):
        kind = leaf.getClass().getSimpleName()
        if kind == "LogicalRelation" and leaf.relation().getClass().getSimpleName() == "HadoopFsRelation":
            index = leaf.relation().location()
            if index.getClass().getSimpleName() != "InMemoryFileIndex":
                return None
            index.refresh()
            found.append(index.allFiles().mkString("\n"))
        elif kind not in _CONSTANT:
            return None
    return "\n\n".join(found) if found else None


def new_files_of(frame: DataFrame) -> tuple[str, dict[str, str]] | None:
    """The format and the options of a streaming DataFrame that is the new files of a folder without partitions, and
    nothing else; the names of the options in lower case. None if it is anything else."""
    plan = _plan(frame)
    if plan.getClass().getSimpleName() != "StreamingRelation":
        return None
    source = plan.dataSource()
    if source.partitionColumns().size():
        return None
    jvm: Any = frame.sparkSession._jvm
    options = dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(source.options()))
    return str(source.className()), {str(name).lower(): str(value) for name, value in options.items()}


@contextmanager
def between_micro_batches(query: StreamingQuery) -> Iterator[None]:
    """Meanwhile Spark begins no micro-batch of a streaming query, and commits none."""
    lock = query._jsq.streamingQuery().awaitProgressLock()
    lock.lock()
    try:
        yield
    finally:
        lock.unlock()


def plan_empty(query: StreamingQuery, last: int) -> None:
    """Plan, for a query that has ended with micro-batch ``last``, one without rows for its next start."""
    log = query._jsq.streamingQuery().offsetLog()
    log.add(last + 1, log.get(last).get())


_EXCLUDED = "spark.sql.optimizer.excludedRules"
_guard = threading.Lock()
_excluding: dict[int, tuple[int, str | None]] = {}
"""By session: how many queries are being started, and what was excluded before."""


@contextmanager
def not_left_out(spark: SparkSession) -> Iterator[None]:
    """Queries that are started meanwhile have tasks also for micro-batches without rows: they run with a copy of the
    session as it is when they start."""
    rule = "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
    with _guard:
        count, before = _excluding.get(id(spark), (0, None))
        if not count:
            before = spark.conf.get(_EXCLUDED, None)
            spark.conf.set(_EXCLUDED, f"{before},{rule}" if before else rule)
        _excluding[id(spark)] = count + 1, before
    try:
        yield
    finally:
        with _guard:
            count, before = _excluding.pop(id(spark))
            if count > 1:
                _excluding[id(spark)] = count - 1, before
            elif before is None:
                spark.conf.unset(_EXCLUDED)
            else:
                spark.conf.set(_EXCLUDED, before)
