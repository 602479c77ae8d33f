"""``penstock graph``: all queries of a file as one graph, with what its operators have done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connected import ConnectOption, TokenOption, check_alone, opened
from penstock.cli.failures import Failure
from penstock.cli.run import parse_inputs
from penstock.cli.script import EngineOption, MasterOption, open_database, run_script
from penstock.database.database import core_of
from penstock.database.play import input_name, play
from penstock.graph.view import GraphView
from penstock.io.table_text import table_text
from penstock.model.errors import QueryFailed

if TYPE_CHECKING:
    from penstock.database.database import Database


class GraphFormat(StrEnum):
    """How the graph is written."""

    text = "text"
    json = "json"
    mermaid = "mermaid"
    svg = "svg"


_WRITE: dict[GraphFormat, Callable[[GraphView], str]] = {
    GraphFormat.text: GraphView.text,
    GraphFormat.json: GraphView.json,
    GraphFormat.mermaid: GraphView.mermaid,
    GraphFormat.svg: GraphView.svg,
}
_SUFFIX = {
    ".txt": GraphFormat.text,
    ".json": GraphFormat.json,
    ".mmd": GraphFormat.mermaid,
    ".mermaid": GraphFormat.mermaid,
    ".svg": GraphFormat.svg,
}


def graph(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.cql", help="Declarations and queries; - is stdin.")
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="A file or folder for a stream or relation; repeat for each."),
    ] = None,
    format: Annotated[
        GraphFormat | None, typer.Option(help="How the graph is written; by default as --output ends, or text.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="A file; by default stdout.")] = None,
    engine: EngineOption = None,
    master: MasterOption = None,
    connect: ConnectOption = None,
    token: TokenOption = None,
) -> None:
    """Show all queries of a file as one graph of shared operators, with live numbers.

    Inputs are played first, as by run, and the answers thrown away. The last stream stays open at its end, so that
    one sees what windows hold.
    """
    given = parse_inputs(input or [])
    chosen = format or _format_of(output)
    if connect is not None:
        check_alone(file, input, engine, master)
        with opened(connect, token) as remote:
            _write(_WRITE[chosen](remote.graph()), output)
        return
    if file is None:
        raise Failure("a file with queries, or --connect with the address of a server, is missing")
    with open_database(engine, master, None) as db:
        for result in run_script(db, file):
            if result.table is not None:
                print(table_text(result.table), end="", file=sys.stderr)
        if not db.queries:
            raise Failure(f"{file} has no query to show")
        _play(db, {input_name(db.catalog, name): path for name, path in given.items()})
        written = _WRITE[chosen](db.graph())
    _write(written, output)


def _write(written: str, output: Path | None) -> None:
    if output is None:
        print(written)
        return
    try:
        output.write_text(written + "\n", encoding="utf-8")
    except OSError as problem:
        raise Failure(f"cannot write {output}: {problem.strerror}") from None


def _format_of(output: Path | None) -> GraphFormat:
    if output is None:
        return GraphFormat.text
    if output.suffix.lower() not in _SUFFIX:
        raise Failure(f"{output} names no format; give --format, or a name ending in {', '.join(_SUFFIX)}")
    return _SUFFIX[output.suffix.lower()]


def _play(db: Database, inputs: dict[str, Path]) -> None:
    """Play the inputs; a query that fails is shown as failed."""

    def forget(*, wait: bool) -> None:
        for query in db.queries.values():
            with suppress(QueryFailed):
                query.transfer(lambda table: None, wait=wait)

    if inputs:
        for name, stream in db.catalog.streams.items():
            if not stream.derived and name not in inputs:
                db.close_stream(name)
        play(core_of(db), inputs, on_progress=lambda name, rows: forget(wait=False), close_last=False)
    forget(wait=True)
