"""What measuring latency costs: processor time with and without it, on the local engine.

    python -m benchmarks.latency_cost [--quick] [--scale X] [--rounds N]

Each load runs on one database. Short rounds with and without measuring alternate, and so does which of them is first.
The processor time of each is taken, all threads of the process counted. Other processes on the machine only make
rounds longer, so the first deciles of both kinds are compared. What such rounds do not have is added: putting what was
noted down into histograms, and forgetting old calls, both once in some hundred pushes, are timed by themselves and
divided among the pushes. Without measuring the stopwatch of the database gives no time, so nothing is noted down.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress
from penstock.database.database import core_of
from penstock.hosts.meter import Meter
from penstock.ingest.stamps import Stamps

BAR = 1.01
_OFF: Callable[[], Any] = [].clear
"""Gives None, at the price of asking a clock."""


@dataclass(frozen=True)
class Load:
    """Pushes of ``rows`` rows each into streams, for a query."""

    name: str
    declared: str
    query: str
    rows: int
    pushes: int
    settings: dict[str, Any]


S = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t"
LOADS = (
    Load("one row each, sliding average", S, "SELECT ISTREAM avg(v) AS a FROM s [ROWS 100] WHERE v > 1", 1, 16, {}),
    Load("one row each, filter", S, "SELECT v FROM s WHERE v > 1", 1, 20, {}),
    Load("one row each, slack", f"{S} SLACK 10", "SELECT v FROM s WHERE v > 1", 1, 16, {}),
    Load("1,000 rows each, sliding average", S, "SELECT ISTREAM avg(v) AS a FROM s [ROWS 100]", 1_000, 6, {}),
    Load(
        "one row each, priorities", f"{S} PRIORITY BY v % 3", "SELECT v FROM s WHERE v > 1", 1, 16, {},
    ),
    Load(
        "one row each, one worker", S, "SELECT ISTREAM avg(v) AS a FROM s [ROWS 100] WHERE v > 1", 1, 16,
        {"threading": "graph"},
    ),
)  # fmt: skip


class Rare:
    """Processor time of what happens once in some hundred pushes."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """The function, its time counted."""

        def counted(one: Any) -> None:
            began = time.process_time()
            function(one)
            self.seconds += time.process_time() - began

        return counted

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is done meanwhile."""
        fold, thin = Meter.fold, Stamps.thin
        try:
            Meter.fold, Stamps.thin = self.timed(fold), self.timed(thin)  # type: ignore[method-assign]
            yield
        finally:
            Meter.fold, Stamps.thin = fold, thin  # type: ignore[method-assign]


class Running:
    """A load on a database of its own."""

    def __init__(self, load: Load, rare: Rare) -> None:
        self.load, self._at, self._rare = load, 0, rare
        self.db = penstock.connect(engine="local")
        self.db.execute(load.declared)
        if load.settings:
            self.db.configure(**load.settings)
        self.query = self.db.query(load.query)
        self._watch = core_of(self.db).stopwatch

    def spent(self, *, measuring: bool) -> float:
        """Processor time of one round, without what is rare."""
        core_of(self.db).stopwatch = self._watch if measuring else _OFF
        batches = list(self._batches())
        gc.disable()
        began, rare = time.process_time(), self._rare.seconds
        for batch in batches:
            self.db.push("s", batch)
        self.db.settle()
        took = time.process_time() - began - (self._rare.seconds - rare)
        gc.enable()
        self.query.fetch()
        return took

    def _batches(self) -> Iterator[Any]:
        load = self.load
        for _ in range(load.pushes):
            start, self._at = self._at, self._at + load.rows
            if load.rows == 1:
                yield [(start, start % 7, start % 100)]
                continue
            t = np.arange(start, self._at)
            yield pa.table({"t": t, "k": t % 7, "v": t % 100})


def measured(load: Load, rounds: int) -> tuple[float, float]:
    """Processor time with measuring for one without; and the microseconds of a push without."""
    took: dict[bool, list[float]] = {True: [], False: []}
    rare = Rare()
    run = Running(load, rare)
    try:
        with rare.counting():
            for _ in range(20):
                run.spent(measuring=True)  # compiles, fills the window
            rare.seconds = 0.0
            for i in range(rounds):
                for measuring in (True, False) if i % 2 else (False, True):
                    took[measuring].append(run.spent(measuring=measuring))
        assert run.query.latency.count
    finally:
        run.db.close()
    measuring, without = (statistics.quantiles(took[kind], n=10)[0] for kind in (True, False))
    return (measuring + rare.seconds / rounds) / without, without / load.pushes * 1e6


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    rounds = arguments.rounds or amount(arguments, 601, 9)
    report = Report("latency_cost")
    for load in LOADS:
        progress(load.name)
        value, push = measured(load, rounds)
        report.add(
            f"{load.name}: processor time with / without", value, BAR, below=True,
            note=f"{rounds} pairs; a push takes {push:,.0f} µs",
        )  # fmt: skip
    report.finish()


if __name__ == "__main__":
    main()
