"""Texts that come bit by bit: standard input, pipes, and files that grow.

    bytes ──▶ a thread for each text ──▶ ``Arrivals`` wakes the one that waits ──▶ whole records as a ``Piece`` ──▶ rows

A thread reads what is there as soon as it is there, so that a row that has come is not kept waiting for others.
"""

from __future__ import annotations

import csv
import io
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from penstock.io.csv_input import delimiter_of, read_csv
from penstock.io.files import Format, Piece, compression_of, format_of
from penstock.io.json_input import LOOK_AHEAD, read_json
from penstock.model.errors import InputError
from penstock.rows.apart import Rows, Sieve
from penstock.rows.columns import missing

STDIN = "-"
"""The path of standard input."""
_STANDARD_INPUT = "standard input"
_READ = 1 << 20
"""Bytes that are read at a time, if they are there."""
_HELD = 16 << 20
"""A thread does not read on while so many bytes wait."""
_PIECE = 4 << 20
"""Bytes that become rows at a time."""
_RECORD = 1 << 20
"""A record with a line break in it is shorter; where a quote is not closed before, its line is wrong."""
_FIRST = 64 << 20
"""Bytes of first rows at most."""
_LOOK = 0.2
"""Seconds between two looks at a file that may have grown."""
_PAUSE = 0.3
"""Seconds without news after which the first rows are all that there are for now."""
_PATIENCE = 2.0
"""Seconds for which first rows are collected, if they come without a pause."""
_MAGIC = {b"PAR1": "Parquet", b"ARROW1": "an Arrow file", b"\xff\xff\xff\xff": "an Arrow stream"}
_PACKED = {b"\x1f\x8b": "zcat", b"\x28\xb5\x2f\xfd": "zstdcat", b"BZh": "bzcat"}


class Arrivals:
    """Says which texts have news. Threads tell of them, one thread waits; a signal may stop it."""

    def __init__(self) -> None:
        # Its put may be called in a signal handler, whatever that interrupts.
        self._told: SimpleQueue[LiveText | None] = SimpleQueue()
        self._ready: dict[LiveText, None] = {}
        self.stopped = False

    def tell(self, text: LiveText) -> None:
        """There is something new in a text."""
        self._told.put(text)

    def stop(self) -> None:
        """Nobody is to wait any longer."""
        self._told.put(None)

    def wait(self, seconds: float | None = None, text: LiveText | None = None) -> bool:
        """Return when there is news, of one text if it is given, or it is to stop: True; or after a time: False."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self.stopped and not (self._ready if text is None else text in self._ready):
            left = None if until is None else until - time.monotonic()
            try:
                self._heard(self._told.get() if left is None else self._told.get(timeout=max(0.0, left)))
            except Empty:
                return False
        return True

    def next(self) -> LiveText | None:
        """A text with news, None: there is none now."""
        with suppress(Empty):
            while True:
                self._heard(self._told.get_nowait())
        return next(iter(self._ready), None)

    def taken(self, text: LiveText) -> None:
        """The news of a text are known."""
        self._ready.pop(text, None)

    def _heard(self, text: LiveText | None) -> None:
        if text is None:
            self.stopped = True
        else:
            self._ready[text] = None


def is_live(path: Path, *, follow: bool) -> bool:
    """Whether a path is read bit by bit: standard input or a pipe; with ``follow`` a file too."""
    if str(path) == STDIN:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or (follow and stat.S_ISREG(mode))


class LiveText:
    """A text that comes bit by bit. ``follow``: also after its end, for a file that grows or a named pipe.

    Bounded by: ``_HELD`` bytes that nobody has asked for, the first rows, and one record. The thread ends at the end of
    the text, or with ``close``.
    """

    def __init__(self, path: Path, arrivals: Arrivals, *, format: Format | None = None, follow: bool = False) -> None:
        self.where = _STANDARD_INPUT if str(path) == STDIN else str(path)
        self._arrivals = arrivals
        self._format = format or (None if str(path) == STDIN else format_of(path))
        if compression_of(path) and str(path) != STDIN:
            raise InputError(f"{path} is packed, so it cannot be read bit by bit", hint="unpack it first")
        if self._format not in (None, Format.CSV, Format.JSON):
            raise InputError(f"{self.where}: CSV and JSON lines are read bit by bit, and nothing else")
        self._source = _opened(path, follow=follow)
        self._changed = threading.Condition()
        self._chunks: list[bytes] = []
        self._size = 0
        self._told = self._over = self._closing = self._ended = False
        self._problem: InputError | None = None
        self._begun: list[bytes] = []
        """What has been taken and is no whole record yet, or not yet asked for."""
        self._header = b""
        self._lines = 0
        self._rows = 0
        self._thread = threading.Thread(target=self._read, name=f"penstock-read {self.where}", daemon=True)
        self._thread.start()

    # -- the thread ---------------------------------------------------------------------------------

    def _read(self) -> None:
        data: bytes | None = b"-"
        while data:
            with self._changed:
                while self._size > _HELD and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
            problem = None
            try:
                data = self._source.read()
            except InputError as error:
                data, problem = b"", error
            except OSError as error:
                data, problem = b"", InputError(f"{self.where} cannot be read: {error.strerror}")
            if data is None:
                return
            with self._changed:
                self._chunks.append(data)
                self._size += len(data)
                self._over, self._problem = not data, problem
                news, self._told = not self._told, True
            if news:
                self._arrivals.tell(self)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._source.stop()
        self._thread.join()
        self._source.close()

    # -- the one that waits -------------------------------------------------------------------------

    @property
    def grows(self) -> bool:
        """Whether it is a file, which has what was read of it before too."""
        return isinstance(self._source, _Growing) and self.where != _STANDARD_INPUT

    @property
    def over(self) -> bool:
        """Whether all of it has become rows."""
        return self._ended

    def _known_format(self) -> Format:
        """What the text is written in: as it was said, or as its first line looks."""
        if self._format is None:
            self._format = _looks_like(b"".join(self._begun), self.where)
        return self._format

    def first(self, *, patience: float | None = _PATIENCE) -> Piece:
        """The first rows, which ``rows`` gives too: those that come in one go. ``patience``: they are collected for so
        many seconds at most, None: until there are enough or the text ends."""
        self._await(1, None)
        format = self._known_format()
        over = self._await(LOOK_AHEAD + 1, patience, 1 if format is Format.JSON else 2)
        text = b"".join(self._begun)
        self._begun = [text]
        end = len(text) if over else self._whole_records(text, format, _FIRST)
        return Piece(self.where, format, text[:end], whole=over)

    def whole(self) -> Piece:
        """All of it, when it has ended."""
        self._await(sys.maxsize, None)
        self._ended = True
        format = self._known_format()
        return Piece(self.where, format, b"".join(self._begun), whole=True)

    def rows(self, sieve: Sieve, batch_rows: int) -> Iterator[Rows]:
        """What has come since the last call, as far as it is whole records. Errors are ``InputError``."""
        over = self._take()
        text = b"".join(self._begun)
        self._begun = [text]
        if b"\n" not in text and not over:
            return
        format = self._known_format()
        self._begun = []
        at = 0
        if format is Format.CSV and not self._header and (at := self._take_header(text, over)):
            # It may be wrong though no row comes after it.
            for _ in read_csv(Piece(self.where, format, self._header), sieve):
                pass
        try:
            while at < len(text):
                end = self._whole_records(text[at:], format, _PIECE)
                if not end and over:
                    end = len(text) - at
                if not end:
                    break
                piece = Piece(self.where, format, self._header + text[at : at + end], self._lines)
                at += end
                self._lines += piece.text.count(b"\n") - self._header.count(b"\n")
                for rows in read_csv(piece, sieve) if format is Format.CSV else read_json(piece, sieve, batch_rows):
                    self._rows += len(rows)
                    for start in range(0, max(1, len(rows)), batch_rows):
                        yield rows.slice(start, batch_rows)
                    if rows.stopped is not None:
                        self._ended = True
                        return
        finally:
            self._begun = [text[at:], *self._begun]
        if format is Format.JSON and (over or self._rows >= LOOK_AHEAD) and self._rows:
            for target in sieve.targets:
                if not (target.found or target.optional):
                    raise missing(target.name, [t.name for t in sieve.targets if t.found], Path(self.where))
        if over:
            self._ended = True
            if self._problem is not None:
                raise self._problem

    def _take_header(self, text: bytes, over: bool) -> int:
        """Take the header line out of the text, if it is there; how long it is."""
        end = _records_end(text, self._delimiter(text), 1)
        if not end and over:
            end = len(text)
        if over and not text.strip():
            raise InputError(f"{self.where} is empty: a CSV file needs a header line")
        self._header = text[:end]
        if end and not self._header.endswith(b"\n"):
            self._header += b"\n"
        return end

    def _whole_records(self, text: bytes, format: Format, most: int) -> int:
        """How much of a text are whole records, of at most so many bytes if there are several."""
        end = text.rfind(b"\n", 0, most) + 1 or text.find(b"\n") + 1
        if format is Format.JSON or b'"' not in text[:end]:
            return end
        end = _records_end(text[:most], self._delimiter(self._header or text))
        if not end and len(text) > _RECORD:
            # A quote is not closed: the reader says so of its line.
            return text.find(b"\n", _RECORD) + 1
        return end

    def _delimiter(self, text: bytes) -> str:
        return delimiter_of(Piece(self.where, Format.CSV, text))

    def _take(self) -> bool:
        """Take what has come; whether that is all."""
        self._arrivals.taken(self)
        with self._changed:
            self._begun += self._chunks
            self._chunks, self._size, self._told = [], 0, False
            self._changed.notify_all()
            return self._over

    def _await(self, lines: int, patience: float | None, least: int = 0) -> bool:
        """Wait for so many lines; whether the text is over. KeyboardInterrupt: it is to stop.

        With ``patience`` for what comes in one go, but for ``least`` lines.
        """
        until: float | None = None
        while not (over := self._take()):
            there = sum(chunk.count(b"\n") for chunk in self._begun)
            if there >= lines or (patience is not None and sum(map(len, self._begun)) >= _FIRST):
                break
            if patience is not None and there >= least:
                until = until or time.monotonic() + patience
                if not self._arrivals.wait(min(_PAUSE, until - time.monotonic()), self):
                    break
            else:
                self._arrivals.wait(None, self)
            if self._arrivals.stopped:
                raise KeyboardInterrupt
        # Who reads rows finds all of it there.
        self._arrivals.tell(self)
        return over


def _looks_like(text: bytes, where: str) -> Format:
    for magic, name in _MAGIC.items():
        if text.startswith(magic):
            raise InputError(f"{where} is {name}, which is not read bit by bit", hint="give the path of a file")
    for magic, command in _PACKED.items():
        if text.startswith(magic):
            raise InputError(f"{where} is packed", hint=f"unpack it first, with {command}")
    return Format.JSON if text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") else Format.CSV


class _End(Exception):
    """There are no more lines."""


def _records_end(text: bytes, delimiter: str, count: int = sys.maxsize) -> int:
    """Where the last record that is whole ends, of the first ``count``."""
    at = end = 0

    def lines() -> Iterator[str]:
        nonlocal at
        # Every byte is a character of latin-1.
        for line in io.StringIO(text.decode("latin-1"), newline=""):
            at += len(line)
            yield line
        raise _End

    try:
        for record in csv.reader(lines(), delimiter=delimiter):
            if text[at - 1 : at] != b"\n":
                break
            end = at
            count -= bool(record)
            if not count:
                break
    except _End:
        pass
    except csv.Error:
        return text.rfind(b"\n") + 1
    return end


# -- where the bytes come from ----------------------------------------------------------------------------


def _opened(path: Path, *, follow: bool) -> _Pipe | _Growing:
    try:
        if str(path) == STDIN:
            number = os.dup(sys.stdin.fileno())
        elif path.parent in (Path("/dev/fd"), Path("/proc/self/fd")):
            number = os.dup(int(path.name))  # opened anew, a pipe does not tell that its writer has gone
        else:
            # A named pipe that is open for writing here has no end, and one without a writer is waited for.
            is_pipe = stat.S_ISFIFO(path.stat().st_mode)
            number = os.open(path, os.O_RDWR if follow and is_pipe else os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as problem:
        where = _STANDARD_INPUT if str(path) == STDIN else path
        said = problem.strerror if isinstance(problem, OSError) else problem
        raise InputError(f"{where} cannot be read: {said or problem}") from None
    if follow and stat.S_ISREG(os.fstat(number).st_mode):
        return _Growing(number, None if str(path) == STDIN else path)
    return _Pipe(number)


class _Pipe:
    """Bytes of a pipe, a terminal, or a file from its beginning to its end."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._woken, self._wake = os.pipe()

    def read(self) -> bytes | None:
        """What is there, at least a byte, which it waits for; none at the end, None after ``stop``."""
        while True:
            ready, _, _ = select.select([self._number, self._woken], [], [])
            if self._woken in ready:
                return None
            with suppress(BlockingIOError):
                return os.read(self._number, _READ)

    def stop(self) -> None:
        os.write(self._wake, b".")

    def close(self) -> None:
        for number in (self._number, self._woken, self._wake):
            os.close(number)


class _Growing:
    """Bytes of a file, and what is added to it. There is no event for that, so it looks from time to time."""

    def __init__(self, number: int, path: Path | None) -> None:
        self._number, self._path = number, path
        self._at = os.lseek(number, 0, os.SEEK_CUR)
        self._stopped = threading.Event()

    def read(self) -> bytes | None:
        """What is there, at least a byte, which it waits for; None after ``stop``."""
        while not self._stopped.is_set():
            data = os.read(self._number, _READ)
            if data:
                self._at += len(data)
                return data
            self._check()
            self._stopped.wait(_LOOK)
        return None

    def _check(self) -> None:
        here = os.fstat(self._number)
        if here.st_size < self._at:
            raise InputError(f"{self._path or _STANDARD_INPUT} has become shorter than what has been read of it")
        if self._path is None:
            return
        try:
            there = self._path.stat()
        except OSError:
            raise InputError(f"{self._path} is not there any more") from None
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            raise InputError(f"{self._path} is another file now; what follows in it has not been read")

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        os.close(self._number)
