"""Reading a CQL file into a database, and the options that commands share."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.failures import Failure, failure
from penstock.errors import PenstockError
from penstock.io.table_text import TableText

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.database import Database
    from penstock.results import Result


class Engine(StrEnum):
    """What evaluates the queries."""

    reference = "reference"
    local = "local"
    spark = "spark"


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
        return db.run_script(text)
    except PenstockError as error:
        raise failure(error, str(file)) from None


def table_text(table: pa.Table, *, color: bool = False) -> str:
    """A whole table for people."""
    layout = TableText(table.schema, color=color)
    body = layout.body(table)
    return layout.head() + body
