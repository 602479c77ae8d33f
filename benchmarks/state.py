"""Saved state: what a micro-batch of 1,000 rows costs that lands in a process which is a version behind.

    python -m benchmarks.state [--quick] [--scale X] [--rounds N]

Two copies of a query take turns, as Spark's workers do: each catches up with what the other has committed, makes a
step, saves and commits. Windows of 100,000 and of 1,000,000 rows, in one run, taking turns too; the answers of a step
are as many in both. A full load is what a process pays that has nothing, or is too far behind.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress, timed
from penstock.cql.declarations import plan_of_text
from penstock.graph.programs import Program
from penstock.model.batch import Batch
from penstock.model.schema import Field
from penstock.model.types import BIGINT, DOUBLE
from penstock.plan.nodes import Query
from penstock.plan.optimize import optimize
from penstock.scalar import Context
from penstock.storage.versions import StateStore

DELTA = 1_000
SMALL = 100_000
DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t;
"""
SCHEMA = (Field("t", BIGINT), Field("k", BIGINT), Field("v", DOUBLE))
# The join has as many keys as rows in its window, so that a row has one partner whatever the window.
JOBS = {
    "join": ("SELECT ISTREAM s.k, s.v, r.v AS w FROM s [RANGE {w}] JOIN r [RANGE {w}] ON s.k = r.k", ("s", "r"), 1),
    "sliding aggregate": (
        "SELECT ISTREAM k, count(*) AS n, avg(v) AS a, max(v) AS m FROM s [RANGE {w}] GROUP BY k", ("s",), 10,
    ),
}  # fmt: skip


def plan(text: str) -> Query:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        return optimize(plan_of_text(db.catalog, text)[0])


@dataclass
class Job:
    """Two processes that take turns."""

    query: Query
    streams: tuple[str, ...]
    keys: int
    root: str
    at: int = 0
    version: int = 0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def __post_init__(self) -> None:
        self.copies = [Program(self.query, {}, Context()) for _ in range(2)]
        self.stores = [StateStore(self.root) for _ in range(2)]
        self.times: dict[str, list[float]] = {"catch up": [], "step": [], "save and commit": [], "all": []}

    def step(self, program: Program, rows: int) -> None:
        number = np.arange(self.at, self.at + rows, dtype=np.int64)
        for name in self.streams:
            keys, values = self.random.integers(0, self.keys, rows), self.random.random(rows)
            program.push(name, Batch(SCHEMA, pa.table({"t": number, "k": keys, "v": values}), number, number))
            program.progress(name, int(number[-1]))
        program.answers()
        self.at += rows

    def fill(self, rows: int) -> None:
        """The window is full, and a few rows have left it."""
        for _ in range(0, rows, 50_000):
            self.step(self.copies[0], 50_000)
        self.commit(0)
        self.load(1)

    def commit(self, which: int) -> None:
        self.version += 1
        self.stores[which].commit(self.version, self.copies[which].save())

    def load(self, which: int) -> None:
        self.copies[which], self.stores[which] = Program(self.query, {}, Context()), StateStore(self.root)
        state = self.stores[which].load(self.version)
        assert state is not None
        self.copies[which].load(state)

    def catch_up(self, which: int) -> None:
        state = self.stores[which].follow(self.version)
        assert state is not None
        self.copies[which].catch_up(state)

    def turn(self, which: int) -> None:
        """One micro-batch in a process that is a version behind."""
        parts = (
            timed(lambda: self.catch_up(which)) if self.times["step"] else 0.0,
            timed(lambda: self.step(self.copies[which], DELTA)),
            timed(lambda: self.commit(which)),
        )
        for name, seconds in zip(self.times, (*parts, sum(parts)), strict=True):
            self.times[name].append(seconds * 1e3)
        if self.version % 8 == 0:
            self.stores[which].forget(self.version - 1)


def compare(report: Report, name: str, rounds: int, rows: int) -> None:
    text, streams, rows_per_key = JOBS[name]
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        jobs = [
            Job(plan(text.format(w=size)), streams, size // rows_per_key, root)
            for size, root in ((rows, small), (10 * rows, large))
        ]
        for job, size in zip(jobs, (rows, 10 * rows), strict=True):
            job.fill(size)
        for job in jobs:
            job.turn(0)  # what compiles, does so here
            for i in range(1, 33):
                job.turn(i % 2)
            for times in job.times.values():
                times.clear()
            job.times["step"].append(0.0)
        for i in range(1, rounds + 1):
            for job in jobs:
                job.turn(i % 2)
        loads = [[timed(lambda j=job: j.load(0)) * 1e3 for _ in range(5)] for job in jobs]  # type: ignore[misc]
    for job in jobs:
        del job.times["step"][0]
    for part in jobs[0].times:
        middle = [statistics.median(job.times[part]) for job in jobs]
        mean = [statistics.mean(job.times[part]) for job in jobs]
        worst = max(jobs[1].times[part])
        report.add(f"{name}: {part}, ms", middle[1], note=f"mean {mean[1]:.2f}, worst {worst:.1f}; ÷10 {middle[0]:.2f}")
        bar = 1.5 if part == "all" else None
        report.add(f"{name}: {part}, window × 10", middle[1] / middle[0], bar, below=True)
        report.add(f"{name}: {part}, window × 10, mean", mean[1] / mean[0])
    report.add(f"{name}: full load, ms", min(loads[1]), note=f"÷10 {min(loads[0]):.2f}")
    report.add(f"{name}: full load against catching up", min(loads[1]) / statistics.median(jobs[1].times["catch up"]))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", nargs="*", choices=list(JOBS), default=list(JOBS))
    arguments = parser.parse_args()
    rounds = arguments.rounds or amount(arguments, 200)
    report = Report("state")
    for name in arguments.only:
        progress(name)
        compare(report, name, rounds, 20_000 if arguments.quick else SMALL)
    report.finish()


if __name__ == "__main__":
    main()
