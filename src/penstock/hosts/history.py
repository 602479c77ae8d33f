"""The rows that a stream retains for queries to come: in memory, or with ``history = 'disk'`` the newest of them there
and the others in files.

Files are in the directory for what waits (``runtime.storage``), are written once, and are removed when no row in them
is needed any more. They are gone when the process ends: of a database with a directory the saved state has the rows
too, and they are written anew when it is opened. What cannot be written stays in memory, and the log says so.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.catalog import StreamDef
from penstock.hosts.durable import forms
from penstock.model.batch import Batch, Instant, concat
from penstock.model.errors import SpillError
from penstock.runtime.storage.files import DamageError, Place, Segment

if TYPE_CHECKING:
    from penstock.runtime.storage.storage import Storage

_log = logging.getLogger("penstock")
_PIECES = 64
"""Batches in memory that are kept apart; more become one."""
MEMORY = 16_000_000
"""Bytes of a stream with ``history = 'disk'`` that stay in memory."""
FILE = 8_000_000
"""Bytes of a file, about."""


class Piece:
    """Rows one after the other, in memory."""

    def __init__(self, batch: Batch) -> None:
        self.rows, self.first, self.last = len(batch), int(batch.ts[0]), int(batch.ts[-1])
        self.size = int(batch.table.nbytes) + 24 * len(batch)
        self._batch: Batch | None = batch

    def read(self) -> Batch:
        assert self._batch is not None
        return self._batch


class FilePiece(Piece):
    """The same in a file, which is removed when nothing refers to the piece any more: a saved state that is being
    written may."""

    def __init__(self, batch: Batch, storage: Storage, name: str) -> None:
        super().__init__(batch)
        self._schema, self._batch, self._name = batch.schema, None, name
        table = forms.batch_table(batch).combine_chunks()
        columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
        record = pa.RecordBatch.from_arrays(columns, schema=table.schema)
        self._segment = Segment(storage.directory.file(), table.schema)
        self._ended = storage.directory.ended
        try:
            self._place: Place = self._segment.write(record)
        except OSError:
            self._segment.drop()
            raise
        storage.wrote(self._segment.size)
        gone = weakref.finalize(self, _let_go, self._segment, storage)
        gone.atexit = False  # the directory is removed as a whole

    def read(self) -> Batch:
        try:
            record = self._segment.read(self._place)
        except (OSError, DamageError, pa.ArrowException, ValueError) as error:
            raise SpillError(
                f"stream `{self._name}`: {self.rows:,} retained rows cannot be read back from disk: {error}",
                hint="nothing else may change the files of a database that is in use",
            ) from error
        return forms.batch_again(pa.Table.from_batches([record]), self._schema)


def _let_go(segment: Segment, storage: Storage) -> None:
    segment.drop()
    storage.freed(segment.size)


class Retained(Sequence[Batch]):
    """Rows of a stream as they are retained now, read when they are asked for. Later rows do not change it."""

    def __init__(self, pieces: Sequence[Piece], oldest: Instant) -> None:
        self._pieces, self._oldest = pieces, oldest

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, index: int) -> Batch:  # type: ignore[override]
        return self._cut(self._pieces[index])

    def __iter__(self) -> Iterator[Batch]:
        return map(self._cut, self._pieces)

    def _cut(self, piece: Piece) -> Batch:
        batch = piece.read()
        return batch if piece.first >= self._oldest else batch.take(np.flatnonzero(batch.ts >= self._oldest))

    def between(self, start: int, stop: int) -> Iterator[Batch]:
        """The rows with these numbers, from 0, of all that the pieces have."""
        for piece in self._pieces:
            if start < piece.rows and stop > 0:
                yield piece.read().slice(max(start, 0), min(stop, piece.rows) - max(start, 0))
            start, stop = start - piece.rows, stop - piece.rows

    @property
    def first(self) -> Instant:
        """The instant of the first row; infinite if there is none."""
        return int(self[0].ts[0]) if self._pieces else math.inf


class History:
    """Of one stream. Bounded by ``retain``; in memory, with ``history = 'disk'``, by ``MEMORY`` as long as files can be
    written. Calls come under the database's lock."""

    def __init__(self, definition: StreamDef, storage: Callable[[], Storage]) -> None:
        self._definition = definition
        self._storage = storage if definition.history == "disk" else None
        self._files: deque[Piece] = deque()
        self._memory: deque[Piece] = deque()
        self._oldest: Instant = -math.inf
        self.gone: Instant = -math.inf
        """The greatest instant of a row that no piece has any more."""
        self._said = False
        self.head = 0
        """How many rows have been put here, ever."""

    @property
    def rows(self) -> int:
        """How many are there, those included that a file has besides."""
        return sum(piece.rows for piece in chain(self._files, self._memory))

    @property
    def kept(self) -> Retained:
        """All that there is now."""
        return Retained((*self._files, *self._memory), -math.inf)

    @property
    def retained(self) -> Retained:
        """The rows that a query which comes now begins with: those in memory as one batch."""
        self._join()
        return Retained((*self._files, *self._memory), self._oldest)

    @property
    def forgotten(self) -> Instant:
        """The greatest instant of a row that was here and is not retained any more."""
        oldest = next(iter(self._files), None)
        if oldest is not None and oldest.first < self._oldest:
            instants = oldest.read().ts
            return max(self.gone, int(instants[instants < self._oldest][-1]))
        return self.gone

    def add(self, batch: Batch, progress: Instant) -> None:
        """Rows whose turn has come, and how far the stream is."""
        if len(batch):
            self.head += len(batch)
            self._memory.append(Piece(batch))
        if math.isfinite(progress):
            self._oldest = max(self._oldest, int(progress) - self._definition.retain)
        self._forget()
        if len(self._memory) > _PIECES:
            self._join()
        if self._storage is not None:
            self._spill()

    def restore(self, batches: Iterable[Batch], head: int, forgotten: Instant, progress: Instant) -> None:
        """Be what the history of this stream was."""
        self.gone = forgotten
        for batch in batches:
            self.add(batch, progress)
        self.head = head

    def _join(self) -> None:
        if len(self._memory) > 1:
            self._memory = deque([Piece(concat([piece.read() for piece in self._memory]))])

    def _forget(self) -> None:
        for pieces in (self._files, self._memory):
            while pieces and pieces[0].last < self._oldest:
                self.gone = max(self.gone, pieces.popleft().last)
        if self._memory and not self._files and self._memory[0].first < self._oldest:
            batch = self._memory[0].read()
            kept = int(np.searchsorted(batch.ts, self._oldest, "left"))
            self.gone = max(self.gone, int(batch.ts[kept - 1]))
            self._memory[0] = Piece(batch.take(np.arange(kept, len(batch))))

    def _spill(self) -> None:
        """Write the oldest rows in memory to disk until the others are within the bound."""
        assert self._storage is not None
        over = sum(piece.size for piece in self._memory) - MEMORY
        while over > 0:
            some, size = [self._memory.popleft()], 0
            size = some[0].size
            while self._memory and size + self._memory[0].size <= FILE and size < over:
                some.append(self._memory.popleft())
                size += some[-1].size
            found = self._written(concat([piece.read() for piece in some]))
            if found is None:
                self._memory.extendleft(reversed(some))
                return
            self._files.extend(found)
            over -= size

    def _written(self, batch: Batch) -> list[Piece] | None:
        """Rows in files; None if there is no room for them."""
        assert self._storage is not None
        storage, size = self._storage(), Piece(batch).size
        step = max(1, len(batch) * FILE // max(size, 1))
        if not storage.may_spill(size):
            self._complain("the budget `disk` is used up, or the disk has failed")
            return None
        try:
            return [
                FilePiece(batch.take(np.arange(start, min(start + step, len(batch)))), storage, self._definition.name)
                for start in range(0, len(batch), step)
            ]
        except OSError as error:
            self._complain(str(error))
            return None

    def _complain(self, why: str) -> None:
        if not self._said:
            self._said = True
            name = self._definition.name
            _log.warning("stream %s: retained rows cannot be written to disk: %s; they stay in memory", name, why)
