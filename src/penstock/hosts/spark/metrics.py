"""What each micro-batch cost, and where.

Tasks report through an accumulator of Spark: what a task adds travels with its result, so there is no file and no
message of its own, and an attempt that failed reports nothing. There is one for each Spark application; it keeps the
last ``_REPORTS`` reports. A shard that was run twice in one micro-batch counts once, with its last report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.accumulators import Accumulator, AccumulatorParam

from penstock.hosts.spark.internals import checkpoint_root
from penstock.hosts.spark.rows import Waiting
from penstock.model.names import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_REPORTS = 1 << 14


class Report(NamedTuple):
    """What one shard did in one micro-batch. ``began`` and ``ended`` are seconds of the machine's clock."""

    checkpoint: str
    batch: int
    shard: int
    part: int
    rows: Mapping[str, int]
    late: Mapping[str, int]
    answers: int
    began: float
    ended: float
    kernels: float
    state: float
    written: int
    waiting: Waiting


Reports = Accumulator[list[Report]]


@dataclass(frozen=True)
class MicroBatch:
    """The cost of one micro-batch.

    ``rows`` of each stream came in, ``late`` of them too late, and ``answers`` went out. It took ``seconds`` in all.
    Shards spent ``kernels`` seconds in the queries' programs, and reading files meanwhile, and ``state`` seconds
    opening and storing state, added up over shards, which may run at the same time; ``spark`` is the time in which no
    shard was at work. ``written``: bytes of state.
    """

    number: int
    rows: Mapping[str, int]
    late: int
    answers: int
    seconds: float
    spark: float
    kernels: float
    state: float
    written: int


class _Last(AccumulatorParam[list[Report]]):
    """Keeps the last reports, in the order in which they came."""

    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:
        value1 += value2
        del value1[:-_REPORTS]
        return value1


class _Watching(_Last):
    """That of the driver: says how many rows came too late, when there are ten times as many as before."""

    def __init__(self) -> None:
        self._reached: dict[tuple[str, int], int] = {}
        self._late: dict[tuple[str, str], dict[int, int]] = {}
        self._next: dict[tuple[str, str], int] = {}

    def __reduce__(self) -> tuple[type[_Last], tuple[()]]:
        return _Last, ()

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:
        for report in value2:
            # A shard that was run twice in one micro-batch had the same late rows.
            if report.batch > self._reached.get((report.checkpoint, report.shard), -1):
                self._reached[report.checkpoint, report.shard] = report.batch
                for stream, count in report.late.items():
                    self._add(report, stream, count)
        return super().addInPlace(value1, value2)

    def _add(self, report: Report, stream: str, count: int) -> None:
        key = report.checkpoint, stream
        parts = self._late.setdefault(key, {})
        parts[report.part] = parts.get(report.part, 0) + count
        total = max(parts.values())
        if total >= self._next.get(key, 1):
            self._next[key] = 10 ** len(str(total))
            print(_warning(report.checkpoint, stream, total), file=sys.stderr, flush=True)


def _warning(checkpoint: str, stream: str, count: int) -> str:
    came = f"{counted(count, 'row')} of stream `{stream}` came too late so far and {'is' if count == 1 else 'are'}"
    return (
        f"penstock: {came} in no answer; ps.late(spark, {checkpoint!r}, {stream!r}) gives them, and slack=… waits for "
        "such rows"
    )


_current: tuple[str, Reports] | None = None
"""Application and its reports: a process has one application at a time."""


def reports_of(spark: SparkSession) -> Reports:
    """Where the tasks of a Spark application report."""
    global _current
    context = spark.sparkContext
    if _current is None or _current[0] != context.applicationId:
        _current = (context.applicationId, context.accumulator([], _Watching()))
    return _current[1]


def metrics(query: StreamingQuery) -> list[MicroBatch]:
    """The micro-batches of a streaming query that Spark still remembers, oldest first.

    That is ``spark.sql.streaming.numRecentProgressUpdates`` of them. Those that this process did not run are left out.
    """
    if _current is None:
        return []
    root = checkpoint_of(query)
    by_batch: dict[int, dict[int, Report]] = {}
    for report in list(_current[1].value):
        if report.checkpoint == root:
            by_batch.setdefault(report.batch, {})[report.shard] = report
    # A micro-batch that waited for rows may have said so before.
    progress = {p["batchId"]: p["durationMs"].get("triggerExecution", 0) / 1000 for p in query.recentProgress}
    return [together(n, s, by_batch[n].values()) for n, s in sorted(progress.items()) if n in by_batch]


def waiting(query: StreamingQuery) -> Waiting:
    """What waits for more rows after the last micro-batch of a streaming query, as far as this process ran it."""
    last: dict[int, Report] = {}
    root = checkpoint_of(query)
    for report in list(_current[1].value) if _current is not None else ():
        if report.checkpoint == root and report.batch >= max((r.batch for r in last.values()), default=-1):
            last = {s: r for s, r in last.items() if r.batch == report.batch} | {report.shard: report}
    slack = _counted((r.part, r.waiting.slack) for r in last.values())
    behind = {stream for r in last.values() for stream in r.waiting.behind}
    return Waiting(slack, sum(r.waiting.windows for r in last.values()), tuple(sorted(behind)))


def checkpoint_of(query: StreamingQuery) -> str:
    """The checkpoint location of a streaming query, as its tasks know it."""
    return checkpoint_root(query)


def together(number: int, seconds: float, reports: Iterable[Report]) -> MicroBatch:
    """A micro-batch, of the reports of its shards."""
    reports = list(reports)
    return MicroBatch(
        number, _counted((r.part, r.rows) for r in reports), sum(_counted((r.part, r.late) for r in reports).values()),
        sum(r.answers for r in reports), seconds,
        max(0.0, seconds - _covered((r.began, r.ended) for r in reports)),
        sum(r.kernels for r in reports), sum(r.state for r in reports), sum(r.written for r in reports),
    )  # fmt: skip


def _counted(counts: Iterable[tuple[int, Mapping[str, int]]]) -> dict[str, int]:
    """Rows of each stream. Parts that read the same stream are sent the same rows."""
    found: dict[str, dict[int, int]] = {}
    for part, of_shard in counts:
        for stream, count in of_shard.items():
            parts = found.setdefault(stream, {})
            parts[part] = parts.get(part, 0) + count
    return {stream: max(parts.values()) for stream, parts in found.items()}


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The time in at least one of the spans."""
    total, reached = 0.0, float("-inf")
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return total
