"""What a task reads: the frames of a micro-batch, and which of their rows belong to a slot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.hosts.spark.job import Split
from penstock.hosts.spark.keys import shard_of
from penstock.hosts.spark.live.frames import Frame, mapped, payload, unpacked
from penstock.hosts.spark.live.plan import Assigned, changes_schema, rows_logged, rows_schema
from penstock.model.batch import Batch, concat
from penstock.model.change import Change
from penstock.model.schema import Schema
from penstock.model.values import to_arrow, to_rows

_BLOCK_BITS = 12
"""Rows that may go anywhere are spread over slots in blocks of 2 to the power of this."""


class Inputs:
    """The frames of a micro-batch, each read once however many queries want it."""

    def __init__(self, frames: Mapping[str, Sequence[Frame]], early: Mapping[str, Sequence[Frame]]) -> None:
        self._frames, self._early = frames, early
        self._files: dict[str, memoryview] = {}
        self._rows: dict[tuple[str, int], Batch | None] = {}
        self._ahead: dict[tuple[str, int], Batch] = {}
        self._divided: dict[tuple[str, int, int], tuple[Batch, Batch | None]] = {}
        self._changes: dict[int, list[Change]] = {}
        self._shares: dict[object, Batch] = {}

    def progress(self, name: str, start: int) -> list[float]:
        """How far a stream is after the last of its frames; where that closes it, also how far it was before."""
        found = [f.marks.progress for f in self._frames[name] if f.number >= start]
        if found and math.isinf(found[-1]):
            return [*[at for at in found if math.isfinite(at)][-1:], found[-1]]
        return found[-1:]

    def early(self, name: str, schema: Schema, query: Assigned) -> Batch | None:
        """The prioritised rows of later frames that a query has not had."""
        frames = [f for f in self._early.get(name, ()) if f.number >= query.start and f.number > query.ahead]
        if not frames:
            return None
        key = (name, frames[0].number)
        if key not in self._ahead:
            read = (rows_logged(schema, [batch]) for batch in self._read(frames, rows_schema(schema)))
            self._ahead[key] = concat([prioritised(batch) for batch in read])
        return self._ahead[key]

    def in_turn(self, name: str, schema: Schema, query: Assigned) -> tuple[Batch | None, Batch | None]:
        """The rows of a query's frames: those that it has not had, and those that it has had early."""
        batch = self.rows(name, schema, query.start)
        frames = [f for f in self._frames[name] if f.number >= query.start and f.rows]
        had = [f.number <= query.ahead and f.prioritised > 0 for f in frames]
        if batch is None or batch.priority is None or not any(had):
            return batch, None
        key = (name, frames[0].number, query.ahead)
        if key not in self._divided:
            is_had = np.repeat(had, [f.rows for f in frames]) & (batch.priority > 0)
            self._divided[key] = batch.take(np.flatnonzero(~is_had)), batch.take(np.flatnonzero(is_had))
        return self._divided[key]

    def rows(self, name: str, schema: Schema, start: int) -> Batch | None:
        """The rows of the frames from number ``start`` on."""
        frames = [f for f in self._frames[name] if f.number >= start and f.rows]
        if not frames:
            return None
        key = (name, frames[0].number)
        if key not in self._rows:
            self._rows[key] = rows_logged(schema, list(self._read(frames, rows_schema(schema))))
        return self._rows[key]

    def changes(self, relations: Mapping[str, Schema], start: int) -> Iterator[tuple[str, Sequence[Change]]]:
        """The changes of relations in the frames from number ``start`` on, in the order in which they were made."""
        found = [(f, name) for name in relations for f in self._frames.get(name, ()) if f.number >= start]
        for frame, name in sorted(found, key=lambda f: f[0].number):
            if frame.number not in self._changes:
                (batch,) = self._read([frame], changes_schema(relations[name]))
                self._changes[frame.number] = changes_of(relations[name], batch)
            yield name, self._changes[frame.number]

    def share(self, batch: Batch, name: str, split: Split, index: int, slots: int) -> Batch:
        """The rows of a batch that belong to a slot."""
        key = (id(batch), None if split.anywhere else (split.keys or {})[name])
        if key not in self._shares:
            self._shares[key] = share_of(batch, split, name, index, slots)
        return self._shares[key]

    def _read(self, frames: Sequence[Frame], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for frame in frames:
            if frame.path not in self._files or len(self._files[frame.path]) < frame.end:
                self._files[frame.path] = mapped(frame.path)
            yield unpacked(payload(self._files[frame.path], frame), schema)


def prioritised(batch: Batch) -> Batch:
    """The rows of a batch that have a priority."""
    if batch.priority is None:
        return batch.take(np.empty(0, np.int64))
    return batch.take(np.flatnonzero(batch.priority))


def share_of(batch: Batch, split: Split, name: str, index: int, slots: int) -> Batch:
    """The rows of a batch that belong to a slot."""
    if split.anywhere:
        mine: npt.NDArray[np.bool_] = (batch.arrival >> _BLOCK_BITS) % slots == index
    else:
        assert split.keys is not None, "a query without a key runs in one slot"
        mine = shard_of([batch.table.column(c).combine_chunks() for c in split.keys[name]], slots) == index
    return batch if mine.all() else batch.take(np.flatnonzero(mine))


def my_changes(
    changes: Sequence[Change], schema: Schema, keys: Mapping[str, tuple[int, ...]], name: str, index: int, slots: int
) -> list[Change]:
    """The changes of a relation that belong to a slot."""
    if not changes:
        return []
    columns = [to_arrow([c.row[i] for c in changes], schema[i].type) for i in keys[name]]
    mine = shard_of(columns, slots) == index
    return [change for change, is_mine in zip(changes, mine.tolist(), strict=True) if is_mine]


def changes_batch(schema: Schema, changes: Sequence[Change]) -> pa.RecordBatch:
    """Changes of a relation for its log."""
    columns = [to_arrow([c.row[i] for c in changes], f.type) for i, f in enumerate(schema)]
    more = [
        pa.array([c.ts for c in changes], pa.int64()), pa.array([c.sign for c in changes], pa.int8()),
        pa.array([c.arrival for c in changes], pa.int64()), pa.array([c.group for c in changes], pa.int64()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays([*columns, *more], schema=changes_schema(schema))


def changes_of(schema: Schema, batch: pa.RecordBatch) -> list[Change]:
    """The changes of ``changes_batch``."""
    table = pa.Table.from_batches([batch])
    rows = to_rows(table.select(list(range(len(schema)))), schema)
    more = [table.column(len(schema) + i).to_pylist() for i in range(4)]
    return [Change(t, s, row, a, g) for row, t, s, a, g in zip(rows, *more, strict=True)]
