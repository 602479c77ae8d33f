"""Small micro-batches: a stateful query of ours against a stateless one of Spark on the same source.

    python -m benchmarks.spark_small [--quick] [--scale X] [--rows N] [--batches N] [--rounds N]

Micro-batches of ``--rows`` rows from Parquet files, in one session (local[2]): a sliding aggregate for each key against
a filter of Spark over the same files, and a window join of two streams against a filter of Spark over both. After 50
micro-batches each, all take turns; the ratio is that of the medians of all micro-batches but the first of each turn.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

import penstock.spark as ps
from benchmarks.support.files import write
from benchmarks.support.on_spark import Made, run, session, stream, warm_up
from benchmarks.support.report import Report, amount, options

SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, v DOUBLE"
SLIDING = "SELECT ISTREAM k, count(*) AS n, avg(v) AS m FROM r [RANGE 10 SECONDS] GROUP BY k"
JOIN = "SELECT ISTREAM r.k, r.v AS x, s.v AS y FROM r [RANGE 10 SECONDS] JOIN s [RANGE 10 SECONDS] ON r.k = s.k"
KEYS = 10_000
_FIRST = 5
"""Micro-batches of a turn that are left out: a query that has just started plans and opens files."""


def table(rows: int, shift: int) -> pa.Table:
    random = np.random.default_rng(shift)
    ts = pa.array(np.arange(rows) * 1_000 + shift).view(pa.timestamp("us"))
    return pa.table({"ts": ts, "k": random.integers(0, KEYS, rows), "v": random.random(rows)})


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--batches", type=int, help="in a turn")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    each = args.batches or (12 if args.quick else 40)
    rounds = args.rounds or amount(args, 4, 1)
    report = Report("spark_small")
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        batches = max(each, warm_up(args))
        for name, shift in (("r", 0), ("s", 500)):
            whole = table(args.rows * batches, shift)
            write(Path(folder, "warm", name), whole, batches)
            write(Path(folder, "turn", name), whole.slice(0, args.rows * each), each)

        def made(which: str) -> dict[str, Made]:
            def source(name: str) -> DataFrame:
                return stream(spark, Path(folder, which, name), SCHEMA)

            def few(frame: DataFrame) -> DataFrame:
                return frame.where("v > 0.5").selectExpr("ts", "k", "v * 2 AS w")

            return {
                "stateless": lambda: few(source("r")),
                "sliding": lambda: ps.sql(spark, SLIDING, r=source("r")),
                "stateless, two sources": lambda: few(source("r").union(source("s"))),
                "join": lambda: ps.sql(spark, JOIN, r=source("r"), s=source("s")),
            }

        for name, side in made("warm").items():
            run(side, f"{name}: warm-up")
        times: dict[str, list[float]] = {}
        for turn in range(rounds):
            for name, side in made("turn").items():
                times.setdefault(name, []).extend(run(side, f"{name}: turn {turn}").each[_FIRST:])
    median = {name: 1000 * statistics.median(seconds) for name, seconds in times.items()}
    for name, value in median.items():
        report.add(f"{name}: ms for a micro-batch of {args.rows} rows", value)
    report.add("sliding aggregate: time against a stateless query of Spark", median["sliding"] / median["stateless"],
               1.5, below=True)  # fmt: skip
    report.add("join: time against a stateless query of Spark over both sources",
               median["join"] / median["stateless, two sources"], 1.5, below=True)  # fmt: skip
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
