"""What can happen to a database in a test, and how it is written in one line each.

    s: (1, 10), (2, 20)        rows pushed into a stream, in this order
    s: heartbeat 10            no more rows before 10
    s: close                   no more rows at all
    clock 5                    the time on the wall, in microseconds or as '2024-05-01 10:00:00'

Values are as CQL writes them: numbers, 'texts', NULL, TRUE, FALSE, (rows) and [arrays].
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.database.database import Database
from penstock.model.errors import InputError

Values = tuple[object, ...]


@dataclass(frozen=True)
class Push:
    """Rows into a stream or relation; ``at``: of a relation, the instant of the change."""

    name: str
    rows: object = field(repr=False)
    at: object = None

    def do(self, db: Database) -> None:
        db.push(self.name, self.rows, at=self.at)


@dataclass(frozen=True)
class Heartbeat:
    """Progress of a stream without data."""

    stream: str
    at: object

    def do(self, db: Database) -> None:
        db.heartbeat(self.stream, self.at)


@dataclass(frozen=True)
class Close:
    """The end of a stream."""

    stream: str

    def do(self, db: Database) -> None:
        db.close_stream(self.stream)


@dataclass(frozen=True)
class Statement:
    """A text of CQL."""

    text: str

    def do(self, db: Database) -> None:
        db.execute(self.text)


@dataclass(frozen=True)
class Call:
    """Anything else: a function that is given the database."""

    function: Callable[[Database], object]

    def do(self, db: Database) -> None:
        self.function(db)


@dataclass(frozen=True)
class Fail:
    """Whoever brings the data fails."""

    error: BaseException

    def do(self, db: Database) -> None:
        raise self.error.with_traceback(None)  # a script that is played again begins anew


@dataclass(frozen=True)
class ClockAt:
    """The clock is moved; that is done by whoever has it."""

    at: object

    def do(self, db: Database) -> None:
        pass


Step = Push | Heartbeat | Close | Statement | Call | Fail | ClockAt

_STEP = re.compile(r"(\w+): (.+)")
_WORDS = {"NULL": "None", "TRUE": "True", "FALSE": "False"}
_TEXT = "'(?:[^']|'')*'"


def read_step(line: str) -> Step:
    """A step as it is written in one line."""
    if clock := re.fullmatch(r"clock (.+)", line):
        return ClockAt(read_value(clock[1]))
    found = _STEP.fullmatch(line)
    if found is None:
        raise InputError(f"this is no step: {line}", hint="write for example `s: (1, 10), (2, 20)` or `s: close`")
    stream, what = found[1], found[2]
    if what == "close":
        return Close(stream)
    if what.startswith("heartbeat "):
        return Heartbeat(stream, read_value(what.removeprefix("heartbeat ")))
    rows = read_values(what)
    if not all(isinstance(row, tuple) for row in rows):
        raise InputError(f"rows are written in parentheses: {line}")
    return Push(stream, rows)


def read_values(text: str) -> list[object]:
    """Values separated by commas. A row of one column needs no comma of its own."""
    rows = re.sub(rf"\(([^(),']*|{_TEXT})\)", r"(\1,)", text)
    values = read_value(f"[{rows}]")
    assert isinstance(values, list)
    return values


def read_value(text: str) -> object:
    """A value as CQL writes it."""
    plain = re.sub(rf"{_TEXT}|\b(?:NULL|TRUE|FALSE)\b", lambda m: _WORDS.get(m[0]) or _quoted(m[0]), text)
    try:
        return ast.literal_eval(plain.strip())
    except (ValueError, SyntaxError):
        raise InputError(f"this is no value: {text}") from None


def _quoted(text: str) -> str:
    """A text of CQL, in which only two quotes mean something else than themselves, as Python writes it."""
    return repr(text[1:-1].replace("''", "'"))
