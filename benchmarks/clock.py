"""How soon a master's arrival is answered by itself, and what the clock costs a database to which nothing comes.

    python -m benchmarks.clock [--quick] [--scale X] [--engine local|spark] [--rounds N]

Streams are stamped on arrival, and a subscriber waits for the answer to each row of the master stream; in every other
round the caller says ``db.heartbeat()`` after the push, which shows what the machine takes for the answer itself. On
Spark the bar is in micro-batches: those that begin after the row was pushed, up to the one with the answer. The last
line is JSON.
"""

from __future__ import annotations

import statistics
import threading
import time

import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options

_LONG = 120.0
_DECLARE = "CREATE STREAM stocks (k BIGINT, price BIGINT); CREATE STREAM news (k BIGINT)"
_QUERY = """SELECT ISTREAM stocks.k, price FROM stocks [RANGE 1 HOUR], news [NOW]
WHERE stocks.k = news.k MASTER news"""


class Asked:
    """A database with a query that has a master, and what its subscriber has heard."""

    def __init__(self, engine: str) -> None:
        self.db = penstock.connect(engine=engine)
        self.db.execute(_DECLARE)
        self._heard = threading.Event()
        self._at = 0.0
        self.db.query(_QUERY, name="q").subscribe(self._hear)
        self.db.push("stocks", [(k, 10 * k) for k in range(10)])

    def _hear(self, table: pa.Table) -> None:
        self._at = time.perf_counter()
        self._heard.set()

    def seconds(self, k: int, *, by_hand: bool = False) -> float:
        """From the push of a row of the master stream to its answer."""
        self._heard.clear()
        began = time.perf_counter()
        self.db.push("news", [(k,)])
        if by_hand:
            self.db.heartbeat()
        if not self._heard.wait(_LONG):
            raise SystemExit("no answer came by itself")
        return self._at - began

    def batches(self) -> int:
        """Micro-batches so far, on Spark."""
        return len(self.db.metrics())


def local(report: Report, rounds: int) -> None:
    """On the local engine."""
    asked = Asked("local")
    asked.seconds(0)
    found: list[float] = []
    by_hand: list[float] = []
    for i in range(rounds):
        time.sleep(0.02)
        found.append(asked.seconds(i % 10))
        time.sleep(0.02)
        by_hand.append(asked.seconds(i % 10, by_hand=True))
    for what, some, bar in (("by itself", found, 50.0), ("by hand", by_hand, None)):
        report.add(f"clock: milliseconds to the answer, {what}, median", 1e3 * statistics.median(some), bar, below=True)
        report.add(f"clock: milliseconds to the answer, {what}, 9 of 10", 1e3 * sorted(some)[int(0.9 * rounds)])
    report.add("clock: by itself against by hand", statistics.median(found) / statistics.median(by_hand))
    used, began = time.process_time(), time.monotonic()
    time.sleep(2.0)
    share = (time.process_time() - used) / (time.monotonic() - began)
    asked.db.close()
    report.add("clock: share of a core while nothing comes", share, 0.02, below=True)


def spark(report: Report, rounds: int) -> None:
    """On Spark, which is kept busy with other rows."""
    asked = Asked("spark")
    asked.seconds(0)
    seconds: list[float] = []
    batches: list[int] = []
    for i in range(rounds):
        asked.db.push("stocks", [(k, k) for k in range(100)])
        before = asked.batches()
        seconds.append(asked.seconds(i % 10))
        # One that was under way when the row was pushed does not count.
        batches.append(asked.batches() - before - 1)
    asked.db.close()
    report.add("clock: milliseconds to the answer on Spark, median", 1e3 * statistics.median(seconds))
    report.add("clock: micro-batches to the answer, at most", max(batches), 2, below=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--engine", choices=["local", "spark"], action="append")
    parser.add_argument("--rounds", type=int)
    given = parser.parse_args()
    report = Report("clock")
    for engine in given.engine or ["local", "spark"]:
        rounds = given.rounds or amount(given, 100, 10)
        local(report, rounds) if engine == "local" else spark(report, min(rounds, 20))
    report.finish()


if __name__ == "__main__":
    main()
