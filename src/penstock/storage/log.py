"""A log: rows in the order in which they were taken, in segments, with one writer and many readers.

Rows have positions, from 0. Readers each know how far they are; the store says up to which entry the saved states
cover everything, and whole segments up to there are removed. What is in a log is never changed.

Bounded by: what ``forget`` has not been told of; in memory by the number of segments. It is used under the store's
mutex; ``sync``, and ``read`` of entries that are there when it is called, need none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.model.errors import StorageError
from penstock.storage.files import Bytes, Files
from penstock.storage.segments import Frame, Segment, frame_bytes, head_bytes, record_batches

SEGMENT = 64 << 20
"""Bytes from which on a new segment is begun."""
FRAME_BYTES = 32 << 20
"""Rows of one append are cut into frames of about this size."""
SMALL = 64 << 10
"""Bytes of a segment with one entry, as object stores have them, up to which its readers are given all of it."""
MOMENTARY = frozenset({errno.EMFILE, errno.ENFILE, errno.EINTR})
"""Errors that say nothing of the disk: too many files are open."""
_NAME = re.compile(r"(\d{20})-(\d{10})\.segment")
_NOTHING: pa.Schema = pa.schema([])


@dataclass(eq=False)
class Known:
    """A segment: number of its first and last frame, where it ends, up to where it is on the disk for sure."""

    name: str
    first: int
    last: int
    size: int
    synced: int = 0


class _Before(NamedTuple):
    """A log before an append: the number that it adds, the segment and its end, and the ends of the log."""

    number: int
    segment: Known
    size: int
    last_of_segment: int
    position: int
    last: int


class Place(NamedTuple):
    """Where an entry is: the segment, and the bytes of its frames. ``content``: all of the segment, if the entry has it
    to itself and it is small; it need not be read then."""

    path: str
    start: int
    stop: int
    content: bytes = b""


@dataclass(frozen=True)
class Entry:
    """What one append put in, or a part of it."""

    number: int
    position: int
    meta: Mapping[str, Any]
    rows: pa.RecordBatch
    last: bool


Rows: TypeAlias = pa.Table | pa.RecordBatch | list[pa.RecordBatch]
"""What an entry has; a list is its frames."""
Ends = Mapping[str, int]
"""Segments, and where they end."""


def counts(path: str, owner: int, sealed: Ends) -> bool:
    """Whether a file is a segment, and not of a process that was not the owner any more. StorageError if it is of an
    owner of whom nothing is known."""
    name = path.rpartition("/")[2]
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    check_epoch(path, int(match[2]), owner)
    return name in sealed or int(match[2]) == owner


def check_epoch(path: str, epoch: int, owner: int) -> None:
    """StorageError if a file is of a later owner than the last one of whom there is a record."""
    if epoch > owner:
        raise StorageError(
            f"{path}: written in epoch {epoch}, and epochs/{epoch:010d}.json is missing",
            hint="without it nobody knows which entries count: restore the directory from a backup",
        )


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
        self._segments: list[Known] = []
        self._current: Known | None = None
        self.position = 0
        """That of the next row."""
        self.last = 0
        """The number of the last frame."""
        self.dropped = False
        """Its stream or relation was dropped."""
        self.place = Place("", 0, 0)
        """Where the entry is that was appended last."""
        self.safe = 0
        """The greatest number up to which a frame says that all entries were on the disk."""
        self.torn: StorageError | None = None
        """What is wrong at its end, where a restart of the machine explains it."""
        self._before_append: _Before | None = None
        """What was before an append that is under way, or was stopped half-way."""
        self._before = 0, 0
        """Position and number behind what has been forgotten."""
        self._open(owner, sealed, same_boot)

    def _open(self, owner: int, sealed: Ends, same_boot: bool) -> None:
        for name in self._files.names(self.folder):
            match = _NAME.fullmatch(name)
            path = f"{self.folder}/{name}"
            if match is None or not counts(path, owner, sealed):
                continue
            segment = Segment(self._files, path, sealed.get(name))
            last: Frame | None = None
            for frame in segment.frames(same_boot=same_boot, verify=name not in sealed):
                last = frame
            self.safe = max(self.safe, segment.safe)
            self.torn = self.torn or segment.torn
            if last is None and segment.torn is not None:
                continue  # should it have had what counts, the store says so
            if last is None:
                self._remove(path)  # begun, and nothing in it was acknowledged
                continue
            self._segments.append(Known(name, int(match[1]), last.number, segment.end))
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
        self, number: int, rows: Rows | None, meta: Mapping[str, Any],
        admit: Callable[[int], None] | None = None, *, safe: int = 0,
    ) -> int:  # fmt: skip
        """Add an entry with a greater number than all so far; gives how many bytes it takes. All or nothing.

        It survives the process from here on; what survives the machine is a matter of ``sync``. ``admit`` is told how
        many bytes it takes before any is written, and raises if these are too many. ``safe``: entries up to this number
        are on the disk for sure.

        If it raises, it may be necessary to ``settle`` what is there before another log has an entry.
        """
        batches = rows if isinstance(rows, list) else record_batches(self._empty if rows is None else rows, FRAME_BYTES)
        current = self._current
        if current is None or current.size >= SEGMENT or not self._files.appends:
            # A name that no segment has had: the number is greater than any so far.
            current = Known(f"{number:020d}-{self._epoch:010d}.segment", number, number, 0)
        path = f"{self.folder}/{current.name}"
        content: list[Bytes] = []
        size = current.size
        if not size:
            content.append(head := head_bytes(self._epoch, number, self._schema))
            size = len(head)
        start, position = size, self.position
        for i, batch in enumerate(batches):
            parts, length, _ = frame_bytes(
                number, position, batch, meta if i == 0 else {}, safe=safe, last=i == len(batches) - 1
            )
            content += parts
            size += length
            position += batch.num_rows
        if admit is not None:
            admit(size - current.size)
        self.settle()
        # If this is stopped half-way, something may be there that does not count.
        self._before_append = _Before(number, current, current.size, current.last, self.position, self.last)
        if self._files.appends:
            end = self._files.append(path, current.size, content)
            assert end == size, "as many bytes as there are"
        else:
            self._files.put(path, content)
        grown = size - current.size
        if current is not self._current:
            self._segments.append(current)
            self._current = current
        current.size, current.last = size, number
        small = not self._files.appends and size <= SMALL
        self.place = Place(path, start, size, b"".join(content) if small else b"")
        self.position, self.last = position, number  # last: from here on it counts
        self._before_append = None
        return grown

    def settle(self) -> None:
        """After an ``append`` that was stopped half-way: cut off what it has written. OSError if that cannot be."""
        before = self._before_append
        if before is None:
            return
        if self.last != before.number:
            known = before.segment
            path = f"{self.folder}/{known.name}"
            if before.size:
                self._files.cut(path, before.size)
            else:
                self._files.remove(path)
                self._segments = [s for s in self._segments if s is not known]
                self._current = None
            known.size, known.last = before.size, before.last_of_segment
            self.position, self.last = before.position, before.last
        self._before_append = None

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

    def numbers(self, after: int = 0) -> Iterator[int]:
        """The numbers of its entries that are greater than this. Bytes of rows are not looked at."""
        for known in [s for s in self._segments if s.last > after]:
            segment = Segment(self._files, f"{self.folder}/{known.name}", known.size)
            yield from (f.number for f in segment.frames(verify=False) if f.last and f.number > after)

    def places(self, after: int = 0) -> Iterator[tuple[int, Place, Mapping[str, Any], int]]:
        """Of the entries with numbers greater than this: number, place, what is said of them, and how many rows. Bytes
        of rows are not looked at."""
        for known in [s for s in self._segments if s.last > after]:
            segment = Segment(self._files, f"{self.folder}/{known.name}", known.size)
            found: list[Frame] = []
            for frame in segment.frames(verify=False):
                found.append(frame)
                if frame.last and frame.number > after:
                    place = Place(f"{self.folder}/{known.name}", found[0].start, frame.stop)
                    yield frame.number, place, segment.meta(found[0]), sum(f.rows for f in found)
                if frame.last:
                    found = []

    def roll(self) -> None:
        """Let the next entry begin a new segment, so that those before it can be forgotten."""
        self._current = None

    def forget(self, upto: int) -> None:
        """Entries up to this number are in every kept state: segments that have no others are removed."""
        while self._segments and self._segments[0].last <= upto and self._segments[0] is not self._current:
            self._remove(f"{self.folder}/{self._segments.pop(0).name}")
            if not self._segments:
                self._before = self.position, self.last

    def dirty(self) -> list[tuple[Known, int]]:
        """Segments that are not on the disk for sure, and their sizes."""
        return [(s, s.size) for s in self._segments if s.synced < s.size]

    def begin_sync(self, dirty: Sequence[tuple[Known, int]]) -> Callable[[], None]:
        """Begin to force segments to the disk; what it gives returns when they are there. After an interrupt it can be
        called again. Without the mutex; other threads may append and forget meanwhile."""
        begun = [(known, size, self._sync_later(known)) for known, size in dirty]

        def finish() -> None:
            done, failed = [], list[OSError]()
            for known, size, wait in begun:  # for all of them: a file is given back when its sync is over
                try:
                    wait()
                    done.append((known, size))
                except FileNotFoundError as error:
                    if known in tuple(self._segments):  # else it has been forgotten
                        failed.append(error)
                except OSError as error:
                    failed.append(error)
            if failed:  # what says most of the disk
                raise min(failed, key=lambda error: error.errno in MOMENTARY)
            if any(not known.synced for known, _ in done):
                for folder in (self.folder, os.path.dirname(self.folder), ""):  # these may be new too
                    self._files.sync_folder(folder)
            for known, size in done:  # last: a name that is not on the disk is no use
                known.synced = max(known.synced, size)

        return finish

    def _sync_later(self, known: Known) -> Callable[[], None]:
        path = f"{self.folder}/{known.name}"
        try:
            return self._files.sync_later(path)
        except OSError:
            return partial(self._files.sync, path)  # the caller that waits hears of it

    def sync(self, dirty: Sequence[tuple[Known, int]]) -> None:
        """Force segments to the disk. Without the mutex; other threads may append and forget meanwhile."""
        self.begin_sync(dirty)()

    def _remove(self, path: str) -> None:
        # What cannot be removed is found again when the log is opened, or is ignored, being of an older epoch.
        with contextlib.suppress(OSError):
            self._files.remove(path)
