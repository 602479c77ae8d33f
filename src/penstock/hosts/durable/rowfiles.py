"""Files with rows of a stream that several processes write side by side: ``ingest.files`` says what they mean.

A file is a segment. Its rows are in it once for each way in which queries split the stream, slot after slot, so that
who works on a slot reads the rows of that slot and no others; without a split they are in it once, in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.hosts.durable.forms import PRIORITY, as_logged
from penstock.ingest.files import Bytes as Place
from penstock.ingest.files import Columns, RowsFile, Span
from penstock.model.batch import Batch, concat
from penstock.model.schema import Schema, arrow_schema
from penstock.storage.files import Bytes, Files
from penstock.storage.segments import Segment, frame_bytes, head_bytes, record_batches
from penstock.storage.shards import ROWS

_FRAME = 32 << 20
_INDEX = "_index"
"""The place of a row among those of its file."""
Ints = np.ndarray[Any, np.dtype[np.int64]]


def write(
    files: Files, path: str, rows: Batch, splits: Mapping[Columns, Ints], slots: int, *, epoch: int
) -> RowsFile:
    """Put rows, which are in order, into a file that lasts. ``splits``: the slot of each row, by key columns."""
    table = as_logged(rows).append_column(_INDEX, pa.array(np.arange(len(rows), dtype=np.int32)))
    content: list[Bytes] = [head_bytes(epoch, 0, table.schema)]
    size = len(content[0])

    def put(some: pa.Table) -> Place:
        nonlocal size
        start = size
        for batch in record_batches(some, _FRAME) if len(some) else ():
            frame, length, _ = frame_bytes(0, 0, batch, {}, safe=0)
            content.extend(frame)
            size += length
        return start, size

    places: dict[Columns, tuple[Place, ...]] = {}
    for columns, slot in splits.items():
        order = np.argsort(slot, kind="stable")
        ends = np.searchsorted(slot[order], np.arange(slots + 1))
        sorted_rows = table.take(pa.array(order))
        places[columns] = tuple(
            put(sorted_rows.slice(start, stop - start)) for start, stop in pairwise(ends.tolist())
        )
    if not places:
        places[()] = (put(table),)
    files.make(ROWS, sync=True)
    files.put(path, content, sync=True)
    prioritised = 0 if rows.priority is None else int(np.count_nonzero(rows.priority))
    return RowsFile(path, size, len(rows), int(rows.ts[0]), int(rows.ts[-1]), prioritised, places)


def read(files: Files, spans: Sequence[Span], schema: Schema, columns: Columns | None = None, slot: int = 0) -> Batch:
    """The rows of spans, in order. ``columns``: of files that are split by them, only those of a slot."""
    found = [_read(files, span, schema, columns, slot) for span in spans]
    some = [batch for batch in found if len(batch)]
    if not some:
        return found[0]
    if len(some) == 1:
        return some[0]
    whole = concat(some)
    whole = whole.take(np.lexsort((whole.arrival, whole.ts)))
    whole.table = whole.table.combine_chunks()
    return whole


def _read(files: Files, span: Span, schema: Schema, columns: Columns | None, slot: int) -> Batch:
    file, declared = span.file, arrow_schema(schema)
    segment = Segment(files, file.path, file.size)
    head = segment.head()
    assert head is not None, "it was finished"
    mine = None if columns is None else file.splits.get(columns)
    places = next(iter(file.splits.values())) if mine is None else (mine[slot],)
    batches = [
        segment.batch(frame, head.schema)[1] for place in places for frame in segment.frames_at(*place)
    ]
    rows = pa.Table.from_batches(batches, head.schema).combine_chunks()
    ts, index = rows.column("_ts").to_numpy(), rows.column(_INDEX).to_numpy().astype(np.int64)
    if file.oldest == file.newest:
        ts = np.full(len(ts), file.oldest, np.int64)
    order: Ints | None = None
    if len(places) > 1:
        order = np.argsort(index)  # they are in order in the file
        ts = ts[order]
    start = 0 if span.after == -math.inf else int(np.searchsorted(ts, span.after, side="right"))
    stop = len(ts) if span.upto == math.inf else int(np.searchsorted(ts, span.upto, side="right"))
    if order is not None:
        rows = rows.take(pa.array(order[start:stop]))
        index = index[order[start:stop]]
    else:
        rows, index = rows.slice(start, stop - start), index[start:stop]
    rows = rows.combine_chunks()
    priority = rows.column(PRIORITY).to_numpy() if PRIORITY in rows.column_names else None
    table = pa.Table.from_arrays(rows.columns[: len(declared)], schema=declared)
    return Batch(schema, table, ts[start:stop], index + file.arrival, priority)
