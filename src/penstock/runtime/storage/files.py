"""Files for what waits: a directory for each database, and in it segments, each an Arrow IPC stream.

A segment is written at its end only, read anywhere, and removed as a whole. No file is kept open, so that many buffers
need no more files than few.

A directory belongs to a process: its file ``owner`` is locked as long as the process lives. One whose owner is dead is
removed by the next process that looks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
import weakref
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.model.errors import SpillError

try:
    import fcntl
except ImportError:  # there the number of the process must do
    fcntl = None  # type: ignore[assignment]

PREFIX = "penstock-buffers-"
_NAME = re.compile(PREFIX + r"(\d+)-[0-9a-f]+")
_OWNER = "owner"
_NEW = 60.0
"""Seconds in which a directory may be without a lock: it is being made."""


class DamageError(Exception):
    """What was read is not what was written."""


class EndedError(SpillError):
    """The files were removed, since nobody is to read any more: nothing to tell anybody."""


class Directory:
    """Made when it is first needed, and again if somebody removes it; removed by ``close`` and when the process ends.

    ``ended`` is set from then on.
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        self.parent = Path(tempfile.gettempdir() if parent is None else parent).absolute()  # wherever the process goes
        self._path: Path | None = None
        self.ended = threading.Event()
        self._guard = threading.Lock()
        self._remove: weakref.finalize[..., Directory] | None = None
        self._files = 0

    @property
    def path(self) -> Path | None:
        """Where it is; None if it was not needed yet."""
        return self._path

    def file(self) -> Path:
        """The path of a new file."""
        with self._guard:
            path = self._path
            if path is None or not path.is_dir():
                path = self._make()
            self._files += 1
            return path / f"{self._files:08d}.arrows"

    def _make(self) -> Path:
        if self.ended.is_set():
            raise FileNotFoundError(errno.ENOENT, "the files have been removed", str(self._path or self.parent))
        self.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.parent)
        path = self.parent / f"{PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
        path.mkdir(mode=0o700)
        lock = os.open(path / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._remove is not None and (before := self._remove.detach()) is not None:
            os.close(before[2][1])  # of the one that is gone
        self._path = path
        self._remove = weakref.finalize(self, _remove, path, lock, os.getpid(), self.ended)
        return path

    def close(self) -> None:
        """Remove it with everything in it."""
        self.ended.set()
        if self._remove is not None:
            self._remove()
        self._path = None


def _remove(path: Path, lock: int, owner: int, ended: threading.Event) -> None:
    if os.getpid() == owner:  # not what a fork of the process has of it
        ended.set()
        for _ in range(5):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break  # else a worker has just written something
        with contextlib.suppress(OSError):
            os.close(lock)


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove directories of processes that are gone; gives those."""
    removed = []
    with contextlib.suppress(OSError), os.scandir(parent) as found:
        for entry in found:
            match = _NAME.fullmatch(entry.name)
            if match is not None and _is_leftover(Path(entry.path), int(match[1])):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed.append(Path(entry.path))
    return removed


def _is_leftover(path: Path, pid: int) -> bool:
    try:
        if _lives(pid) and (fcntl is None or time.time() - path.stat().st_mtime < _NEW):
            return False
        if fcntl is None:
            return True
        file = os.open(path / _OWNER, os.O_RDWR)
    except FileNotFoundError:
        return not _lives(pid)
    except OSError:
        return False  # somebody else's
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(file)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


Place = tuple[int, int, int]
"""Where something is in a segment: offset, length, checksum."""


class Segment:
    """One file. ``left`` counts what in it somebody still needs; whoever counts does so under a lock."""

    __slots__ = ("left", "path", "schema", "size")

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.schema = path, schema
        self.left = self.size = 0

    def write(self, batch: pa.RecordBatch) -> Place:
        """Add to the end. If it raises, the file is what it was."""
        content = batch.serialize()
        if not self.size:
            head = self.schema.serialize()
            append(self.path, 0, head)
            self.size = head.size
        append(self.path, self.size, content)
        place = self.size, content.size, zlib.crc32(content)
        self.size += content.size
        return place

    def read(self, place: Place) -> pa.RecordBatch:
        """What was written there."""
        offset, length, checksum = place
        content = fetch(self.path, offset, length)
        if zlib.crc32(content) != checksum:
            raise DamageError(f"the checksum of bytes {offset} to {offset + length} of {self.path.name} is wrong")
        return pa.ipc.read_record_batch(content, self.schema)

    def drop(self) -> None:
        """Nobody needs it any more."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def append(path: Path, size: int, content: pa.Buffer) -> None:
    """Write at the end of a file of this size. If it raises, the file has that size still."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        left, at = memoryview(content), size
        while left:
            written = os.pwrite(file, left, at)
            left, at = left[written:], at + written
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file, size)
        raise
    finally:
        os.close(file)


def fetch(path: Path, offset: int, length: int) -> pa.Buffer:
    """Bytes of a file."""
    content = np.empty(length, np.uint8)
    into, got = content.data, 0
    file = os.open(path, os.O_RDONLY)
    try:
        while got < length:
            n = os.preadv(file, [into[got:]], offset + got)
            if not n:
                raise DamageError(f"{path.name} ends before byte {offset + length}")
            got += n
    finally:
        os.close(file)
    return pa.py_buffer(content)
