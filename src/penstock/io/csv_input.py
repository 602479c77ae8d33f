"""CSV. Arrow parses; where it or a conversion fails, a second, careful pass goes on from there and finds the line.

The careful pass cuts the file into records with Python's csv module, which agrees with Arrow on where they end, and
gives them to Arrow again. So a value is the same whoever has found it, and of a record that is wrong the line that it
starts on is known.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO

import pyarrow as pa
import pyarrow.csv

from penstock.io.files import Leave, Piece, Source, data_suffix, open_text
from penstock.model.errors import InputError
from penstock.model.types import DataType
from penstock.rows.apart import BadRow, Rows, Sieve, row_text, sifted_file
from penstock.rows.columns import Target, bad_value, match, whole
from penstock.rows.values import BadValue, convert_text

_BLOCK_BYTES = 4 << 20
_LONGEST = 4 * _BLOCK_BYTES
"""Bytes that a record has at most."""
csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
_HEADER_LINES = 100
_CAREFUL_ROWS = 4_096
_QUOTED = re.compile(rb'"[^"]*"')


def read_csv(path: Source, sieve: Sieve, leave: Leave | None = None) -> Iterator[Rows]:
    """Rows of the wanted columns, in pieces of a few megabytes of text."""
    done = 0
    with open_text(path, leave) as source:
        header = _header(source, path)
        columns = match(header, sieve.targets, path, sieve.unknown)
        delimiter = delimiter_of(path)
        used = [at for _, at in columns]
        before: list[tuple[tuple[DataType, ...], bool]] = []
        try:
            for block in _blocks(source, delimiter):
                before = [(target.types, target.begun) for target, _ in columns]
                table = _typed(_parsed(block, len(header), used, delimiter), columns, path)
                if sieve.check is not None:
                    sieve.check(table)
                yield Rows(table)
                done += len(table)
            return
        except (pa.ArrowInvalid, BadRow, _Unclosed):
            for (target, _), (types, begun) in zip(columns, before, strict=False):
                target.types, target.begun = types, begun
    yield from _carefully(path, columns, len(header), sieve, leave, done)


def csv_header(path: Source) -> list[str]:
    """The names of the columns, as the first line of the file has them."""
    with open_text(path) as raw:
        return _header(raw, path)


def csv_line(files: Sequence[Source], row: int) -> tuple[Source, int] | None:
    """The file and the line on which a row of some files begins; None where Python and Arrow see other rows."""
    for path in files:
        with open_text(path) as raw:
            records = csv.reader(_Lines(raw, path), delimiter=delimiter_of(path))
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


class _Unclosed(Exception):
    """There is a quote that is not closed, in this file or in what of it is looked at."""


def _blocks(source: IO[bytes], delimiter: str) -> Iterator[bytes]:
    """The bytes of a file in pieces that end where a record ends.

    They are read here and given to Arrow one after the other: if its threads read them, through a Python object, one
    could still be at it when the interpreter ends, which aborts the process.
    """
    whole, last = _patterns(delimiter)
    rest = b""
    while data := source.read(_BLOCK_BYTES):
        data = rest + data
        if b'"' in data:
            found = whole.match(data)
            end = found.end() if found is not None else 0
        else:
            end = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, len(data) - 1) + 1
        if not end and len(data) > _LONGEST:
            raise _Unclosed
        if end:
            yield data[:end]
        rest = data[end:]
    if rest and last.fullmatch(rest) is None:
        raise _Unclosed
    if rest:
        yield rest


def _patterns(delimiter: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """As many whole records as there are, and the last one of a file, which needs no end of line.

    As Arrow reads them: quotes mean something only at the beginning of a field.
    """
    cut = re.escape(delimiter.encode())
    text = rb"[^" + cut + rb"\r\n]*+"
    field = rb'(?>"[^"]*+(?:""[^"]*+)*+"' + text + rb'|[^"' + cut + rb"\r\n]" + text + rb"|)"
    fields = field + rb"(?:" + cut + field + rb")*+"
    # A \r at the very end may be half of \r\n.
    return re.compile(rb"(?>" + fields + rb"(?:\r\n|\n|\r(?!\Z)))*+"), re.compile(fields + rb"\r?")


def _parsed(data: bytes, width: int, used: list[int], delimiter: str) -> pa.Table:
    """Whole records of a file as texts."""
    names = [str(i) for i in range(width)]
    wanted = [names[i] for i in used]
    if not data.strip(b"\r\n"):
        return pa.table([pa.nulls(0, pa.string())] * len(wanted), names=wanted)
    # Arrow's threads let go of what they have read after the call has returned. If that were an object of Python, and
    # the interpreter were ending by then, the process would abort.
    own = pa.allocate_buffer(len(data))
    memoryview(own).cast("B")[:] = data
    return pa.csv.read_csv(
        pa.BufferReader(own),
        read_options=pa.csv.ReadOptions(column_names=names, block_size=max(len(data), _BLOCK_BYTES)),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _typed(texts: pa.Table, columns: list[tuple[Target, int]], path: Source) -> pa.Table:
    arrays = []
    for i, (target, _) in enumerate(columns):
        try:
            arrays.append(target.convert(whole(texts.column(i)), convert_text))
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


def _carefully(
    path: Source, columns: list[tuple[Target, int]], width: int, sieve: Sieve, leave: Leave | None, done: int
) -> Iterator[Rows]:
    """The rows after the first ``done``, record by record, so that it is known which are wrong and where they are.

    A record is read by Arrow as all others are; a line with a quote that is never closed is wrong by itself, and
    reading goes on with the next line.
    """
    delimiter = delimiter_of(path)
    skipped = path.skipped if isinstance(path, Piece) else 0

    def sift(batch: list[_Record]) -> Rows:
        return sifted_file(
            batch,
            lambda some: _read_records(some, columns, width, path, delimiter),
            sieve,
            lambda row: f"line {batch[row].line + skipped}",
            lambda row: _record_text(batch[row], width, columns, delimiter),
        )

    with open_text(path, leave) as raw:
        records = islice(_records(raw, delimiter, width), 1 + done, None)
        while batch := list(islice(records, _CAREFUL_ROWS)):
            found = sift(batch)
            yield found
            if found.stopped is not None:
                return


def _records(raw: IO[bytes], delimiter: str, width: int) -> Iterator[_Record]:
    """The records of a file, the header included. Where a quote that goes on over lines makes a wrong width,
    it is taken for one that was never closed, so that the lines after it are not lost."""
    # Every byte is a character of latin-1, so lines that are not UTF-8 are counted as well.
    lines = _Again(io.TextIOWrapper(raw, "latin-1", newline=""))
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
        except csv.Error:
            fields, fault = [], f"a quote is opened and not closed within {csv.field_size_limit():,} characters"
            lines.again()
        if fault is None and len(lines.taken) > 1 and len(fields) != width:
            last = begins + len(lines.taken) - 1
            fault = f"a quote is opened that closes in line {last}, which makes {_fields(len(fields), width)}"
            lines.again()
        if fields or fault:
            yield _Record(begins, "".join(lines.taken).encode("latin-1"), len(fields), fault)


def _fields(count: int, width: int) -> str:
    return f"{count} field{'' if count == 1 else 's'} where the header has {width}"


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
    records: list[_Record], columns: list[tuple[Target, int]], width: int, path: Source, delimiter: str
) -> pa.Table:
    for i, record in enumerate(records):
        if record.fault is not None:
            raise BadRow(str(path), i, record.fault)
        if record.fields != width:
            raise BadRow(str(path), i, _fields(record.fields, width))
    try:
        texts = _joined(records, columns, width, delimiter)
    except pa.ArrowInvalid as problem:
        reason = "the text is not UTF-8" if "UTF8" in str(problem) else str(problem).splitlines()[0]
        raise BadRow(str(path), 0, reason) from None
    if len(texts) != len(records):
        raise BadRow(str(path), 0, "it cannot be read as CSV")
    return _typed(texts, columns, path)


def _joined(
    records: list[_Record], columns: list[tuple[Target, int]], width: int, delimiter: str
) -> pa.Table:
    ended = [r.text if r.text.endswith((b"\n", b"\r")) else r.text + b"\n" for r in records]
    return _parsed(b"".join(ended), width, [at for _, at in columns], delimiter)


def _record_text(record: _Record, width: int, columns: list[tuple[Target, int]], delimiter: str) -> str:
    """The declared columns of a record in JSON; as it is, if it has others."""
    if record.fault is None and record.fields == width:
        try:
            texts = _joined([record], columns, width, delimiter)
            return row_text(texts.rename_columns([target.name for target, _ in columns]), 0)
        except pa.ArrowInvalid:
            pass
    return record.text.decode("utf-8", "replace").rstrip("\r\n")
