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

from pyspark.sql import DataFrame, SparkSession

import penstock.spark as ps
from benchmarks.compare import plain_spark
from benchmarks.compare.jobs import JOIN, Tables, join_answers, join_tables
from benchmarks.support.files import write
from benchmarks.support.on_spark import Made, median_ms, session, stream, warm_up, warmed
from benchmarks.support.report import Report, amount, options

KEYS = 100_000
GAP = 100
"""Microseconds between two rows of a stream."""
SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, v BIGINT"


def write_both(folder: Path, streams: Tables, files: int) -> Path:
    for name, table in streams.items():
        write(folder / name, table, files)
    return folder


def sides(spark: SparkSession, folder: Path, shards: int | None) -> dict[str, Made]:
    def both() -> tuple[DataFrame, DataFrame]:
        return stream(spark, folder / "r", SCHEMA), stream(spark, folder / "s", SCHEMA)

    def ours() -> DataFrame:
        r, s = both()
        return ps.sql(spark, JOIN, shards=shards, r=r, s=s)

    return {"ours": ours, "spark": lambda: plain_spark.join(*both())}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batches", type=int)
    parser.add_argument("--shards", type=int)
    args = parser.parse_args()
    rows = args.rows or amount(args, 2_000_000, 100_000)
    batches = args.batches or (2 if args.quick else 10)
    report = Report("spark_join")
    streams = join_tables(rows, KEYS, GAP)
    spark, few = session(), warm_up(args)
    with tempfile.TemporaryDirectory() as folder:
        warm = sides(spark, write_both(Path(folder, "warm"), join_tables(2_000 * few, KEYS, GAP), few), args.shards)
        data = sides(spark, write_both(Path(folder, "data"), streams, batches), args.shards)
        # Ours before and after, so that what else the machine does shows.
        before, theirs, after = (warmed(warm[name], data[name], name) for name in ("ours", "spark", "ours"))
    exact = join_answers(streams).answers
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
