"""Queries that Spark has no operator for, on Spark and in this process.

    python -m benchmarks.spark_only [--quick] [--scale X] [--rows N] [--batches N]

Count windows by key, sliding aggregates for every row, and a join by an inequality: rows/s of micro-batches on Spark
(one session, local[2], after 50 small micro-batches) and the ratio to ``engine="local"``, which is given the same files
one after the other. Both must give the same number of answers.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import penstock
import penstock.spark as ps
from benchmarks.support.files import write
from benchmarks.support.on_spark import session, stream, warm_up, warmed
from benchmarks.support.report import Report, amount, options, progress, timed

SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, v DOUBLE"
DECLARE = """
CREATE STREAM r (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts;
CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts;
"""
QUERIES = {
    "count window": ("r", "SELECT ISTREAM k, avg(v) AS m FROM r [PARTITION BY k ROWS 10] GROUP BY k"),
    "sliding aggregate": ("r", "SELECT ISTREAM k, count(*) AS n, avg(v) AS m FROM r [RANGE 10 SECONDS] GROUP BY k"),
    "non-equi join": (
        "rs",
        "SELECT ISTREAM r.k, r.v AS x, s.v AS y FROM r [RANGE 50 MILLISECONDS] JOIN s [RANGE 50 MILLISECONDS] "
        "ON r.v > s.v + 0.99",
    ),
}


def table(rows: int, shift: int) -> pa.Table:
    random = np.random.default_rng(shift)
    ts = pa.array(np.arange(rows) * 100 + shift).view(pa.timestamp("us"))
    return pa.table({"ts": ts, "k": random.integers(0, 10_000, rows), "v": random.random(rows)})


def local(text: str, folder: Path, names: str) -> tuple[float, int]:
    """Seconds in this process, and the number of answers."""
    files = [[pq.read_table(p) for p in sorted((folder / n).iterdir())] for n in names]
    found = 0
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        query = db.query(text)

        def push() -> None:
            nonlocal found
            for tables in zip(*files, strict=True):
                for name, rows in zip(names, tables, strict=True):
                    db.push(name, rows)
                found += query.fetch().num_rows

        return timed(push), found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batches", type=int)
    args = parser.parse_args()
    rows = args.rows or amount(args, 2_000_000, 100_000)
    batches = args.batches or (2 if args.quick else 10)
    report = Report("spark_only")
    spark, few = session(), warm_up(args)
    with tempfile.TemporaryDirectory() as folder:
        for name, shift in (("r", 0), ("s", 50)):
            write(Path(folder, "warm", name), table(1_000 * few, shift), few)
            write(Path(folder, "data", name), table(rows, shift), batches)

        def ours(which: str, text: str, names: str) -> DataFrame:
            sources = {name: stream(spark, Path(folder, which, name), SCHEMA) for name in names}
            return ps.sql(spark, text, streams=sources)

        for what, (names, text) in QUERIES.items():
            warm, data = (partial(ours, which, text, names) for which in ("warm", "data"))
            found = warmed(warm, data, what)
            progress(f"{what}: in this process")
            local(text, Path(folder, "warm"), names)
            seconds, count = local(text, Path(folder, "data"), names)
            if count != found.answers:
                raise SystemExit(f"{what}: answers differ: {found.answers} on Spark, {count} in this process")
            report.add(f"{what}: rows/s on Spark", len(names) * rows / found.busy)
            report.add(f"{what}: speed against the local engine", seconds / found.busy)
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
