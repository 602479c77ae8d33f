"""The jobs in plain Spark Structured Streaming, as its guide writes them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.compare.jobs import LIMITS, WINDOW
from benchmarks.support.on_spark import stream
from benchmarks.support.report import progress

PANDAS = "Spark has no such operator: applyInPandasWithState, a Python function with a state for each key"


def filters(s: DataFrame) -> DataFrame:
    """Five conditions and a projection."""
    for name, limit in LIMITS.items():
        s = s.where(F.col(name) < limit)
    return s.selectExpr("v * 2 + 1 AS x")


def join(r: DataFrame, s: DataFrame) -> DataFrame:
    """Pairs less than ten seconds apart."""
    ten = F.expr("INTERVAL 10 SECONDS")
    r = r.selectExpr("CAST(ts AS TIMESTAMP) AS rt", "k", "v AS x").withWatermark("rt", "10 seconds")
    s = s.selectExpr("CAST(ts AS TIMESTAMP) AS st", "k AS k2", "v AS y").withWatermark("st", "10 seconds")
    near = (F.col("st") > F.col("rt") - ten) & (F.col("st") < F.col("rt") + ten)
    return r.join(s, (F.col("k") == F.col("k2")) & near).select("k", "x", "y")


def hopping(s: DataFrame) -> DataFrame:
    """Count and average by key of ten seconds, every second; told when a window has ended."""
    timed = s.selectExpr("CAST(ts AS TIMESTAMP) AS t", "k", "v")
    hops = timed.withWatermark("t", "0 seconds").groupBy(F.window("t", "10 seconds", "1 second").alias("w"), "k")
    counted = hops.agg(F.count("*").alias("n"), F.avg("v").alias("m"))
    return counted.select(F.col("w.end").alias("ts"), F.lit("+").alias("op"), "k", "n", "m")


def slide(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any, window: int) -> Iterator[pd.DataFrame]:
    """The new rows of a key; its state is the times and values that are still in the window."""
    held = np.frombuffer(state.get[0] if state.exists else b"", np.int64).reshape(2, -1)
    came = np.concatenate([frame[["t", "v"]].to_numpy() for frame in frames]).T
    before = held.shape[1]
    t, v = np.concatenate([held, came[:, np.argsort(came[0], kind="stable")]], axis=1)
    sums = np.concatenate([[0], np.cumsum(v)])
    last = np.arange(before, len(t)) + 1
    first = np.searchsorted(t, t[before:] - window, side="right")
    count = last - first
    keep = int(first[-1])
    state.update((np.stack([t[keep:], v[keep:]]).tobytes(),))
    yield pd.DataFrame({"t": t[before:], "k": key[0], "n": count, "m": (sums[last] - sums[first]) / count})


def sliding(s: DataFrame, window: int = WINDOW) -> DataFrame:
    """For every row count and average of its key's last ten seconds. Rows of a key come in order of time here."""

    def of_key(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        return slide(key, frames, state, window)

    keyed = s.selectExpr("unix_micros(CAST(ts AS TIMESTAMP)) AS t", "k", "v").groupBy("k")
    return keyed.applyInPandasWithState(
        of_key, "t BIGINT, k BIGINT, n BIGINT, m DOUBLE", "held BINARY", "append", "NoTimeout"
    )


def queries(
    spark: SparkSession, folder: Path, schema: str, conditions: Sequence[str], columns: Sequence[str] = ("k", "v")
) -> tuple[float, list[int]]:
    """Seconds until a streaming query for each condition is done, and the answers of each."""
    checkpoints = tempfile.mkdtemp()
    try:
        began = time.perf_counter()
        running = []
        for i, where in enumerate(conditions):
            out = stream(spark, folder, schema).where(where).select(*columns)
            out = out.observe("answers", F.count(F.lit(1)).alias("n"))
            writer = out.writeStream.format("noop").option("checkpointLocation", f"{checkpoints}/{i}")
            running.append(writer.trigger(availableNow=True).start())
            progress(f"spark: {i + 1} queries started")
        for query in running:
            query.awaitTermination()
        seconds = time.perf_counter() - began
        return seconds, [
            sum(int(p.observedMetrics["answers"]["n"]) for p in q.recentProgress if p.observedMetrics) for q in running
        ]
    finally:
        shutil.rmtree(checkpoints, ignore_errors=True)
