"""Commands against a server: ``--connect`` of sql, run, query and graph; ``penstock push`` and ``penstock watch``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import typer

from penstock.cli.answers import Headings
from penstock.cli.failures import Failure
from penstock.cli.far import HowFar
from penstock.cli.script import read_script
from penstock.cli.shell import Shell
from penstock.io.files import Format, format_of, open_text
from penstock.io.table_text import table_text
from penstock.io.writers import JsonText
from penstock.model.errors import InputError
from penstock.storage.packing import packed

if TYPE_CHECKING:
    from penstock.client.database import RemoteDatabase
    from penstock.client.query import RemoteQuery

ConnectOption = Annotated[
    str | None, typer.Option(metavar="URL", help="A server, such as http://127.0.0.1:7070, instead of a database here.")
]
TokenOption = Annotated[
    str | None, typer.Option(metavar="TOKEN", help="Who asks; by default PENSTOCK_TOKEN in the environment.")
]
ServerOption = Annotated[
    str, typer.Option("--connect", metavar="URL", help="The server.", envvar="PENSTOCK_CONNECT")
]
_LINES = 10_000
"""Lines, or rows, that are sent at once."""


def opened(url: str, token: str | None) -> RemoteDatabase:
    """The database of a server."""
    from penstock.client.database import RemoteDatabase

    found = token or os.environ.get("PENSTOCK_TOKEN")
    if found is None and "#token=" not in url and "@" not in url:
        raise Failure(f"{url} wants to know who asks: give --token, or set PENSTOCK_TOKEN")
    return RemoteDatabase(url, token=found)


def check_alone(*options: object) -> None:
    """Refuse what is about a database here beside ``--connect``."""
    if any(option is not None for option in options):
        raise Failure("with --connect the server has the data: leave out files, and options of a database here")


class RemoteShell(Shell):
    """The shell against a server. It shows the answers of the queries that are registered in it."""

    def __init__(self, db: RemoteDatabase, out: IO[str]) -> None:
        super().__init__(db, out)  # type: ignore[arg-type]
        self._remote = db
        self._followed: dict[str, RemoteQuery] = {}

    def _run(self, text: str) -> None:
        for result in self._remote.execute(text).script:
            if result.query is not None:
                self._followed[result.query.name] = result.query  # type: ignore[assignment]
            self._show_result(result)
        self._answers()

    def _answers(self) -> None:
        headings = Headings(self._out)
        for name, query in list(self._followed.items()):
            if name not in self._remote.queries:
                del self._followed[name]
            elif (answers := query.fetch()).num_rows:
                headings.sink(name, query.schema)(answers)

    def _describe(self, arguments: list[str]) -> None:
        if arguments:
            self._run(f"DESCRIBE {arguments[0]}")
            return
        for what in ("STREAMS", "RELATIONS", "VIEWS", "QUERIES"):
            table = self._remote.execute(f"SHOW {what}").table
            if table is not None and table.num_rows:
                self._say(f"{what.lower()}\n{table_text(table).rstrip()}\n")

    def _load(self, arguments: list[str]) -> None:
        if len(arguments) != 2:
            raise InputError("\\load takes a name and a path", hint="\\load sensors sensors.csv")
        rows = 0
        for body, count in pieces(Path(arguments[1])):
            self._remote.send(arguments[0], *body)
            rows += count
            self._answers()
        self._say(f"{rows:,} rows into {arguments[0]}")

    def _close(self, arguments: list[str]) -> None:
        if len(arguments) != 1:
            raise InputError("\\close takes the name of a stream")
        self._remote.close_stream(arguments[0])
        self._answers()


def remote_run(url: str, token: str | None, file: Path) -> None:
    """Run the statements of a file on a server, and show what each gave."""
    with opened(url, token) as db:
        RemoteShell(db, sys.stdout)._run(read_script(file))


def remote_query(url: str, token: str | None, text: str, format: str | None) -> None:
    """Run a statement, and write its table."""
    with opened(url, token) as db:
        result = db.execute(text)
        if result.table is None:
            print(result)
        elif format == "json":
            print(JsonText(result.table.schema).body(result.table), end="")
        else:
            print(table_text(result.table, color=sys.stdout.isatty()), end="")


def watch(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The name of a query.")],
    connect: ServerOption,
    token: TokenOption = None,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="now, start (what is retained), or a position.")
    ] = "now",
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each result.")] = False,
) -> None:
    """Show the results of a query of a server as they come, until it ends or Ctrl-C."""
    if start not in ("now", "start") and not start.isdigit():
        raise Failure(f"--from {start} is neither now, start nor a position")
    with opened(connect, token) as db:
        found = db.queries[query]
        found.seek(int(start) if start.isdigit() else "start" if start == "start" else "now")
        headings = Headings(sys.stdout).sink(query, found.schema)
        for table in found:
            if json:
                print(JsonText(table.schema).body(table), end="", flush=True)
            else:
                headings(table)


def push(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A stream or relation.")],
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="CSV, JSON lines, Parquet or Arrow; - is JSON lines on stdin.")
    ],
    connect: ServerOption,
    token: TokenOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing of how far it is.")] = False,
) -> None:
    """Push the rows of a file into a stream or relation of a server.

    Rows are sent some thousand at a time; a part that does not fit is refused whole, and those before it stay taken.
    """
    rows = 0
    with opened(connect, token) as db, HowFar(quiet=quiet) as far:
        for body, count in pieces(path):
            db.send(name, *body)
            rows += count
            far(name, rows)
    if not quiet:
        print(f"penstock: {rows:,} rows into {name}", file=sys.stderr)


Body = tuple[bytes, Literal["text/csv", "application/x-ndjson", "application/vnd.apache.arrow.stream"]]


def pieces(path: Path) -> Iterator[tuple[Body, int]]:
    """A file in parts as they are sent, and the rows in each."""
    if str(path) == "-":
        yield from _lines(sys.stdin.buffer, b"")
        return
    try:
        kind = format_of(path)
        if kind is Format.PARQUET:
            yield from map(_arrow, pa.parquet.ParquetFile(path).iter_batches(_LINES))
        elif kind is Format.ARROW:
            with pa.ipc.open_file(path) as file:
                yield from (_arrow(file.get_batch(i)) for i in range(file.num_record_batches))
        elif kind in (Format.CSV, Format.JSON):
            with open_text(path) as text:
                yield from _lines(text, text.readline() if kind is Format.CSV else b"")
        else:
            raise Failure(f"{path} is no file of CSV, JSON lines, Parquet or Arrow by its name")
    except (OSError, pa.ArrowException) as problem:
        raise Failure(f"cannot read {path}: {problem}") from None


def _lines(text: IO[bytes], header: bytes) -> Iterator[tuple[Body, int]]:
    while lines := list(islice(text, _LINES)):
        kind: Literal["text/csv", "application/x-ndjson"] = "text/csv" if header else "application/x-ndjson"
        yield (header + b"".join(lines), kind), sum(not line.isspace() for line in lines)


def _arrow(batch: pa.RecordBatch) -> tuple[Body, int]:
    from penstock.client.transport import ARROW

    return (packed(pa.Table.from_batches([batch])), ARROW), batch.num_rows  # type: ignore[return-value]
