"""A window equi-join of two streams on Spark: ours against Spark's own stream-stream join.

    python -m benchmarks.spark_join [--quick] [--scale X] [--rows N] [--batches N] [--shards N]

Two streams of ``--rows`` rows, 10,000 in a second of event time, 100,000 keys; pairs less than 10 seconds apart. Both
sides read the same Parquet files, one of each stream in a micro-batch, in the same session (local[2]), after a warm-up
of 50 small micro-batches each. Ours must give every pair, which are counted with numpy. Spark's own may differ by one
for each micro-batch: with some sizes it loses a pair.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock.spark as ps
from penstock.bench.on_spark import Made, median_ms, session, stream, warm_up, warmed, write
from penstock.bench.report import Report, amount, options

KEYS = 100_000
GAP = 100
"""Microseconds between two rows of a stream."""
QUERY = """
SELECT ISTREAM r.k, r.v AS x, s.v AS y FROM r [RANGE 10 SECONDS] JOIN s [RANGE 10 SECONDS] ON r.k = s.k
"""
SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, v DOUBLE"


def tables(rows: int) -> dict[str, pa.Table]:
    """Both streams; a last row of no key lets time pass for all others."""
    random = np.random.default_rng(1)
    found = {}
    for name, late in (("r", 0), ("s", 50)):
        ts = np.arange(rows, dtype=np.int64) * GAP + late
        keys = random.integers(0, KEYS, rows)
        ts[-1] += 1_000
        keys[-1] = -1 - late
        found[name] = pa.table({"ts": pa.array(ts).view(pa.timestamp("us")), "k": keys, "v": random.random(rows)})
    return found


def pairs(streams: dict[str, pa.Table]) -> int:
    """How many answers there are, counted once over the whole tables."""
    (r_ts, r_keys), (s_ts, s_keys) = (
        (streams[n]["ts"].combine_chunks().view(pa.int64()).to_numpy(), streams[n]["k"].to_numpy() + KEYS) for n in "rs"
    )
    # Keys are further apart than any two instants of one key.
    apart = int(max(r_ts.max(), s_ts.max())) + 100_000_000
    places = np.sort(s_keys * apart + s_ts)
    first = np.searchsorted(places, r_keys * apart + r_ts - 10_000_000, side="right")
    return int((np.searchsorted(places, r_keys * apart + r_ts + 10_000_000, side="left") - first).sum())


def write_both(folder: Path, streams: dict[str, pa.Table], files: int) -> Path:
    for name, table in streams.items():
        write(folder / name, table, files)
    return folder


def sparks(r: DataFrame, s: DataFrame) -> DataFrame:
    ten = F.expr("INTERVAL 10 SECONDS")
    r = r.selectExpr("CAST(ts AS TIMESTAMP) AS rt", "k", "v AS x").withWatermark("rt", "10 seconds")
    s = s.selectExpr("CAST(ts AS TIMESTAMP) AS st", "k AS k2", "v AS y").withWatermark("st", "10 seconds")
    near = (F.col("st") > F.col("rt") - ten) & (F.col("st") < F.col("rt") + ten)
    return r.join(s, (F.col("k") == F.col("k2")) & near).select("k", "x", "y")


def sides(spark: SparkSession, folder: Path, shards: int | None) -> dict[str, Made]:
    def both() -> tuple[DataFrame, DataFrame]:
        return stream(spark, folder / "r", SCHEMA), stream(spark, folder / "s", SCHEMA)

    def ours() -> DataFrame:
        r, s = both()
        return ps.sql(spark, QUERY, shards=shards, r=r, s=s)

    return {"ours": ours, "spark": lambda: sparks(*both())}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batches", type=int)
    parser.add_argument("--shards", type=int)
    args = parser.parse_args()
    rows = args.rows or amount(args, 2_000_000, 100_000)
    batches = args.batches or (2 if args.quick else 10)
    report = Report("spark_join")
    streams = tables(rows)
    spark, few = session(), warm_up(args)
    with tempfile.TemporaryDirectory() as folder:
        warm = sides(spark, write_both(Path(folder, "warm"), tables(2_000 * few), few), args.shards)
        data = sides(spark, write_both(Path(folder, "data"), streams, batches), args.shards)
        # Ours before and after, so that what else the machine does shows.
        before, theirs, after = (warmed(warm[name], data[name], name) for name in ("ours", "spark", "ours"))
    exact = pairs(streams)
    if before.answers != exact or after.answers != exact or abs(theirs.answers - exact) > batches:
        raise SystemExit(f"of {exact} answers ours gave {before.answers} and {after.answers}, Spark's {theirs.answers}")
    ours = statistics.mean([before.busy, after.busy])
    report.add("join: answers, all that there are", before.answers)
    report.add("join: answers that Spark's own lost", exact - theirs.answers)
    report.add("join: ours, ms for a micro-batch", statistics.mean(map(median_ms, (before.each, after.each))))
    report.add("join: Spark's own, ms for a micro-batch", median_ms(theirs.each))
    report.add("join: ours, rows/s", 2 * rows / ours)
    report.add("join: speed against Spark's own join", theirs.busy / ours, 8)
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
