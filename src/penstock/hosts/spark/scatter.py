"""The first half of a job: the rows of one partition of a source, packed by shard.

Each packet is one row for Spark: a piece of Arrow IPC with the rows of one shard. At its end a task sends every shard a
packet without rows that says how far it came, so that shards without rows know what the others know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.hosts.spark.checkpoint import here, keep_apart
from penstock.hosts.spark.files import opened, paths
from penstock.hosts.spark.job import Job, Part, Source
from penstock.hosts.spark.keys import shard_of
from penstock.hosts.spark.worker import Sent, prepare, settle
from penstock.model.errors import InputError
from penstock.model.schema import arrow_schema
from penstock.rows.apart import SCHEMA, Bad, apart_table, row_text
from penstock.rows.times import FIRST, LAST, OUT_OF_RANGE
from penstock.storage.packing import packed

PACKETS = "shard INT, source INT, task INT, number INT, newest BIGINT, rows BINARY"
_SCHEMA = pa.schema([
    ("shard", pa.int32()), ("source", pa.int32()), ("task", pa.int32()), ("number", pa.int32()),
    ("newest", pa.int64()), ("rows", pa.binary()),
])  # fmt: skip
_ROWS = 1 << 18
"""Rows of a source that are packed at a time."""
_LIMIT = 2**62


@dataclass(frozen=True, eq=False)
class Scatter(Sent):
    """The function of a task; ``source`` is the place of the source in the job."""

    job: Job
    source: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        prepare()
        yield from self.pack(batches, context.partitionId())
        settle()

    def pack(self, batches: Iterator[pa.RecordBatch], task: int) -> Iterator[pa.RecordBatch]:
        """The packets of a task, of which there is one for each partition of the source."""
        source = self.job.sources[self.source]
        if source.files is not None:
            batches = opened(paths(batches), source.files)
        newest: int | None = None
        number = 0
        apart: list[pa.Table] = []
        # Where a row may be in any shard, one of a relation must be found in the same one when it is read again.
        home = task if source.is_stream or self.job.bounded else 0
        for table in gathered(batches, source):
            if source.timestamp is not None:
                table, bad = fitting(table, source)
                apart.append(bad)
                last = newest_of(table, source)
                if last is not None:
                    newest = last if newest is None else max(newest, last)
            packets: list[tuple[int, bytes | None]] = []
            for part in self.job.parts:
                if source.name in part.reads:
                    packets += [(shard, packed(rows)) for shard, rows in cut(table, source.name, part, home)]
            yield self._packets(task, number, None, packets)
            number += 1
        if not self.job.bounded and any(map(len, apart)):
            keep_apart(*here(), source.name, task, apart)
        # A packet without rows; ``newest`` is NULL where there were none.
        yield self._packets(task, number, newest, [(shard, None) for shard in range(self.job.shards)])

    def _packets(
        self, task: int, number: int, newest: int | None, packets: Sequence[tuple[int, bytes | None]]
    ) -> pa.RecordBatch:
        n = len(packets)
        columns = [
            pa.array([shard for shard, _ in packets], pa.int32()),
            pa.array([self.source] * n, pa.int32()),
            pa.array([task] * n, pa.int32()),
            pa.array([number] * n, pa.int32()),
            pa.array([newest] * n, pa.int64()),
            pa.array([rows for _, rows in packets], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


@dataclass(frozen=True, eq=False)
class RowsApart(Sent):
    """The function of a task that gives the rows which do not fit a source."""

    source: Source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches, self.source):
            yield from fitting(table, self.source)[1].to_batches()


def gathered(batches: Iterable[pa.RecordBatch], source: Source, rows: int = _ROWS) -> Iterator[pa.Table]:
    """Tables of about ``rows`` rows, of the types that are declared."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
        if count >= rows:
            yield declared(held, source)
            held, count = [], 0
    if held:
        yield declared(held, source)


def declared(batches: list[pa.RecordBatch], source: Source) -> pa.Table:
    """Rows as Spark gives them, in the types that are declared."""
    table = pa.Table.from_batches(batches).combine_chunks()
    columns = [_cast(c, f.type.arrow) for c, f in zip(table.columns, source.schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=arrow_schema(source.schema))


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return column.cast(wanted)


def fitting(table: pa.Table, source: Source) -> tuple[pa.Table, pa.Table]:
    """The rows whose time can be used, and, where they are kept apart, the others as ``rows.apart`` has them."""
    assert source.timestamp is not None
    column = table.column(source.timestamp)
    name = source.schema[source.timestamp].name
    ticks = ticks_of(column)
    ends = ends_of(source)
    least, greatest = pc.min_max(ticks).as_py().values()
    if not column.null_count and (least is None or ends[0] <= least <= greatest <= ends[1]):
        return table, SCHEMA.empty_table()
    where = f"stream `{source.name}`"
    out = OUT_OF_RANGE if source.clock == "timestamp" else "is out of range"
    if source.on_error != "apart":
        if column.null_count:
            raise InputError(
                f"{where}: the timestamp `{name}` of {column.null_count} rows is NULL",
                hint=f"leave them out, as in df.where('{name} IS NOT NULL'), or say on_error='apart'",
            )
        raise InputError(f"{where}: a timestamp in `{name}` {out}", hint="say on_error='apart' to do without such rows")
    good = pc.fill_null(pc.and_(pc.greater_equal(ticks, ends[0]), pc.less_equal(ticks, ends[1])), False)
    bad = table.filter(pc.invert(good))
    times = bad.column(source.timestamp)
    reasons = [f"the timestamp `{name}` {out if t.is_valid else 'is NULL'}" for t in times]
    rows = [Bad(where, name, reason, row_text(bad, i)) for i, reason in enumerate(reasons)]
    return table.filter(good), apart_table(rows)


def ends_of(source: Source) -> tuple[int, int]:
    """The first and the last time that a row may have."""
    return (FIRST, LAST) if source.clock == "timestamp" else (1 - _LIMIT, _LIMIT - 1)


def ticks_of(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as numbers."""
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in times.chunks], pa.int64())


def newest_of(table: pa.Table, source: Source) -> int | None:
    """The latest timestamp of some rows that fit; None if there are none."""
    assert source.timestamp is not None
    found = pc.max(ticks_of(table.column(source.timestamp))).as_py()
    return None if found is None else int(found)


def cut(table: pa.Table, source: str, part: Part, task: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each shard of a part, in their order."""
    if part.split.keys is None or part.shards == 1:
        yield part.first, table
        return
    if part.split.anywhere:
        yield part.first + task % part.shards, table
        return
    columns = [_whole(table.column(i)) for i in part.split.keys[source]]
    # Numbers of 16 bits are sorted by counting.
    shard = shard_of(columns, part.shards).astype(np.uint16 if part.shards < 1 << 16 else np.int64)
    order = np.argsort(shard, kind="stable")
    ends = np.searchsorted(shard[order], np.arange(part.shards + 1))
    sorted_rows = table.take(pa.array(order))
    for i in range(part.shards):
        if ends[i + 1] > ends[i]:
            yield part.first + i, sorted_rows.slice(int(ends[i]), int(ends[i + 1] - ends[i]))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
