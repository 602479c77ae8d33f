"""Many filters over one stream on Spark: one pipeline of ours against a streaming query of plain Spark for each.

    python -m benchmarks.spark_filters [--quick] [--scale X] [--rows N] [--batches N] [--queries N]

Every query takes one in a hundred rows of a stream of ``--rows`` rows, in ``--batches`` micro-batches. Time counts from
the first query's start to the last one's end, in one session (local[2]), after 50 small micro-batches on both sides.
Every query must give as many answers on both sides.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

import penstock.spark as ps
from benchmarks.compare import plain_spark
from benchmarks.support.files import write
from benchmarks.support.on_spark import collected, run, session, stream, warm_up, warmed
from benchmarks.support.report import Report, amount, options, progress

SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, v DOUBLE"


def condition(i: int) -> str:
    return f"k % 100 = {i % 100} AND v >= 0"


def texts(queries: int) -> dict[str, str]:
    return {f"q{i}": f"SELECT k, v FROM s WHERE {condition(i)}" for i in range(queries)}


def table(rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    ts = pa.array(np.arange(rows) * 100).view(pa.timestamp("us"))
    return pa.table({"ts": ts, "k": random.integers(0, 10_000, rows), "v": random.random(rows)})


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batches", type=int)
    parser.add_argument("--queries", type=int)
    args = parser.parse_args()
    rows = args.rows or amount(args, 1_000_000, 50_000)
    queries = args.queries or (8 if args.quick else 100)
    report = Report("spark_filters")
    spark, few = session(), warm_up(args)

    def ours(folder: Path) -> DataFrame:
        return ps.pipeline(spark, texts(queries), s=stream(spark, folder, SCHEMA)).answers

    with tempfile.TemporaryDirectory() as folder:
        warm = write(Path(folder, "warm"), table(1_000 * few), few)
        data = write(Path(folder, "data"), table(rows), args.batches or (2 if args.quick else 10))
        before = warmed(lambda: ours(warm), lambda: ours(data), "ours")
        run(lambda: stream(spark, warm, SCHEMA).where(condition(0)), "spark: warm-up")
        seconds, wanted = plain_spark.queries(spark, data, SCHEMA, [condition(i) for i in range(queries)])
        after = warmed(lambda: ours(warm), lambda: ours(data), "ours")
        progress("comparing the answers")
        found: dict[object, int] = {}
        for name, count in collected(lambda: ours(data), lambda f: f.groupBy("query").count()):
            found[name] = found.get(name, 0) + count  # type: ignore[operator]
    if found != {f"q{i}": n for i, n in enumerate(wanted) if n}:
        raise SystemExit(f"answers differ: ours {found}, Spark's {wanted}")
    mean = (before.whole + after.whole) / 2
    report.add("filters: answers, the same on both sides", before.answers)
    report.add(f"filters: ours, seconds for {queries} queries", mean)
    report.add(f"filters: Spark's own, seconds for {queries} queries", seconds)
    report.add("filters: speed against as many queries of Spark", seconds / mean, 20)
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
