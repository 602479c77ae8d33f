"""Stored relations: rows that stay until they are updated or deleted, and when each change happens.

A relation's changes are in order of time. ``RelationStore`` holds the rows as they are after the last change,
and the changes that lie after what its readers have seen (a change file is loaded whole before the streams
start); it forgets a change once all streams are past it.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock import scalar
from penstock.catalog import RelationDef
from penstock.ingest.keys import Key, Keys
from penstock.ingest.streams import check_calendar
from penstock.ingest.table import Draft, Row, Table
from penstock.model.batch import Instant
from penstock.model.change import Change
from penstock.model.errors import InputError
from penstock.model.schema import Clock, Field
from penstock.model.types import BIGINT, TIMESTAMP
from penstock.model.values import to_python, to_rows
from penstock.plan.cost import SAMPLE, Measured
from penstock.rows.given import as_table
from penstock.rows.times import FIRST, LAST, TimeForm
from penstock.rows.values import python_value, said
from penstock.scalar.expr import Column, Expr


@dataclass(frozen=True)
class At:
    """An instant that the user says; ``time``: as a time, not as a number."""

    instant: int
    time: bool = False


@dataclass(frozen=True)
class When:
    """When a change happens: ``at`` an instant, or before any has been named.

    ``given``: the user said so, and then it must be after ``floor``, up to where answers are final. ``clock``: of which
    kind it is. ``number``: of a
    change without an instant, its place among all of the database. ``read``: a query that reads streams reads the
    relation.
    """

    at: int | None
    given: bool = False
    clock: Clock = "ticks"
    floor: Instant = -math.inf
    number: int = 1
    read: bool = False


@dataclass
class _Pending:
    """A change that has been made and is not in the table yet: rows by number that go and come, and the changes that
    have an instant, each with the number of its row."""

    gone: dict[int, Row]
    came: dict[int, Row]
    later: list[tuple[Change, int]]


class RelationStore:
    """The content of one relation.

    A change is made in a copy, which costs as much as the change: the two share the table, and the change is written
    into it when the copy is asked for anything next. Of a store and its copies only one may go on. Whatever stops
    a change, or the writing of it, leaves the content as it was before or as it is after it.

    The table holds the rows that are there. ``_later`` holds the changes after what all streams have passed; ``forget``
    lets them go.
    """

    def __init__(self, definition: RelationDef) -> None:
        schema = definition.schema
        self.definition = definition
        self.last_change: Instant = -math.inf
        self.early = 0
        """The number of the last change that was made before any instant was named."""
        self.clock: Clock | None = None
        """Of which kind the instant of the last change is, as far as that is known."""
        self.times = False
        """Whether instants of its changes have been given as times."""
        self.keys = Keys()
        """Those of the changes that were made."""
        self.key: Key | None = None
        """That of the last one."""
        self._table = Table([Column(i, schema[i].type) for i in definition.key or range(len(schema))])
        self._next = 0
        """The number of the next row."""
        self._later: deque[tuple[Change, int]] = deque()
        self._pending: _Pending | None = None
        self._passed = 0
        self._changes = 0
        self._groups = 0

    @property
    def where(self) -> str:
        return f"relation `{self.definition.name}`"

    @property
    def changes(self) -> int:
        """How many changes have been made."""
        return self._changes

    @property
    def timed(self) -> bool:
        """Whether instants of its changes are times."""
        return self.times or self.clock == "timestamp"

    @property
    def rows(self) -> list[Row]:
        """The rows as they are, the first that came first."""
        return list(self._written().rows.values())

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self._written().rows)

    def measured(self) -> Measured | None:
        """How many rows there are, and some of them; None while there are none."""
        rows = self._written().rows
        step = max(1, len(rows) // SAMPLE)
        return Measured(None, len(rows), lambda: list(islice(rows.values(), 0, None, step))[:SAMPLE]) if rows else None

    def copy(self, key: Key | None = None) -> RelationStore:
        """The same content, to be changed in the place of this one; ``key`` is that of the change."""
        self._written()
        new = copy.copy(self)
        new.key = key
        if key is not None:
            new.keys = self.keys.plus(key)
        return new

    def _written(self) -> Table:
        """The table, with the last change in it. What was interrupted here is done again."""
        pending = self._pending
        if pending is not None:
            self._table.write(pending.gone, pending.came)
            last = self._later[-1][0].arrival if self._later else -1
            self._later.extend([later for later in pending.later if later[0].arrival > last])
            self._pending = None
        return self._table

    def read(self, rows: object, time: TimeForm | None = None) -> pa.Table:
        """Rows as a user gives them, in the declared types, perhaps with columns ``ts`` and ``op``.

        ``time``: how times are written in them.
        """
        columns = {f.name.lower() for f in self.definition.schema}
        optional = [c for c in ("ts", "op") if c not in columns]
        table = as_table(rows, self.definition.schema, self.where, optional, time)
        self.check(table)
        return table

    def check(self, table: pa.Table) -> None:
        """BadRow if a time in rows of the declared types is out of range."""
        check_calendar(table, self.definition.schema, self.where)

    def load(self, rows: object, when: When, time: TimeForm | None = None) -> list[Change]:
        """Rows as a user gives them, or as they have been read, as changes in order."""
        columns = {f.name.lower() for f in self.definition.schema}
        table = self.read(rows, time)
        values = to_rows(table, self.definition.schema)
        instants: list[int | None] = [when.at] * len(values)
        times = self.times
        if "ts" in table.column_names and "ts" not in columns:
            instants = _instants(table.column("ts"), self.where, time)
            when, times = replace(when, given=True), not pa.types.is_integer(table.column("ts").type)
        signs = [1] * len(values)
        if "op" in table.column_names and "op" not in columns:
            signs = [self._sign(op, i) for i, op in enumerate(map(python_value, table.column("op")))]
        changes = self._apply(list(zip(instants, signs, values, strict=True)), when, one_instant=False)
        self.times = self.times or times
        return changes

    def _sign(self, op: object, i: int) -> int:
        if op in ("+", "-", None):
            return -1 if op == "-" else 1
        raise InputError(f"{self.where}, row {i + 1}: op is {said(op)}", hint="it is '+' or '-'")

    def insert(self, rows: Iterable[Row], when: When) -> list[Change]:
        """Rows put in at an instant."""
        return self._apply([(when.at, 1, row) for row in rows], when)

    def update(self, where: Expr | None, assign: dict[int, Expr], when: When, context: scalar.Context) -> list[Change]:
        """The rows that meet a condition, replaced."""
        steps: list[tuple[int | None, int, Row]] = []
        for row in self._matching(where, context):
            new = list(row)
            for i, expr in assign.items():
                new[i] = scalar.evaluate(expr, row, context)
            steps += [(when.at, -1, row), (when.at, 1, tuple(new))]
        steps.sort(key=lambda s: s[1])
        return self._apply(steps, when)

    def delete(self, where: Expr | None, when: When, context: scalar.Context) -> list[Change]:
        """The rows that meet a condition, taken out."""
        return self._apply([(when.at, -1, row) for row in self._matching(where, context)], when)

    def _matching(self, where: Expr | None, context: scalar.Context) -> list[Row]:
        rows = self._written().matching(where)
        return [r for r in rows if where is None or scalar.evaluate(where, r, context) is True]

    def initial(self, at: Instant) -> list[Change]:
        """What a query that starts now must be given: the rows as they are, and the changes still to come; those up to
        ``at`` are not."""
        rows = dict(self._written().rows)
        for change, number in reversed(self._later):
            if change.sign > 0:
                del rows[number]
            else:
                rows[number] = change.row
        first = [Change(None, 1, rows[number], i - len(rows)) for i, number in enumerate(sorted(rows))]
        later = (change for change, _ in self._later)
        return first + [replace(c, ts=None) if c.ts is not None and c.ts <= at else c for c in later]

    def replay(self, changes: Sequence[Change]) -> None:
        """Take changes over that were made before, as they were made."""
        draft = Draft(self._written(), self._next)
        later: list[tuple[Change, int]] = []
        for change in changes:
            number, _ = self._done(draft, change.sign, change.row, self.where)
            self._changes = change.arrival + 1
            if change.ts is None:
                self.early = change.group
            else:
                later.append((change, number))
                self.last_change, self._groups = change.ts, change.group + 1
        self._next, self._pending = draft.next, _Pending(draft.gone, draft.came, later)

    @property
    def later(self) -> Sequence[tuple[Change, int]]:
        """The changes after what all streams have passed, each with the number of its row."""
        self._written()
        return self._later

    @property
    def passed(self) -> int:
        """How many changes with an instant were before these."""
        return self._passed

    def facts(self) -> dict[str, Any]:
        """All that it knows besides rows and changes, as JSON has it."""
        last = None if self.last_change == -math.inf else int(self.last_change)
        return {
            "last": last, "early": self.early, "clock": self.clock, "times": self.times, "next": self._next,
            "changes": self._changes, "groups": self._groups,
        }  # fmt: skip

    def restore(
        self, facts: Mapping[str, Any], rows: Mapping[int, Row], later: Iterable[tuple[Change, int]], passed: int
    ) -> None:
        """Be what a store of the same relation was."""
        self.last_change = -math.inf if facts["last"] is None else facts["last"]
        self.early, self.clock, self.times = facts["early"], facts["clock"], facts["times"]
        self._next, self._changes, self._groups = facts["next"], facts["changes"], facts["groups"]
        self._later, self._passed = deque(later), passed
        self._table.write({}, rows)

    def touched(self) -> tuple[set[int], Mapping[int, Row]]:
        """The numbers of rows that came or went since the last call, at first of all there are; and the rows by
        number."""
        table = self._written()
        touched = set(table.rows) if table.touched is None else table.touched
        table.touched = set()
        return touched, table.rows

    def untouched(self) -> None:
        """Count everything as known to the caller of ``touched``."""
        self._written().touched = set()

    def forget(self, before: Instant) -> None:
        """No query that starts from now on needs to know when changes up to this instant happened."""
        self._written()
        while self._later and (ts := self._later[0][0].ts) is not None and ts <= before:
            self._later.popleft()
            self._passed += 1

    def _apply(
        self, steps: Sequence[tuple[int | None, int, Row]], when: When, one_instant: bool = True
    ) -> list[Change]:
        changes: list[Change] = []
        later: list[tuple[Change, int]] = []
        draft, last = Draft(self._written(), self._next), self.last_change
        group, arrival = self._groups, self._changes
        for i, (at, sign, row) in enumerate(steps):
            here = f"{self.where}, row {i + 1}"
            if at is None and (math.isfinite(last) or when.at is not None):
                raise InputError(f"{here}: the change has no instant, but others have", hint="give it a ts")
            if at is None and sign < 0 and when.read:
                raise InputError(
                    f"{here}: it has been there from the beginning and a query reads it",
                    hint="say from when on it is gone, as in DELETE … AT 5",
                )
            if at is not None and at < last:
                raise InputError(f"{here}: a change at {at} after one at {last}", hint="changes come in order of ts")
            if at is not None and when.given and at <= when.floor:
                raise InputError(
                    f"{here}: a change at {at} comes too late", hint=f"answers up to {when.floor} have been given"
                )
            number, row = self._done(draft, sign, row, here)
            if changes and not one_instant and (at != last or not math.isfinite(last)):
                group += 1
            changes.append(Change(at, sign, row, arrival, when.number if at is None else group))
            if at is not None:
                last = at
                later.append((changes[-1], number))
            arrival += 1
        self._next, self._pending = draft.next, _Pending(draft.gone, draft.came, later)
        self.last_change, self._changes, self._groups = last, arrival, group + 1
        if len(later) < len(changes):
            self.early = when.number
        elif changes:
            self.clock = when.clock
        return changes

    def _done(self, draft: Draft, sign: int, row: Row, here: str) -> tuple[int, Row]:
        """A row put in or taken out: its number, and the row as it is stored. A ``-`` means the row with its key, or
        the first that is equal."""
        if sign > 0:
            if self.definition.key and draft.has(row):
                shown = ", ".join(repr(row[k]) for k in self.definition.key)
                raise InputError(f"{here}: the key ({shown}) is there already", hint="UPDATE or DELETE it")
            return draft.put(row), row
        taken = draft.take(row)
        if taken is None:
            raise InputError(f"{here}: there is no such row to take out: {row!r}")
        return taken


def _instants(column: pa.ChunkedArray, where: str, time: TimeForm | None) -> list[int | None]:
    wanted = BIGINT if pa.types.is_integer(column.type) else TIMESTAMP
    table = as_table(pa.table({"ts": column}), (Field("ts", wanted),), where, time=time)
    found: list[int | None] = to_python(table.column("ts"), wanted)  # type: ignore[assignment]
    first, last = (FIRST, LAST) if wanted == TIMESTAMP else (1 - 2**62, 2**62 - 1)
    for i, at in enumerate(found):
        if at is not None and not first <= at <= last:
            raise InputError(f"{where}, row {i + 1}: the instant {at} is out of range")
    return found
