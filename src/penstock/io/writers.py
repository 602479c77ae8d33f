"""Writing answers: an aligned table, CSV, JSON lines, Arrow IPC or Parquet.

A file appears under its name when it is complete: it is written beside it and renamed on ``close``; after
``abort`` nothing is left. A text stream (stdout) is written to, and flushed, as the answers come.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, TextIO

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from penstock.io.files import data_suffix, format_of
from penstock.io.table_text import TableText
from penstock.model.errors import InputError
from penstock.rows.text import as_json, plain

OutputFormat = Literal["table", "csv", "json", "arrow", "parquet"]


class Writer(ABC):
    """Takes tables of one schema; closed (or aborted, after an error) by ``with`` or by hand."""

    @abstractmethod
    def write(self, table: pa.Table) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def format_for(path: Path) -> OutputFormat | None:
    """The format that an output path's suffix names; .txt is a table."""
    if path.suffix.lower() == ".txt":
        return "table"
    found = format_of(path)
    return None if found is None else found.value


def open_writer(target: Path | TextIO, format: OutputFormat, schema: pa.Schema) -> Writer:
    """A writer of tables with this schema to a file or to an open text stream."""
    output = _File(target) if isinstance(target, Path) else _Stream(target)
    try:
        match format:
            case "table":
                return _Text(output, schema, TableText(schema, color=output.terminal))
            case "csv":
                return _Text(output, schema, CsvText(schema))
            case "json":
                return _Text(output, schema, JsonText(schema))
            case "arrow":
                return _Arrow(output, schema)
            case "parquet":
                return _Parquet(output, schema)
    except BaseException:
        output.abort()
        raise


class Resumable(Writer):
    """A text file that is written to as the answers come, and goes on at a length that was noted before."""

    def __init__(self, path: Path, format: OutputFormat, schema: pa.Schema, length: int) -> None:
        if format not in ("csv", "json"):
            raise InputError(f"{path}: {format} cannot be gone on with", hint="write CSV or JSON lines")
        self._text = CsvText(schema) if format == "csv" else JsonText(schema)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("r+b" if path.exists() else "w+b")
            if self._file.seek(0, os.SEEK_END) < length:
                raise InputError(f"{path} has lost what was written to it", hint="restore it, or begin anew")
            self._file.truncate(length)
            self._file.seek(length)
        except OSError as problem:
            raise InputError(f"cannot write {path}: {problem.strerror}") from None
        if length == 0:
            self._file.write(self._text.head().encode())
            self._file.flush()

    @property
    def length(self) -> int:
        """Bytes written."""
        return self._file.tell()

    def write(self, table: pa.Table) -> None:
        self._file.write(self._text.body(table).encode())
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def abort(self) -> None:
        self._file.close()


class _Stream:
    """An open text stream that belongs to the caller."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self.suffix = ""

    def write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def binary(self) -> IO[bytes]:
        if self.terminal:
            raise InputError("a terminal cannot show this format", hint="give --output a file, or use a pipe")
        self._stream.flush()
        return self._stream.buffer

    def commit(self) -> None:
        self._stream.flush()

    def abort(self) -> None:
        pass


class _File:
    """A file that is not there until it is complete."""

    terminal = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self.suffix = data_suffix(path)
        self._part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = self._part.open("wb")
        except OSError as problem:
            raise InputError(f"cannot write {path}: {problem.strerror}") from None

    def write(self, text: str) -> None:
        self._file.write(text.encode())

    def binary(self) -> IO[bytes]:
        return self._file

    def commit(self) -> None:
        self._file.close()
        try:
            self._part.replace(self._path)
        except OSError as problem:
            self._part.unlink(missing_ok=True)
            raise InputError(f"cannot write {self._path}: {problem.strerror}") from None

    def abort(self) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


class CsvText:
    """CSV with one header line. NULL is an empty field, an empty string is quoted."""

    def __init__(self, schema: pa.Schema) -> None:
        self.names = schema.names

    def head(self) -> str:
        return ",".join(_csv_field(name) for name in self.names) + "\n"

    def body(self, table: pa.Table) -> str:
        columns = [[_csv_field(text) for text in plain(column)] for column in table.columns]
        return "".join(",".join(row) + "\n" for row in zip(*columns, strict=True))


class JsonText:
    """One JSON object per line."""

    def __init__(self, schema: pa.Schema) -> None:
        self._keys = [as_json(pa.chunked_array([[name]]))[0] + ": " for name in schema.names]

    def head(self) -> str:
        return ""

    def body(self, table: pa.Table) -> str:
        pairs = zip(self._keys, table.columns, strict=True)
        columns = [[key + text for text in as_json(column)] for key, column in pairs]
        return "".join("{" + ", ".join(row) + "}\n" for row in zip(*columns, strict=True))


def _csv_field(text: str | None) -> str:
    if text is None:
        return ""
    if text == "" or any(c in text for c in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


class _Text(Writer):
    def __init__(
        self, output: _Stream | _File, schema: pa.Schema, text: TableText | CsvText | JsonText
    ) -> None:
        self._output = output
        self._schema = schema
        self._text = text
        self._started = False

    def write(self, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        body = self._text.body(table)
        if not self._started:
            body = self._text.head() + body
            self._started = True
        self._output.write(body)

    def close(self) -> None:
        if not self._started:
            self._output.write(self._text.head())
        self._output.commit()

    def abort(self) -> None:
        self._output.abort()


class _Arrow(Writer):
    """The IPC file format in a file; the IPC stream format in a pipe and in ``.arrows`` files."""

    def __init__(self, output: _Stream | _File, schema: pa.Schema) -> None:
        self._output = output
        make = pa.ipc.new_stream if output.suffix in ("", ".arrows") else pa.ipc.new_file
        self._writer: Any = make(output.binary(), schema)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
        self._output.commit()

    def abort(self) -> None:
        self._writer.close()
        self._output.abort()


class _Parquet(Writer):
    def __init__(self, output: _Stream | _File, schema: pa.Schema) -> None:
        self._output = output
        self._writer: Any = pa.parquet.ParquetWriter(output.binary(), schema)

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
        self._output.commit()

    def abort(self) -> None:
        self._writer.close()
        self._output.abort()
