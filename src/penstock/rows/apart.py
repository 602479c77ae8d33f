"""Rows that do not fit their stream: what becomes of them (``on_error``), and how those that are kept apart look.

A row is bad if a value does not fit its column, the time that orders it is NULL or out of range, it has a field too
many or too few, or it cannot be read at all. What is wrong with a whole table or file (its columns, its format) is not
the fault of a row, and is refused whatever ``on_error`` says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from penstock.model.errors import InputError
from penstock.rows.text import jsonable
from penstock.rows.values import python_value, said

if TYPE_CHECKING:
    from penstock.rows.columns import Target

OnError = Literal["refuse", "stop", "apart"]
"""``refuse``: all rows that come with a bad one are refused. ``stop``: the rows before it are taken. ``apart``: the bad
one is kept apart and the others are taken."""
Unknown = Literal["refuse", "ignore"]
"""What becomes of a field that is not declared. A row that has one is bad, or the field is passed over."""

KEPT = 100_000
"""So many late rows of a stream are kept until they are taken, and as many rows apart; of more, the newest."""
_LONGEST = 1 << 16
"""Characters of a row apart; what follows is cut off."""
_TOGETHER = 64
"""Tables after which what is kept is put together."""
SCHEMA = pa.schema([("place", pa.string()), ("column", pa.string()), ("reason", pa.string()), ("row", pa.string())])
"""Rows apart: where the row was, which column is wrong (NULL: none in particular), why, and the row as text."""

Given = TypeVar("Given", pa.Table, list[Any])


class BadRow(InputError):
    """A row that does not fit. ``row`` counts from 0; ``place`` says where it is for people, by default its number."""

    def __init__(
        self, where: str, row: int, reason: str, *, column: str | None = None, hint: str | None = None,
        place: str | None = None, named: bool = True, if_first: str = "",
    ) -> None:  # fmt: skip
        self.where, self.row, self.reason, self.column, self.named = where, row, reason, column, named
        self._hint, self._if_first = hint, if_first
        hint = f"{hint}{if_first}" if hint is not None and row == 0 else hint
        self.place, self.in_file = place or f"row {row + 1}", place is not None
        of = f", column `{column}`" if column is not None and named else ""
        super().__init__(f"{where}{', ' if where else ''}{self.place}{of}: {reason}", hint=hint)

    def moved(self, by: int) -> BadRow:
        """The same about a row that is the first of others which come after so many."""
        return BadRow(
            self.where, self.row + by, self.reason, column=self.column, hint=self._hint, named=self.named,
            if_first=self._if_first, place=self.place if self.in_file else None,
        )  # fmt: skip

    def located(self, where: str, place: str) -> BadRow:
        """The same with where in a file the row is, if it does not know better."""
        place = self.place if self.in_file else place
        return BadRow(
            where, self.row, self.reason, column=self.column, hint=self._hint, named=self.named, place=place
        )

    def bad(self, text: str) -> Bad:
        """What is kept of the row."""
        reason = f"{self.reason}; {self.hint}" if self.hint else self.reason
        return Bad(f"{self.where}, {self.place}" if self.in_file else self.place, self.column, reason, text, self.row)


@dataclass(frozen=True)
class Bad:
    """A row that is kept apart: the fields of ``SCHEMA``, and as the how many-th of its ``Rows`` it came."""

    place: str
    column: str | None
    reason: str
    row: str
    at: int = 0


@dataclass(frozen=True)
class Rows:
    """Rows that have been read: those that fit, those to be kept apart, and the one that reading stopped at."""

    table: pa.Table
    apart: Sequence[Bad] = ()
    stopped: InputError | None = None

    def __len__(self) -> int:
        return len(self.table) + len(self.apart)

    def slice(self, start: int, count: int) -> Rows:
        """Some of the rows, in the order in which they came; the last of them stop where all do."""
        if start == 0 and count >= len(self):
            return self  # also where there are none, and reading stops
        count = min(count, len(self) - start)
        before = sum(bad.at < start for bad in self.apart)
        some = [replace(bad, at=bad.at - start) for bad in self.apart if start <= bad.at < start + count]
        table = self.table.slice(start - before, count - len(some))
        return Rows(table, some, self.stopped if start + count == len(self) else None)


@dataclass(frozen=True)
class Kept:
    """The newest of some rows that nobody has taken, at most ``KEPT``, and how many there have been."""

    schema: pa.Schema
    tables: tuple[pa.Table, ...] = ()
    count: int = 0

    def plus(self, rows: pa.Table) -> Kept:
        """With more rows."""
        tables = (*self.tables, rows)
        if len(tables) > _TOGETHER or sum(map(len, tables)) > KEPT:
            together = pa.concat_tables(tables)
            tables = (together.slice(max(0, len(together) - KEPT)).combine_chunks(),)
        return replace(self, tables=tables, count=self.count + len(rows))

    def since(self, count: int) -> pa.Table | None:
        """The rows after the first ``count``, as far as they are kept."""
        if self.count == count or not self.tables:
            return None
        kept = self.table
        return kept.slice(max(0, len(kept) - (self.count - count)))

    @property
    def table(self) -> pa.Table:
        """All rows that are kept."""
        return pa.concat_tables([self.schema.empty_table(), *self.tables])

    def taken(self) -> Kept:
        """Without the rows."""
        return replace(self, tables=())


def apart_table(rows: Sequence[Bad]) -> pa.Table:
    """Rows apart as they are read."""
    return pa.table(
        [[_text(getattr(bad, name)) for bad in rows] for name in SCHEMA.names], schema=SCHEMA
    )


def apart_reason(rows: pa.Table) -> str:
    """Where the first of some rows apart was, and why it is apart."""
    bad = rows.slice(0, 1).to_pylist()[0]
    column = f", column `{bad['column']}`" if bad["column"] else ""
    return f"{bad['place']}{column}: {bad['reason']}"


def _text(text: str | None) -> str | None:
    """A text that UTF-8 has; half of a character is written as in JSON."""
    if text is None:
        return None
    return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…").encode("utf-8", "backslashreplace").decode()


def sifted(
    given: Given, read: Callable[[Given, bool], pa.Table], on_error: OnError, *, begun: bool = True
) -> tuple[list[pa.Table], list[BadRow]]:
    """Tables of the rows that can be read, and what is wrong with the others; with ``stop`` up to the first of them.

    ``read`` is given some of the rows, and whether a good one has come before them; it raises BadRow. Rows are read
    all at once. Where one is bad, half as many are read; after good ones, twice as many. So few bad ones among many
    cost little, and where all are bad each is read about once.
    """
    tables: list[pa.Table] = []
    bad: list[BadRow] = []
    start, count = 0, len(given)
    while True:
        some = given.slice(start, count) if isinstance(given, pa.Table) else given[start : start + count]
        try:
            tables.append(read(some, begun))
        except BadRow as problem:
            if count > 1:
                count //= 2
                continue
            bad.append(problem.moved(start))
            if on_error == "stop":
                break
            start += 1
        else:
            begun = begun or len(tables[-1]) > 0
            start, count = start + count, 2 * count
        count = min(count, len(given) - start)
        if not count:
            break
    return tables, bad


def sifted_file(
    given: Given,
    read: Callable[[Given], pa.Table],
    sieve: Sieve,
    place: Callable[[int], str],
    text: Callable[[int], str] | None = None,
) -> Rows:
    """Rows of a file; ``place`` and ``text`` of a row: where in the file it is and what is there."""
    on_error: OnError = "stop" if sieve.on_error == "refuse" else sieve.on_error

    def checked(some: Given, begun: bool) -> pa.Table:
        before = [(target.types, target.begun) for target in sieve.targets]
        try:
            table = read(some)
            if sieve.check is not None:
                sieve.check(table)
        except BadRow:
            for target, (types, has_begun) in zip(sieve.targets, before, strict=True):
                target.types, target.begun = types, has_begun
            raise
        return table

    tables, bad = sifted(given, checked, on_error)
    found = [b.located(sieve.where, place(b.row)) for b in bad]
    if found and sieve.on_error == "refuse":
        raise found[0]
    table = pa.concat_tables(tables, promote_options="permissive") if tables else sieve.nothing
    if found and on_error == "stop":
        found[0].hint = f"{found[0].hint}; {_BEFORE}" if found[0].hint else _BEFORE
        return Rows(table, (), found[0])
    told = text or (lambda row: row_text(given, row))
    return Rows(table, tuple(b.bad(told(b.row)) for b in found))


_BEFORE = "the rows before it are kept"


@dataclass(frozen=True)
class Sieve:
    """How the rows of a file are looked at. ``check`` raises BadRow for more than columns and types are about;
    ``nothing``: a table without rows."""

    where: str
    targets: Sequence[Target]
    nothing: pa.Table
    on_error: OnError = "refuse"
    unknown: Unknown = "ignore"
    check: Callable[[pa.Table], None] | None = None


def row_text(given: pa.Table | Sequence[Any], row: int) -> str:
    """A row as it was given, in JSON where it is a row at all."""
    if isinstance(given, pa.Table):
        values = [jsonable(python_value(column[row]), said) for column in given.columns]
        return json.dumps(dict(zip(given.column_names, values, strict=True)), ensure_ascii=False)
    try:
        found = given[row]
        plain = {str(k): v for k, v in found.items()} if isinstance(found, Mapping) else found
        return json.dumps(jsonable(plain, said), ensure_ascii=False)
    except Exception:  # the row is the user's object, and may do anything
        return said(given[row])
