"""Rows through a bounded buffer: how fast, and in how much memory.

    python -m benchmarks.buffers [--quick] [--scale X] [--rows N] [--rounds N]

A reader rests while all rows come, then works them off: a filter and a sliding aggregate on the local engine, run by
workers. The memory budget is none, as much as the rows take, 10 % and 1 % of that, and nothing at all, so that
everything goes to disk and comes back. Each case is a process of its own.

*Growth* is the highest resident memory from the first push to the last answer, less what was resident before the first
push, when the same query had been run once on a few rows. A fixed part of it, whatever the budget, is no matter of
buffers: a batch that is being pushed, one that is being written or read, a train that is being worked on with all that
operators make of it, what they remember, and what allocators keep of all that for each thread. ``FIXED`` is allowed for
it, which the case with everything on disk must keep; of what is beyond, the budget is for all but 15 %.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.places import python_path
from benchmarks.support.report import Report, amount, options, progress
from penstock.database.database import core_of
from penstock.hosts.local.host import LocalHost

BATCH = 10_000
SHARES = {"100 % in memory": 1.0, "10 % in memory": 0.1, "1 % in memory": 0.01, "everything on disk": 0.0}
THROUGHPUT = 0.3
OVER = 1.15
FIXED = 20_000_000
QUERY = """SELECT symbol, count(*) AS n, avg(price) AS p, max(size) AS m FROM trades [RANGE 50000 SLIDE 5000]
           WHERE size > 20 GROUP BY symbol"""
PAGE = 4096
SYMBOLS = pa.array([f"SYM{i:03d}" for i in range(50)])


def batches(rows: int) -> Iterator[pa.Table]:
    """Trades in order of time, made as they are asked for."""
    random = np.random.default_rng(7)
    for begin in range(0, rows, BATCH):
        n = min(BATCH, rows - begin)
        yield pa.table({
            "t": np.arange(begin, begin + n),
            "symbol": SYMBOLS.take(pa.array(random.integers(0, len(SYMBOLS), n))),
            "price": random.uniform(1, 100, n),
            "size": random.integers(0, 100, n),
        })  # fmt: skip


class Resident:
    """Looks at the resident memory of this process all the time. Stopped by ``stop``."""

    def __init__(self) -> None:
        self.peak = resident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self.peak = max(self.peak, resident())

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return max(self.peak, resident())


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def run(rows: int, memory: int | None, spill: str) -> dict[str, float]:
    """Seconds to push and to work off, bytes by which the process grew, bytes that waited."""
    answers = [0]

    def count(table: pa.Table) -> None:
        answers[0] += table.num_rows

    def once(count_of: int, memory: int | None) -> dict[str, float]:
        with penstock.connect(engine="local", memory=memory, spill=spill) as db:
            db.execute("CREATE STREAM trades (t BIGINT, symbol STRING, price DOUBLE, size BIGINT) TIMESTAMP BY t")
            db.query(QUERY).subscribe(count)
            db.configure(threading="hybrid", workers=1)
            host = core_of(db).host
            assert isinstance(host, LocalHost)
            storage = host.runtime.storage
            intake = next(o.id for o in db.graph().operators if o.kind == "intake")
            before, watch = resident(), Resident()
            start = time.perf_counter()
            db.suspend(intake)
            for table in batches(count_of):
                db.push("trades", table)
            pushed = time.perf_counter()
            waiting, on_disk = sum(b.bytes for b in host.runtime.buffers.values()), storage.disk_used
            db.resume(intake)
            db.settle()
            end = time.perf_counter()
            return {
                "push": pushed - start, "work": end - pushed, "growth": watch.stop() - before, "waiting": waiting,
                "disk": on_disk, "answers": answers[0],
            }  # fmt: skip

    once(20 * BATCH, memory if memory is None else min(memory, 1_000_000))  # what is compiled is compiled now
    answers[0] = 0
    return once(rows, memory)


def measured(rows: int, memory: int | None, spill: str) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.buffers", "--rows", str(rows), "--spill", spill, "--one"]
    command += [] if memory is None else ["--memory", str(memory)]
    found: dict[str, float] = json.loads(
        subprocess.run(
            command, capture_output=True, check=True, text=True, env={**os.environ, "PYTHONPATH": python_path()}
        ).stdout
    )
    return found


def rounds(name: str, count: int, rows: int, memory: int | None, spill: str) -> dict[str, float]:
    """The fastest of some rounds, with the highest growth of all."""
    found = []
    for _ in range(count):
        progress(name)
        found.append(measured(rows, memory, spill))
    return {**min(found, key=lambda f: f["push"] + f["work"]), "growth": max(f["growth"] for f in found)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--spill", default=tempfile.gettempdir())
    parser.add_argument("--memory", type=int)
    parser.add_argument("--one", action="store_true", help="one case, in this process")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run(arguments.rows, arguments.memory, arguments.spill)))
        return
    report = Report("buffers")
    rows, spill = arguments.rows or amount(arguments, 5_000_000, 200_000), arguments.spill
    count = arguments.rounds or (1 if arguments.quick else 2)
    free = rounds("unbounded", count, rows, None, spill)
    data = int(free["waiting"])
    cases = {name: rounds(name, count, rows, int(data * share), spill) for name, share in SHARES.items()}
    speed = rows / (free["push"] + free["work"])
    report.add("unbounded: million rows/s", speed / 1e6, note=_said(free))
    for name, case in cases.items():
        assert case["answers"] == free["answers"], "the same answers, wherever the rows waited"
        share = SHARES[name]
        own = rows / (case["push"] + case["work"])
        report.add(f"{name}: throughput / unbounded", own / speed, None if share else THROUGHPUT, note=_said(case))
        if share:
            grown = max(case["growth"] - FIXED, 0) / (data * share)
            report.add(f"{name}: (growth - {FIXED / 1e6:.0f} MB) / budget", grown, OVER, below=True)
    fixed = cases["everything on disk"]["growth"] / 1e6
    report.add("everything on disk: growth, MB", fixed, FIXED / 1e6, below=True, note=f"{data / 1e6:,.0f} MB wait")
    report.finish()


def _said(case: dict[str, float]) -> str:
    grown, on_disk = case["growth"] / 1e6, case["disk"] / 1e6
    return f"push {case['push']:.2f} s, work {case['work']:.2f} s, grew by {grown:,.0f} MB, {on_disk:,.0f} MB on disk"


if __name__ == "__main__":
    main()
