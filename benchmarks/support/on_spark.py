"""What the benchmarks on Spark share: a session, streams of files, and running a streaming query to its end."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock.spark as ps
from benchmarks.support.places import python_path
from benchmarks.support.report import progress

WARM = 50
"""Micro-batches before anything is measured: so many Java needs to compile what runs often."""
Made = Callable[[], DataFrame]


def warm_up(arguments: argparse.Namespace) -> int:
    """So many micro-batches before anything is measured."""
    return 5 if arguments.quick else WARM


def session() -> SparkSession:
    """The session of both sides: our settings, two cores."""
    os.environ["PYTHONPATH"] = python_path()
    more = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.numRecentProgressUpdates": "100000"}
    return ps.session("local[2]", settings=more)


def stream(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    """The files of a folder as a stream, one for each micro-batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@dataclass(frozen=True)
class Run:
    """A streaming query from start to end: seconds of each micro-batch with rows, of everything, and answers."""

    each: Sequence[float]
    whole: float
    answers: int
    checksum: float = 0.0

    @property
    def busy(self) -> float:
        return sum(self.each)


def run(make: Made, what: str = "", counts: str = "true", checksum: str = "0") -> Run:
    """Run a query over all there is into a sink that only counts the answers for which ``counts`` holds and adds up
    their ``checksum``, both in SQL."""
    progress(what)
    checkpoint = tempfile.mkdtemp()
    try:
        began = time.perf_counter()
        seen = F.expr(f"count_if({counts})").alias("n"), F.expr(f"sum(IF({counts}, {checksum}, 0))").alias("sum")
        out = make().observe("answers", *seen)
        writer = out.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        whole = time.perf_counter() - began
        done = query.recentProgress
        found = [p.observedMetrics["answers"] for p in done if p.observedMetrics]
        return Run(
            [p.durationMs["triggerExecution"] / 1000 for p in done if p.numInputRows],
            whole, sum(int(f["n"] or 0) for f in found), float(sum(f["sum"] or 0 for f in found)),
        )  # fmt: skip
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def warmed(warm: Made, make: Made, what: str = "") -> Run:
    """Run a query right after the warm-up: Spark ends Python workers that were idle for a minute."""
    run(warm, f"{what}: warm-up")
    return run(make, what)


def collected(make: Made, few: Callable[[DataFrame], DataFrame] = lambda f: f) -> list[tuple[object, ...]]:
    """All answers of a query, or what ``few`` makes of those of each micro-batch; for few of them."""
    rows: list[tuple[object, ...]] = []
    checkpoint = tempfile.mkdtemp()
    try:
        writer = make().writeStream.foreachBatch(lambda frame, _: rows.extend(map(tuple, few(frame).collect())))
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
        return rows
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def median_ms(seconds: Sequence[float]) -> float:
    return 1000 * statistics.median(seconds)
