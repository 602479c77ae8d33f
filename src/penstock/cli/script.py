"""Reading a CQL file into a database, and the options that commands share."""

from __future__ import annotations

import hashlib
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import Failure, failure
from penstock.cli.warm import announce
from penstock.connecting import connect as open_connection
from penstock.cql.splitting import split
from penstock.database.database import core_of
from penstock.database.database import run_script as run_statements
from penstock.hosts.options import default_engine
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.results import Result


class Engine(StrEnum):
    """What evaluates the queries."""

    reference = "reference"
    local = "local"
    spark = "spark"


EngineOption = Annotated[
    Engine | None, typer.Option(help="What evaluates the queries: spark, unless PENSTOCK_ENGINE names another.")
]
MasterOption = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master; by default local[*]: all cores of this machine.")
]
DatabaseOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Keep everything in this directory, and go on from it; spark only.")
]


ZoneOption = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="The time zone of functions, texts and what is shown, such as Europe/Vienna."),
]


def open_database(
    engine: Engine | None, master: str | None, path: Path | None, zone: str | None = None
) -> Database:
    """The database of a command; says on a terminal what takes time."""
    announce(sys.stderr)
    chosen = default_engine() if engine is None else engine.value
    if chosen == "spark" and sys.stderr.isatty():
        print("penstock: starting Spark, some seconds; --engine local starts at once", file=sys.stderr, flush=True)
    return open_connection(path, engine=chosen, master=master, zone=zone)


def read_script(file: Path) -> str:
    """The text of a CQL file; ``-`` is stdin."""
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise Failure(f"{file} is not UTF-8 text") from None
    except OSError as problem:
        raise Failure(f"cannot read {file}: {problem.strerror}") from None


def run_script(db: Database, file: Path) -> list[Result]:
    """Run every statement of a CQL file; an error names the file."""
    text = read_script(file)
    try:
        return run_statements(db, text)
    except PenstockError as error:
        raise failure(error, str(file)) from None


def resume_script(db: Database, file: Path) -> list[Result]:
    """Run the statements of a CQL file that have not been run with this database.

    The file must be the one that was run first; it may have grown. A run that dies between a statement and the note of
    it has noted what there was before: the next one sees by that whether the statement was run.
    """
    text = read_script(file)
    statements, _ = split(text if text.rstrip().endswith(";") else f"{text}\n;")
    known: list[str] = db.note().get("statements", [])
    digests = [hashlib.sha256(" ".join(s.split()).encode()).hexdigest()[:16] for s in statements]
    for i, digest in enumerate(known):
        if i >= len(digests) or digests[i] != digest:
            raise Failure(
                f"statement {i + 1} of {file} is not the one that this database was begun with; "
                "use another directory for the changed file"
            )
    results: list[Result] = []
    try:
        end = 0
        for i, statement in enumerate(statements):
            start = text.find(statement.rstrip(";"), end)
            end = start + len(statement) - 1
            if i >= len(known):
                before = _facts(db)
                begun: dict[str, Any] = db.note().get("begun", {})
                if begun.get("statement") != digests[: i + 1] or not _has_changed(begun["before"], before):
                    db.note(begun={"statement": digests[: i + 1], "before": before})
                    # Errors name the line of the file.
                    results += run_statements(db, "\n" * text.count("\n", 0, start) + statement)
                db.note(statements=digests[: i + 1])
    except PenstockError as error:
        raise failure(error, str(file)) from None
    return results


def _facts(db: Database) -> dict[str, Any]:
    """What a statement may change: names, and how many rows streams and relations were given by statements."""
    catalog, core = db.catalog, core_of(db)
    pushed = [n for n, stream in catalog.streams.items() if stream.source is None and not stream.derived]
    return {
        "declared": sorted([*catalog.streams, *catalog.relations, *catalog.views]), "queries": sorted(db.queries),
        "given": {name: core.given(name) for name in (*pushed, *catalog.relations)},
    }  # fmt: skip


def _has_changed(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a statement has changed something. Queries that are over need not be listed any more."""
    is_new = not {*now["queries"]} <= {*before["queries"]}
    return is_new or any(before[what] != now[what] for what in ("declared", "given"))
