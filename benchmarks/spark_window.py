"""What a micro-batch costs when the window grows tenfold and the rows of a micro-batch stay as many.

    python -m benchmarks.spark_window [--quick] [--scale X] [--rows N] [--batches N]

A sliding aggregate by key and a window join over 1 and 10 times ``--batches`` / 20 micro-batches of ``--rows`` rows;
the larger join has ten times the keys, so that as many pairs are found. The two windows take turns in one session
(local[2]); the medians of the micro-batches after both windows are full count, at least 50 have run before.
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

SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, wide BIGINT, v DOUBLE"
KEYS = 10_000


def table(rows: int, each: int, shift: int) -> pa.Table:
    """Rows of which each micro-batch takes one second of event time."""
    random = np.random.default_rng(shift)
    ts = pa.array(np.arange(rows) * (1_000_000 // each) + shift).view(pa.timestamp("us"))
    keys = random.integers(0, KEYS, rows)
    return pa.table({"ts": ts, "k": keys, "wide": keys + KEYS * random.integers(0, 10, rows), "v": random.random(rows)})


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, help="in a micro-batch")
    parser.add_argument("--batches", type=int)
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    rows, first = args.rows or amount(args, 10_000), warm_up(args)
    batches = args.batches or (20 if args.quick else 100)
    small, batches = max(1, batches // 20), max(batches, first + 20)
    rounds = args.rounds or (1 if args.quick else 2)
    report = Report("spark_window")
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        for name, shift in (("r", 0), ("s", 50)):
            write(Path(folder, name), table(rows * batches, rows, shift), batches)

        def source(name: str) -> DataFrame:
            return stream(spark, Path(folder, name), SCHEMA)

        def sliding(seconds: int) -> Made:
            text = f"SELECT ISTREAM k, count(*) AS n, avg(v) AS m FROM r [RANGE {seconds} SECONDS] GROUP BY k"
            return lambda: ps.sql(spark, text, r=source("r"))

        def join(seconds: int, key: str) -> Made:
            over = f"[RANGE {seconds} SECONDS]"
            text = f"SELECT ISTREAM r.k, r.v AS x, s.v AS y FROM r {over} JOIN s {over} ON r.{key} = s.{key}"
            return lambda: ps.sql(spark, text, r=source("r"), s=source("s"))

        jobs = {
            "sliding aggregate": (sliding(small), sliding(10 * small)),
            "join": (join(small, "k"), join(10 * small, "wide")),
        }
        full = max(first, 10 * small + 1)
        for name, sides in jobs.items():
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(rounds):
                for side, seconds in zip(sides, times, strict=True):
                    seconds.extend(run(side, f"{name}: turn {turn}").each[full:])
            one, ten = (1000 * statistics.median(seconds) for seconds in times)
            report.add(f"{name}: ms for a micro-batch, {small * rows:,} rows in the window", one)
            report.add(f"{name}: ms for a micro-batch, {10 * small * rows:,} rows in the window", ten)
            report.add(f"{name}: time with a window ten times as large", ten / one, 1.5, below=True)
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
