"""Runs jobs on Penstock and on Spark, in a process of its own that says what it measures.

    python -m benchmarks.compare.worker local|spark FOLDER JOB …

``FOLDER`` has for each job a folder ``data``, a folder ``warm`` with little data, both as ``runner`` writes them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.compare import local
from benchmarks.compare.jobs import JOBS, Job, Tally
from benchmarks.support.common import clock
from benchmarks.support.report import progress, tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL, ON_SPARK, SPARK = "Penstock, local", "Penstock on Spark", "plain Spark"
SKIPPED = 0.5
"""The share of rows at the beginning whose latency does not count: just-started systems are slow."""


def measured(job: Job, system: str, seconds: float, found: Tally, start_up: float = 0.0, note: str = "") -> None:
    """Say what a job took."""
    tell("measured", job=job.name, system=system, seconds=seconds, answers=found.answers, checksum=found.checksum,
         start_up=start_up, note=note)  # fmt: skip


def waited(job: Job, system: str, milliseconds: list[float], found: Tally, note: str = "") -> None:
    """Say how long answers took."""
    half, most = local.middle(milliseconds)
    tell("measured", job=job.name, system=system, p50=half, p99=most, answers=found.answers, checksum=found.checksum,
         note=note)  # fmt: skip


def on_local(folder: Path, names: list[str]) -> None:
    """All jobs on the local engine; each once before it counts."""
    for name in names:
        job, data, warm = JOBS[name], folder / name / "data", folder / name / "warm"
        progress(f"{name} on {LOCAL}")
        if name == "latency":
            local.latency(job, warm)
            ms, found = local.latency(job, data, skip=skipped(data))
            waited(job, LOCAL, ms, found)
        else:
            local.run(job, warm)
            seconds, found = local.run(job, data)
            measured(job, LOCAL, seconds, found)


def on_spark(folder: Path, names: list[str]) -> None:
    """All jobs with Penstock on Spark and without it, in one session."""
    from benchmarks.support.on_spark import session

    began = clock()
    spark = session()
    start_up = clock() - began
    for name in names:
        try:
            compare(spark, JOBS[name], folder / name, start_up)
        except Exception as error:  # the other jobs go on
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            for system in (ON_SPARK, SPARK):
                tell("measured", job=name, system=system, why=why)
    spark.stop()


def compare(spark: SparkSession, job: Job, folder: Path, start_up: float = 0.0) -> None:
    """One job in a session: Penstock, plain Spark, Penstock again, so that what else the machine does shows."""
    from benchmarks.compare import plain_spark
    from benchmarks.compare import spark as sides

    data, warm = folder / "data", folder / "warm"
    if job.name == "latency":
        progress(f"latency on {ON_SPARK}")
        local.latency(job, warm, "spark")
        ms, found = local.latency(job, data, "spark", skipped(data))
        waited(job, ON_SPARK, ms, found)
        progress(f"latency on {SPARK}")
        sides.latency(spark, warm, 0)
        ms, found = sides.latency(spark, data, skipped(data))
        waited(job, SPARK, ms, found, plain_spark.PANDAS)
        return
    progress(f"{job.name} on {ON_SPARK}: warm-up")
    sides.ours(spark, job, warm)
    before = sides.ours(spark, job, data)
    progress(f"{job.name} on {SPARK}: warm-up")
    sides.plain(spark, job, warm, 1)
    progress(f"{job.name} on {SPARK}")
    theirs = sides.plain(spark, job, data)
    sides.ours(spark, job, warm)
    after = sides.ours(spark, job, data)
    many = job.name == "queries"  # to start them is part of the job
    seconds = [run.whole if many else run.busy for run in (before, after)]
    measured(job, ON_SPARK, sum(seconds) / 2, Tally(before.answers, before.checksum), start_up)
    note = plain_spark.PANDAS if job.name == "sliding" else "a streaming query for each" if many else ""
    measured(job, SPARK, theirs.busy, Tally(theirs.answers, theirs.checksum), start_up, note)


def skipped(folder: Path) -> int:
    """Rows at the beginning whose latency does not count."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(local.files(folder, "s")[0]).num_rows * SKIPPED)


def main(arguments: list[str]) -> None:
    which, folder, *names = arguments
    {"local": on_local, "spark": on_spark}[which](Path(folder), names)


if __name__ == "__main__":
    main(sys.argv[1:])
