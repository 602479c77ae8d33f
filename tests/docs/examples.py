"""The notation of the worked examples in docs/concepts/semantics.md: reading them, and running them.

An example is lines of these kinds; blank lines separate them where that reads better.

    CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t;    a statement, over as many lines as it takes to its `;`
    s: (1, 10), (2, 20)                                     rows pushed into a stream, in this order
    earlier s: (1, 10)                                      the same, before the query is registered
    s: heartbeat 10        s: close        clock 5          progress; the time on the wall
    SELECT a FROM s [ROWS 2]                                a query, up to a blank line or an answer
    => [1] + 10                                             what it answers at an instant
    => [3] - 10, + (30)                                     several at one instant
    => nothing                                              no answers
    => refused: …                                           the first line of the error instead
    => late s: (4, 4)      => failed 1                      late rows; values that became NULL by failing

Everything before the first query is common to all queries of the example; each query then runs on its own, in a
new database, and is registered before the first row that is not ``earlier``. Steps after answers go on from
there. Before the last answers of a query all streams are closed.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

import pytest

import penstock
from penstock.database import Database
from penstock.testing import Clock
from penstock.testing.steps import ClockAt, Push, Statement, Step, Values, read_step, read_value, read_values


class Malformed(Exception):
    """The example is not written in the notation."""


@dataclass
class Expected:
    """What is to be seen at one point; None for what the example does not speak about."""

    answers: Counter[tuple[str, str, str]] | None = None
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


_QUERY = re.compile(r"\(?(SELECT|WITH|ISTREAM|DSTREAM|RSTREAM)\b")
_STATEMENT = re.compile(r"(CREATE|INSERT|UPDATE|DELETE|DROP|STOP)\b")
_INSTANT = re.compile(r"\[([^\]]+)\] (.+)")


# -- reading ----------------------------------------------------------------------------------------------


def parse(text: str) -> Example:
    """An example, or ``Malformed``."""
    example = Example([], [], [], [])
    steps: list[Step] = []
    lines = _logical_lines(text)
    for kind, line in lines:
        if kind == "query":
            if example.cases and not example.cases[-1].phases:
                raise Malformed(f"no answers follow `{example.cases[-1].query}`")
            if example.cases and steps:
                raise Malformed(f"no answers follow the steps before `{line}`")
            if not example.cases:
                example.steps, steps = steps, []
            example.cases.append(Case(line))
        elif kind == "answer":
            if not example.cases:
                raise Malformed(f"no query before `=> {line}`")
            phases = example.cases[-1].phases
            if steps or not phases:
                phases.append((steps, Expected()))
                steps = []
            _read_answer(line, phases[-1][1])
        elif kind == "statement":
            if example.cases or not line.startswith("CREATE"):
                steps.append(Statement(line))
            elif steps:
                raise Malformed(f"a declaration after rows: {line}")
            else:
                example.declarations.append(line)
        else:
            is_early, step = _read_step(line)
            if is_early and example.cases:
                raise Malformed(f"`earlier` after the query: {line}")
            (example.earlier if is_early else steps).append(step)
    if not example.cases:
        raise Malformed("there is no query")
    if steps or not example.cases[-1].phases:
        raise Malformed("the example ends without answers")
    return example


def _logical_lines(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of statements, queries, answers and steps, each joined from its lines."""
    kind, parts = "", list[str]()
    for raw in text.splitlines():
        line = raw.strip()
        if kind == "query" and (not line or line.startswith("=>")):
            yield kind, "\n".join(parts)
            kind = ""
        if kind:
            parts.append(raw)
        elif not line:
            continue
        elif line.startswith("=> "):
            yield "answer", line[3:].strip()
            continue
        elif _STATEMENT.match(line):
            kind, parts = "statement", [raw]
        elif _QUERY.match(line):
            kind, parts = "query", [raw]
        else:
            yield "step", line
            continue
        if kind == "statement" and line.endswith(";"):
            yield kind, "\n".join(parts)
            kind = ""
    if kind:
        raise Malformed(f"the {kind} `{parts[0]}` does not end")


def _read_step(line: str) -> tuple[bool, Step]:
    early = line.startswith("earlier ")
    with _noted():
        return early, read_step(line.removeprefix("earlier "))


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    try:
        yield
    except penstock.InputError as error:
        raise Malformed(str(error)) from None


def _read_answer(line: str, expected: Expected) -> None:
    if line.startswith("refused: "):
        expected.refused = line.removeprefix("refused: ")
    elif line == "nothing":
        expected.answers = expected.answers or Counter()
    elif late := re.fullmatch(r"late (\w+): (.+)", line):
        expected.late[late[1]] = [_shown(row) for row in read_values(late[2])]
    elif failed := re.fullmatch(r"failed (\d+)", line):
        expected.failed = int(failed[1])
    elif instant := _INSTANT.fullmatch(line):
        expected.answers = Counter() if expected.answers is None else expected.answers
        for op, row in _changes(instant[2]):
            expected.answers[instant[1], op, _shown(row)] += 1
    else:
        raise Malformed(f"this is no answer: => {line}")


def _changes(text: str) -> list[tuple[str, Values]]:
    """``- 10, + (30, 'a')`` as [("-", (10,)), ("+", (30, "a"))]."""
    starts = [m.start() for m in re.finditer(r"(?:^|(?<=, ))[+-] (?=\S)", text)]
    if not starts or starts[0] != 0:
        raise Malformed(f"an answer begins with + or - and a blank: {text}")
    changes = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        with _noted():
            value = read_value(text[start + 2 : end].strip().removesuffix(","))
        changes.append((text[start], value if isinstance(value, tuple) else (value,)))
    return changes


# -- running ----------------------------------------------------------------------------------------------


def run(example: Example, case: Case, engine: str, *, one_by_one: bool) -> None:
    """Play a case of an example; an assertion fails where it answers otherwise."""
    clock = Clock(0)
    with penstock.connect(engine=engine, clock=clock) as db:
        for text in example.declarations:
            db.execute(text)
        # Statements of the head are about relations as the query finds them.
        given = [s for s in example.steps if isinstance(s, Statement)]
        for step in _arranged([*given, *example.earlier], one_by_one):
            _do(db, step, clock)
        expected = case.phases[0][1]
        if expected.refused is not None:
            with pytest.raises(penstock.PenstockError) as refused:
                db.query(case.query)
            assert refused.value.one_line.partition(": ")[2] == expected.refused
            return
        query = db.query(case.query)
        steps = [s for s in example.steps if not isinstance(s, Statement)]
        for i, (more, expected) in enumerate(case.phases):
            for step in _arranged([*(steps if i == 0 else []), *more], one_by_one):
                _do(db, step, clock)
            if i == len(case.phases) - 1:
                for stream in db.catalog.streams.values():
                    if not stream.derived:
                        db.close_stream(stream.name)
            if expected.answers is not None:
                got = Counter((_text(ts), op, _shown(tuple(row))) for ts, op, *row in _rows(query))
                assert got == expected.answers, case.query
            for name, rows in expected.late.items():
                table = db.late(name)
                assert db.late_count(name) == len(rows)
                assert [_shown(tuple(r.values())) for r in table.to_pylist()] == rows
            if expected.failed is not None:
                assert query.failures == expected.failed, query.last_failure


def _rows(query: penstock.Query) -> Iterator[Values]:
    table = query.fetch()
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
