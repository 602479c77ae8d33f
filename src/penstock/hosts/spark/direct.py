"""A job without a shuffle: one way into Python and out again for each micro-batch.

    source ──┐
    source ──┴─ union ── one partition ── direct ── answers

Where there is only one shard, nothing is gained by cutting rows before they are put together again, and a small
micro-batch costs mostly what its tasks cost. Rows of all sources come through one door: a column says which source a
row is of, and columns of one type are shared by the sources. Shards, their order and their state are those of
``gather``, so a query may go on here from what it left there.

Where no query remembers a row and workers read the files themselves, there is a task for each shard. Each is given the
paths of all new files, and takes its share of what they have (``footers``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.hosts.spark.checkpoint import here, keep_apart
from penstock.hosts.spark.files import opened, paths
from penstock.hosts.spark.footers import shared, told, unread
from penstock.hosts.spark.gather import Gather
from penstock.hosts.spark.job import Job
from penstock.hosts.spark.rows import Unread
from penstock.hosts.spark.scatter import cut, declared, fitting, newest_of
from penstock.hosts.spark.worker import prepare, settle
from penstock.model.errors import EngineError

Places = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Direct:
    """The function of the task. ``sources``: those that are read, by place in the job; ``places``: of their columns.
    ``threads``: cores that a task has to itself."""

    gather: Gather
    sources: tuple[int, ...]
    places: tuple[Places, ...]
    threads: int = 1

    @property
    def __name__(self) -> str:
        return self.gather.title

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        prepare(self.threads)
        yield from self.answer(batches, *here(), context.partitionId())
        settle()

    def answer(
        self, batches: Iterator[pa.RecordBatch], location: str, batch: int, place: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """The answers of a micro-batch that the task ``place`` gives. The state of each of its shards is stored before
        the first answer is given away."""
        job = self.gather.job
        share, shares = (place, job.shards) if job.side_by_side else (0, 1)
        mine: list[dict[str, list[pa.Table]]] = [{} for _ in range(job.shards)]
        newest: dict[str, int] = {}
        later: dict[str, Unread] = {}
        if job.side_by_side:
            batches = _of_share(batches, share)
        for number, pieces in self._received(batches).items():
            source = job.sources[number]
            if source.files is not None:
                groups, files = told(paths(pieces), source) if job.reads_later(source) else ([], paths(pieces))
                if groups:
                    newest[source.name] = max(group.last for group in groups)
                    later[source.name] = unread(shared(groups, share, shares), source)
                pieces = [rows for rows in opened(files, source.files) if len(rows)]
            if not pieces:
                continue
            table, bad = fitting(declared(pieces, source), source)
            if share == 0:
                keep_apart(location, batch, source.name, 0, [bad])
            last = newest_of(table, source)
            if last is None:
                continue
            newest[source.name] = max(last, newest.get(source.name, last))
            table = _part(table, share, shares)
            for part in job.parts:
                if source.name in part.reads:
                    for shard, rows in cut(table, source.name, part, share):
                        mine[shard].setdefault(source.name, []).append(rows)
        steps = [share] if job.side_by_side else range(job.shards)
        found = [self.gather.run(i, mine[i], newest, (location, batch), later) for i in steps]
        for answers in found:
            yield from self.gather.batches(answers)

    def _received(self, batches: Iterator[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
        """The rows of each source that has some, in the order in which it gave them."""
        found: dict[tuple[int, int], list[pa.RecordBatch]] = {}
        for batch in batches:
            if not batch.num_rows:
                continue
            which, task = (batch.column(i).to_numpy() for i in range(2))
            ends = [0, *(np.flatnonzero((which[1:] != which[:-1]) | (task[1:] != task[:-1])) + 1), batch.num_rows]
            for start, end in pairwise(ends):
                columns = [batch.column(2 + i) for i in self.places[which[start]]]
                if end - start < batch.num_rows:
                    columns = [c.slice(start, end - start) for c in columns]
                rows = pa.RecordBatch.from_arrays(columns, names=[f"{i}" for i in range(len(columns))])
                found.setdefault((int(which[start]), int(task[start])), []).append(rows)
        pieces: dict[int, list[pa.RecordBatch]] = {}
        for which, task in sorted(found):
            pieces.setdefault(self.sources[which], []).extend(found[which, task])
        return pieces


def _of_share(batches: Iterator[pa.RecordBatch], share: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if pc.any(pc.not_equal(batch.column("share"), share)).as_py():
            raise EngineError(
                f"the task of share {share} was given files for another one",
                hint="Spark has made another join than it was asked for, or answers are put together by coalesce or "
                "union: do that in foreachBatch, or say shards=1",
            )
        yield batch


def _part(table: pa.Table, share: int, shares: int) -> pa.Table:
    ends = [len(table) * i // shares for i in (share, share + 1)]
    return table.slice(ends[0], ends[1] - ends[0])


def is_direct(job: Job) -> bool:
    """Is a shuffle of no use? A table is read in parallel even for one shard: it may be large."""
    return job.side_by_side or (not job.bounded and all(part.shards == 1 for part in job.parts))


def one_door(job: Job, frames: Sequence[DataFrame]) -> tuple[DataFrame, tuple[int, ...], tuple[Places, ...]]:
    """The rows of all streams as one DataFrame of one partition, which sources they are of, and their columns.

    Side by side, each of several partitions has all of them.
    """
    sources = tuple(i for i, s in enumerate(job.sources) if s.is_stream)
    places: list[Places] = []
    types: list[str] = []
    for i in sources:
        free = dict(enumerate(types))
        mine: list[int] = []
        for field in frames[i].schema.fields:
            text = field.dataType.simpleString()
            place = next((p for p, t in free.items() if t == text), len(types))
            free.pop(place, None)
            if place == len(types):
                types.append(text)
            mine.append(place)
        places.append(tuple(mine))
    doors: list[DataFrame] = []
    for number, i in enumerate(sources):
        names = dict(zip(places[number], frames[i].columns, strict=True))
        columns: list[Column] = [F.lit(number).alias("source"), F.spark_partition_id().alias("task")]
        for place, text in enumerate(types):
            column = F.col(f"`{names[place].replace('`', '``')}`") if place in names else F.lit(None).cast(text)
            columns.append(column.alias(f"c{place}"))
        doors.append(frames[i].select(*columns))
    together = doors[0]
    for door in doors[1:]:
        together = together.union(door)
    one = together.coalesce(1)
    if job.side_by_side:
        # The one join of Spark that neither shuffles nor makes a broadcast.
        tasks = one.sparkSession.range(0, job.shards, 1, job.shards).hint("shuffle_replicate_nl")
        one = tasks.crossJoin(one).select(*one.columns, F.col("id").alias("share"))
    return one, sources, tuple(places)
