"""What measuring latency costs, as a part of the processor time of a push, on the local engine.

    python -m benchmarks.latency_cost [--quick] [--scale X] [--rounds N]

Rounds of pushes alternate with rounds that do again, many times, what measuring did for the last of them: two looks at
the stopwatch, remembering the call where it is looked up, and noting down what was delivered, with all that follows
from it (histograms, forgetting old calls). Processor time is counted, of all threads. To compare pushes with
and without measuring would tell less: what differs is far below what two rounds of the same pushes differ by.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress
from penstock.database.database import core_of
from penstock.hosts.local.runner import GraphRunner
from penstock.hosts.meter import Meter
from penstock.model.delta import Delta

BAR = 0.01
TIMES = 2048
"""How many times a round measures: several times as many as are noted down before they go into histograms."""


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


class Running:
    """A load on a database of its own."""

    def __init__(self, load: Load) -> None:
        self.load, self._at = load, 0
        self.db = penstock.connect(engine="local")
        self.db.execute(load.declared)
        if load.settings:
            self.db.configure(**load.settings)
        self.query = self.db.query(load.query)
        self._core = core_of(self.db)
        self._last: tuple[GraphRunner, Meter, Delta] | None = None

    def push(self) -> float:
        """Processor seconds of a push."""
        batches = list(self._batches())
        began = time.process_time()
        for batch in batches:
            self.db.push("s", batch)
        self.db.settle()
        took = time.process_time() - began
        self.query.fetch()
        return took / len(batches)

    def measure(self) -> float:
        """Processor seconds of measuring what a push gave."""
        core, last = self._core, self._last
        assert last is not None
        runner, meter, answers = last
        source = core.inputs["s"]
        ranked = answers if answers.priority is not None else None
        began = time.process_time()
        for _ in range(TIMES):
            at = core.stopwatch()
            if source.stamps.wanted or core.host.on_its_own:
                source.stamp(at)
            runner._ranked = ranked
            runner.measure(meter, answers, core.stopwatch(), at)
        return (time.process_time() - began) / TIMES

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Remember what is measured last."""
        measure = GraphRunner.measure

        def watching(runner: GraphRunner, meter: Meter, answers: Delta, delivered: float, began: float) -> None:
            self._last = runner, meter, answers if runner._ranked is None else runner._ranked
            measure(runner, meter, answers, delivered, began)

        try:
            GraphRunner.measure = watching  # type: ignore[method-assign, assignment]
            yield
        finally:
            GraphRunner.measure = measure  # type: ignore[method-assign]

    def _batches(self) -> Iterator[Any]:
        load = self.load
        for _ in range(load.pushes):
            start, self._at = self._at, self._at + load.rows
            if load.rows == 1:
                yield [(start, start % 7, start % 97 + 2)]
                continue
            t = np.arange(start, self._at)
            yield pa.table({"t": t, "k": t % 7, "v": t % 100})


def parts(load: Load, rounds: int) -> tuple[list[float], float]:
    """Of each round, the part of a push that measuring is; and the microseconds of a push."""
    run = Running(load)
    try:
        with run.watched():
            for _ in range(20):
                run.push()  # compiles, fills the window
        found, pushes = [], []
        for _ in range(rounds):
            pushes.append(run.push())
            found.append(run.measure() / pushes[-1])
        assert run.query.latency.count
    finally:
        run.db.close()
    return found, statistics.median(pushes) * 1e6


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    rounds = arguments.rounds or amount(arguments, 101, 5)
    report = Report("latency_cost")
    for load in LOADS:
        progress(load.name)
        found, push = parts(load, rounds)
        low, _, high = statistics.quantiles(found, n=4)
        report.add(
            f"{load.name}: measuring, part of a push", statistics.median(found), BAR, below=True,
            note=f"half of {rounds} rounds from {low:.4f} to {high:.4f}; a push takes {push:,.0f} µs",
        )  # fmt: skip
    report.finish()


if __name__ == "__main__":
    main()
