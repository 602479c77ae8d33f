"""What Spark does not offer to the public and Penstock needs all the same: in this module alone.

Each function says which releases it was tried with through its test (tests/spark/test_internals.py), which says what
broke.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def active_context() -> SparkContext | None:
    """The running Spark of this process."""
    return SparkContext._active_spark_context


def has_gateway() -> bool:
    """Whether a Java process has been started."""
    return SparkContext._gateway is not None


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


def checkpoint_root(query: StreamingQuery) -> str:
    """Where a streaming query keeps its checkpoint."""
    return str(query._jsq.streamingQuery().resolvedCheckpointRoot())
