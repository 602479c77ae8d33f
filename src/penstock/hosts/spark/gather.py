"""The second half of a job: the packets of one shard become its answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
from pyspark import TaskContext

from penstock.hosts.spark.checkpoint import Versions, ends_with, here
from penstock.hosts.spark.job import Job
from penstock.hosts.spark.metrics import Report, Reports
from penstock.hosts.spark.rows import Answers, RowFeed, RowShard, Unread, Waiting
from penstock.hosts.spark.schemas import in_schema
from penstock.hosts.spark.worker import Sent, prepare, settle
from penstock.model.errors import EngineError
from penstock.storage.packing import unpacked

_ROWS = 1 << 16
"""Answers that are handed to Spark at a time."""

@dataclass(frozen=True, eq=False)
class Gather(Sent):
    """The function of a task. ``schemas``: of each query's answers, as Spark gets them.

    ``named``: answers of several queries: a column ``query`` first, then the columns of them all. ``reports``:
    where a streaming query tells what a micro-batch cost. ``title``: the queries in words, which is what Spark's plans
    call the function.
    """

    _each_time: ClassVar[tuple[str, ...]] = ("reports",)
    job: Job
    schemas: Mapping[str, pa.Schema]
    output: pa.Schema
    named: bool = False
    reports: Reports | None = None
    title: str = ""

    @property
    def __name__(self) -> str:
        return self.title

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        prepare()
        yield from self.answer(batches, context.partitionId(), None if self.job.bounded else here())
        settle()

    def answer(
        self, batches: Iterator[pa.RecordBatch], number: int, batch: tuple[str, int] | None
    ) -> Iterator[pa.RecordBatch]:
        """The answers of a shard; ``batch``: checkpoint location and number of the micro-batch, if it is one.

        State is stored before the first answer is given away: Spark need not ask for all of them.
        """
        packets, newest = self._received(batches, number)
        yield from self.batches(self.run(number, packets, newest, batch))

    def run(
        self,
        number: int,
        packets: Mapping[str, Sequence[pa.Table]],
        newest: Mapping[str, int],
        batch: tuple[str, int] | None,
        unread: Mapping[str, Unread] | None = None,
    ) -> Answers:
        """One step of a shard, from the state before it to the stored state after it."""
        if batch is None:
            return RowShard(self.job, self.job.part_of(number)).step(RowFeed(packets, newest, packets))
        times = [time.time()]
        versions = Versions(self.job, number, *batch)
        related = versions.relations()
        rows = None if related is None else {name: [unpacked(p) for p in some] for name, some in related.items()}
        feed = RowFeed(packets, newest, rows, ends_with(batch[1]), unread or {})
        shard = versions.open(feed)
        times.append(time.time())
        answers = shard.step(feed)
        times.append(time.time())
        versions.keep_late(answers.late)
        written = versions.commit(shard)
        times.append(time.time())
        if self.reports is None:
            return answers
        waiting = Waiting({}, 0, ()) if feed.ends else shard.waiting()
        report = self._report(number, batch, feed, answers, times, written, waiting)
        return replace(answers, tables=self._reported(answers.tables, report, self.reports))

    def _reported(
        self, tables: Iterable[tuple[str, pa.Table]], report: Report, reports: Reports
    ) -> Iterator[tuple[str, pa.Table]]:
        """The tables, and a report when Spark has had those that it wants: working on them counts as work."""
        count, kernels, began, ended = 0, report.kernels, time.time(), report.ended
        try:
            for name, table in tables:
                count, ended = count + len(table), time.time()
                kernels += ended - began
                yield name, table
                began = time.time()
        finally:
            reports.add([report._replace(answers=count, kernels=kernels, ended=ended)])

    def _report(
        self, number: int, batch: tuple[str, int], feed: RowFeed, answers: Answers, times: list[float], written: int,
        waiting: Waiting,
    ) -> Report:  # fmt: skip
        began, opened, stepped, ended = times
        part = self.job.part_of(number)
        streams = [s.name for s in self.job.sources if s.is_stream and s.name in part.reads]
        rows = {name: sum(map(len, feed.rows.get(name, ()))) for name in streams}
        rows |= {name: rows[name] + unread.count for name, unread in feed.unread.items() if name in rows}
        return Report(
            *batch, number, part.first, rows, {name: len(table) for name, table in answers.late.items()},
            0, began, ended, stepped - opened,
            opened - began + ended - stepped, written, waiting,
        )  # fmt: skip

    def _received(
        self, batches: Iterator[pa.RecordBatch], shard: int
    ) -> tuple[dict[str, list[pa.Table]], dict[str, int]]:
        """Rows of each source in the order in which it gave them, and how far each came."""
        found: list[tuple[int, int, int, pa.Buffer]] = []
        newest: dict[str, int] = {}
        for batch in batches:
            target, source, task, number, last = (batch.column(i).to_pylist() for i in range(5))
            if any(t != shard for t in target):
                raise EngineError(
                    f"partition {shard} was given rows of shard {target[0]}", hint="Spark moved partitions"
                )
            rows = batch.column(5)
            for i in range(batch.num_rows):
                name = self.job.sources[source[i]].name
                if last[i] is not None:
                    newest[name] = max(newest.get(name, last[i]), last[i])
                if rows[i].is_valid:
                    found.append((source[i], task[i], number[i], rows[i].as_buffer()))
        found.sort(key=lambda packet: packet[:3])
        packets: dict[str, list[pa.Table]] = {}
        for place, _, _, rows in found:
            packets.setdefault(self.job.sources[place].name, []).append(unpacked(rows))
        return packets, newest

    def batches(self, answers: Answers) -> Iterator[pa.RecordBatch]:
        """The answers as Spark gets them."""
        for name, table in answers.tables:
            given = in_schema(table, self.schemas[name])
            if self.named:
                given = self._among_others(name, given)
            if self.job.only_new:
                given = given.drop_columns("op")
            yield from given.combine_chunks().to_batches(max_chunksize=_ROWS)

    def _among_others(self, name: str, table: pa.Table) -> pa.Table:
        n = len(table)
        places = {column.lower(): i for i, column in enumerate(table.column_names)}
        columns = [
            pa.array([name], pa.string()).take(pa.nulls(n, pa.int8()).fill_null(0)) if field.name == "query"
            else table.column(places[field.name.lower()]) if field.name.lower() in places
            else pa.nulls(n, field.type)
            for field in self.output
        ]  # fmt: skip
        return pa.Table.from_arrays(columns, schema=self.output)
