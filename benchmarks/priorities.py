"""Two queries of different priority over one stream, on the local engine with ``hybrid`` and two workers.

    python -m benchmarks.priorities [--quick] [--scale X] [--rounds N]

Rows come at nine tenths of what the engine can work on, which each round measures first. Latency is from ``push`` to the
call of a subscriber. Rounds with priorities 5 and 5 and rounds with 9 and 1 alternate; medians of their ratios count. In
``graph``, with one worker, the same is measured and printed without a bar.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, options, progress

ROWS = 200
"""Of a push."""
UTILISATION = 0.9
KEYS = 50
QUERIES = {
    "first": "SELECT k, sum(v) AS total, count(*) AS n FROM s [ROWS 2000] GROUP BY k",
    "second": "SELECT k, sum(v) AS total, max(v) AS most FROM s [ROWS 3000] GROUP BY k",
}
clock = time.perf_counter


@dataclass(frozen=True)
class Measured:
    """Mean latencies in seconds at ``UTILISATION``, and pushes each second when everything is pushed at once."""

    latency: dict[str, float]
    pushes: float


class Watch:
    """When the results of each push came first: a push has its own instants."""

    def __init__(self, pushes: int) -> None:
        self.came = np.full(pushes, np.nan)

    def __call__(self, table: pa.Table) -> None:
        now = clock()
        numbers = np.unique(table.column("ts").to_numpy() // ROWS)
        late = np.isnan(self.came[numbers])
        self.came[numbers[late]] = now


def table(number: int) -> pa.Table:
    """The rows of a push."""
    rng = np.random.default_rng(number)
    return pa.table({
        "ts": np.arange(ROWS, dtype=np.int64) + number * ROWS,
        "k": rng.integers(0, KEYS, ROWS), "v": rng.random(ROWS),
    })  # fmt: skip


def measured(threading: str, workers: int, priorities: dict[str, int], pushes: int, rate: float | None) -> Measured:
    """``rate``: pushes each second; None: nine tenths of what this database can do."""
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
        watches = {name: Watch(3 * pushes) for name in QUERIES}
        for name, text in QUERIES.items():
            db.execute(f"CREATE QUERY {name} AS {text} WITH (priority = {priorities[name]})")
            db.queries[name].subscribe(watches[name])
        db.configure(threading=threading, workers=workers)
        tables = [table(number) for number in range(3 * pushes)]
        for rows in tables[:pushes]:  # so that it has measured its operators
            db.push("s", rows)
        db.settle()
        db.configure(threading=threading, workers=workers)
        begun = clock()
        for rows in tables[pushes : 2 * pushes]:
            db.push("s", rows)
        db.settle()
        capacity = pushes / (clock() - begun)
        wanted = np.random.default_rng(1).exponential(1 / (rate or UTILISATION * capacity), pushes).cumsum()
        sent = np.empty(pushes)
        begun = clock()
        for i, rows in enumerate(tables[2 * pushes :]):
            if (left := begun + wanted[i] - clock()) > 0:
                time.sleep(left)
            sent[i] = clock()
            db.push("s", rows)
        db.settle()
        latency = {name: float(np.nanmean(watch.came[2 * pushes :] - sent)) for name, watch in watches.items()}
        return Measured(latency, capacity)


def compared(report: Report, threading: str, workers: int, rounds: int, pushes: int, *, bars: bool) -> None:
    """Rounds at 5/5 and at 9/1 in turn."""
    apart, urgent, total = [], [], []
    for number in range(rounds):
        equal = measured(threading, workers, {"first": 5, "second": 5}, pushes, None)
        rate = UTILISATION * equal.pushes
        names = ("first", "second") if number % 2 else ("second", "first")
        high, low = names
        differ = measured(threading, workers, {high: 9, low: 1}, pushes, rate)
        apart.append(differ.latency[low] / differ.latency[high])
        urgent.append(differ.latency[high] / equal.latency[high])
        total.append(differ.pushes / equal.pushes)
        progress(
            f"{threading} {number}: 5/5 {equal.latency[high] * 1e3:.1f} and {equal.latency[low] * 1e3:.1f} ms at"
            f" {equal.pushes:,.0f} pushes/s; 9 {differ.latency[high] * 1e3:.1f} ms, 1 {differ.latency[low] * 1e3:.1f}"
            f" ms at {differ.pushes:,.0f}"
        )
    median = statistics.median
    report.add(f"{threading}: latency of priority 1 / of 9", median(apart), 2.0 if bars else None)
    report.add(f"{threading}: latency of priority 9 / of the same query at 5/5", median(urgent), 1.0 if bars else None,
               below=True)  # fmt: skip
    report.add(f"{threading}: throughput at 9/1 / at 5/5", median(total), 0.95 if bars else None)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    rounds = arguments.rounds or (1 if arguments.quick else 9)
    pushes = int((200 if arguments.quick else 1_000) * arguments.scale)
    measured("hybrid", 2, {"first": 5, "second": 5}, 50, None)  # compiles
    report = Report("priorities")
    compared(report, "hybrid", 2, rounds, pushes, bars=True)
    compared(report, "graph", 1, max(1, rounds // 3), pushes, bars=False)
    report.finish()


if __name__ == "__main__":
    main()
