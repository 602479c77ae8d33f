"""The bytes of a segment: a head that says what it is, and frames, each with a checksum of its own.

    head     64 bytes: magic, format, epoch, number of the first frame, length and checksum of the schema
    schema   of the rows in it (Arrow), filled up to 64 bytes
    frame    64 bytes: magic, checksum of the rest, number, position, rows, lengths and checksum of its body
    body     what is said of the rows (JSON), then the rows (an Arrow record batch); filled up to 64 bytes
    frame …

A frame's number is its place among all frames of a database, its position that of its first row in its log. Several
frames of one number belong together, the last one says so: they count if all are there.

A frame says up to which number all entries of the database were on the disk for sure when it was written. ``Segment``
verifies what it reads. A segment that ends inside a frame was being written when its writer died: what is behind the
last whole frame was never acknowledged. After a restart of the machine a segment may be wrong anywhere behind what was
synced: it counts up to there, and the store finds out whether an entry is missing that was on the disk for sure.
Everything else that is wrong is damage, and is said to be.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.model.errors import StorageError
from penstock.storage.files import Bytes, Files

FORMAT = 1
_MAGIC, _FRAME = b"PENSTOCK", b"FRAM"
_HEAD = struct.Struct("<8sIIqqII24x")
_FIELDS = struct.Struct("<qqqqqIIIB")
_OF_FRAME = struct.Struct("<4sI")
_ALIGNED = 64
_FRAME_SIZE = 64
_LAST = 1
_json = json.JSONEncoder(separators=(",", ":")).encode
_FEW = 16
"""Batches of at most this many rows are not measured."""
Meta = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a frame is, and what its head says."""

    path: str
    start: int
    number: int
    position: int
    rows: int
    last: bool
    meta_size: int
    batch_size: int
    crc: int
    safe: int

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + _FRAME_SIZE + _filled(self.meta_size + self.batch_size)


@dataclass(frozen=True)
class Head:
    """What a segment says of itself."""

    epoch: int
    first: int
    schema: pa.Schema
    size: int


def head_bytes(epoch: int, first: int, schema: pa.Schema) -> bytes:
    """The beginning of a segment."""
    packed: bytes = schema.serialize().to_pybytes()
    head = _HEAD.pack(_MAGIC, FORMAT, 0, epoch, first, len(packed), zlib.crc32(packed))
    crc = zlib.crc32(head)
    head = _HEAD.pack(_MAGIC, FORMAT, crc, epoch, first, len(packed), zlib.crc32(packed))
    return head + packed + bytes(-len(packed) % _ALIGNED)


def frame_bytes(
    number: int, position: int, batch: pa.RecordBatch, meta: Meta, *, safe: int, last: bool = True
) -> tuple[list[Bytes], int, int]:
    """A frame: its head, its rows and what fills it up; how long it is, and the checksum of what it says."""
    said = _json(meta).encode() if meta else b""
    said += b" " * (-len(said) % 8)
    body = batch.serialize()
    size = len(said) + body.size
    crc = zlib.crc32(body, zlib.crc32(said))
    fields = _FIELDS.pack(number, position, batch.num_rows, body.size, safe, len(said), crc, 0, _LAST if last else 0)
    fields += bytes(_FRAME_SIZE - _OF_FRAME.size - len(fields))
    head = _OF_FRAME.pack(_FRAME, zlib.crc32(fields)) + fields
    return [head + said, body, bytes(-size % _ALIGNED)], _FRAME_SIZE + _filled(size), crc


def _filled(size: int) -> int:
    return size + -size % _ALIGNED


class _Damaged(StorageError):
    """Bytes are not what was written."""


class Segment:
    """A segment that is read. Its bytes are verified as they are."""

    def __init__(self, files: Files, path: str, end: int | None = None, *, content: bytes = b"") -> None:
        """``end``: where it was sealed; bytes behind it are ignored. ``content``: its bytes, if they have been read."""
        self._files, self._path = files, path
        try:
            self._data: pa.Buffer = pa.py_buffer(content) if content else files.read(path, 0, end)
        except FileNotFoundError:
            raise StorageError(f"{files.name}/{path}: missing", hint=_LOST) from None
        except OSError as error:
            raise StorageError(f"{files.name}/{path}: cannot be read: {error}") from error
        self._end = end
        self.end = 0
        """Behind the last whole frame, found by ``frames``."""
        self.safe = 0
        """The greatest number up to which a frame says that all entries were on the disk, found by ``frames``."""
        self.torn: StorageError | None = None
        """What is wrong behind the last whole frame, where a restart of the machine explains it."""

    def head(self) -> Head | None:
        """What it says of itself; None if it was not finished."""
        data = self._data
        if data.size < _HEAD.size:
            return None
        magic, form, crc, epoch, first, size, schema_crc = _HEAD.unpack(data.slice(0, _HEAD.size))
        if magic != _MAGIC:
            if not any(data.slice(0, _HEAD.size)):
                return None  # its place was made, and nothing written
            raise self._damage(0, "it does not begin as a segment does")
        if zlib.crc32(_HEAD.pack(magic, form, 0, epoch, first, size, schema_crc)) != crc:
            raise self._damage(0, "the checksum of its head is not what was written")
        if form != FORMAT:
            raise StorageError(
                f"{self._files.name}/{self._path}: written in format {form}, this is format {FORMAT}",
                hint="go on with the release of Penstock that wrote it",
            )
        if data.size < _HEAD.size + size:
            return None
        packed = data.slice(_HEAD.size, size)
        if zlib.crc32(packed) != schema_crc:
            raise self._damage(_HEAD.size, "the checksum of its schema is not what was written")
        return Head(epoch, first, pa.ipc.read_schema(packed), _HEAD.size + _filled(size))

    def frames(self, *, same_boot: bool = True, verify: bool = True) -> Iterator[Frame]:
        """The frames that were finished. ``same_boot``: the machine has not been restarted since it was written.

        ``verify``: look at every byte of their bodies, too.
        """
        try:
            head = self.head()
        except _Damaged as error:
            self._excuse(error, same_boot)
            return
        if head is None:
            if self._end is not None:
                raise self._damage(0, "it ends before its end")
            return
        at = self.end = head.size
        pending: list[Frame] = []
        while at < self._data.size:
            frame = self._frame(at)
            wrong = frame is None
            if frame is not None and (verify or not same_boot):
                wrong = self._crc(frame) != frame.crc
            if wrong:
                self._check_torn(at, frame, same_boot)
                break
            assert frame is not None
            pending.append(frame)
            at = frame.stop
            if frame.last:
                self.safe = max(self.safe, frame.safe)
                yield from pending
                pending.clear()
                self.end = at
        if self._end is not None and self.end != self._end:
            raise self._damage(self.end, f"it ends before byte {self._end}")

    def frames_at(self, start: int, stop: int, *, verify: bool = True) -> Iterator[Frame]:
        """The frames between two places; StorageError if they are not there. ``verify``: look at every byte of them."""
        at = start
        while at < stop:
            frame = self._frame(at)
            if frame is None or (verify and self._crc(frame) != frame.crc):
                raise self._damage(at, "the checksum of a frame is not what was written")
            yield frame
            at = frame.stop

    def _frame(self, at: int) -> Frame | None:
        """The frame that begins there; None if it is not one, or not whole."""
        data = self._data
        if data.size < at + _FRAME_SIZE:
            return None
        head = data.slice(at, _FRAME_SIZE).to_pybytes()
        magic, crc = _OF_FRAME.unpack_from(head)
        fields = head[_OF_FRAME.size :]
        if magic != _FRAME or zlib.crc32(fields) != crc:
            return None
        number, position, rows, batch_size, safe, meta_size, body_crc, _, flags = _FIELDS.unpack_from(fields)
        frame = Frame(
            self._path, at, number, position, rows, bool(flags & _LAST), meta_size, batch_size, body_crc, safe
        )
        return frame if frame.stop <= data.size else None

    def _crc(self, frame: Frame) -> int:
        return zlib.crc32(self._data.slice(frame.start + _FRAME_SIZE, frame.meta_size + frame.batch_size))

    def _excuse(self, error: StorageError, same_boot: bool) -> None:
        """Raise what is wrong, unless the machine was restarted while the segment was being written."""
        if same_boot or self._end is not None:
            raise error
        self.torn = error

    def _check_torn(self, at: int, frame: Frame | None, same_boot: bool) -> None:
        """Raise if what is wrong from here on is not the trace of a writer that was stopped while writing."""
        left = self._data.slice(at)
        if self._end is not None:
            what = "a checksum is not what was written"
        elif frame is not None:
            what = "the checksum of a frame is not what was written"
        elif left.size < _FRAME_SIZE:
            if left.to_pybytes()[:4] == _FRAME[: min(4, left.size)]:
                return
            what = "what follows the last frame is none"
        else:
            head = left.slice(0, _FRAME_SIZE).to_pybytes()
            magic, crc = _OF_FRAME.unpack_from(head)
            if magic == _FRAME and zlib.crc32(head[_OF_FRAME.size :]) == crc:
                return  # the frame is longer than the file
            what = "the head of a frame is not what was written"
        self._excuse(self._damage(at, what), same_boot)

    def batch(self, frame: Frame, schema: pa.Schema) -> tuple[Meta, pa.RecordBatch]:
        """What is in a frame of which the checksum is right."""
        body = self._data.slice(frame.start + _FRAME_SIZE + frame.meta_size, frame.batch_size)
        return self.meta(frame), pa.ipc.read_record_batch(body, schema)

    def meta(self, frame: Frame) -> Meta:
        """What is said of the rows of a frame."""
        said = self._data.slice(frame.start + _FRAME_SIZE, frame.meta_size).to_pybytes().strip()
        return json.loads(said) if said else {}

    def bytes_to(self, end: int) -> pa.Buffer:
        """Its bytes up to a place."""
        return self._data.slice(0, end)

    def _damage(self, at: int, what: str) -> StorageError:
        return _Damaged(f"{self._files.name}/{self._path}: damaged at byte {at}: {what}", hint=_LOST)


_LOST = "`penstock check` says what else is damaged; restore the directory from a backup"


def record_batches(table: pa.Table | pa.RecordBatch, most: int) -> Sequence[pa.RecordBatch]:
    """Rows as batches of at most about ``most`` bytes, each column of each in one piece."""
    if isinstance(table, pa.RecordBatch):
        if table.num_rows <= _FEW or table.nbytes <= most:
            return (table,)
        table = pa.Table.from_batches([table])
    rows = table.num_rows
    parts = max(1, -(-table.nbytes // most))
    step = max(1, -(-rows // parts))
    found: list[pa.RecordBatch] = []
    for start in range(0, max(rows, 1), step):
        # Of a table without columns, a slice has as many rows as it is told.
        piece = table.slice(start, min(step, rows - start)).combine_chunks()
        batches = piece.to_batches()
        found.append(batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema))
    return found
