"""CSV. Arrow parses; where it or a conversion fails, a second, careful pass goes on from there and finds the line.

The careful pass cuts the file into records with Python's csv module, which agrees with Arrow on where they end, and
gives them to Arrow again. So a value is the same whoever has found it, and of a record that is wrong the line that it
starts on is known.
"""

from __future__ import annotations

import csv
import io
import re
import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv

from penstock.apart import BadRow, Rows, Sieve, row_text, sifted_file
from penstock.errors import InputError
from penstock.io.columns import Target, bad_value, match, whole
from penstock.io.files import Leave, Piece, Source, data_suffix, open_text
from penstock.io.values import BadValue, convert_text

_BLOCK_BYTES = 4 << 20
_RELEASE_SECONDS = 10.0
_HEADER_LINES = 100
_CAREFUL_ROWS = 4_096
_QUOTED = re.compile(rb'"[^"]*"')


def read_csv(path: Source, sieve: Sieve, leave: Leave | None = None) -> Iterator[Rows]:
    """Rows of the wanted columns, in pieces of a few megabytes of text."""
    done, held, fault = 0, None, False
    with open_text(path, leave) as raw:
        source = io.BufferedReader(_QuoteCounter(raw), _BLOCK_BYTES)
        counter = source.raw
        assert isinstance(counter, _QuoteCounter)
        header = _header(source, path)
        columns = match(header, sieve.targets, path, sieve.unknown)
        if not source.peek(1):
            return
        before = [(target.types, target.begun) for target, _ in columns]
        try:
            with closing(_parse(source, len(header), [at for _, at in columns], delimiter_of(path))) as batches:
                for batch in batches:
                    before = [(target.types, target.begun) for target, _ in columns]
                    table = _typed(batch, columns, path)
                    if sieve.check is not None:
                        sieve.check(table)
                    if held is not None:
                        done += len(held)
                        yield Rows(held)
                    held = table
            # Arrow takes a quote that is never closed as closed by the end of the file; it may be in the last rows.
            fault = counter.quotes % 2 == 1
        except (pa.ArrowInvalid, BadRow):
            fault = True
            for (target, _), (types, begun) in zip(columns, before, strict=True):
                target.types, target.begun = types, begun
            if held is not None:
                done += len(held)
                yield Rows(held)
                held = None
    if not fault:
        if held is not None:
            yield Rows(held)
        return
    yield from _carefully(path, columns, len(header), sieve, leave, done)


def csv_header(path: Source) -> list[str]:
    """The names of the columns, as the first line of the file has them."""
    with open_text(path) as raw:
        return _header(io.BufferedReader(_QuoteCounter(raw)), path)


def csv_line(files: Sequence[Source], row: int) -> tuple[Source, int] | None:
    """The file and the line on which a row of some files begins; None where Python and Arrow see other rows."""
    for path in files:
        with open_text(path) as raw:
            records = csv.reader(_Lines(io.BufferedReader(_QuoteCounter(raw)), path), delimiter=delimiter_of(path))
            begins, is_header = 1, True
            try:
                for record in records:
                    if record and not is_header:
                        if not row:
                            return path, begins
                        row -= 1
                    is_header = is_header and not record
                    begins = records.line_num + 1
            except csv.Error:
                break
    return None


class _QuoteCounter(io.RawIOBase):
    """Passes bytes on and counts the quotes among them."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: object) -> int:
        view = memoryview(into)  # type: ignore[arg-type]
        data = self._source.read(len(view))
        view[: len(data)] = data
        self.quotes += data.count(b'"')
        return len(data)


def delimiter_of(path: Source) -> str:
    """A tab in .tsv files; a comma, or where the header has none the semicolon, tab or bar that it has."""
    if data_suffix(path) == ".tsv":
        return "\t"
    with open_text(path) as source:
        lines = islice((line for line in source if line.strip()), _HEADER_LINES)
        found = first = _QUOTED.sub(b"", next(lines, b""))
        # A name in quotes may go over several lines; a quote within a name without quotes is none.
        while b'"' in found and (line := next(lines, b"")):
            found = _QUOTED.sub(b"", found + line)
    bare = (first if b'"' in found else found).decode("utf-8", "replace")
    return "," if "," in bare else max(";\t|", key=bare.count) if any(c in bare for c in ";\t|") else ","


def _header(source: IO[bytes], path: Source) -> list[str]:
    try:
        for record in csv.reader(_Lines(source, path), delimiter=delimiter_of(path), strict=True):
            if record:
                return [name.strip() for name in record]
    except csv.Error as problem:
        raise InputError(f"{path}, line 1: the header line is broken: {problem}") from None
    raise InputError(f"{path} is empty: a CSV file needs a header line")


def _parse(
    source: io.BufferedReader[_QuoteCounter], width: int, used: list[int], delimiter: str
) -> Generator[pa.RecordBatch, None, None]:
    released = threading.Event()
    reader = None
    try:
        reader = pa.csv.open_csv(_lent(source, released), **_options(width, used, delimiter))
        yield from reader
    finally:
        del reader
        released.wait(_RELEASE_SECONDS)


def _options(width: int, used: list[int], delimiter: str) -> dict[str, Any]:
    """How Arrow reads the records of a file, of which it gets no header."""
    names = [str(i) for i in range(width)]
    wanted = [names[i] for i in used]
    return {
        "read_options": pa.csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
        "parse_options": pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter),
        "convert_options": pa.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }


def _lent(source: io.BufferedReader[_QuoteCounter], released: threading.Event) -> IO[bytes]:
    """The source in an object that Arrow alone holds; ``released`` tells when it lets go of it.

    Arrow reads ahead in a thread of its own, which lets go a little after the last batch. If the interpreter ends in
    between, that thread cannot come to its end and aborts the process.
    """
    handle = io.BufferedReader(source, _BLOCK_BYTES)
    weakref.finalize(handle, released.set)
    return handle


def _typed(batch: pa.RecordBatch | pa.Table, columns: list[tuple[Target, int]], path: Source) -> pa.Table:
    arrays = []
    for i, (target, _) in enumerate(columns):
        column = batch.column(i)
        column = whole(column) if isinstance(column, pa.ChunkedArray) else column
        try:
            arrays.append(target.convert(column, convert_text))
        except BadValue as bad:
            raise bad_value(path, bad.index, target.name, bad) from None
    return pa.table(arrays, names=[target.name for target, _ in columns])


class _Lines:
    """The lines of a file as text, for the csv module, which asks for them one at a time."""

    def __init__(self, source: IO[bytes], path: Source) -> None:
        self._source = source
        self._path = path
        self._number = 0

    def __iter__(self) -> Iterator[str]:
        # readline and not iteration: what follows the header must still be there for Arrow
        while line := self._source.readline():
            self._number += 1
            try:
                yield line.decode("utf-8-sig" if self._number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise InputError(f"{self._path}, line {self._number}: the text is not UTF-8") from None


@dataclass(frozen=True)
class _Record:
    """A record of a file: the line that it begins on, its text, how many fields it has, and what is wrong with it."""

    line: int
    text: bytes
    fields: int
    fault: str | None = None


class _Unclosed(Exception):
    """The file ends within quotes."""


def _carefully(
    path: Source, columns: list[tuple[Target, int]], width: int, sieve: Sieve, leave: Leave | None, done: int
) -> Iterator[Rows]:
    """The rows after the first ``done``, record by record, so that it is known which are wrong and where they are.

    A record is read by Arrow as all others are; a line with a quote that is never closed is wrong by itself, and
    reading goes on with the next.
    """
    delimiter = delimiter_of(path)
    skipped = path.skipped if isinstance(path, Piece) else 0
    options = _options(width, [at for _, at in columns], delimiter)
    with open_text(path, leave) as raw:
        records = islice(_records(raw, delimiter), 1 + done, None)
        while batch := list(islice(records, _CAREFUL_ROWS)):
            found = sifted_file(
                batch,
                lambda some: _read_records(some, columns, width, path, options),
                sieve,
                lambda row, batch=batch: f"line {batch[row].line + skipped}",
                lambda row, batch=batch: _record_text(batch[row], width, columns, options),
            )
            yield found
            if found.stopped is not None:
                return


def _records(raw: IO[bytes], delimiter: str) -> Iterator[_Record]:
    # Every byte is a character of latin-1, so lines that are not UTF-8 are counted as well.
    lines = _Again(io.TextIOWrapper(io.BufferedReader(_QuoteCounter(raw)), "latin-1", newline=""))
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        begins = lines.number + 1
        lines.begin()
        try:
            fields, fault = next(reader), None
        except StopIteration:
            return
        except _Unclosed:
            fields, fault = [], "a quote is opened and never closed"
            lines.again()
        except csv.Error as problem:
            fields, fault = [], str(problem)
            lines.again()
        if fields or fault:
            yield _Record(begins, "".join(lines.taken).encode("latin-1"), len(fields), fault)


class _Again:
    """Lines, of which those of a record can be had again, all but the first. Holds the lines of one record."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._ahead: deque[str] = deque()
        self.taken: list[str] = []
        """The lines of the record."""
        self.number = 0

    def begin(self) -> None:
        """A record begins."""
        self.taken = []

    def again(self) -> None:
        """Only the first line belongs to the record."""
        self._ahead.extendleft(reversed(self.taken[1:]))
        self.number -= len(self.taken) - 1
        del self.taken[1:]

    def __iter__(self) -> _Again:
        return self

    def __next__(self) -> str:
        line = self._ahead.popleft() if self._ahead else next(self._lines, "")
        if not line and self.taken:
            raise _Unclosed
        if not line:
            raise StopIteration
        self.number += 1
        self.taken.append(line)
        return line


def _read_records(
    records: list[_Record], columns: list[tuple[Target, int]], width: int, path: Source, options: dict[str, Any]
) -> pa.Table:
    for i, record in enumerate(records):
        if record.fault is not None:
            raise BadRow(str(path), i, record.fault)
        if record.fields != width:
            fields = f"{record.fields} field{'' if record.fields == 1 else 's'}"
            raise BadRow(str(path), i, f"{fields} where the header has {width}")
    try:
        texts = _parsed(records, options)
    except pa.ArrowInvalid as problem:
        reason = "the text is not UTF-8" if "UTF8" in str(problem) else str(problem).splitlines()[0]
        raise BadRow(str(path), 0, reason) from None
    if len(texts) != len(records):
        raise BadRow(str(path), 0, "it cannot be read as CSV")
    return _typed(texts, columns, path)


def _parsed(records: list[_Record], options: dict[str, Any]) -> pa.Table:
    ended = [r.text if r.text.endswith((b"\n", b"\r")) else r.text + b"\n" for r in records]
    return pa.csv.read_csv(pa.BufferReader(b"".join(ended)), **options)


def _record_text(
    record: _Record, width: int, columns: list[tuple[Target, int]], options: dict[str, Any]
) -> str:
    """The declared columns of a record in JSON; as it is, if it has others."""
    if record.fault is None and record.fields == width:
        try:
            texts = _parsed([record], options)
            return row_text(texts.rename_columns([target.name for target, _ in columns]), 0)
        except pa.ArrowInvalid:
            pass
    return record.text.decode("utf-8", "replace").rstrip("\r\n")
