"""A log: rows in the order in which they were taken, in segments, with one writer and many readers.

Rows have positions, from 0. Readers each know how far they are; whoever keeps a log says up to which frame nobody needs
anything, and whole segments up to there are removed. What is in a log is never changed.

Bounded by: what ``forget`` has not been told of; in memory by the number of segments. It is used under a lock of
whoever owns it; ``sync``, and ``read`` of entries that are there when it is called, need none.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.storage.files import Bytes, Files
from penstock.storage.segments import Frame, Segment, frame_bytes, head_bytes, record_batches

SEGMENT = 64 << 20
"""Bytes from which on a new segment is begun."""
_FRAME_BYTES = 32 << 20
"""Rows of one append are cut into frames of about this size."""
_NAME = re.compile(r"(\d{20})-(\d{10})\.segment")
_NOTHING: pa.Schema = pa.schema([])


@dataclass
class _Known:
    """A segment: number of its first and last frame, where it ends, up to where it is on the disk for sure."""

    name: str
    first: int
    last: int
    size: int
    synced: int = 0


@dataclass(frozen=True)
class Entry:
    """What one append put in, or a part of it."""

    number: int
    position: int
    meta: Mapping[str, Any]
    rows: pa.RecordBatch
    last: bool


Ends = Mapping[str, int]
"""Segments, and where they end."""


def counts(name: str, owner: int, sealed: Ends) -> bool:
    """Whether a file is a segment, and not of a process that was not the owner any more."""
    match = _NAME.fullmatch(name)
    return match is not None and (name in sealed or int(match[2]) == owner)


class Log:
    """See above. ``owner``: the epoch of the last owner; ``sealed``: where segments ended when he took over."""

    def __init__(
        self, files: Files, folder: str, schema: pa.Schema | None, *, epoch: int, owner: int, sealed: Ends,
        same_boot: bool,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._files, self._epoch = files, epoch
        self._schema = _NOTHING if schema is None else schema
        self._empty = pa.RecordBatch.from_pylist([], self._schema)
        self._segments: list[_Known] = []
        self._current: _Known | None = None
        self.position = 0
        """That of the next row."""
        self.last = 0
        """The number of the last frame."""
        self.dropped = False
        """Nobody will write or read it any more."""
        self._unsure = False
        self._before = 0, 0
        """Position and number behind what has been forgotten."""
        self._open(owner, sealed, same_boot)

    def _open(self, owner: int, sealed: Ends, same_boot: bool) -> None:
        for name in self._files.names(self.folder):
            match = _NAME.fullmatch(name)
            if match is None or not counts(name, owner, sealed):
                continue
            path = f"{self.folder}/{name}"
            segment = Segment(self._files, path, sealed.get(name))
            last: Frame | None = None
            for frame in segment.frames(same_boot=same_boot, verify=name not in sealed):
                last = frame
            if last is None:
                self._remove(path)  # begun, and nothing in it was acknowledged
                continue
            self._segments.append(_Known(name, int(match[1]), last.number, segment.end))
            self.position, self.last = last.position + last.rows, last.number

    @property
    def schema(self) -> pa.Schema:
        """Of its rows."""
        return self._schema

    @property
    def ends(self) -> Ends:
        """Its segments, and where they end."""
        return {s.name: s.size for s in self._segments}

    @property
    def first(self) -> int:
        """The number of the oldest frame that is there; one behind the last if there is none."""
        return self._segments[0].first if self._segments else self.last + 1

    @property
    def bytes(self) -> int:
        """How large it is."""
        return sum(s.size for s in self._segments)

    def use(self, schema: pa.Schema) -> None:
        """Rows are of this schema from now on."""
        if not self._schema.equals(schema):
            self._schema, self._current = schema, None
            self._empty = pa.RecordBatch.from_pylist([], schema)
        self.dropped = False

    def append(
        self, number: int, rows: pa.Table | pa.RecordBatch | None, meta: Mapping[str, Any],
        admit: Callable[[int], None] | None = None,
    ) -> int:  # fmt: skip
        """Add an entry with a greater number than all so far; gives how many bytes it takes. All or nothing.

        It survives the process from here on; what survives the machine is a matter of ``sync``. ``admit`` is told how
        many bytes it takes before any is written, and raises if these are too many.
        """
        batches = record_batches(self._empty if rows is None else rows, _FRAME_BYTES)
        current = self._current
        if current is None or current.size >= SEGMENT:
            # A name that nobody has used: the number is greater than any so far.
            current = _Known(f"{number:020d}-{self._epoch:010d}.segment", number, number, 0)
        path = f"{self.folder}/{current.name}"
        content: list[Bytes] = []
        size = current.size
        if not size:
            content.append(head := head_bytes(self._epoch, number, self._schema))
            size = len(head)
        position = self.position
        for i, batch in enumerate(batches):
            parts, length, _ = frame_bytes(
                number, position, batch, meta if i == 0 else {}, synced=current.synced, last=i == len(batches) - 1
            )
            content += parts
            size += length
            position += batch.num_rows
        if admit is not None:
            admit(size - current.size)
        if self._unsure:
            self._files.cut(path, current.size)
        self._unsure = True  # if this is stopped half-way, something may be there that does not count
        end = self._files.append(path, current.size, content)
        assert end == size, "as many bytes as there are"
        self._unsure = False
        if current is not self._current:
            self._segments.append(current)
            self._current = current
        grown = size - current.size
        self.position, self.last = position, number
        current.size, current.last = size, number
        return grown

    def cut(self, after: int) -> None:
        """Entries with numbers greater than this do not count."""
        while self._segments and self._segments[-1].first > after:
            gone = self._segments.pop()
            self._files.remove(f"{self.folder}/{gone.name}")
            if gone is self._current:
                self._current = None
        if self._segments and self._segments[-1].last > after:
            known = self._segments[-1]
            path = f"{self.folder}/{known.name}"
            whole = list(Segment(self._files, path, known.size).frames(verify=False))
            end = next(f.start for f in whole if f.number > after)
            self._files.cut(path, end)
            known.size, known.synced = end, min(known.synced, end)
        self._find_end()

    def _find_end(self) -> None:
        """See where the next entry goes."""
        if not self._segments:
            self.position, self.last = self._before
            return
        known = self._segments[-1]
        *_, last = Segment(self._files, f"{self.folder}/{known.name}", known.size).frames(verify=False)
        self.position, self.last, known.last = last.position + last.rows, last.number, last.number

    def read(self, after: int = 0) -> Iterator[Entry]:
        """The entries with numbers greater than this, in order; every byte that is read is verified."""
        for known in [s for s in self._segments if s.last > after]:
            segment = Segment(self._files, f"{self.folder}/{known.name}", known.size)
            head = segment.head()
            assert head is not None, "it was there when the log was opened"
            for frame in segment.frames():
                if frame.number > after:
                    meta, batch = segment.batch(frame, head.schema)
                    yield Entry(frame.number, frame.position, meta, batch, frame.last)

    def roll(self) -> None:
        """Let the next entry begin a new segment, so that those before it can be forgotten."""
        self._current = None

    def forget(self, upto: int) -> None:
        """Nobody needs entries with numbers up to this: segments that have no others are removed."""
        while self._segments and self._segments[0].last <= upto and self._segments[0] is not self._current:
            self._remove(f"{self.folder}/{self._segments.pop(0).name}")
            if not self._segments:
                self._before = self.position, self.last

    def dirty(self) -> list[tuple[str, int]]:
        """Segments that are not on the disk for sure, and their sizes."""
        return [(s.name, s.size) for s in self._segments if s.synced < s.size]

    def sync(self, dirty: Sequence[tuple[str, int]]) -> None:
        """Force segments to the disk. Without the lock; others may append meanwhile."""
        by_name = {s.name: s for s in self._segments}
        made = False
        for name, size in dirty:
            known = by_name.get(name)
            if known is None:
                continue  # forgotten meanwhile
            try:
                self._files.sync(f"{self.folder}/{name}")
            except FileNotFoundError:
                if known in self._segments:
                    raise
                continue
            made |= not known.synced
            known.synced = max(known.synced, size)
        if made:
            for folder in (self.folder, os.path.dirname(self.folder), ""):  # these may be new too
                self._files.sync_folder(folder)

    def _remove(self, path: str) -> None:
        # What cannot be removed is found again when the log is opened, or is in the way of nobody.
        with contextlib.suppress(OSError):
            self._files.remove(path)
