"""``connect()`` on Spark: how soon a row is answered, how many rows a second, what a restart and idling take.

    python -m benchmarks.spark_live [--quick] [--scale X]

One row at a time, pushed and fetched, through a sliding aggregate and a filter, in turns with a micro-batch of a plain
stateless query of Spark over a source in Python that is told as soon; and a stream of rows pushed in pieces while
micro-batches run, through a sliding aggregate by key, with the same on the local engine with a directory in the same
run (local[2], after 50 micro-batches). A database with 10 million rows in a join is opened by a new process, which
takes the time to its first result: in a Spark that has made a micro-batch, and in one that has not. A database to
which nothing comes, with a stream that moves on with the clock and readers that wait, says what that costs all its
processes together, beside a session of Spark without queries, and what it writes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import penstock
from benchmarks.durable import JOIN, key_of, uneven
from benchmarks.support.on_spark import session, warm_up
from benchmarks.support.places import python_path
from benchmarks.support.plain_source import Numbers, PlainSource
from benchmarks.support.processes import processor_seconds
from benchmarks.support.report import Report, amount, options, progress, timed
from benchmarks.support.served import below
from penstock.database.database import core_of

DECLARE = "CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"
SLIDING = "SELECT ISTREAM k, count(*) AS n, avg(v) AS m FROM s [RANGE 10000] GROUP BY k"
FILTER = "SELECT k, v FROM s WHERE v > 0.5"
REST = 5.0
"""Seconds without a file that is written, after which a database counts as idle."""


class Plain:
    """A stateless query of Spark: ``one`` returns when the row that it has given is answered."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._numbers, self._done = Numbers(), threading.Event()
        spark.dataSource.register(PlainSource)
        frame = spark.readStream.format("plain_numbers").option("socket", self._numbers.path).option("partitions", "2")
        writer = frame.load().where("v > 0.5").writeStream.foreachBatch(self._taken)
        self._query = writer.option("checkpointLocation", f"{folder}/plain").start()

    def _taken(self, frame: DataFrame, batch: int) -> None:
        frame.collect()
        self._done.set()

    def one(self) -> None:
        self._done.clear()
        self._numbers.more()
        self._done.wait()

    def close(self) -> None:
        self._query.stop()
        self._numbers.close()


def one_by_one(report: Report, spark: SparkSession, folder: str, rows: int, warm_up: int) -> None:
    progress("one row at a time")
    plain = Plain(spark, folder)
    folder = f"{folder}/db"
    with penstock.connect(folder, engine="spark") as db:
        db.execute(DECLARE)
        queries = [db.query(SLIDING), db.query(FILTER)]

        def one(i: int) -> None:
            db.push("s", [(i, i % 7, i % 10 / 10)])
            for query in queries:
                query.fetch()

        for i in range(warm_up):
            one(i)
            plain.one()
        times: list[float] = []
        plainly: list[float] = []
        for i in range(warm_up, warm_up + rows):
            times.append(timed(lambda i=i: one(i)))  # type: ignore[misc]
            plainly.append(timed(plain.one))
        plain.close()
        ratio = statistics.median(times) / statistics.median(plainly)
        report.add("live: one row, against a stateless micro-batch of plain Spark", ratio, 1.3, below=True)
        report.add("live: ms of that micro-batch, median", 1000 * statistics.median(plainly))
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
        with tempfile.TemporaryDirectory() as folder, penstock.connect(f"{folder}/db", engine=engine) as db:
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
    report.add("live: speed against the local engine with a directory", seconds["local"] / seconds["spark"], 0.5)


_REOPEN = """
import json, sys, time
import penstock
from benchmarks.support.on_spark import session
from benchmarks.spark_live import DECLARE, FILTER
spark = session()
if sys.argv[4] == "warm":
    with penstock.connect() as db:
        db.execute(DECLARE)
        db.query(FILTER, name="q")
        db.push("s", [(1, 1, 0.9)])
        db.queries["q"].fetch()
start = time.perf_counter()
db = penstock.connect(sys.argv[1], engine="spark")
opened = time.perf_counter() - start
last = int(sys.argv[2])
db.push("m", [{"t": last, "k": int(sys.argv[3])}])
db.heartbeat("s", last + 1)
db.heartbeat("m", last + 1)
found = db.queries["w"].fetch()
last = found.num_rows and found.column("n").to_pylist()[-1]
print(json.dumps([opened, time.perf_counter() - start, last]), flush=True)
db.close()
"""


_FIRST = """
import sys, time
from benchmarks.spark_live import Plain
from benchmarks.support.on_spark import session
spark = session()
start = time.perf_counter()
plain = Plain(spark, sys.argv[1])
plain.one()
print(time.perf_counter() - start, flush=True)
plain.close()
"""


def _said(program: str, *arguments: str) -> str:
    """The last line that a program says, in a Spark of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": python_path()},
    )  # fmt: skip
    return done.stdout.splitlines()[-1]


def restarts(report: Report, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/db"
        with penstock.connect(path, engine="spark") as db:
            db.execute(DECLARE)
            db.execute("CREATE STREAM m (t BIGINT, k BIGINT) TIMESTAMP BY t")
            db.query(JOIN.format(rows=count), name="w")
            for start in range(0, count, 1_000_000):
                progress(f"restart: {start:,} of {count:,} rows")
                table = uneven(start, min(1_000_000, count - start))
                db.push("s", table)
                db.heartbeat("m", 10 * (start + table.num_rows))
            db.settle()
        times: dict[str, list[tuple[float, float]]] = {}
        for turn, how in enumerate(("cold", "warm", "warm")):
            said = _said(_REOPEN, path, str(10 * count + 10 * turn), str(key_of(count // 2)), how)
            opened, first, found = json.loads(said)
            if found is None or found // 10 != count // 2:
                raise SystemExit(f"after the restart the row found is {found}, not {10 * (count // 2)} or soon after")
            times.setdefault(how, []).append((opened, first))
        plain = float(_said(_FIRST, folder))
    name = f"live: restart with {count:,} rows: seconds to"
    report.add(f"{name} open it", min(t[0] for t in times["warm"]))
    report.add(f"{name} the first result", min(t[1] for t in times["warm"]), 3, below=True)
    report.add(f"{name} the first result, the first micro-batch of this Spark", times["cold"][0][1])
    report.add("live: seconds of a first micro-batch of plain Spark, from the start of its query", plain)


Files = dict[str, tuple[int, int]]
"""By path: when a file was written, and its size."""


def _files(folder: str) -> Files:
    found = ((path, path.stat()) for path in Path(folder).rglob("*") if path.is_file())
    return {str(path): (stat.st_mtime_ns, stat.st_size) for path, stat in found}


def _spent(seconds: float) -> float:
    """Percent of a core that this process and all below it take while it sleeps: Java, Spark's readers, workers. It
    waits until Spark has ended the workers that have had nothing to do for a minute."""
    for _ in range(10):
        processes, before, began = _processes(), _processor_time(), time.perf_counter()
        time.sleep(seconds)
        after, ended = _processor_time(), time.perf_counter()
        if _processes() == processes:
            return 100 * (after - before) / (ended - began)
    raise SystemExit("processes come and go while nothing is to be done")


def _processes() -> set[int]:
    return set(below(os.getpid()))


def _processor_time() -> float:
    return sum(map(processor_seconds, below(os.getpid())))


def _rested(folder: str) -> Files:
    """The files of a database when none has been written for a while."""
    before: Files = {}
    while (now := _files(folder)) != before:
        before = now
        time.sleep(REST)
    return now


def idle(report: Report, seconds: float) -> None:
    progress("idle, without queries")
    without = _spent(seconds)
    with tempfile.TemporaryDirectory() as folder, penstock.connect(folder, engine="spark") as db:
        db.execute("CREATE STREAM s (k BIGINT, v DOUBLE)")  # rows are stamped when they arrive
        counts = db.query("SELECT k, count(*) AS n FROM s [RANGE 1 SECOND] GROUP BY k")
        large = db.query(FILTER)
        reader = threading.Thread(target=lambda: [None for _ in counts], name="reader")
        reader.start()
        large.subscribe(lambda answers: None)
        for i in range(10):
            db.push("s", [(k, i / 10) for k in range(100)])
        db.settle()
        host = core_of(db).host.abilities()
        host.save()
        progress("idle, with readers")
        before = _rested(folder)
        with_readers = _spent(seconds)
        after = _files(folder)
        parts = len(host.part_views())
        counts.stop()
        reader.join()
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    written = sum(max(0, after[p][1] - before.get(p, (0, 0))[1]) for p in changed if p in after)
    report.add("live: idle: % of a core, a session without queries", without)
    report.add("live: idle: % of a core, with a database and readers, for a part", with_readers / parts, 2, below=True)
    report.add("live: idle: files written", len(changed), 0, below=True)
    report.add("live: idle: bytes written", written, 0, below=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=["one", "many", "restart", "idle"])
    args = parser.parse_args()
    chosen = args.only or ["one", "many", "restart", "idle"]
    report = Report("spark_live")
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        # Also where only what follows counts: it lets Java compile.
        one_by_one(report, spark, folder, amount(args, 300 if "one" in chosen else 10), warm_up(args))
    if "many" in chosen:
        many(report, amount(args, 4_000_000, 200_000, 100_000), 50_000)
    if "restart" in chosen:
        restarts(report, amount(args, 10_000_000, 100_000))
    if "idle" in chosen:
        idle(report, amount(args, 25, 5, 5))
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
