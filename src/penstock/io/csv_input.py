"""CSV. Arrow parses; where it or a conversion fails, a second, careful pass finds the line.

The careful pass reads the whole file from its start with Python's csv module and the one-value parsers, so
what it reports is the first thing wrong in the file, with the line its record starts on.
"""

from __future__ import annotations

import csv
import io
import re
import threading
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv

from penstock.errors import InputError
from penstock.io.columns import Target, bad_value, match
from penstock.io.files import Leave, data_suffix, open_text
from penstock.io.values import BadValue, convert_text

_BLOCK_BYTES = 4 << 20
_RELEASE_SECONDS = 10.0
_HEADER_LINES = 100
_QUOTED = re.compile(rb'"[^"]*"')


def read_csv(path: Path, targets: list[Target], leave: Leave | None = None) -> Iterator[pa.Table]:
    """Tables of the wanted columns, in pieces of a few megabytes of text."""
    with open_text(path, leave) as raw:
        source = io.BufferedReader(_QuoteCounter(raw), _BLOCK_BYTES)
        counter = source.raw
        assert isinstance(counter, _QuoteCounter)
        header = _header(source, path)
        columns = match(header, targets, path)
        if not source.peek(1):
            return
        try:
            with closing(_parse(source, len(header), [at for _, at in columns], _delimiter(path))) as batches:
                for batch in batches:
                    yield _typed(batch, columns)
        except (pa.ArrowInvalid, BadValue) as problem:
            _find_fault(path, targets, leave)
            raise InputError(f"{path} cannot be read as CSV: {problem}") from None
    # Arrow takes a quote that is never closed as closed by the end of the file.
    if counter.quotes % 2:
        _find_fault(path, targets, leave)


def csv_header(path: Path) -> list[str]:
    """The names of the columns, as the first line of the file has them."""
    with open_text(path) as raw:
        return _header(io.BufferedReader(_QuoteCounter(raw)), path)


def csv_line(files: Sequence[Path], row: int) -> tuple[Path, int] | None:
    """The file and the line on which a row of some files begins; None where Python and Arrow see other rows."""
    for path in files:
        with open_text(path) as raw:
            records = csv.reader(_Lines(io.BufferedReader(_QuoteCounter(raw)), path), delimiter=_delimiter(path))
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


def _delimiter(path: Path) -> str:
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


def _header(source: IO[bytes], path: Path) -> list[str]:
    try:
        for record in csv.reader(_Lines(source, path), delimiter=_delimiter(path), strict=True):
            if record:
                return [name.strip() for name in record]
    except csv.Error as problem:
        raise InputError(f"{path}, line 1: the header line is broken: {problem}") from None
    raise InputError(f"{path} is empty: a CSV file needs a header line")


def _parse(
    source: io.BufferedReader[_QuoteCounter], width: int, used: list[int], delimiter: str
) -> Generator[pa.RecordBatch, None, None]:
    names = [str(i) for i in range(width)]
    wanted = [names[i] for i in used]
    released = threading.Event()
    reader = None
    try:
        reader = pa.csv.open_csv(
            _lent(source, released),
            read_options=pa.csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        yield from reader
    finally:
        del reader
        released.wait(_RELEASE_SECONDS)


def _lent(source: io.BufferedReader[_QuoteCounter], released: threading.Event) -> IO[bytes]:
    """The source in an object that Arrow alone holds; ``released`` tells when it lets go of it.

    Arrow reads ahead in a thread of its own, which lets go a little after the last batch. If the interpreter ends in
    between, that thread cannot come to its end and aborts the process.
    """
    handle = io.BufferedReader(source, _BLOCK_BYTES)
    weakref.finalize(handle, released.set)
    return handle


def _typed(batch: pa.RecordBatch, columns: list[tuple[Target, int]]) -> pa.Table:
    arrays = [target.convert(batch.column(i), convert_text) for i, (target, _) in enumerate(columns)]
    return pa.table(arrays, names=[target.name for target, _ in columns])


class _Lines:
    """The lines of a file as text, for the csv module, which asks for them one at a time."""

    def __init__(self, source: IO[bytes], path: Path) -> None:
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


def _find_fault(path: Path, targets: list[Target], leave: Leave | None) -> None:
    """Raise the error for the first thing wrong in the file; come back if there is nothing."""
    line = 1
    with open_text(path, leave) as raw:
        source = io.BufferedReader(_QuoteCounter(raw))
        header: list[str] | None = None
        records = csv.reader(_Lines(source, path), delimiter=_delimiter(path), strict=True)
        try:
            for record in records:
                if header is None and record:
                    header = [name.strip() for name in record]
                    columns = match(header, targets, path)
                elif record and header is not None:
                    if len(record) != len(header):
                        fields = f"{len(record)} field{'' if len(record) == 1 else 's'}"
                        raise InputError(f"{path}, line {line}: {fields} where the header has {len(header)}")
                    _check(path, line, record, columns)
                line = records.line_num + 1
        except csv.Error as problem:
            what = "a quote is opened and never closed" if "end of data" in str(problem) else str(problem)
            raise InputError(f"{path}, line {line}: {what}") from None


def _check(path: Path, line: int, record: list[str], columns: list[tuple[Target, int]]) -> None:
    for target, at in columns:
        if target.is_text_of(record[at]):
            continue
        try:
            target.convert(pa.array([record[at] or None], pa.string()), convert_text)
        except BadValue as bad:
            raise bad_value(path, f"line {line}", target.name, bad) from None
