"""The memory and the disk that all buffers of a database share."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from penstock.model.amounts import Bound, shown
from penstock.runtime.storage.files import Directory
from penstock.runtime.storage.line import Line
from penstock.runtime.storage.sizes import MESSAGE

_log = logging.getLogger("penstock.runtime")

SEGMENT = 16_000_000
"""Bytes after which the next segment begins."""
GRANT = 1_000_000
"""Bytes by which a line may grow before it asks again, at most."""
SELDOM = 20
"""Memory is given back to the system in no more than one of so many parts of the time."""
INDEX = 64_000_000
"""Bytes by which what is on disk is found again that are no reason to take nothing more in."""
RETRY = 1.0
"""Seconds after which writing is tried again that has failed."""


class Storage:
    """Budgets, files and the thread that reads ahead. Bounded by ``memory`` and ``disk``; ``close`` stops the thread
    and removes the files.

    ``memory``, ``disk``: bytes; None: no limit. ``read_ahead``: percent of the memory that must be empty before what is
    on disk is read again.
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        self.directory = Directory(parent)
        self.memory: int | None = None
        self.disk: int | None = None
        self.read_ahead = 50.0
        self.disk_used = 0
        self.dropped_rows: dict[str, int] = {}
        """Rows that were dropped, by stream. Bounded by the streams that say so."""
        self.gaps: dict[str, tuple[int, int]] = {}
        """From which instant to which rows were dropped that nobody has been told of, by stream. Bounded as well."""
        self.trouble: OSError | None = None
        """Why the last write failed, until one succeeds."""
        self._retry = 0.0
        self._lock = threading.Lock()
        self._lines: set[Line] = set()
        self._reserved: float = 0
        self._reader: ReadAhead | None = None
        self._closed = False

    # -- lines --------------------------------------------------------------------------------------

    def line(self, label: str, stream: str | None = None) -> Line:
        """A new line."""
        line = Line(self, label, stream)
        with self._lock:
            self._lines.add(line)
        return line

    def bind(self, line: Line, bound: Bound | None, dropping: bool) -> None:
        """Bound a line; called while nobody works."""
        line.bound, line.dropping = bound, dropping
        line.shared = line.shared or dropping
        line.allow(line.allowed)

    def forget(self, line: Line) -> None:
        """Nobody reads a line any more."""
        with self._lock:
            self._lines.discard(line)
            self._reserved -= line.allowed if line.allowed < float("inf") else 0

    def configure(self, memory: int | None, disk: int | None, read_ahead: float) -> None:
        """Other budgets from now on; what is in memory stays there."""
        with self._lock:
            self.memory, self.disk, self.read_ahead = memory, disk, read_ahead
            self._take_back()

    @property
    def segment_size(self) -> int:
        """Files are so small that a part of the budget comes free with each."""
        return SEGMENT if self.disk is None else max(min(SEGMENT, self.disk // 8), 1)

    # -- memory -------------------------------------------------------------------------------------

    @property
    def lines(self) -> set[Line]:
        """Those that there are now."""
        return self._lines.copy()

    @property
    def used(self) -> int:
        """Bytes in memory."""
        return sum(line.memory_bytes for line in self._lines.copy())

    @property
    def waits(self) -> bool:
        """Whether there is anything at all."""
        return any(line.rows_in > line.rows_out or line.early_bytes for line in self._lines.copy())

    def grants(self, line: Line, memory: int) -> bool:
        """Whether a line may have so much in memory."""
        if self.memory is None:
            line.allow(float("inf"))
            return True
        with self._lock:
            more = memory - line.allowed
            if more <= 0:
                return True
            extra = min(GRANT, self.memory // 64)
            if self._reserved + more + extra > self.memory:
                self._take_back()
                more, extra = memory - line.allowed, 0
                if more > 0 and self._reserved + more > self.memory:
                    return False
            line.allow(line.allowed + more + extra)
            self._reserved += more + extra
            return True

    def _take_back(self) -> None:
        """What lines do not use is free for others."""
        self._reserved = 0
        for line in self._lines:
            line.allow(max(line.memory_bytes, 0) if self.memory is not None else float("inf"))
            self._reserved += line.allowed if self.memory is not None else 0

    # -- disk ---------------------------------------------------------------------------------------

    def may_spill(self, bytes: int) -> bool:
        """Whether there seems to be room for so much on disk."""
        if self._closed or (self.trouble is not None and time.monotonic() < self._retry):
            return False
        return self.disk is None or self.disk_used + bytes <= self.disk

    def wrote(self, bytes: int) -> None:
        """A file has grown."""
        with self._lock:
            self.disk_used += bytes
            if bytes:
                self.trouble = None

    def freed(self, bytes: int) -> None:
        """A file has been removed, so that there is room where there was none."""
        with self._lock:
            self.disk_used -= bytes
            self._retry = 0.0

    def failed(self, line: Line, error: OSError) -> None:
        """A file could not be written."""
        if self.trouble is None:
            _log.warning(
                "%s: what exceeds the memory cannot be written to %s: %s; it stays in memory", line.label,
                self.directory.path or self.directory.parent, error,
            )  # fmt: skip
        self.trouble, self._retry = error, time.monotonic() + RETRY

    @property
    def is_ample(self) -> bool:
        """Whether there is room for anything, as far as is known."""
        return self.memory is None or (self.disk is None and self.trouble is None and not self._is_scattered)

    def has_room(self, bytes: int) -> bool:
        """Whether so much more can be taken in; always if nothing waits, or nothing could ever be. What is in memory
        because there was no room on disk counts as if it were to go there."""
        if self.memory is None or not self.waits or self.used + bytes <= self.memory:
            return True
        over = max(self.used - self._index - self.memory, 0)
        if self._is_scattered or (over and self.trouble is not None):
            return False
        return self.may_spill(bytes + over)

    @property
    def _index(self) -> int:
        """Bytes by which what is on disk is found again."""
        return sum([line.disk_count for line in self._lines.copy()]) * MESSAGE

    @property
    def _is_scattered(self) -> bool:
        """Whether what is on disk takes too much memory to be found again."""
        return self.memory is not None and self.disk_used > 0 and self._index > max(self.memory, INDEX)

    @property
    def is_exceeded(self) -> bool:
        """Whether more is in memory than should be."""
        return self.memory is not None and self.used > self.memory

    def dropped(self, line: Line, rows: int) -> None:
        """Rows of a stream were dropped."""
        name = line.stream or line.label
        if name not in self.dropped_rows:
            _log.warning("stream %s: there is no room; the oldest rows are dropped, as its declaration says", name)
        self.dropped_rows[name] = self.dropped_rows.get(name, 0) + rows

    def leaves_gap(self, line: Line, first: int, last: int) -> None:
        """Rows between two instants are being dropped. Called before any later row can be taken."""
        name = line.stream or line.label
        with self._lock:
            known = self.gaps.get(name, (first, last))
            self.gaps[name] = min(first, known[0]), max(last, known[1])

    def taken_gaps(self) -> dict[str, tuple[int, int]]:
        """The gaps that nobody has been told of."""
        with self._lock:
            found, self.gaps = self.gaps, {}
        return found

    # -- reading ahead ------------------------------------------------------------------------------

    def look(self, line: Line) -> None:
        """Something was taken from a line that has more on disk."""
        if line.wanted or self._closed or not self._is_empty_enough(line):
            return
        line.wanted = True
        with self._lock:
            if self._closed:
                return
            if self._reader is None:
                self._reader = ReadAhead()
        self._reader.tell(line)

    def _is_empty_enough(self, line: Line) -> bool:
        share, bound = 1 - self.read_ahead / 100, line.bound
        if bound is not None and bound.rows is not None and line.memory_rows > share * bound.rows:
            return False
        if bound is not None and bound.bytes is not None and line.memory_bytes > share * bound.bytes:
            return False
        return self.memory is None or self.used <= share * self.memory

    def close(self) -> None:
        """Stop the thread, remove all files. May be called again."""
        with self._lock:
            self._closed = True
            reader = self._reader
        if reader is not None:
            reader.close()
        self.directory.close()

    @property
    def text(self) -> str:
        """What waits where, for people."""
        parts = [f"{shown(self.used)} wait in memory"]
        if self.memory is not None:
            parts[0] += f" (of {shown(self.memory)})"
        parts.append(f"{shown(self.disk_used)} on disk")
        if self.disk is not None:
            parts[1] += f" (of {shown(self.disk)})"
        return " and ".join(parts)


def give_back() -> None:
    """What allocators keep though nobody has it is given back to the system. What waited in memory was made by one
    thread and what is read again by another, so neither would use what the other has let go."""
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)


def _found() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library
        return None
    return trim


_trim = _found()


class ReadAhead:
    """A thread that reads what is on disk before somebody needs it. Stopped by the storage's ``close``.

    Bounded by the lines: each is told of once until it has been looked at.
    """

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._wake = threading.Event()
        self._closed = False
        self._next = 0.0
        self._thread = threading.Thread(target=self._run, name="penstock-read-ahead", daemon=True)
        self._thread.start()

    def tell(self, line: Line) -> None:
        """A line has room in memory."""
        self._lines.append(line)
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._lines and not self._closed:
                line = self._lines.popleft()
                line.wanted = False
                try:
                    self._give_back()
                    line.read_ahead()
                except Exception:  # whoever takes from the line meets it, too
                    _log.exception("%s: could not read ahead", line.label)
            if self._closed:
                return

    def _give_back(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            give_back()
            self._next = now + SELDOM * (time.monotonic() - now)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
