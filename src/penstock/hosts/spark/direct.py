"""A job in one task: no shuffle, and one way into Python and out again for each micro-batch.

    source ──┐
    source ──┴─ union ── one partition ── direct ── answers

Where there is only one shard, nothing is gained by cutting rows before they are put together again, and a small
micro-batch costs mostly what its tasks cost. Rows of all sources come through one door: a column says which source a
row is of, and columns of one type are shared by the sources. Shards, their order and their state are those of
``gather``, so a query may go on here from what it left there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.hosts.spark.checkpoint import here, keep_apart
from penstock.hosts.spark.files import opened
from penstock.hosts.spark.gather import Gather
from penstock.hosts.spark.job import Job
from penstock.hosts.spark.scatter import cut, declared, fitting, newest_of
from penstock.hosts.spark.worker import prepare, settle

Places = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Direct:
    """The function of the task. ``sources``: those that are read, by place in the job; ``places``: of their columns.
    ``threads``: cores that this task has to itself."""

    gather: Gather
    sources: tuple[int, ...]
    places: tuple[Places, ...]
    threads: int = 1

    @property
    def __name__(self) -> str:
        return self.gather.title

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare(self.threads)
        yield from self.answer(batches, *here())
        settle()

    def answer(self, batches: Iterator[pa.RecordBatch], location: str, batch: int) -> Iterator[pa.RecordBatch]:
        """The answers of a micro-batch. The state of every shard is stored before the first answer is given away."""
        job = self.gather.job
        shards: list[dict[str, list[pa.Table]]] = [{} for _ in range(job.shards)]
        newest: dict[str, int] = {}
        for place, pieces in self._received(batches).items():
            source = job.sources[place]
            if source.files is not None:
                pieces = [rows for rows in opened(iter(pieces), source.files) if len(rows)]
            if not pieces:
                continue
            table, bad = fitting(declared(pieces, source), source)
            keep_apart(location, batch, source.name, 0, [bad])
            last = newest_of(table, source)
            if last is None:
                continue
            newest[source.name] = last
            for part in job.parts:
                if source.name in part.reads:
                    for shard, rows in cut(table, source.name, part, 0):
                        shards[shard].setdefault(source.name, []).append(rows)
        answers = [self.gather.run(i, packets, newest, (location, batch)) for i, packets in enumerate(shards)]
        for found in answers:
            yield from self.gather.batches(found)

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


def is_direct(job: Job) -> bool:
    """Is one task enough? A table is read in parallel even for one shard: it may be large."""
    return not job.bounded and all(part.shards == 1 for part in job.parts)


def one_door(job: Job, frames: Sequence[DataFrame]) -> tuple[DataFrame, tuple[int, ...], tuple[Places, ...]]:
    """The rows of all streams as one DataFrame of one partition, which sources they are of, and their columns."""
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
    return together.coalesce(1), sources, tuple(places)
