"""The notation of worked examples and behavioural cases: reading them, and running them.

The examples of docs/concepts/semantics.md and the files of tests/cases are written in it. An example is lines of these
kinds; blank lines separate them where that reads better.

    -- anything                                             a comment
    zone Europe/Vienna                                      the time zone of the database; without it UTC
    CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t;    a statement, over as many lines as it takes to its `;`
    s: (1, 10), (2, 20)                                     rows pushed into a stream, in this order
    earlier s: (1, 10)                                      the same, before the query is registered
    s: heartbeat 10        s: close        clock 5          progress; the time on the wall
    SELECT a FROM s [ROWS 2]                                a query, up to a blank line or an answer
    => [1] + 10                                             what it answers at an instant
    => [3] - 10, + (30)                                     several at one instant
    => nothing                                              no answers
    => now 10, (20, 'b')                                    the answer as it stands, in its order; instead of changes
    => refused: …                                           the error, in one line, of the query or of the step before
    => late s: (4, 4)      => failed 1                      late rows; values that became NULL by failing

Everything before the first query is common to all queries of the example; each query then runs on its own, in a
new database, and is registered before the first row that is not ``earlier``. Steps after answers go on from
there. Before the last answers of a query all streams are closed.

A file of cases begins with comment lines that say what it is about. ``-- case: NAME`` begins each case, which is an
example.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.database.database import Database
from penstock.testing import Clock
from penstock.testing.steps import ClockAt, Push, Statement, Step, Values, read_step, read_value, read_values


class Malformed(Exception):
    """The example is not written in the notation. ``line``: where, counted from 1 within the text."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass
class Expected:
    """What is to be seen at one point; None for what the example does not speak about."""

    answers: Counter[tuple[str, str, str]] | None = None
    now: list[str] | None = None
    refused: str | None = None
    late: dict[str, list[str]] = field(default_factory=dict)
    failed: int | None = None


@dataclass
class Case:
    """One query of an example: its text, and what happens and is seen, in order."""

    query: str
    phases: list[tuple[list[Step], Expected]] = field(default_factory=list)


@dataclass
class Example:
    declarations: list[str]
    earlier: list[Step]
    steps: list[Step]
    cases: list[Case]
    zone: str | None = None


@dataclass(frozen=True)
class Named:
    """A case of a file: an example with a name. ``file`` and ``line``: where it begins."""

    name: str
    file: str
    line: int
    example: Example


_QUERY = re.compile(r"\(?(SELECT|WITH|ISTREAM|DSTREAM|RSTREAM)\b")
_STATEMENT = re.compile(r"(CREATE|INSERT|UPDATE|DELETE|DROP|STOP)\b")
_INSTANT = re.compile(r"\[([^\]]+)\] (.+)")


# -- reading ----------------------------------------------------------------------------------------------


def read_cases(path: Path) -> list[Named]:
    """The cases of a file. ``Malformed`` says file and line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("-- case:")]
    found: list[Named] = []
    try:
        if not lines or not lines[0].startswith("-- ") or 0 in starts:
            raise Malformed("a file of cases begins with comment lines that say what it is about", 1)
        for i, line in enumerate(lines[: starts[0] if starts else len(lines)], 1):
            if line.strip() and not line.startswith("--"):
                raise Malformed(f"no `-- case: NAME` before this line: {line}", i)
        if not starts:
            raise Malformed("there is no case", len(lines))
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            name = lines[start].removeprefix("-- case:").strip()
            if not name or any(name == other.name for other in found):
                raise Malformed(f"a case needs a name of its own, not `{name}`", start + 1)
            # Blank lines in the place of what stands before it, so that lines are counted from the top of the file.
            example = parse("\n" * (start + 1) + "\n".join(lines[start + 1 : end]))
            found.append(Named(name, path.name, start + 1, example))
    except Malformed as error:
        raise Malformed(f"{path}:{error.line}: {error}", error.line) from None
    return found


def parse(text: str) -> Example:
    """An example, or ``Malformed``."""
    example = Example([], [], [], [])
    steps: list[Step] = []
    line = 1
    for line, kind, words in _logical_lines(text):
        with _at(line):
            _take(example, steps, kind, words)
    with _at(line):
        _check(bool(example.cases), "there is no query")
        _check(not steps and bool(example.cases[-1].phases), "the example ends without answers")
    return example


def _take(example: Example, steps: list[Step], kind: str, words: str) -> None:
    """Put one line into the example; ``steps`` are those that no answers follow yet."""
    if kind == "query":
        if example.cases:
            _check(bool(example.cases[-1].phases), f"no answers follow `{example.cases[-1].query}`")
            _check(not steps, f"no answers follow the steps before `{words}`")
        else:
            example.steps = list(steps)
            steps.clear()
        example.cases.append(Case(words))
    elif kind == "answer":
        _check(bool(example.cases), f"no query before `=> {words}`")
        phases = example.cases[-1].phases
        if steps or not phases:
            phases.append((list(steps), Expected()))
            steps.clear()
        _read_answer(words, phases[-1][1])
    elif kind == "statement":
        if example.cases or not words.startswith("CREATE"):
            steps.append(Statement(words))
        else:
            _check(not steps, f"a declaration after rows: {words}")
            example.declarations.append(words)
    elif words.startswith("zone "):
        _check(not example.declarations and not example.cases, f"the zone comes first: {words}")
        example.zone = words.removeprefix("zone ")
    else:
        is_early = words.startswith("earlier ")
        _check(not (is_early and example.cases), f"`earlier` after the query: {words}")
        (example.earlier if is_early else steps).append(read_step(words.removeprefix("earlier ")))


def _logical_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, kind, text) of statements, queries, answers and steps, each joined from its lines."""
    begun, kind, parts = 0, "", list[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if kind == "query" and (not line or line.startswith("=>")):
            yield begun, kind, "\n".join(parts)
            kind = ""
        if kind:
            parts.append(raw)
        elif not line or line.startswith("--"):
            continue
        elif line.startswith("=> "):
            yield number, "answer", line[3:].strip()
            continue
        elif _STATEMENT.match(line):
            begun, kind, parts = number, "statement", [raw]
        elif _QUERY.match(line):
            begun, kind, parts = number, "query", [raw]
        else:
            yield number, "step", line
            continue
        if kind == "statement" and line.endswith(";"):
            yield begun, kind, "\n".join(parts)
            kind = ""
    if kind:
        raise Malformed(f"the {kind} `{parts[0]}` does not end", begun)


class _Wrong(Exception):
    """What is wrong with a line, for ``_at`` to say which."""


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise _Wrong(message)


@contextlib.contextmanager
def _at(line: int) -> Iterator[None]:
    try:
        yield
    except (_Wrong, penstock.InputError) as error:
        raise Malformed(str(error), line) from None


def _read_answer(words: str, expected: Expected) -> None:
    if words.startswith("refused: "):
        expected.refused = words.removeprefix("refused: ")
    elif words == "nothing":
        expected.answers = expected.answers or Counter()
    elif words.startswith("now "):
        _check(expected.now is None, "the answer as it stands is one line")
        expected.now = [_shown(row if isinstance(row, tuple) else (row,)) for row in read_values(words[4:])]
    elif late := re.fullmatch(r"late (\w+): (.+)", words):
        expected.late[late[1]] = [_shown(row) for row in read_values(late[2])]
    elif failed := re.fullmatch(r"failed (\d+)", words):
        expected.failed = int(failed[1])
    elif instant := _INSTANT.fullmatch(words):
        expected.answers = Counter() if expected.answers is None else expected.answers
        for op, row in _changes(instant[2]):
            expected.answers[instant[1], op, _shown(row)] += 1
    else:
        raise _Wrong(f"this is no answer: => {words}")


def _changes(text: str) -> list[tuple[str, Values]]:
    """``- 10, + (30, 'a')`` as [("-", (10,)), ("+", (30, "a"))]."""
    starts = [m.start() for m in re.finditer(r"(?:^|(?<=, ))[+-] (?=\S)", text)]
    if not starts or starts[0] != 0:
        raise _Wrong(f"an answer begins with + or - and a blank: {text}")
    changes = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        value = read_value(text[start + 2 : end].strip().removesuffix(","))
        changes.append((text[start], value if isinstance(value, tuple) else (value,)))
    return changes


# -- running ----------------------------------------------------------------------------------------------


def run(example: Example, case: Case, engine: str, *, one_by_one: bool) -> None:
    """Play a case of an example; an assertion fails where it answers otherwise."""
    clock = Clock(0)
    with penstock.connect(engine=engine, clock=clock, zone=example.zone) as db:
        for text in example.declarations:
            db.execute(text)
        # Statements of the head are about relations as the query finds them.
        given = [s for s in example.steps if isinstance(s, Statement)]
        for step in _arranged([*given, *example.earlier], one_by_one):
            _do(db, step, clock)
        expected = case.phases[0][1]
        if expected.refused is not None:
            with _refused(expected.refused):
                db.query(case.query)
            return
        query = db.query(case.query)
        steps = [s for s in example.steps if not isinstance(s, Statement)]
        for i, (more, expected) in enumerate(case.phases):
            arranged = _arranged([*(steps if i == 0 else []), *more], one_by_one)
            refused = arranged.pop() if expected.refused is not None else None
            for step in arranged:
                _do(db, step, clock)
            if refused is not None and expected.refused is not None:
                with _refused(expected.refused):
                    _do(db, refused, clock)
            if i == len(case.phases) - 1:
                for stream in db.catalog.streams.values():
                    if not stream.derived:
                        db.close_stream(stream.name)
            if expected.answers is not None:
                got = Counter((_text(ts), op, _shown(tuple(row))) for ts, op, *row in _rows(query.fetch()))
                assert got == expected.answers, case.query
            if expected.now is not None:
                assert [_shown(row) for row in _rows(query.current())] == expected.now, case.query
            for name, rows in expected.late.items():
                table = db.late(name)
                assert db.stream(name).late == len(rows)
                assert [_shown(tuple(r.values())) for r in table.to_pylist()] == rows
            if expected.failed is not None:
                assert query.failures == expected.failed, query.last_failure


@contextlib.contextmanager
def _refused(message: str) -> Iterator[None]:
    with pytest.raises(penstock.PenstockError) as refused:
        yield
    got = refused.value.one_line
    assert message in (got, got.partition(": ")[2]), got


def _rows(table: pa.Table) -> Iterator[Values]:
    yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


def _do(db: Database, step: Step, clock: Clock) -> None:
    if isinstance(step, ClockAt):
        clock.set(step.at)
    step.do(db)


def _arranged(steps: Sequence[Step], one_by_one: bool) -> list[Step]:
    """The steps with neighbouring pushes in turns of one row, or as one batch for each stream."""
    arranged: list[Step] = []
    pushes: dict[str, list[object]] = {}

    def flush() -> None:
        if one_by_one:
            while any(pushes.values()):
                arranged.extend(Push(name, [rows.pop(0)]) for name, rows in pushes.items() if rows)
        else:
            arranged.extend(Push(name, list(rows)) for name, rows in pushes.items())
        pushes.clear()

    for step in steps:
        if isinstance(step, Push):
            assert isinstance(step.rows, list)
            pushes.setdefault(step.name, []).extend(step.rows)
        else:
            flush()
            arranged.append(step)
    flush()
    return arranged


def _text(value: object) -> str:
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def _shown(value: object) -> str:
    """A value in one spelling, so that 10 and 10.0 differ and a time equals its text."""
    match value:
        case tuple() | list():
            inner = ", ".join(_shown(v) for v in value)
            return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
        case date():
            return repr(_text(value))
        case timedelta():
            return repr(str(value))
    return repr(value)
