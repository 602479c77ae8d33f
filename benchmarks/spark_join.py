"""A window equi-join of two streams on Spark: ours against Spark's own stream-stream join.

    python -m benchmarks.spark_join [--rows N] [--batches N] [--shards N] [--only ours|spark]

Two streams of ``--rows`` rows, 10,000 in a second of event time, 100,000 keys; pairs less than 10 seconds apart. Both
sides read the same Parquet files, one of each stream in a micro-batch, in the same session (local[2]), after a warm-up
of 50 small micro-batches each, and must give the same number of rows.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock.spark as ps

KEYS = 100_000
GAP = 100
"""Microseconds between two rows of a stream."""
QUERY = """
SELECT ISTREAM r.k, r.v AS x, s.v AS y FROM r [RANGE 10 SECONDS] JOIN s [RANGE 10 SECONDS] ON r.k = s.k
"""
SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, v DOUBLE"
Side = Callable[[SparkSession, DataFrame, DataFrame], DataFrame]


def write(folder: Path, rows: int, files: int) -> None:
    """The files of both streams; a last row of no key lets time pass for all others."""
    random = np.random.default_rng(1)
    for name, late in (("r", 0), ("s", 50)):
        (folder / name).mkdir(parents=True)
        ts = np.arange(rows, dtype=np.int64) * GAP + late
        keys = random.integers(0, KEYS, rows)
        values = random.random(rows)
        ts[-1] += 1_000
        keys[-1] = -1 - late
        table = pa.table({"ts": pa.array(ts).view(pa.timestamp("us")), "k": keys, "v": values})
        size = -(-rows // files)
        for i in range(files):
            pq.write_table(table.slice(i * size, size), folder / name / f"{i:05d}.parquet")
            time.sleep(0.002)  # Spark takes files in the order of their age.


def ours(shards: int | None) -> Side:
    def join(spark: SparkSession, r: DataFrame, s: DataFrame) -> DataFrame:
        return ps.sql(spark, QUERY, shards=shards, r=r, s=s)

    return join


def sparks(spark: SparkSession, r: DataFrame, s: DataFrame) -> DataFrame:
    ten = F.expr("INTERVAL 10 SECONDS")
    r = r.selectExpr("CAST(ts AS TIMESTAMP) AS rt", "k", "v AS x").withWatermark("rt", "10 seconds")
    s = s.selectExpr("CAST(ts AS TIMESTAMP) AS st", "k AS k2", "v AS y").withWatermark("st", "10 seconds")
    near = (F.col("st") > F.col("rt") - ten) & (F.col("st") < F.col("rt") + ten)
    return r.join(s, (F.col("k") == F.col("k2")) & near).select("k", "x", "y")


def run(spark: SparkSession, side: Side, data: Path) -> tuple[list[float], float, int]:
    """Seconds of each micro-batch, of all of them, and how many rows came out."""
    streams = [spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(data / n)) for n in "rs"]
    out = side(spark, *streams).observe("answers", F.count(F.lit(1)).alias("n"))
    checkpoint = tempfile.mkdtemp()
    try:
        writer = out.writeStream.format("noop").option("checkpointLocation", checkpoint)
        began = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        whole = time.perf_counter() - began
        done = [p for p in query.recentProgress if p.numInputRows]
        answers = sum(int(p.observedMetrics["answers"]["n"]) for p in query.recentProgress if p.observedMetrics)
        return [p.batchDuration / 1000 for p in done], whole, answers
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--shards", type=int)
    parser.add_argument("--only", choices=["ours", "spark"])
    args = parser.parse_args()
    spark = ps.session(
        "local[2]",
        settings={"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.numRecentProgressUpdates": "1000"},
    )
    sides: dict[str, Side] = {"ours": ours(args.shards), "spark": sparks}
    found: dict[str, list[tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "warm"), 100_000, 50)
        write(Path(folder, "data"), args.rows, args.batches)
        names = [name for name in sides if args.only in (None, name)]
        for name in names:
            warm, _, _ = run(spark, sides[name], Path(folder, "warm"))
            print(f"{name}: warm, the last small micro-batches take {statistics.median(warm[-10:]):.3f} s")
        # Ours before and after, so that what else the machine does shows.
        for name in [*names, *names[:1]]:
            each, whole, answers = run(spark, sides[name], Path(folder, "data"))
            found.setdefault(name, []).append((sum(each), answers))
            print(
                f"{name}: {answers} answers, {sum(each):.1f} s in micro-batches, "
                f"median {statistics.median(each):.3f} s, {whole:.1f} s in all, "
                f"{2 * args.rows / sum(each) / 1000:.0f}k rows/s"
            )
    if len(found) == 2:
        same = len({answers for runs in found.values() for _, answers in runs}) == 1
        mean = {name: statistics.mean(seconds for seconds, _ in runs) for name, runs in found.items()}
        print(f"ratio: {mean['spark'] / mean['ours']:.1f}, {'the same answers' if same else 'OTHER ANSWERS'}")
    spark.stop()


if __name__ == "__main__":
    main()
