"""The jobs on Penstock's local engine: files are read, pushed, and all answers fetched."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock
from benchmarks.compare.jobs import GAP, RATE, Job, Tally
from penstock.database.database import Database
from penstock.database.query import Query

_TYPES = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.timestamp("us"): "TIMESTAMP"}


def files(folder: Path, stream: str) -> list[Path]:
    """Those of a stream, in order."""
    return sorted((folder / stream).glob("*.parquet"))


def declare(db: Database, folder: Path, stream: str) -> None:
    """The columns are those of the files."""
    schema = pq.read_schema(files(folder, stream)[0])
    columns = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in schema)
    db.execute(f"CREATE STREAM {stream} ({columns}) TIMESTAMP BY ts")


def streams(folder: Path) -> list[str]:
    """The streams of a job."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def run(job: Job, folder: Path) -> tuple[float, Tally]:
    """Seconds from the first query's start to the last answer, and what the answers come to."""
    names = streams(folder)
    found = Tally(0, 0.0)
    with penstock.connect(engine="local") as db:
        for name in names:
            declare(db, folder, name)
        began = time.perf_counter()
        queries = [db.query(text, name=name) for name, text in job.queries.items()]
        for paths in zip(*(files(folder, name) for name in names), strict=True):
            for name, path in zip(names, paths, strict=True):
                db.push(name, pq.read_table(path))
            for query in queries:
                found = added(found, tally(job, query, query.fetch()))
        return time.perf_counter() - began, found


def added(one: Tally, other: Tally) -> Tally:
    return Tally(one.answers + other.answers, one.checksum + other.checksum)


def tally(job: Job, query: Query, answers: pa.Table) -> Tally:
    """The same as ``counts`` and ``checksum`` say in SQL, over a table."""
    match job.name:
        case "filters":
            return Tally(len(answers), _sum(answers, "x"))
        case "join":
            return Tally(len(answers), _sum(answers, "x") + _sum(answers, "y"))
        case "queries":
            return Tally(len(answers), float(len(answers) * (int(query.name[1:]) + 1)))
        case "hopping":
            answers = answers.filter(pc.greater_equal(answers["k"], 0))
        case _:
            ts = answers["ts"].combine_chunks().view(pa.int64()).to_numpy()
            answers = answers.filter(pa.array(ts % GAP == 0))
    return Tally(len(answers), _sum(answers, "n") + _sum(answers, "m"))


def _sum(table: pa.Table, column: str) -> float:
    return float(pc.sum(table[column]).as_py() or 0)


# -- latency ----------------------------------------------------------------------------------------------


def paced(count: int, take: Callable[[int, int], None], rate: float = RATE) -> list[float]:
    """Hand over rows ``take(first, last)`` when they are due, all that are; the moments at which each was due.

    Who is slow has more of them the next time, and they have waited since they were due.
    """
    start = time.perf_counter() + 0.01
    done = 0
    while done < count:
        due = min(count, int((time.perf_counter() - start) * rate) + 1)
        if due > done:
            take(done, due)
            done = due
        ahead = start + done / rate - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
    return [start + i / rate for i in range(count)]


def latency(job: Job, folder: Path, engine: str = "local", skip: int = 0) -> tuple[list[float], Tally]:
    """Milliseconds from when a row is due until its answer is here, but for the first ``skip`` rows."""
    (path,) = files(folder, "s")
    table = pq.read_table(path)
    first = int(table["ts"].combine_chunks().view(pa.int64())[0].as_py())
    came: dict[int, float] = {}
    found = Tally(0, 0.0)
    with penstock.connect(engine=engine) as db:
        declare(db, folder, "s")
        ((name, text),) = job.queries.items()
        query = db.query(text, name=name)

        def heard(answers: pa.Table) -> None:
            nonlocal found
            now = time.perf_counter()
            found = added(found, tally(job, query, answers))
            ticks = answers["ts"].combine_chunks().view(pa.int64()).to_numpy() - first
            for row in (ticks[ticks % GAP == 0] // GAP).tolist():
                came[row] = now

        query.subscribe(heard)
        due = paced(len(table), lambda a, b: db.push("s", table.slice(a, b - a)))
        db.settle()
    return [1000 * (came[row] - due[row]) for row in range(skip, len(due))], found


def middle(milliseconds: list[float]) -> tuple[float, float]:
    """Half are below the first, 99 of 100 below the second."""
    return float(np.quantile(milliseconds, 0.5)), float(np.quantile(milliseconds, 0.99))
