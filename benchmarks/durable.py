"""What a directory costs the local engine: pushes, restarts, saving, and the size on disk.

    python -m benchmarks.durable [--quick] [--scale X] [--only NAME …] [--folder DIR]

One query, a sliding average over 1,000 rows behind a filter. Each pair is measured in turns in one process:
one row a push (medians), and batches of 10,000 rows (rows a second), with a directory and without; one row a push by 16
threads with ``sync='group'`` against inserts of 16 threads into SQLite (WAL, synchronous=FULL) on the same disk, with
the time that one sync of this disk takes, on which the ratio depends: a slow disk makes it larger; the
99th percentile of pushes while the state is being saved against that without a save. A database with 10 million rows in
a join is closed and opened again by a new process, which takes the time from after its imports to its first result; and
its state on disk is compared with its rows as Arrow has them.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress
from penstock.database.database import core_of

_DECLARE = "CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"
_QUERY = "SELECT ISTREAM avg(v) AS a FROM s [ROWS 1000] WHERE v > 0.01"
JOIN = "SELECT ISTREAM s.t AS n, s.k, s.v FROM m [NOW], s [ROWS {rows}] WHERE m.k = s.k"
_THREADS = 16


def rows(start: int, count: int) -> pa.Table:
    random = np.random.default_rng(start)
    return pa.table(
        {"t": np.arange(start, start + count), "k": random.integers(0, 100, count), "v": random.random(count)}
    )


def uneven(start: int, count: int) -> pa.Table:
    """Rows that do not come evenly, each with a key of its own, in no order."""
    table, numbers = rows(start, count), np.arange(start, start + count)
    steps = np.random.default_rng(start).integers(0, 10, count)
    return table.set_column(0, "t", pa.array(10 * numbers + steps)).set_column(1, "k", pa.array(key_of(numbers)))


def key_of(number: Any) -> Any:
    """The key of the row with this number."""
    return number * 2_654_435_761 % 2**32


def database(path: Path | None, **more: object) -> penstock.Database:
    db = penstock.connect(path, engine="local", **more)  # type: ignore[arg-type]
    db.execute(_DECLARE)
    db.query(_QUERY, name="q")
    return db


def push_times(db: penstock.Database, numbers: Iterator[int], count: int) -> list[float]:
    times = []
    for _ in range(count):
        row = {"t": next(numbers), "k": 1, "v": 0.5}
        start = time.perf_counter()
        db.push("s", [row])
        times.append(time.perf_counter() - start)
    db.queries["q"].fetch()
    return times


def one_row(folder: Path, report: Report, count: int) -> None:
    with database(None) as plain, database(folder / "one", sync="off") as kept:
        sides: list[tuple[penstock.Database, Iterator[int], list[float]]] = [
            (plain, itertools.count(), []), (kept, itertools.count(), []),
        ]  # fmt: skip
        for turn in range(11):
            progress(f"one row a push: turn {turn} of 10")
            for db, numbers, times in sides:
                found = push_times(db, numbers, count // 10)
                if turn:
                    times += found
    medians = [float(np.median(times)) * 1e6 for _, _, times in sides]
    report.add("one row a push, in memory, µs", medians[0])
    report.add("one row a push, with a directory, µs", medians[1])
    report.add("one row: with a directory against in memory", medians[1] / medians[0], 1.5, below=True)


def batches(folder: Path, report: Report, count: int) -> None:
    spent: list[list[float]] = [[], []]
    with database(None) as plain, database(folder / "batches", sync="off") as kept:
        for turn in range(count):
            progress(f"batches of 10,000 rows: {turn} of {count}")
            table = rows(turn * 10_000, 10_000)
            for db, times in zip((plain, kept), spent, strict=True):
                start = time.perf_counter()
                db.push("s", table)
                times.append(time.perf_counter() - start)
                db.queries["q"].fetch()
    speeds = [10_000 * (count - 5) / sum(times[5:]) for times in spent]
    report.add("batches of 10,000 rows, in memory, rows/s", speeds[0])
    report.add("batches of 10,000 rows, with a directory, rows/s", speeds[1])
    report.add("batches: with a directory against in memory", speeds[1] / speeds[0], 0.7)


def by_threads(action: Callable[[int, int], object], count: int) -> float:
    """Calls a second, of so many calls by each thread."""
    ready = threading.Barrier(_THREADS + 1)

    def work(thread: int) -> None:
        ready.wait()
        for i in range(count):
            action(thread, i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(_THREADS)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return _THREADS * count / (time.perf_counter() - start)


def a_sync(folder: Path, count: int) -> float:
    """The median time to force 1 kB at the end of a file to the disk, in µs: what SQLite does for each insert."""
    times = []
    with (folder / "syncs").open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(bytes(1024))
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e6


def grouped(folder: Path, report: Report, count: int) -> None:
    ours, theirs, syncs = [], [], []
    with penstock.connect(folder / "group", engine="local", sync="group") as db:
        db.execute("CREATE STREAM s (k BIGINT, v DOUBLE)")
        db.query("SELECT ISTREAM avg(v) AS a FROM s [ROWS 1000] WHERE v > 0.01", name="q")
        file = folder / "group.sqlite"
        with closing(sqlite3.connect(file)) as made:
            made.execute("PRAGMA journal_mode=WAL")
            made.execute("CREATE TABLE s (k INTEGER, v REAL)")
            made.commit()
        connections = [
            sqlite3.connect(file, check_same_thread=False, timeout=60, isolation_level=None) for _ in range(_THREADS)
        ]
        for connection in connections:
            connection.execute("PRAGMA synchronous=FULL")

        def insert(thread: int, i: int) -> None:
            connections[thread].execute("INSERT INTO s VALUES (?, ?)", (thread, float(i)))

        def push(thread: int, i: int) -> None:
            db.push("s", [{"k": thread, "v": float(i)}])

        for turn in range(4):
            progress(f"16 threads, one row each: turn {turn} of 3")
            ours.append(by_threads(push, count))
            theirs.append(by_threads(insert, count))
            syncs.append(a_sync(folder, count))
            db.queries["q"].fetch()
        for connection in connections:
            connection.close()
    mine, sqlite = max(ours[1:]), max(theirs[1:])
    report.add("a sync of this disk, µs", min(syncs[1:]))
    report.add("16 threads, sync='group', rows/s", mine)
    report.add("16 threads into SQLite (WAL, FULL), rows/s", sqlite)
    report.add("16 threads: against SQLite", mine / sqlite, 5)


def while_saving(folder: Path, report: Report, count: int, window: int) -> None:
    with penstock.connect(folder / "saving", engine="local") as db:
        db.execute(_DECLARE)
        db.query(f"SELECT ISTREAM avg(v) AS a FROM s [ROWS {window}]", name="q")
        for start in range(0, window, 100_000):
            db.push("s", rows(start, 100_000))
            db.queries["q"].fetch()
        core_of(db).host.abilities().save()
        numbers = itertools.count(window)
        quiet = push_times(db, numbers, count)
        busy: list[float] = []
        for turn in range(10):
            progress(f"pushes while the state is saved: turn {turn} of 10")
            db.push("s", rows(next(numbers), 50_000))
            numbers = itertools.count(next(numbers) + 50_000)
            over = threading.Event()

            def saving(over: threading.Event = over) -> None:
                core_of(db).host.abilities().save()
                over.set()

            thread = threading.Thread(target=saving)
            thread.start()
            while not over.is_set():
                busy += push_times(db, numbers, 10)
            thread.join()
    least = [float(np.percentile(times, 99)) * 1e6 for times in (quiet, busy)]
    report.add("a push, 99th percentile, µs", least[0])
    report.add("a push while the state is saved, 99th percentile, µs", least[1], note=f"{len(busy):,} pushes")
    report.add("a push while the state is saved", least[1] / least[0], 3, below=True)


_REOPEN = """
import json, sys, time
import penstock, penstock.hosts.local.host, penstock.hosts.durable.opening
start = time.perf_counter()
db = penstock.connect(sys.argv[1], engine="local")
opened = time.perf_counter() - start
last = int(sys.argv[2])
db.push("m", [{"t": last, "k": int(sys.argv[3])}])
db.heartbeat("s", last + 1)
db.heartbeat("m", last + 1)
found = db.queries["w"].fetch()
print(json.dumps([opened, time.perf_counter() - start, found.num_rows and found.column("n").to_pylist()[-1]]))
import os; os._exit(0)
"""


def restarts(folder: Path, report: Report, count: int) -> None:
    path = folder / "restart"
    with penstock.connect(path, engine="local") as db:
        db.execute(_DECLARE)
        db.execute("CREATE STREAM m (t BIGINT, k BIGINT) TIMESTAMP BY t")
        db.query(JOIN.format(rows=count), name="w")
        size = 0
        for start in range(0, count, 1_000_000):
            progress(f"restart: {start:,} of {count:,} rows")
            table = uneven(start, min(1_000_000, count - start))
            size += table.nbytes
            db.push("s", table)
            db.heartbeat("m", 10 * (start + table.num_rows))
        core_of(db).host.abilities().save()
    on_disk = sum(f.stat().st_size for f in (path / "state").iterdir())
    times = []
    for turn in range(3):
        told = subprocess.run(
            [sys.executable, "-c", _REOPEN, str(path), str(10 * count + 10 * turn), str(key_of(count // 2))],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        opened, first, found = json.loads(told.stdout.splitlines()[-1])
        if found is None or found // 10 != count // 2:
            raise SystemExit(f"after the restart the row found is {found} instead of {10 * (count // 2)} or soon after")
        times.append((opened, first))
    report.add(f"restart with {count:,} rows: to open it, s", min(t[0] for t in times))
    report.add(f"restart with {count:,} rows: to the first result, s", min(t[1] for t in times), 3, below=True)
    report.add("state on disk against its rows as Arrow", on_disk / size, 1.5, below=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=["one", "batches", "group", "saving", "restart"])
    parser.add_argument("--folder", type=Path, help="on the disk that is measured; by default the system's for files")
    args = parser.parse_args()
    report = Report("durable")
    chosen = args.only or ["one", "batches", "group", "saving", "restart"]
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        if "one" in chosen:
            one_row(folder, report, amount(args, 10_000, 500))
        if "batches" in chosen:
            batches(folder, report, amount(args, 200, 20, 10))
        if "group" in chosen:
            grouped(folder, report, amount(args, 300, 20))
        if "saving" in chosen:
            while_saving(folder, report, amount(args, 5_000, 500), amount(args, 1_000_000, 100_000))
        if "restart" in chosen:
            restarts(folder, report, amount(args, 10_000_000, 100_000))
    report.finish()


if __name__ == "__main__":
    main()
