"""What each micro-batch cost, and where.

Tasks report through an accumulator of Spark: what a task adds travels with its result, so there is no file and no
message of its own, and an attempt that failed reports nothing. There is one for each Spark application; it keeps the
last ``_REPORTS`` reports. A shard that was run twice in one micro-batch counts once, with its last report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.accumulators import Accumulator, AccumulatorParam

from penstock.hosts.spark.internals import checkpoint_root

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


Reports = Accumulator[list[Report]]


@dataclass(frozen=True)
class MicroBatch:
    """The cost of one micro-batch.

    ``rows`` of each stream came in, ``late`` of them too late, and ``answers`` went out. It took ``seconds`` in all.
    Shards spent ``kernels`` seconds in the queries' programs and ``state`` seconds opening and storing state, added up
    over shards, which may run at the same time; ``spark`` is the time in which no shard was at work. ``written``: bytes
    of state.
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


_current: tuple[str, Reports] | None = None
"""Application and its reports: a process has one application at a time."""


def reports_of(spark: SparkSession) -> Reports:
    """Where the tasks of a Spark application report."""
    global _current
    context = spark.sparkContext
    if _current is None or _current[0] != context.applicationId:
        _current = (context.applicationId, context.accumulator([], _Last()))
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
