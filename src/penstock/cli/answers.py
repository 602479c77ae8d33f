"""Where the answers of a run go: stdout, a file, or a folder with a file for each query."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from penstock.cli.failures import FAILED, Failure
from penstock.io.table_text import TableText
from penstock.io.writers import OutputFormat, Resumable, Writer, format_for, open_writer
from penstock.model.errors import QueryFailed
from penstock.rows.text import plain

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.query import Query

Sink = Callable[[pa.Table], dict[str, object] | None]
SUFFIX: dict[OutputFormat, str] = {
    "table": ".txt",
    "csv": ".csv",
    "json": ".jsonl",
    "arrow": ".arrow",
    "parquet": ".parquet",
}


class Answers:
    """Fetches what queries have answered and passes it on. ``counts`` says how much that was.

    ``before`` is called before answers are written.
    """

    def __init__(self, queries: Sequence[Query], sinks: Sequence[Sink]) -> None:
        self._queries = list(zip(queries, sinks, strict=True))
        self.counts = {query.name: 0 for query in queries}
        self.before: Callable[[], None] = lambda: None

    def drain(self, *, wait: bool = True) -> None:
        for query, sink in self._queries:
            with failing():
                self.counts[query.name] += query.transfer(self._announced(sink), wait=wait)

    def _announced(self, sink: Sink) -> Sink:
        def write(table: pa.Table) -> dict[str, object] | None:
            self.before()
            return sink(table)

        return write


@contextmanager
def failing() -> Iterator[None]:
    """A query that failed ends the command."""
    try:
        yield
    except QueryFailed as error:
        raise Failure(error.one_line, FAILED) from None


def resume_answers(db: Database, queries: Sequence[Query], output: Path, stack: ExitStack) -> Answers:
    """A folder with a file for each query; what was written after the last delivery that counts is cut off."""
    if output.is_file() or (format_for(output) is not None and not output.is_dir()):
        raise Failure(f"with --database, --output is a folder, not a file like {output}")
    sinks: list[Sink] = []
    for query in queries:
        path = output / f"{file_stem(query.name)}.csv"
        key = f"output {path.absolute()}"
        writer = stack.enter_context(Resumable(path, "csv", query.schema, db.note().get(key, 0)))
        sinks.append(_noting(key, writer))
    return Answers(queries, sinks)


def _noting(key: str, writer: Resumable) -> Sink:
    def sink(table: pa.Table) -> dict[str, object]:
        writer.write(table)
        return {key: writer.length}

    return sink


def open_answers(
    queries: Sequence[Query],
    output: Path | None,
    format: OutputFormat | None,
    stdout: TextIO,
    stack: ExitStack,
    *,
    as_they_come: bool = False,
) -> Answers:
    """Decide on places and formats, and open everything; ``stack`` closes it.

    ``as_they_come``: CSV and JSON files have the answers as soon as they are there, and not only when they are whole.
    """
    if output is None:
        return Answers(queries, _stdout_sinks(queries, format or "table", stdout, stack))
    opened = _growing if as_they_come else open_writer
    if len(queries) == 1 and not output.is_dir():
        writer = stack.enter_context(open_answer(output, format, queries[0].schema, opened))
        return Answers(queries, [writer.write])
    if output.is_file() or (format_for(output) is not None and not output.is_dir()):
        raise Failure(f"there are {len(queries)} queries, so --output is a folder, not a file like {output}")
    kind = format or "csv"
    paths = [output / f"{file_stem(query.name)}{SUFFIX[kind]}" for query in queries]
    writers = [
        stack.enter_context(opened(path, kind, query.schema))
        for path, query in zip(paths, queries, strict=True)
    ]
    return Answers(queries, [writer.write for writer in writers])


def _growing(path: Path, format: OutputFormat, schema: pa.Schema) -> Writer:
    return Resumable(path, format, schema, 0) if format in ("csv", "json") else open_writer(path, format, schema)


def open_answer(
    output: Path | None, format: OutputFormat | None, schema: pa.Schema,
    opened: Callable[[Path, OutputFormat, pa.Schema], Writer] = open_writer,
) -> Writer:  # fmt: skip
    """Where one table goes: a file, or stdout."""
    if output is None:
        return open_writer(sys.stdout, format or "table", schema)
    chosen = format or format_for(output)
    if chosen is None:
        raise Failure(f"{output} names no format; give --format, or a name ending in .csv, .jsonl, …")
    return opened(output, chosen, schema)


def file_stem(name: str) -> str:
    """A name as part of a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "_"


def _stdout_sinks(
    queries: Sequence[Query], format: OutputFormat, stdout: TextIO, stack: ExitStack
) -> list[Sink]:
    if len(queries) == 1:
        return [stack.enter_context(open_writer(stdout, format, queries[0].schema)).write]
    if format == "table":
        headings = Headings(stdout)
        return [headings.sink(query.name, query.schema) for query in queries]
    if format == "csv":
        # One header for all: every column of every query, and each row fills those of its own.
        union = list(dict.fromkeys(name for query in queries for name in query.schema.names))
        schema = pa.schema([("query", pa.string()), *((name, pa.string()) for name in union)])
        writer = stack.enter_context(open_writer(stdout, "csv", schema))
        return [_widened(query.name, schema, writer.write) for query in queries]
    if format == "json":
        sinks = []
        for query in queries:
            schema = pa.schema([pa.field("query", pa.string()), *query.schema])
            writer = stack.enter_context(open_writer(stdout, "json", schema))
            sinks.append(_named(query.name, writer.write))
        return sinks
    raise Failure(f"{format} on stdout takes one query, there are {len(queries)}; give --output a folder")


def _widened(name: str, schema: pa.Schema, write: Sink) -> Sink:
    def sink(table: pa.Table) -> None:
        columns = {column: plain(table[column]) for column in table.column_names}
        columns["query"] = [name] * table.num_rows
        nothing = [None] * table.num_rows
        write(pa.table([columns.get(column, nothing) for column in schema.names], schema=schema))

    return sink


def _named(name: str, write: Sink) -> Sink:
    def sink(table: pa.Table) -> None:
        write(table.add_column(0, "query", pa.array([name] * table.num_rows)))

    return sink


class Headings:
    """Tables of several queries on one output: a heading wherever another query has the word."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: str | None = None

    def sink(self, name: str, schema: pa.Schema) -> Sink:
        layout = TableText(schema, color=self._out.isatty())

        def write(table: pa.Table) -> None:
            body = layout.body(table)
            if self._last != name:
                gap = "" if self._last is None else "\n"
                body = f"{gap}-- {name}\n{layout.head()}{body}"
                self._last = name
            self._out.write(body)
            self._out.flush()

        return write
