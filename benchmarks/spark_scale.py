"""``connect()`` on a cluster of this machine: the same job with one and two executors of one core, and 1 to 8 shards.

    python -m benchmarks.spark_scale [--quick] [--scale X] [--source push|files]

Rows go through a sliding aggregate by key. For each number of executors and shards: rows a second, processor time for a
row in the executors (Java and Python), how often a task did not find its shard in its process, and where the time goes,
in µs for a row: giving rows to the database, reading them in tasks (source), finding the rows of a shard (shuffle),
operators, state, results; and ms of a micro-batch that are Spark's own. Each runs in a process of its own. Compared in
one run: two executors with one, both with two shards, in turns, with micro-batches as large as they are by default:
there rows take the time, not Spark. Rows are pushed for the first and come from files, which executors read side by
side, for the comparison; ``--source`` says one for both, see ``SOURCES``. ``--compare``: the comparison alone.
docs/concepts/scale.md explains what follows from the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from benchmarks.support.places import python_path
from benchmarks.support.processes import processor_seconds
from benchmarks.support.report import Report, amount, options, progress
from benchmarks.support.served import below

PIECE = 50_000
"""Rows of a push, or a file."""
BATCH = 4 * PIECE
"""Rows of a micro-batch at most."""
LARGE = 10
"""Times as many of both, where executors are compared."""
KEYS = 10_000
SHARDS = (1, 2, 4, 8)
ROUNDS = 3
ROW = 400
"""Bytes of memory that a row takes, in all processes and in files, until the database is closed; roughly."""
SMALL = 60
"""Micro-batches of a few rows before executors are compared: each of them compiles Spark's code for itself, once."""

Giving = Callable[[penstock.Database, Path, pa.Table, int], Callable[[], None]]


@dataclass(frozen=True)
class Source:
    """How rows get in. ``declared``: what is behind the declaration of the stream ``s``. ``prepared``: gives a function
    that gives the rows of a table to the stream, and returns when they have been taken, not when they are answered."""

    declared: str
    prepared: Giving


def pushed(db: penstock.Database, folder: Path, table: pa.Table, piece: int) -> Callable[[], None]:
    """Through the process of the database, in pieces."""

    def give() -> None:
        for start in range(0, len(table), piece):
            db.push("s", table.slice(start, piece))

    return give


def read_from_files(db: penstock.Database, folder: Path, table: pa.Table, piece: int) -> Callable[[], None]:
    """By Spark's executors, from Parquet files that appear at once."""
    before = db.stream("s").given
    hidden: list[tuple[Path, Path]] = []
    for i, start in enumerate(range(0, len(table), piece)):
        name = f"{before + start:012d}.parquet"
        hidden.append((folder / f".{name}", folder / name))
        pq.write_table(table.slice(start, piece), hidden[-1][0])
        os.utime(hidden[-1][0], (1_700_000_000 + 10 * (before // piece + i),) * 2)  # Spark reads files by age

    def give() -> None:
        for source, target in hidden:
            source.rename(target)
        while db.stream("s").given < before + len(table):
            time.sleep(0.005)

    return give


SOURCES = {
    "push": Source("", pushed),
    "files": Source("FROM spark (format = 'parquet', path = '{}', maxFilesPerTrigger = 4)", read_from_files),
}
"""By the name that ``--source`` has."""


def touch_memory(size: int) -> None:
    """Let the machine have this many bytes of free memory that has been used. A virtual machine may get a page from its
    host only when it is touched, at half a gigabyte a second, and give it back soon after it is free."""
    np.ones(size, np.uint8)


def _executors() -> Iterator[tuple[int, float]]:
    """The executors, each with its processor time and that of all it has started."""
    for pid in below(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command:
            yield pid, sum(map(processor_seconds, below(pid)))


def _rest(executors: Iterable[int]) -> dict[str, float]:
    """Processor time of all else below this process: of itself, the driver's Java, and what Spark starts."""
    ours = {pid for each in executors for pid in below(each)}
    spent = {"python": 0.0, "java": 0.0, "started": 0.0}
    for pid in below(os.getpid()):
        if pid not in ours:
            with contextlib.suppress(OSError):
                java = "SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_text()
                kind = "python" if pid == os.getpid() else "java" if java else "started"
                spent[kind] += processor_seconds(pid)
    return spent


def child(executors: int, shards: int, rows: int, warm: int, times: int, source: Source) -> None:
    """One measurement, said as a line of JSON: seconds, in tasks of all shards together."""
    random = np.random.default_rng(1)
    small = 40 * SMALL if times > 1 else 0
    count = small + warm + rows
    table = pa.table({"t": np.arange(count), "k": random.integers(0, KEYS, count), "v": random.random(count).round(3)})
    master = f"local-cluster[{executors},1,1024]"
    with (
        tempfile.TemporaryDirectory() as place,
        penstock.connect(
            f"{place}/db", engine="spark", master=master, shards=shards, batch_rows=times * BATCH
        ) as db,
    ):
        folder = Path(place, "files")
        folder.mkdir()
        db.execute(f"CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t {source.declared.format(folder)}")
        query = db.query("SELECT ISTREAM k, count(*) AS n, avg(v) AS m FROM s [RANGE 10000] GROUP BY k")
        piece = times * PIECE
        for start in range(0, small, 40):
            source.prepared(db, folder, table.slice(start, 40), 10)()
            query.fetch()
        for start in range(small, small + warm, piece):
            source.prepared(db, folder, table.slice(start, min(piece, small + warm - start)), piece)()
            query.fetch()
        give = source.prepared(db, folder, table.slice(small + warm), piece)
        touch_memory(rows * ROW)
        before, known = dict(_executors()), len(db.metrics())
        rest = _rest(before)
        began = time.perf_counter()
        give()
        given = time.perf_counter()
        db.settle()
        wall = time.perf_counter() - began
        busy = [seconds - before.get(pid, 0.0) for pid, seconds in _executors()]
        rest = {kind: seconds - rest[kind] for kind, seconds in _rest(before).items()}
        made = db.metrics().slice(known).to_pylist()

        def spent(*names: str) -> float:
            return shards * float(sum(m[name] for m in made for name in names))  # of the slowest, for all of them

        print(json.dumps({
            "rows": rows, "wall": wall, "batches": len(made), "cpu": sum(busy), "uneven": max(busy) / sum(busy),
            "giving": given - began, "source": spent("reading"), "shuffle": spent("splitting"),
            "operators": spent("working"), "state": spent("opening", "storing"), "results": spent("answering"),
            "spark": sum(m["spark"] for m in made), **rest,
            "missed": sum(m["caught_up"] + m["loaded"] for m in made) / (shards * len(made)),
        }), flush=True)  # fmt: skip


def measured(executors: int, shards: int, rows: int, warm: int, source: str, times: int = 1) -> dict[str, float]:
    progress(f"{executors} executors, {shards} shards")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark_scale", "--source", source,
         "--child", f"{executors},{shards},{rows},{warm},{times}"],
        check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": python_path()},
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--source", choices=SOURCES, help="how rows get in; by default push, and files where compared")
    parser.add_argument("--compare", action="store_true", help="only two executors against one")
    args = parser.parse_args()
    if args.child:
        executors, shards, rows, warm, times = map(int, args.child.split(","))
        child(executors, shards, rows, warm, times, SOURCES[args.source or "push"])
        return
    report = Report("spark_scale")
    rows, warm = amount(args, 2_000_000, 200_000, 100_000), 1_000_000 if not args.quick else 100_000
    for executors in (1, 2):
        for shards in SHARDS if not args.compare else ():
            found = measured(executors, shards, rows, warm, args.source or "push")
            name = f"scale: {executors} executors, {shards} shards"
            report.add(f"{name}: rows/s", rows / found["wall"])
            report.add(f"{name}: processor time of executors, µs for a row", 1e6 * found["cpu"] / rows)
            for what in ("giving", "source", "shuffle", "operators", "state", "results"):
                report.add(f"{name}: {what}, µs for a row", 1e6 * found[what] / rows)
            report.add(f"{name}: Spark's own, ms of a micro-batch", 1e3 * found["spark"] / max(1, found["batches"]))
            report.add(f"{name}: rows of a micro-batch", rows / max(1, found["batches"]))
            report.add(f"{name}: shards that were not in memory, %", 100 * found["missed"])
    one: list[dict[str, float]] = []
    two: list[dict[str, float]] = []
    times = 1 if args.quick else LARGE
    parallel = args.source or "files"
    for _ in range(1 if args.quick else ROUNDS):
        one.append(measured(1, 2, times * rows // 2, 4 * warm, parallel, times))
        two.append(measured(2, 2, times * rows // 2, 4 * warm, parallel, times))
    cpu = min(m["cpu"] for m in two) / min(m["cpu"] for m in one)
    wall = min(m["wall"] for m in one) / min(m["wall"] for m in two)
    where = {"cpu": "executors", "python": "driver's Python", "java": "driver's Java", "started": "what it starts"}
    for executors, rounds in ((1, one), (2, two)):
        for kind, words in where.items():
            name = f"scale: {executors} executors, compared: processor time of {words}, µs for a row"
            report.add(name, 1e6 * min(m[kind] / m["rows"] for m in rounds))
    report.add("scale: processor time for a row, two executors against one", cpu, 1.15, below=True)
    report.add("scale: speed of two executors against one", wall, 1.4)
    uneven = max(m["uneven"] for m in two)
    report.add("scale: share of the busier of two executors, in the worst round", uneven, 0.6, below=True)
    report.finish()


if __name__ == "__main__":
    main()
