"""Two queries of different priority over one stream, on the local engine with ``hybrid`` and two workers.

    python -m benchmarks.priorities [--quick] [--scale X] [--rounds N]

Two databases are open, one with priorities 5 and 5, one with 9 and 1. They take turns, in short blocks, so that a slow
moment of the machine hits both. A block pushes as fast as it can, which tells how much fits through at most; then it
pushes at nine tenths of what the first database just did: latency is from ``push`` to the call of a subscriber, the
throughput what has been answered in the time until the last answer. Medians over rounds count. In ``graph``, with one
worker, the same is measured and printed without a bar.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress

ROWS = 200
"""Of a push."""
UTILISATION = 0.9
KEYS = 50
LOAD = 3
"""Times as many pushes at the rate as at most speed."""
BLOCKS = 4
"""Turns of each database in a round."""
QUERIES = {
    "first": "SELECT k, sum(v) AS total, count(*) AS n FROM s [ROWS 2000] GROUP BY k",
    "second": "SELECT k, sum(v) AS total, max(v) AS most FROM s [ROWS 3000] GROUP BY k",
}
clock = time.perf_counter


class Watch:
    """When the results of each push came first: a push has its own instants."""

    def __init__(self) -> None:
        self.came: dict[int, float] = {}

    def __call__(self, table: pa.Table) -> None:
        now = clock()
        for number in np.unique(table.column("ts").to_numpy() // ROWS).tolist():
            self.came.setdefault(number, now)


def rows_of(number: int) -> pa.Table:
    """The rows of a push."""
    rng = np.random.default_rng(number)
    return pa.table({
        "ts": np.arange(ROWS, dtype=np.int64) + number * ROWS,
        "k": rng.integers(0, KEYS, ROWS), "v": rng.random(ROWS),
    })  # fmt: skip


class Side:
    """One of the two databases. Its latencies are by query, in seconds."""

    def __init__(self, threading: str, workers: int, priorities: dict[str, int]) -> None:
        self.db = penstock.connect(engine="local")
        self.db.execute("CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
        self.watches = {name: Watch() for name in QUERIES}
        for name, text in QUERIES.items():
            self.db.query(text, name=name, priority=priorities[name]).subscribe(self.watches[name])
        self.db.configure(threading=threading, workers=workers)
        self.pushed = 0
        self.latencies: dict[str, list[float]] = {name: [] for name in QUERIES}
        self.fast, self.seconds = 0.0, 0.0
        """Of the pushes that were made as fast as possible, and of those that were made at a rate."""

    def flood(self, pushes: int) -> float:
        """Push as fast as it goes; gives the pushes each second."""
        tables = [rows_of(self.pushed + i) for i in range(pushes)]
        self.pushed += pushes
        begun = clock()
        for table in tables:
            self.db.push("s", table)
        self.db.settle()
        took = clock() - begun
        self.fast += took
        return pushes / took

    def load(self, pushes: int, rate: float) -> None:
        """Push at a rate, at random instants, the same for both databases."""
        wanted = np.random.default_rng(pushes).exponential(1 / rate, pushes).cumsum()
        tables = [rows_of(self.pushed + i) for i in range(pushes)]
        sent: dict[int, float] = {}
        begun = clock()
        for instant, table in zip(wanted, tables, strict=True):
            if (left := begun + instant - clock()) > 0:
                time.sleep(left)
            sent[self.pushed] = clock()
            self.db.push("s", table)
            self.pushed += 1
        self.db.settle()
        self.seconds += clock() - begun
        for name, watch in self.watches.items():
            self.latencies[name] += [watch.came[number] - at for number, at in sent.items()]


def compared(report: Report, threading: str, workers: int, rounds: int, pushes: int, *, bars: bool) -> None:
    """Rounds in which both databases take turns."""
    apart, urgent, total, most = [], [], [], []
    for number in range(rounds):
        high, low = ("first", "second") if number % 2 else ("second", "first")
        equal, differ = Side(threading, workers, {high: 5, low: 5}), Side(threading, workers, {high: 9, low: 1})
        with equal.db, differ.db:
            for side in (equal, differ):
                side.flood(pushes)  # so that operators have been measured
                side.db.configure(threading=threading, workers=workers)
                side.fast = 0.0
            for block in range(BLOCKS):
                order = (equal, differ) if block % 2 else (differ, equal)
                rate = UTILISATION * [side.flood(pushes) for side in order][order.index(equal)]
                for side in order:
                    side.load(LOAD * pushes, rate)
        fast, slow, same = (
            statistics.mean(side.latencies[name]) for side, name in ((differ, high), (differ, low), (equal, high))
        )
        apart.append(slow / fast)
        urgent.append(fast / same)
        total.append(equal.seconds / differ.seconds)
        most.append(equal.fast / differ.fast)
        progress(f"{threading} {number}: at 5/5 {same * 1e3:.1f} ms, at 9/1 {fast * 1e3:.1f} and {slow * 1e3:.1f} ms")
    median = statistics.median
    report.add(f"{threading}: latency of priority 1 / of 9", median(apart), 2.0 if bars else None)
    report.add(
        f"{threading}: latency at 9 / at 5, the other 1 / 5", median(urgent), 1.0 if bars else None, below=True
    )
    report.add(f"{threading}: throughput at 9/1 / at 5/5", median(total), 0.95 if bars else None)
    report.add(f"{threading}: pushed as fast as it goes, throughput at 9/1 / at 5/5", median(most))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    rounds = arguments.rounds or (1 if arguments.quick else 9)
    pushes = amount(arguments, 250, 40)
    report = Report("priorities")
    compared(report, "hybrid", 2, rounds, pushes, bars=True)
    compared(report, "graph", 1, max(1, rounds // 3), pushes, bars=False)
    report.finish()


if __name__ == "__main__":
    main()
