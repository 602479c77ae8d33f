"""Stored relations: rows that stay until they are updated or deleted, and when each change happens.

A relation's changes are in order of time. ``RelationStore`` holds the rows as they are after the last change,
and the changes that lie after what its readers have seen (a change file is loaded whole before the streams
start); it forgets a change once all streams are past it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock import scalar
from penstock.catalog import RelationDef
from penstock.ingest.streams import check_calendar
from penstock.model.batch import Instant
from penstock.model.change import Change
from penstock.model.errors import InputError
from penstock.model.schema import Clock, Field
from penstock.model.types import BIGINT, TIMESTAMP
from penstock.model.values import to_python, to_rows
from penstock.rows.given import as_table
from penstock.rows.times import FIRST, LAST, TimeForm
from penstock.rows.values import python_value, said
from penstock.scalar.expr import Expr

Row = tuple[object, ...]


@dataclass(frozen=True)
class At:
    """An instant that somebody says; ``time``: as a time, not as a number."""

    instant: int
    time: bool = False


@dataclass(frozen=True)
class When:
    """When a change happens: ``at`` an instant, or before any has been named.

    ``given``: somebody said so, and then it must be after ``floor``, up to where answers are final. ``clock``: of which
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
class RelationStore:
    """The content of one relation."""

    definition: RelationDef
    rows: list[Row] = field(default_factory=list)
    _base: list[Row] = field(default_factory=list)
    last_change: Instant = -math.inf
    _changes: int = 0
    _groups: int = 0
    _later: list[Change] = field(default_factory=list)
    early: int = 0
    """The number of the last change that was made before any instant was named."""
    clock: Clock | None = None
    """Of which kind the instant of the last change is, as far as that is known."""
    times: bool = False
    """Whether instants of its changes have been given as times."""

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

    def copy(self) -> RelationStore:
        """The same content, on its own."""
        return replace(self, rows=list(self.rows), _base=list(self._base), _later=list(self._later))

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

    def update(
        self, where: Expr | None, assign: dict[int, Expr], when: When, context: scalar.Context
    ) -> list[Change]:
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
        return [r for r in self.rows if where is None or scalar.evaluate(where, r, context) is True]

    def initial(self, at: Instant) -> list[Change]:
        """What a query that starts now must be given: the rows as they are, and the changes still to come; those up to
        ``at`` are not."""
        first = [Change(None, 1, row, i - len(self._base)) for i, row in enumerate(self._base)]
        return first + [replace(c, ts=None) if c.ts is not None and c.ts <= at else c for c in self._later]

    def replay(self, changes: Sequence[Change]) -> None:
        """Take changes over that were made before, as they were made."""
        for change in changes:
            if change.sign > 0:
                self.rows.append(change.row)
            else:
                self.rows.remove(self._find(self.rows, change.row, self.where))
            if change.ts is not None:
                self._later.append(change)
                self.last_change = change.ts
            elif change.sign > 0:
                self._base.append(change.row)
            else:
                self._base.remove(self._find(self._base, change.row, self.where))
            self._changes = change.arrival + 1
            if change.ts is None:
                self.early = change.group
            else:
                self._groups = change.group + 1

    def forget(self, before: Instant) -> None:
        """No query that starts from now on needs to know when changes up to this instant happened."""
        while self._later and (ts := self._later[0].ts) is not None and ts <= before:
            change = self._later.pop(0)
            if change.sign > 0:
                self._base.append(change.row)
            else:
                self._base.remove(self._find(self._base, change.row, self.where))

    def _apply(
        self, steps: Sequence[tuple[int | None, int, Row]], when: When, one_instant: bool = True
    ) -> list[Change]:
        changes: list[Change] = []
        rows, last = list(self.rows), self.last_change
        keys = {self._key(r) for r in rows} if self.definition.key else set()
        group, number = self._groups, self._changes
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
            if sign > 0:
                if self.definition.key and self._key(row) in keys:
                    shown = ", ".join(repr(row[k]) for k in self.definition.key)
                    raise InputError(f"{here}: the key ({shown}) is there already", hint="UPDATE or DELETE it")
                rows.append(row)
                keys.add(self._key(row))
            else:
                row = self._find(rows, row, here)
                rows.remove(row)
                keys.discard(self._key(row))
            if changes and not one_instant and (at != last or not math.isfinite(last)):
                group += 1
            changes.append(Change(at, sign, row, number, when.number if at is None else group))
            number += 1
            last = last if at is None else at
        self.rows, self.last_change, self._changes, self._groups = rows, last, number, group + 1
        if any(c.ts is None for c in changes):
            self.early = when.number
        elif changes:
            self.clock = when.clock
        self._later += [c for c in changes if c.ts is not None]
        for change in changes:
            if change.ts is None and change.sign > 0:
                self._base.append(change.row)
            elif change.ts is None:
                self._base.remove(self._find(self._base, change.row, self.where))
        return changes

    def _key(self, row: Row) -> object:
        return tuple(scalar.hashable(row[k]) for k in self.definition.key)

    def _find(self, rows: list[Row], row: Row, here: str) -> Row:
        """The stored row that a ``-`` means: the one with its key, or an equal one."""
        wanted = self._key(row) if self.definition.key else scalar.hashable(row)
        for stored in rows:
            if (self._key(stored) if self.definition.key else scalar.hashable(stored)) == wanted:
                return stored
        raise InputError(f"{here}: there is no such row to take out: {row!r}")


def _instants(column: pa.ChunkedArray, where: str, time: TimeForm | None) -> list[int | None]:
    wanted = BIGINT if pa.types.is_integer(column.type) else TIMESTAMP
    table = as_table(pa.table({"ts": column}), (Field("ts", wanted),), where, time=time)
    found: list[int | None] = to_python(table.column("ts"), wanted)  # type: ignore[assignment]
    first, last = (FIRST, LAST) if wanted == TIMESTAMP else (1 - 2**62, 2**62 - 1)
    for i, at in enumerate(found):
        if at is not None and not first <= at <= last:
            raise InputError(f"{where}, row {i + 1}: the instant {at} is out of range")
    return found
