"""Runs the comparison: writes the data, starts a process for each system, collects what they measure."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyarrow import csv

from benchmarks.compare.jobs import JOBS, LIMITS, QUERIES, RATE, SECOND, WINDOW, Job, Tally, times
from benchmarks.compare.peers import Peer
from benchmarks.compare.worker import LOCAL, ON_SPARK, SPARK
from benchmarks.support import processes
from benchmarks.support.files import write
from benchmarks.support.places import python_path
from benchmarks.support.processes import Event
from penstock.model.errors import InputError, suggest

OURS = (LOCAL, ON_SPARK, SPARK)
WARM = 15
"""Micro-batches before anything is measured, 200 rows each."""
LIMIT = 120.0
"""Seconds that another system has for a job at scale 1, with its start."""


class Watching(Protocol):
    """Who wants to know how it goes."""

    def begin(self, name: str) -> None: ...

    def doing(self, text: str) -> None: ...

    def tick(self, seconds: float) -> None: ...

    def end(self, text: str) -> None: ...


@dataclass(frozen=True)
class Measured:
    """A job on a system. ``same``: the answers are those that there are. ``why``: it has no such job, or failed."""

    job: str
    system: str
    rows: int
    seconds: float | None = None
    p50: float | None = None
    p99: float | None = None
    answers: int = 0
    checksum: float = 0.0
    same: bool = False
    start_up: float = 0.0
    note: str = ""
    why: str = ""

    @property
    def cost(self) -> float | None:
        """Seconds, or milliseconds to the answer: less is better."""
        return self.seconds if self.seconds is not None else self.p50


@dataclass
class Comparison:
    """All that was measured so far."""

    scale: float
    jobs: Sequence[str]
    expected: dict[str, Tally] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    interrupted: bool = False

    def of(self, job: str, system: str) -> Measured | None:
        return next((m for m in self.measured if (m.job, m.system) == (job, system)), None)

    def take(self, system: str, event: Event) -> None:
        """What a process says."""
        about = {key: value for key, value in event.items() if key not in ("event", "job", "system")}
        job = str(event["job"])
        found = Tally(int(about.get("answers", 0)), float(about.get("checksum", 0.0)))
        same = "why" not in about and found.same(self.expected[job])
        self.measured.append(Measured(job, str(event.get("system", system)), self.rows[job], same=same, **about))

    def failed(self, system: str, job: str, why: str) -> None:
        if self.of(job, system) is None:
            self.measured.append(Measured(job, system, self.rows[job], why=why))


def chosen(names: Sequence[str]) -> list[str]:
    """These jobs, or all if there is no name."""
    for name in names:
        if name not in JOBS:
            close = suggest(name, JOBS) or ""
            every = f"the jobs are {', '.join(JOBS)}"
            raise InputError(f"unknown job `{name}`", hint=f"{close} {every}" if close.startswith("did") else every)
    return [name for name in JOBS if not names or name in names]


def prepare(comparison: Comparison, folder: Path) -> None:
    """Write the data of all jobs, as Parquet files and, for those who cannot read these, as CSV."""
    for name in comparison.jobs:
        job = JOBS[name]
        rows = max(1_000, round(job.rows * (1.0 if name == "latency" else comparison.scale)))
        tables = job.tables(rows)
        comparison.expected[name] = job.expected(tables)
        comparison.rows[name] = sum(len(table) for table in tables.values())
        for stream, table in tables.items():
            write(folder / name / "data" / stream, table, job.files)
            _write_csv(table, folder / name / f"{stream}.csv")
        for stream, table in job.tables(WARM * 200).items():
            write(folder / name / "warm" / stream, table, 1 if name == "latency" else WARM)
        (folder / name / "job.json").write_text(json.dumps(constants(job, rows)), encoding="utf-8")


def _write_csv(table: pa.Table, path: Path) -> None:
    """With times as milliseconds; with a line of names, and, ``.plain.csv``, without."""
    ts = pa.array(times(table) // 1_000)
    table = table.set_column(0, "ts", ts)
    for to, names in ((path, True), (path.with_suffix(".plain.csv"), False)):
        csv.write_csv(table, to, csv.WriteOptions(include_header=names, quoting_style="none"))


def constants(job: Job, rows: int) -> dict[str, object]:
    """What other systems must know of a job."""
    return {
        "job": job.name, "rows_of_stream": rows, "window": WINDOW, "hop": SECOND, "queries": QUERIES, "rate": RATE,
        "limits": LIMITS,
    }  # fmt: skip


def perform(comparison: Comparison, folder: Path, peers: Sequence[Peer], watch: Watching) -> None:
    """Run all; what was measured until somebody interrupts is kept."""
    try:
        for which, systems in (("local", (LOCAL,)), ("spark", (ON_SPARK, SPARK))):
            _ours(comparison, folder, which, systems, watch)
        for peer in peers:
            _peer(comparison, folder, peer, watch)
    except KeyboardInterrupt:
        comparison.interrupted = True
        watch.end("interrupted")


def steps(peers: Sequence[Peer]) -> int:
    """How many processes there will be to watch."""
    return 2 + len(peers)


def _ours(comparison: Comparison, folder: Path, which: str, systems: Sequence[str], watch: Watching) -> None:
    watch.begin(" and ".join(systems))
    module = "benchmarks.compare.worker"
    ended = processes.run(
        [sys.executable, "-m", module, which, str(folder), *comparison.jobs],
        _hearing(comparison, systems[0], watch.doing), watch.tick,
        environment={"PYTHONPATH": python_path()},
    )  # fmt: skip
    for system in systems:
        for job in comparison.jobs:
            comparison.failed(system, job, ended.error or "said nothing of it")
    watch.end(f"{ended.seconds:.0f} s" + (f", then it failed: {ended.error}" if ended.error else ""))


def _peer(comparison: Comparison, folder: Path, peer: Peer, watch: Watching) -> None:
    watch.begin(peer.system)
    spent = 0.0
    for job in comparison.jobs:
        watch.doing(job)

        def tick(seconds: float, before: float = spent) -> None:
            watch.tick(before + seconds)

        command = [str(peer.python), str(peer.script), str(folder / job)]
        hearing = _hearing(comparison, peer.system, watch.doing)
        ended = processes.run(command, hearing, tick, limit=max(LIMIT, LIMIT * comparison.scale))
        spent += ended.seconds
        comparison.failed(peer.system, job, ended.error or "said nothing of it")
    watch.end(f"{spent:.0f} s")


def _hearing(comparison: Comparison, system: str, doing: Callable[[str], None]) -> Callable[[Event], None]:
    def heard(event: Event) -> None:
        match event.get("event"):
            case "doing":
                doing(str(event["text"]))
            case "measured":
                comparison.take(system, event)

    return heard


