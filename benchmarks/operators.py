"""The operators on one core, through the local engine, against libraries that see the whole table at once.

    python -m benchmarks.operators [--quick] [--scale X] [--only NAME …] [--rows N]

Both sides of a ratio are measured in the same run, taking turns. The streaming side gets its rows in batches and
keeps its answers exact at every instant; the other side computes the final table once.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import statistics
import threading
import time
from collections.abc import Callable

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

import penstock
from benchmarks.support.report import Report, amount, best, options, progress, timed

SECOND = 1_000_000
BATCH = 10_000


def stream_job(
    declare: str, query: str, streams: dict[str, pa.Table], batch: int = BATCH
) -> tuple[Callable[[], None], dict[str, int]]:
    """A job that pushes whole tables in batches, streams taking turns, and fetches the answers as they come."""
    seen = {"answers": 0, "state_bytes": 0, "state_rows": 0}

    def run() -> None:
        with penstock.connect(engine="local") as db:
            db.execute(declare)
            q = db.query(query)
            answers = 0
            length = max(len(t) for t in streams.values())
            for start in range(0, length, batch):
                for name, table in streams.items():
                    db.push(name, table.slice(start, batch))
                answers += q.fetch().num_rows
            sizes = q.state.values()
            seen["state_bytes"], seen["state_rows"] = sum(s.bytes for s in sizes), sum(s.rows for s in sizes)
            for name in streams:
                db.close_stream(name)
            seen["answers"] = answers + q.fetch().num_rows

    return run, seen


# -- the jobs ---------------------------------------------------------------------------------------------


def filters(report: Report, rows: int) -> None:
    """Five filters and a projection."""
    rng = np.random.default_rng(1)
    table = pa.table({"t": np.arange(rows), **{c: rng.random(rows) for c in "abcde"}, "v": rng.random(rows)})
    declare = "CREATE STREAM s (t BIGINT, a DOUBLE, b DOUBLE, c DOUBLE, d DOUBLE, e DOUBLE, v DOUBLE) TIMESTAMP BY t"
    query = (
        "SELECT v * 2 + 1 AS x, t AS y FROM s WHERE a < 0.998 AND b < 0.996 AND c < 0.994 AND d < 0.992 AND e < 0.990"
    )
    job, seen = stream_job(declare, query, {"s": table})
    expected = {"n": 0}

    def whole() -> None:
        mask = pc.less(table["a"], 0.998)
        for column, limit in zip("bcde", (0.996, 0.994, 0.992, 0.990), strict=True):
            mask = pc.and_kleene(mask, pc.less(table[column], limit))
        kept = table.filter(mask)
        expected["n"] = len(pa.table({"x": pc.add(pc.multiply(kept["v"], 2.0), 1.0), "y": kept["t"]}))

    predicate = pc.field("a") < 0.998
    for column, limit in zip("bcde", (0.996, 0.994, 0.992, 0.990), strict=True):
        predicate = predicate & (pc.field(column) < limit)
    fused = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("filter", acero.FilterNodeOptions(predicate)),
            acero.Declaration(
                "project", acero.ProjectNodeOptions([pc.field("v") * 2.0 + 1.0, pc.field("t")], ["x", "y"])
            ),
        ]
    )
    ours, theirs, by_hand = best(job, lambda: fused.to_table(use_threads=False), whole, rounds=5)
    assert seen["answers"] == expected["n"]
    report.add("filters: speed against pyarrow's functions called by hand", by_hand / ours)
    report.add(
        "filters: speed against pyarrow on the whole table", theirs / ours, 0.7, note=f"{rows / ours:,.0f} rows/s"
    )


def sliding_table(rows: int, keys: int = 10_000) -> pa.Table:
    rng = np.random.default_rng(2)
    t = np.arange(rows) * 100
    return pa.table({"t": t, "k": rng.integers(0, keys, rows), "v": rng.random(rows).round(3)})


SLIDING = "CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"


def sliding(report: Report, rows: int) -> None:
    """Per-row sliding average and count per key."""
    table = sliding_table(rows)
    query = f"SELECT ISTREAM k, avg(v) AS a, count(*) AS n FROM s [RANGE {10 * SECOND}] GROUP BY k MASTER s"
    job, seen = stream_job(SLIDING, query, {"s": table})
    con = duckdb.connect()
    con.execute("SET threads = 1")
    con.register("s", table)
    sql = f"""SELECT k, avg(v) OVER w AS a, count(*) OVER w AS n FROM s
              WINDOW w AS (PARTITION BY k ORDER BY t RANGE BETWEEN {10 * SECOND - 1} PRECEDING AND CURRENT ROW)"""
    ours, theirs = best(job, lambda: con.execute(sql).to_arrow_table())
    assert seen["answers"] >= rows * 0.9
    report.add(
        "sliding aggregate: speed against DuckDB's window function",
        theirs / ours,
        3.0,
        note=f"{rows / ours:,.0f} rows/s",
    )
    kept = int(min(rows, 10 * SECOND // 100))
    arrow = kept * (8 + 8 + 8)  # k, v, and the instant that says when they leave
    report.add("sliding aggregate: state against the columns it keeps", seen["state_bytes"] / arrow, 2.5, below=True)


def join_tables(rows: int, keys: int = 100_000) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(3)
    r = pa.table({"t": np.arange(rows) * 100, "k": rng.integers(0, keys, rows), "x": np.arange(rows)})
    s = pa.table({"t": np.arange(rows) * 100 + 50, "k": rng.integers(0, keys, rows), "y": np.arange(rows)})
    return r, s


JOIN = """CREATE STREAM r (t BIGINT, k BIGINT, x BIGINT) TIMESTAMP BY t;
CREATE STREAM s (t BIGINT, k BIGINT, y BIGINT) TIMESTAMP BY t"""


def join(report: Report, rows: int) -> None:
    """Window equi-join."""
    r, s = join_tables(rows)
    window = f"[RANGE {10 * SECOND}]"
    query = f"SELECT ISTREAM r.k, x, y FROM r {window}, s {window} WHERE r.k = s.k"
    job, seen = stream_job(JOIN, query, {"r": r, "s": s})
    left, right = pl.from_arrow(r), pl.from_arrow(s)
    assert isinstance(left, pl.DataFrame)
    assert isinstance(right, pl.DataFrame)
    found = {"n": 0}

    def whole() -> None:
        pairs = left.lazy().join(right.lazy(), on="k", suffix="_s")
        near = pairs.filter((pl.col("t") - pl.col("t_s")).abs() < 10 * SECOND).select("k", "x", "y")
        found["n"] = near.collect().height

    ours, theirs = best(job, whole)
    assert seen["answers"] == found["n"], (seen, found)
    report.add(
        "window join: speed against one polars join",
        theirs / ours,
        0.5,
        note=f"{2 * rows / ours:,.0f} rows/s, {found['n']:,} answers",
    )
    kept = 2 * min(rows, 10 * SECOND // 100) * 24  # k, x or y, and the instant that says when they leave
    report.add("window join: state against the columns it keeps", seen["state_bytes"] / kept, 2.5, below=True)


def hopping(report: Report, rows: int) -> None:
    """Hopping count and average per group."""
    rng = np.random.default_rng(4)
    table = pa.table({"t": np.arange(rows) * 100, "g": rng.integers(0, 10, rows), "v": rng.random(rows).round(3)})
    declare = "CREATE STREAM s (t BIGINT, g BIGINT, v DOUBLE) TIMESTAMP BY t"
    query = (
        f"SELECT g, window_start, count(*) AS n, avg(v) AS a FROM s [HOPPING {10 * SECOND} EVERY {SECOND}] GROUP BY g"
    )
    job, seen = stream_job(declare, query, {"s": table})
    con = duckdb.connect()
    con.execute("SET threads = 1")
    con.register("s", table)
    sql = f"""SELECT g, w, count(*) AS n, avg(v) AS a
              FROM (SELECT g, v, (t // {SECOND} - unnest(range(10))) * {SECOND} AS w FROM s) GROUP BY g, w"""
    found = {"n": 0}

    def whole() -> None:
        answers: pa.Table = con.execute(sql).to_arrow_table()
        found["n"] = answers.num_rows

    ours, theirs = best(job, whole)
    assert seen["answers"] == found["n"], (seen, found)
    report.add("hopping aggregate: speed against DuckDB once", theirs / ours, 1.0, note=f"{rows / ours:,.0f} rows/s")


def inequality(report: Report, rows: int) -> None:
    """ROWS 500 against ROWS 500 on value1 < value2."""
    n = max(2_000, rows // 100)
    rng = np.random.default_rng(5)
    r = pa.table({"t": np.arange(n) * 2, "value1": rng.integers(0, 1_000_000, n)})
    s = pa.table({"t": np.arange(n) * 2 + 1, "value2": rng.integers(0, 1_000_000, n)})
    declare = """CREATE STREAM r (t BIGINT, value1 BIGINT) TIMESTAMP BY t;
                 CREATE STREAM s (t BIGINT, value2 BIGINT) TIMESTAMP BY t"""
    query = "SELECT ISTREAM value1, value2 FROM r [ROWS 500], s [ROWS 500] WHERE value1 < value2"
    job, seen = stream_job(declare, query, {"r": r, "s": s}, batch=1_000)
    (ours,) = best(job, rounds=2)
    report.add(
        "ROWS 500 join on value1 < value2: million outputs/s",
        seen["answers"] / ours / 1e6,
        note=f"{2 * n / ours:,.0f} rows/s in",
    )


def latency(report: Report, rows: int) -> None:
    """One row at a time through filter, sliding average, projection."""
    table = sliding_table(30_000, keys=1_000)
    query = f"SELECT ISTREAM k, avg(v) * 2 AS a FROM s [RANGE {SECOND}] WHERE v > 0.1 GROUP BY k MASTER s"
    with penstock.connect(engine="local") as db:
        db.execute(SLIDING)
        q = db.query(query)
        db.push("s", table.slice(0, 25_000))
        q.fetch()
        single = [table.slice(i, 1) for i in range(25_000, 30_000)]
        times: list[float] = []
        for row in single:
            start = time.perf_counter()
            db.push("s", row)
            times.append((time.perf_counter() - start) * 1e6)
        assert q.fetch().num_rows > 0
    times.sort()
    report.add("one row: median µs", statistics.median(times), 150, below=True)
    report.add("one row: 99th percentile µs", times[int(len(times) * 0.99)], 1_000, below=True)


def scaling(report: Report, rows: int) -> None:
    """Time per delta when the window is ten times larger, answers per delta being the same."""
    delta = max(100, min(rows // 200, 10_000))

    def per_delta(declare: str, query: str, tables: dict[str, pa.Table], warm: int) -> float:
        with penstock.connect(engine="local") as db:
            db.execute(declare)
            q = db.query(query)
            for start in range(0, warm, 100_000):
                for name, table in tables.items():
                    db.push(name, table.slice(start, min(100_000, warm - start)))
            q.fetch()
            times = []
            for start in range(warm, warm + 20 * delta, delta):
                for name, table in tables.items():
                    times.append(timed(lambda n=name, t=table, i=start: db.push(n, t.slice(i, delta))))  # type: ignore[misc]
                q.fetch()
            return statistics.median(times)

    large = min(rows, 2_000_000) // 2
    small = large // 10
    table = sliding_table(large + 20 * delta)
    text = "SELECT ISTREAM k, avg(v) AS a, count(*) AS n FROM s [RANGE {}] GROUP BY k MASTER s"
    ratios = [
        per_delta(SLIDING, text.format(large * 100), {"s": table}, large)
        / per_delta(SLIDING, text.format(small * 100), {"s": table}, small)
    ]
    report.add("window × 10, sliding aggregate: time per delta", ratios[0], 1.5, below=True)
    text = "SELECT ISTREAM r.k, x, y FROM r [RANGE {0}], s [RANGE {0}] WHERE r.k = s.k"
    times = []
    for size, keys in ((small, 100_000), (large, 1_000_000)):
        r, s = join_tables(size + 20 * delta, keys)
        times.append(per_delta(JOIN, text.format(size * 100), {"r": r, "s": s}, size))
    report.add("window × 10, join: time per delta", times[1] / times[0], 1.5, below=True)


def threads(report: Report, rows: int) -> None:
    """Two threads, each its own database and query, against one thread doing the same work alone."""
    table = sliding_table(rows // 2)
    query = f"SELECT ISTREAM k, avg(v) AS a, count(*) AS n FROM s [RANGE {10 * SECOND}] GROUP BY k MASTER s"

    for batch in (1_000, 10_000):
        jobs = [stream_job(SLIDING, query, {"s": table}, batch)[0] for _ in range(2)]

        def together(jobs: list[Callable[[], None]] = jobs) -> None:
            workers = [threading.Thread(target=job) for job in jobs]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

        alone, both = best(jobs[0], together)
        report.add(f"two threads, batches of {batch:,}: throughput against one", 2 * alone / both, 1.6)


JOBS = {
    "filters": filters, "sliding": sliding, "join": join, "hopping": hopping, "inequality": inequality,
    "latency": latency, "scaling": scaling, "threads": threads,
}  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="*", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--rows", type=int)
    arguments = parser.parse_args()
    rows = arguments.rows or amount(arguments, 2_000_000, 100_000)
    pa.set_cpu_count(1)
    report = Report("operators")
    for name in arguments.only:
        progress(name)
        JOBS[name](report, rows)
    report.finish()


if __name__ == "__main__":
    main()
