"""Files that are only appended to: one frame after the other, each with a checksum.

    streams/readings/000000000001.log      frames from number 1 on
    streams/readings/000000004711.log      … from number 4711 on

A frame is a header of 64 bytes and a payload that starts at a multiple of 64, so that Arrow reads it where it lies.
A frame counts once it is whole: what a process left half-written is cut off by the next one that opens the file.
Frames of all files of a database are numbered through, so their numbers are the order in which they were acknowledged.

Written with one system call each, so a frame survives the death of the process; ``sync`` makes it survive that of the
machine. A log has as many files as hold what somebody still needs: see ``Log.forget``.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from penstock.model.errors import CheckpointError

_HEADER = struct.Struct("<4sBBHIQQqqQQI")
assert _HEADER.size == 64
_MAGIC = b"PSF1"
_EMPTY = memoryview(b"")
SEGMENT = 64 << 20
"""Bytes after which a new file is begun."""
_NEVER, _ALWAYS = -(2**63), 2**63 - 1


class Kind(IntEnum):
    """What a frame says."""

    ROWS = 1
    """Rows of a stream in order, and how far the stream is; there may be none."""
    WAITING = 2
    """Rows that wait for slack; they come again in ``ROWS``."""
    LATE = 3
    CHANGES = 4
    """Changes of a relation."""
    RECORD = 5
    """JSON."""
    APART = 6
    """Rows that do not fit a stream; there may be none, when they have been taken."""


@dataclass(frozen=True)
class Marks:
    """What a stream's input knows after a frame."""

    progress: float = -math.inf
    newest: float = -math.inf
    arrivals: int = 0
    late: int = 0
    closed: bool = False


@dataclass(frozen=True)
class Frame:
    """Where a frame is, and what its header says."""

    path: str
    start: int
    size: int
    kind: Kind
    number: int
    rows: int
    marks: Marks
    prioritised: int = 0
    """How many of the rows have a priority and may overtake."""

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return _padded(self.start + _HEADER.size + self.size)


class Log:
    """The files of one log under a folder, for one writer."""

    def __init__(self, folder: Path, *, sync: bool = False) -> None:
        self.folder = folder
        self._sync = sync
        self._file = -1
        self._path = Path()
        self._size = 0

    def append(
        self, kind: Kind, number: int, payload: pa.Buffer | bytes, rows: int, marks: Marks, prioritised: int = 0
    ) -> Frame:
        """Add a frame; it is there when this returns. If it fails, nothing has been added."""
        if self._file < 0 or self._size >= SEGMENT:
            self._begin(number)
        header = _HEADER.pack(
            _MAGIC, kind, marks.closed, 0, zlib.crc32(payload), len(payload), number,
            _ticks(marks.progress), _ticks(marks.newest), marks.arrivals, marks.late << 32 | rows, prioritised,
        )  # fmt: skip
        frame = Frame(str(self._path), self._size, len(payload), kind, number, rows, marks, prioritised)
        parts = [header, payload, bytes(frame.end - frame.start - _HEADER.size - len(payload))]
        try:
            write(self._file, parts)
            if self._sync:
                os.fdatasync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise CheckpointError(
                f"{self._path}: nothing could be written: {error}", hint="what was given last has not been taken"
            ) from error
        self._size = frame.end
        return frame

    def read(self) -> Iterator[Frame]:
        """All frames there are, from the oldest; cuts off what is not whole at the very end."""
        paths = self.files()
        for path in paths:
            end = 0
            for frame in _frames(path):
                yield frame
                end = frame.end
            if end < path.stat().st_size:
                if path != paths[-1]:
                    raise CheckpointError(
                        f"{path}: damaged at byte {end}", hint="restore it from a copy; what follows it depends on it"
                    )
                os.truncate(path, end)
                if path == self._path:
                    self._size = end

    def files(self) -> list[Path]:
        """The files, from the oldest."""
        return sorted(self.folder.glob("*.log"))

    def resume(self) -> None:
        """Go on at the end of the newest file."""
        paths = self.files()
        if paths:
            self._open(paths[-1])

    def forget(self, before: int) -> None:
        """Remove the files in which all frames have numbers less than this; the newest file stays."""
        paths = self.files()
        for path, following in pairwise(paths):
            if int(following.stem) > before:
                break
            path.unlink(missing_ok=True)

    def begin_anew(self, number: int) -> None:
        """Write what follows to a file that counts, and makes all others superfluous, once ``replace`` is called."""
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{number:012d}.part"
        part.unlink(missing_ok=True)
        self._open(part)

    def replace(self) -> None:
        """What was written since ``begin_anew`` is the log from now on."""
        os.fdatasync(self._file)
        final = self._path.with_suffix(".log")
        self._path.rename(final)
        self._path = final
        for path in self.files():
            if path != final:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, number: int) -> None:
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._open(self.folder / f"{number:012d}.log")

    def _open(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._path, self._size = path, os.fstat(self._file).st_size


def write(file: int, parts: Sequence[pa.Buffer | bytes]) -> None:
    """Add to the end of a file, all or nothing that counts."""
    if os.writev(file, parts) != sum(map(len, parts)):
        raise OSError("the disk is full")


def _frames(path: Path) -> Iterator[Frame]:
    data = mapped(path)
    start = 0
    while len(data) - start >= _HEADER.size:
        header = _HEADER.unpack_from(data, start)
        magic, kind, closed, _, crc, size, number, progress, newest, arrivals, counts, prioritised = header
        marks = Marks(_instant(progress), _instant(newest), arrivals, counts >> 32, bool(closed))
        if magic != _MAGIC or start + _HEADER.size + size > len(data):
            return
        frame = Frame(str(path), start, size, Kind(kind), number, counts & 0xFFFFFFFF, marks, prioritised)
        if frame.end > len(data) or zlib.crc32(payload(data, frame)) != crc:
            return
        yield frame
        start = frame.end


def mapped(path: str | Path) -> memoryview:
    """The bytes of a file as it is now."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return _EMPTY
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def payload(data: memoryview, frame: Frame) -> memoryview:
    """What a frame holds, in the bytes of its file."""
    start = frame.start + _HEADER.size
    return data[start : start + frame.size]


def packed(batch: pa.RecordBatch) -> pa.Buffer:
    """Rows without their schema, which whoever reads them knows."""
    return batch.serialize()


def unpacked(data: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of ``packed``, where they lie."""
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def _padded(size: int) -> int:
    return -(-size // 64) * 64


def _ticks(instant: float) -> int:
    if instant == math.inf:
        return _ALWAYS
    return _NEVER if instant == -math.inf else int(instant)


def _instant(ticks: int) -> float:
    if ticks == _ALWAYS:
        return math.inf
    return -math.inf if ticks == _NEVER else ticks
