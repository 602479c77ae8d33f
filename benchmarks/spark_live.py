"""``connect()`` on Spark: how soon a row is answered, how many rows a second, and what a restart takes.

    python -m benchmarks.spark_live [--quick] [--scale X]

One row at a time, pushed and fetched, through a sliding aggregate and a filter; and a stream of rows pushed in pieces
while micro-batches run, through a sliding aggregate by key, with the same on the local engine in the same run
(local[2], after 50 micro-batches). Reported only: what Spark alone offers answers no single row.
"""

from __future__ import annotations

import statistics
import tempfile
import time

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.on_spark import session, warm_up
from benchmarks.support.report import Report, amount, options, progress, timed

DECLARE = "CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"
SLIDING = "SELECT ISTREAM k, count(*) AS n, avg(v) AS m FROM s [RANGE 10000] GROUP BY k"
FILTER = "SELECT k, v FROM s WHERE v > 0.5"


def one_by_one(report: Report, folder: str, rows: int, warm_up: int) -> None:
    progress("one row at a time")
    with penstock.connect(folder, engine="spark") as db:
        db.execute(DECLARE)
        queries = [db.query(SLIDING), db.query(FILTER)]

        def one(i: int) -> None:
            db.push("s", [(i, i % 7, i % 10 / 10)])
            for query in queries:
                query.fetch()

        for i in range(warm_up):
            one(i)
        times = [timed(lambda i=i: one(i)) for i in range(warm_up, warm_up + rows)]  # type: ignore[misc]
        report.add("live: ms from push to answer of one row, median", 1000 * statistics.median(times))
        report.add("live: ms from push to answer of one row, 99 of 100", 1000 * float(np.quantile(times, 0.99)))
        pushes = [timed(lambda i=i: db.push("s", [(i, 1, 0.1)])) for i in range(10_000, 11_000)]  # type: ignore[misc]
        report.add("live: ms until a row is acknowledged, median", 1000 * statistics.median(pushes))
        db.settle()
    began = time.perf_counter()
    with penstock.connect(folder, engine="spark") as db:
        db.push("s", [(20_000, 1, 0.9)])
        next(iter(db.queries.values())).fetch()
        report.add("live: seconds to open a database and answer again", time.perf_counter() - began)


def many(report: Report, rows: int, piece: int) -> None:
    random = np.random.default_rng(1)
    columns = {"t": np.arange(rows), "k": random.integers(0, 10_000, rows), "v": random.random(rows).round(3)}
    table = pa.table(columns)
    seconds: dict[str, float] = {}
    answers: dict[str, int] = {}
    for engine in ("local", "spark"):
        progress(f"{rows:,} rows on {engine}")
        with penstock.connect(engine=engine) as db:
            db.execute(DECLARE)
            query = db.query(SLIDING)
            db.push("s", table.slice(0, piece))
            answers[engine] = query.fetch().num_rows
            began = time.perf_counter()
            for start in range(piece, rows, piece):
                db.push("s", table.slice(start, piece))
                answers[engine] += query.fetch(wait=False).num_rows
            answers[engine] += query.fetch().num_rows
            seconds[engine] = time.perf_counter() - began
    if answers["local"] != answers["spark"]:
        raise SystemExit(f"answers differ: {answers}")
    report.add("live: rows/s through a sliding aggregate", (rows - piece) / seconds["spark"])
    report.add("live: speed against the local engine", seconds["local"] / seconds["spark"])


def main() -> None:
    parser = options(__doc__)
    args = parser.parse_args()
    report = Report("spark_live")
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        one_by_one(report, folder, amount(args, 300), warm_up(args))
    many(report, amount(args, 4_000_000, 200_000, 100_000), 50_000)
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
