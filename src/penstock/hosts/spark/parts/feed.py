"""What a task reads: the entries of a micro-batch, and which of their rows belong to a slot."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.relations import changes_from
from penstock.hosts.durable.forms import Division, batch_of, turn_of, urgent_of
from penstock.hosts.durable.rowfiles import read as read_rows
from penstock.hosts.spark.job import Split
from penstock.hosts.spark.keys import shard_of
from penstock.hosts.spark.parts.task import Assigned, Frame
from penstock.ingest.files import Columns, Span
from penstock.model.batch import Batch, concat
from penstock.model.change import Change
from penstock.model.schema import Schema
from penstock.model.values import to_arrow
from penstock.storage.files import Files
from penstock.storage.log import Place
from penstock.storage.objects import files_at
from penstock.storage.segments import Meta, Segment

_BLOCK_BITS = 12
"""Rows that may go anywhere are spread over slots in blocks of 2 to the power of this."""
_ROWS = 1 << 16
"""Rows that operators are given at once: what they make of them stays in the processor's cache."""
_OPEN = 256
"""Segments that a process keeps mapped."""


@dataclass(frozen=True)
class Share:
    """Which rows of a stream a slot takes: by key columns, ``anywhere`` (any rows, each in one slot), or all."""

    slot: int = 0
    slots: int = 1
    columns: Columns | None = None
    anywhere: bool = False

    @classmethod
    def of(cls, split: Split, name: str, only: int | None, slot: int, slots: int) -> Share:
        """Of a query, in a slot. ``only``: the only one in which it runs."""
        if only is not None:
            return cls()
        if split.anywhere:
            return cls(slot, slots, anywhere=True)
        assert split.keys is not None, "a query without a key runs in one slot"
        return cls(slot, slots, split.keys[name])

    def rows(self, batch: Batch) -> Batch:
        """Those of a batch."""
        if self.anywhere:
            mine: npt.NDArray[np.bool_] = (batch.arrival >> _BLOCK_BITS) % self.slots == self.slot
        elif self.columns is not None:
            mine = shard_of([batch.table.column(c).combine_chunks() for c in self.columns], self.slots) == self.slot
        else:
            return batch
        return batch if mine.all() else batch.take(np.flatnonzero(mine))

    def changes(self, changes: Sequence[Change], schema: Schema) -> Sequence[Change]:
        """Those of changes of a relation."""
        if self.columns is None or not changes:
            return changes
        columns = [to_arrow([c.row[i] for c in changes], schema[i].type) for i in self.columns]
        mine = shard_of(columns, self.slots) == self.slot
        return [change for change, is_mine in zip(changes, mine.tolist(), strict=True) if is_mine]

    def is_in(self, division: Division | None) -> bool:
        """Whether an entry that is divided in this way has its rows by themselves."""
        if division is None or len(division.frames) != self.slots or self.slots == 1:
            return False
        return self.anywhere or division.columns == self.columns

    def read(self, files: Files, spans: Sequence[Span], schema: Schema) -> Batch:
        """Those in files; where these are split in the same way, no others are read."""
        columns = self.columns
        if self.anywhere:
            columns = next(iter(spans[0].file.splits))
        if columns and all(len(span.file.splits.get(columns, ())) == self.slots for span in spans):
            return read_rows(files, spans, schema, columns, self.slot)
        return self.rows(read_rows(files, spans, schema))


@dataclass(frozen=True)
class Ahead:
    """Prioritised rows before their turn. ``reached``: the stream has come as far in its log, and all changes of
    relations up to there have been given."""

    rows: Batch
    reached: float


class Inputs:
    """The entries of a micro-batch, each read once however many queries want it."""

    def __init__(
        self, root: str, frames: Mapping[str, Sequence[Frame]], early: Mapping[str, Sequence[Frame]], session: str,
        read: dict[int, Batch] | None = None,
    ) -> None:  # fmt: skip
        """``read``: entries that have been read already."""
        self._root, self._frames, self._early, self._session = root, frames, early, session
        self._batches: dict[int, Batch] = {} if read is None else read
        self._shares: dict[tuple[int, Share], Batch] = {}
        self._ahead: dict[object, Ahead] = {}
        self._turns: dict[object, tuple[Sequence[Batch], Batch | None]] = {}
        self._changes: dict[int, list[Change]] = {}
        self.reading = 0.0
        self.splitting = 0.0
        """Seconds for reading entries, and for finding the rows of a slot among theirs."""

    def only(self, number: int) -> Inputs:
        """One of the entries, as if it had come alone."""
        frames = {name: [f for f in some if f.number == number] for name, some in self._frames.items()}
        some = {name: found for name, found in frames.items() if found}
        return Inputs(self._root, some, {}, self._session, self._batches)

    def has(self, name: str) -> bool:
        """Whether there are entries of a stream or relation."""
        return name in self._frames

    def progress(self, name: str, start: int) -> list[float]:
        """How far a stream is after the last of its frames; where that closes it, also how far it was before."""
        found = [f.progress for f in self._frames[name] if f.number >= start]
        if found and math.isinf(found[-1]):
            return [*[at for at in found if math.isfinite(at)][-1:], found[-1]]
        return found[-1:]

    def furthest(self, name: str, schema: Schema, start: int) -> float:
        """The instant of the last row in a stream's frames, of all slots; minus infinity if there is none."""
        frames = [f for f in self._frames[name] if f.number >= start and f.rows]
        if not frames:
            return -math.inf
        if frames[-1].spans or frames[-1].division is not None:
            return frames[-1].furthest
        batch = self._batch(frames[-1], schema)
        return float(batch.ts[-1]) if len(batch) else -math.inf

    def early(self, name: str, schema: Schema, query: Assigned, share: Share) -> Ahead | None:
        """The prioritised rows that a query has not had and whose turn is not now: those of later frames, and those
        that wait for slack."""
        frames = [f for f in self._early.get(name, ()) if f.number >= query.start and f.number > query.ahead]
        if not frames:
            return None
        key = (name, frames[0].number, share)
        if key not in self._ahead:
            taken = self._frames.get(name, ())
            last, progress = (taken[-1].number, taken[-1].progress) if taken else (0, -math.inf)
            turns = [prioritised(self._share(f, schema, share)) for f in frames if f.number > last and f.prioritised]
            waiting = [self._urgent(f, schema, share, progress) for f in frames if f.urgent]
            rows = concat([*turns, *waiting])
            rows = rows.take(np.unique(rows.arrival, return_index=True)[1])
            rows = rows.take(np.argsort(rows.ts, kind="stable"))
            self._ahead[key] = Ahead(rows, max((float(b.ts[-1]) for b in turns if len(b)), default=-math.inf))
        return self._ahead[key]

    def _urgent(self, frame: Frame, schema: Schema, share: Share, progress: float) -> Batch:
        """The prioritised rows that came with a frame and wait for slack, also when the stream is at ``progress``."""
        if frame.held:
            rows = prioritised(share.read(files_at(self._root), frame.held, schema))
        else:
            rows = share.rows(urgent_of(*read_entry(self._root, frame.place, self._session), schema))
        return rows.take(np.flatnonzero(rows.ts > progress))

    def in_turn(
        self, name: str, schema: Schema, query: Assigned, share: Share
    ) -> tuple[Sequence[Batch], Batch | None]:
        """The rows of a query's frames: those that it has not had, in batches, and those that it has had early."""
        frames = [f for f in self._frames[name] if f.number >= query.start and f.rows]
        had = [f.number <= query.ahead and f.prioritised > 0 for f in frames]
        key = (name, frames[0].number if frames else 0, share, query.ahead if any(had) else None)
        if key not in self._turns:
            shares = [self._share(f, schema, share) for f in frames]
            early = None
            if any(had):
                batch = concat(shares)
                priority = np.zeros(len(batch), np.int64) if batch.priority is None else batch.priority
                is_had = np.repeat(had, list(map(len, shares))) & (priority > 0)
                shares, early = [batch.take(np.flatnonzero(~is_had))], batch.take(np.flatnonzero(is_had))
            self._turns[key] = _in_batches(shares), early
        return self._turns[key]

    def changes(self, relations: Mapping[str, Schema], start: int) -> Iterator[tuple[str, Sequence[Change]]]:
        """The changes of relations in the frames from number ``start`` on, in the order in which they were made."""
        found = [(f, name) for name in relations for f in self._frames.get(name, ()) if f.number >= start]
        for frame, name in sorted(found, key=lambda f: f[0].number):
            if frame.number not in self._changes:
                rows = read_entry(self._root, frame.place, self._session)[1]
                self._changes[frame.number] = changes_from(relations[name], rows)
            yield name, self._changes[frame.number]

    def _share(self, frame: Frame, schema: Schema, share: Share) -> Batch:
        key = frame.number, share
        found = self._shares.get(key)
        if found is None:
            if frame.spans:
                began = time.perf_counter()
                found = share.read(files_at(self._root), frame.spans, schema)
                self.reading += time.perf_counter() - began
            elif share.is_in(frame.division):
                began = time.perf_counter()
                entry = read_entry(self._root, frame.place, self._session, frame.division, share.slot)
                found = batch_of(*entry, schema)
                self.reading += time.perf_counter() - began
            else:
                batch = self._batch(frame, schema)
                began = time.perf_counter()
                found = share.rows(batch)
                self.splitting += time.perf_counter() - began
            self._shares[key] = found
        return found

    def _batch(self, frame: Frame, schema: Schema) -> Batch:
        found = self._batches.get(frame.number)
        if found is None:
            began = time.perf_counter()
            found = self._batches[frame.number] = turn_of(*read_entry(self._root, frame.place, self._session), schema)
            self.reading += time.perf_counter() - began
        return found


def _in_batches(parts: Sequence[Batch]) -> list[Batch]:
    """The same rows in batches of about ``_ROWS``."""
    found: list[Batch] = []
    some: list[Batch] = []
    for part in parts:
        if len(part) > _ROWS:
            found += [*_joined(some), *(part.slice(start, _ROWS) for start in range(0, len(part), _ROWS))]
            some = []
        elif len(part):
            some.append(part)
            if sum(map(len, some)) > _ROWS // 2:
                found += _joined(some)
                some = []
    return [*found, *_joined(some)]


def _joined(parts: Sequence[Batch]) -> list[Batch]:
    if len(parts) < 2:
        return list(parts)
    found = concat(parts)
    found.table = found.table.combine_chunks()
    return [found]


_segments: OrderedDict[tuple[str, str, str], tuple[Segment, pa.Schema, int]] = OrderedDict()
"""Segments that this process has mapped, the schema of their rows, and up to where they were there."""


def read_entry(
    root: str, place: Place, session: str, division: Division | None = None, slot: int = 0
) -> tuple[Meta, pa.Table]:
    """An entry of a log: what is said of its rows, and the rows; if it is divided, those of a slot. Every byte that is
    read is verified."""
    key = root, session, place.path
    segment, schema, stop = _segments.pop(key, (None, None, 0))
    if segment is None or stop < place.stop:
        files = files_at(root)
        segment = Segment(files, place.path, content=place.content)
        head = segment.head()
        schema, stop = None if head is None else head.schema, place.stop
        if not files.appends:  # it has no other entry, and is in memory
            return _read(segment, place, schema, division, slot)
    _segments[key] = segment, schema, stop
    while len(_segments) > _OPEN:
        _segments.popitem(last=False)
    return _read(segment, place, schema, division, slot)


def _read(
    segment: Segment, place: Place, schema: pa.Schema, division: Division | None, slot: int
) -> tuple[Meta, pa.Table]:
    places = [(place.start, place.stop)]
    if division is not None:
        starts = [frame.start for frame in segment.frames_at(place.start, place.stop, verify=False)]
        ends, first = [*starts, place.stop], division.before + sum(division.frames[:slot])
        places = [(ends[0], ends[1]), (ends[first], ends[first + division.frames[slot]])]
    found = [segment.batch(frame, schema) for start, stop in places for frame in segment.frames_at(start, stop)]
    return found[0][0], pa.Table.from_batches([batch for _, batch in found])


def forget_all() -> None:
    """Make this process one that has not read anything."""
    _segments.clear()


def prioritised(batch: Batch) -> Batch:
    """The rows of a batch that have a priority."""
    if batch.priority is None:
        return batch.take(np.empty(0, np.int64))
    return batch.take(np.flatnonzero(batch.priority))
