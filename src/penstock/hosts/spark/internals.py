"""What Spark does not offer to the public and Penstock needs all the same: in this module alone.

Each function says which releases it was tried with through its test (tests/spark/test_internals.py), which says what
broke.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


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


def is_classic(spark: object) -> bool:
    """Whether a session talks to a Java process of this machine, and not to a server of Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def java_session(spark: SparkSession) -> Any:
    """The session, in Java."""
    return spark._jsparkSession


def jvm(spark: SparkSession) -> Any:
    """Where classes of Java are found."""
    return spark._jvm


def java_frame(frame: DataFrame) -> Any:
    """A DataFrame, in Java."""
    return frame._jdf


def scala_context(context: SparkContext) -> Any:
    """The context as Scala has it: pools, job groups."""
    return context._jsc.sc()


def executors(context: SparkContext) -> int:
    """How many executors have come."""
    return int(scala_context(context).getExecutorMemoryStatus().size()) - 1  # one is the driver's


def checkpoint_root(query: StreamingQuery) -> str:
    """Where a streaming query keeps its checkpoint."""
    return str(query._jsq.streamingQuery().resolvedCheckpointRoot())


def java_plan(frame: DataFrame) -> Any:
    """What a DataFrame is, before it is optimized."""
    return frame._jdf.queryExecution().analyzed()


def mapped_in_arrow(plan: Any) -> list[str]:
    """The names by which Spark knows what each ``mapInArrow`` in a plan gives, the last one first."""
    found: list[str] = []
    nodes = [plan]
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
    leaves = java_plan(frame).collectLeaves()
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


@contextmanager
def between_micro_batches(query: Any) -> Iterator[None]:
    """Meanwhile Spark begins no micro-batch of a streaming query, and commits none."""
    lock = query.streamingQuery().awaitProgressLock()
    lock.lock()
    try:
        yield
    finally:
        lock.unlock()


def java_query(query: StreamingQuery) -> Any:
    """A streaming query, in Java."""
    return query._jsq


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
